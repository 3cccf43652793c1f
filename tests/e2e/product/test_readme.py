"""Every command of README.md and docs/first-steps.md, run as it is printed, in the order of the pages.

Only the port, the token and the data folder are the test's own. Commands that start or test the product itself are
read: their options exist.
"""

import os
import re
import subprocess
import time
from collections.abc import Iterator

import pytest

from spm.cli.options import parse
from tests.bench.comparison import titles
from tests.servers.product import ROOT, Served, start_product

pytestmark = [pytest.mark.real, pytest.mark.slow]
PAGES = ("README.md", "docs/first-steps.md")
_SEEN_S = 60  # for a sample to be in answers, on a busy machine
_SAYS = (  # the output of each command that is run, in order
    r"^$",
    r'"accepted":1,"rejected":0',
    r'"21\.5".*"20\.5"|"20\.5".*"21\.5"',
    r"(?s)^1 sample in 1 series, 1 hour.*nothing was changed",
    r"retraction 1 is in force",
    r"retraction 1 is undone",
    r"^HTTP/1.1 204 ",
    r'"21\.5"',
    r"^$",
)


def printed(page: str) -> list[str]:
    """Return the commands of a page, without the remarks behind them."""
    text = (ROOT / page).read_text().replace("\\\n", "")
    lines = [line[4:] for line in text.splitlines() if line.startswith("    ")]
    return [re.split(r"(?<=\S) {3,}(?=[a-z])", line)[0].rstrip() for line in lines]


COMMANDS = [command for page in PAGES for command in printed(page)]
TO_RUN = [command for command in COMMANDS if command.startswith(("curl ", "bin/manage "))]
TO_READ = sorted({command for command in COMMANDS if command not in TO_RUN})


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A product that nobody has used."""
    running = start_product(tmp_path_factory.mktemp("readme"))
    yield running
    running.stop()


def _output(command: str, served: Served) -> str:
    environ = {**os.environ, "TOKEN": served.token, "SPM_DATA": str(served.data)}
    own = command.replace("localhost:8000", f"localhost:{served.port}")
    done = subprocess.run(["sh", "-c", own], cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_command_does_what_its_page_says(served: Served) -> None:
    for command, says in zip(TO_RUN, _SAYS, strict=True):
        until = time.monotonic() + _SEEN_S
        while not re.search(says, output := _output(command, served)):
            assert "/query?" in command and time.monotonic() < until, (command, output)  # noqa: PT018
            time.sleep(0.2)


@pytest.mark.parametrize("command", TO_READ)
def test_every_other_command_has_the_options_that_are_printed(command: str) -> None:
    program, *arguments = command.split()
    if program == "bin/start":
        parse(arguments, {}, ROOT)
    elif program == "bin/test":
        assert f"\n  {arguments[0]})\n" in (ROOT / "bin/test").read_text()
    else:
        assert command in (".venv/bin/python -m tests.bench compare", "export TOKEN=spm_…")
        assert "\ncompare " in (ROOT / "tests/bench/__main__.py").read_text()


def test_the_table_beside_other_stores_has_every_row_that_its_command_makes() -> None:
    rows = [line.split(" | ")[0].removeprefix("| ") for line in (ROOT / "README.md").read_text().splitlines()]
    first = rows.index(next(iter(titles())))
    assert rows[first : first + len(titles())] == list(titles())
