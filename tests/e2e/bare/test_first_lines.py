"""README's first lines on bare systems, as root and as a user: from an empty machine to a sample that is read back.

``bin/test --proof bare_start`` prints what the set-up takes, without and with cached packages. The commands and
packages are those that README.md prints; only the port and the token are the test's own.
"""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.e2e.bare.root_file_system import DEBIAN, ROOT, UBUNTU, Inside, System, bare, check_out, copied, install
from tests.e2e.bare.terminal import Terminal
from tests.e2e.product.test_readme import printed
from tests.servers.processes import answers
from tests.servers.product import free_port

pytestmark = [pytest.mark.proof, pytest.mark.serial]
README = (ROOT / "README.md").read_text()
[PACKAGES] = re.findall(r"on Debian and Ubuntu: `([^`]+)`", README)
[START] = [line for line in printed("README.md") if line == "bin/start"]
CURLS = [line for line in printed("README.md") if line.startswith("curl ")]
SET_UP_S, KERNELS_S, SEEN_S, END_S = 900, 2_400, 120, 60  # no claims: a bound for each wait on a busy machine


@dataclass(frozen=True, slots=True)
class Who:
    """Somebody who starts the product, and where their checkout is."""

    name: str
    home: str

    @property
    def checkout(self) -> str:
        return f"{self.home}/spm"


ROOT_USER, STRANGER = Who("root", "/root"), Who("stranger", "/home/stranger")


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[System], Path]]:
    """Makes a bare system with the packages that README names, a user, and a checkout for each, once."""

    @cache
    def make(system: System) -> Path:
        folder = copied(bare(system), tmp_path_factory.mktemp("bare") / system.suite)
        folders.append(folder)
        install(folder, PACKAGES.split())
        Inside(folder).must("useradd", "--create-home", "--shell", "/bin/sh", STRANGER.name)
        for who in (ROOT_USER, STRANGER):
            check_out(folder / who.checkout[1:])
        Inside(folder).must("chown", "-R", f"{STRANGER.name}:", STRANGER.checkout)
        return folder

    folders: list[Path] = []
    yield make
    for folder in folders:
        shutil.rmtree(folder)


def answered(command: str, token: str, port: int) -> str:
    """Runs a command of README's on this machine, which has curl; returns its output."""
    own = command.replace("localhost:8000", f"localhost:{port}")
    environ = {**os.environ, "TOKEN": token}
    return subprocess.run(["sh", "-c", own], env=environ, stdout=subprocess.PIPE, text=True, check=True).stdout


def assert_sent_and_read_back(token: str, port: int) -> None:
    """Runs README's three commands, in their order: line protocol, JSON, query."""
    line, json, query = CURLS
    assert answered(line, token, port) == ""
    assert '"accepted":1,"rejected":0' in answered(json, token, port)
    until = time.monotonic() + SEEN_S
    while not {"21.5", "20.5"} <= set(re.findall(r'"(\d+\.\d)"', output := answered(query, token, port))):
        assert time.monotonic() < until, output
        time.sleep(0.5)


@pytest.mark.parametrize(
    ("system", "who", "cached"),
    [
        pytest.param(DEBIAN, ROOT_USER, False, id="Debian 12, root, nothing cached"),
        pytest.param(DEBIAN, STRANGER, True, id="Debian 12, user, root's caches"),
        pytest.param(UBUNTU, STRANGER, False, id="Ubuntu 24.04, user, nothing cached"),
    ],
)
def test_bare_start_needs_nothing_but_what_readme_names(
    machine: Callable[[System], Path], system: System, who: Who, cached: bool, figure: Callable[[str], None]
) -> None:
    root = machine(system)
    for name in (".cache", ".npm"):
        own, of_root = root / who.home[1:] / name, root / ROOT_USER.home[1:] / name
        assert not own.exists()
        if cached and of_root.exists():  # a registry may forbid that its packages are kept
            copied(of_root, own)
            Inside(root).must("chown", "-R", f"{who.name}:", f"{who.home}/{name}")
    port = free_port()
    inside = Inside(root, user=who.name, folder=who.checkout, environ={"HOME": who.home, "TERM": "xterm"})
    with Terminal(inside.command(*START.split(), "--port", str(port))) as terminal:
        terminal.wait_for(rf"Open: +http://localhost:{port}", SET_UP_S)
        wall, cpu = terminal.spent()
        assert answers(port)
        cases = "with root's caches" if cached else "nothing cached"
        figure(f"{cases}: {wall:.0f} s to the web server, {cpu:.0f} of CPU")
        token = terminal.wait_for(r"Token: +(spm_\S+)", 10)[1]
        terminal.wait_for("kernels are compiled: samples are taken and read", KERNELS_S)
        wall, cpu = terminal.spent()
        figure(f"{wall:.0f} s to the first sample, {cpu:.0f} of CPU")
        assert_sent_and_read_back(token, port)
        terminal.press_ctrl_c()
        assert terminal.wait(END_S) == 0
    assert "still runs" not in terminal.output
    assert not answers(port)
    assert_downloads_were_said_before(terminal.output)
    print(terminal.output)


def assert_downloads_were_said_before(output: str) -> None:
    """Each source of downloads is named with its size before the first line of its work."""
    said = [
        output.index(text)
        for text in (
            "installing the Python packages of: server agent spark (a download of ",
            "taking Node from PyPI (59 MB)",
            "taking one from PyPI for Spark (34 MB)",
        )
    ]
    assert said == sorted(said)
    first = output.find("Downloading")
    assert first == -1 or said[0] < first  # pip tells nothing of what it has cached
