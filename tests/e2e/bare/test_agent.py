"""The agent by the one line of the page "Add data", on bare systems whose Python pip may not touch."""

import html
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.clients.support.known import read
from tests.e2e.bare.root_file_system import DEBIAN, UBUNTU, Inside, System, bare, copied, install
from tests.e2e.bare.terminal import Terminal
from tests.servers.processes import wait_until
from tests.servers.product import Served, start_product
from tests.support.people import Person

pytestmark = [pytest.mark.proof, pytest.mark.serial]
_BY_APT = "installing this system's package of it, by apt-get"
_BESIDE = "installing it into {home}/agent-psutil-3."
_INSTALLED_S, _SEEN_S, _END_S = 300, 240, 60


@dataclass(frozen=True, slots=True)
class Host:
    """What a host has, who starts the agent there, and what the agent says about psutil."""

    system: System
    packages: tuple[str, ...]
    user: str
    says: str

    @property
    def home(self) -> str:
        return "/root" if self.user == "root" else f"/home/{self.user}"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A running product."""
    running = start_product(tmp_path_factory.mktemp("product"))
    yield running
    running.stop()


@pytest.fixture(scope="module")
def one_line(served: Served) -> str:
    """The text of the page, with a token of its own."""
    person = Person(f"http://127.0.0.1:{served.port}", served.login, served.password)
    page = person.submit(f"/apps/{served.app}/add-data", name="To be copied", use="ingest")
    [text] = re.findall(r'<code id="agent">(.*?)</code>', page, re.DOTALL)
    return html.unescape(text)


@pytest.fixture
def root(host: Host, tmp_path: Path) -> Iterator[Path]:
    """A system with Python, curl and what the case adds."""
    folder = copied(bare(host.system), tmp_path / host.system.suite)
    install(folder, ("python3", "curl", "ca-certificates", *host.packages))
    if host.user != "root":
        Inside(folder).must("useradd", "--create-home", "--shell", "/bin/sh", host.user)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    "host",
    [
        pytest.param(Host(DEBIAN, (), "root", _BY_APT), id="Debian 12, root"),
        pytest.param(Host(DEBIAN, ("python3-pip",), "root", _BESIDE), id="Debian 12, root, pip"),
        pytest.param(Host(DEBIAN, ("python3-venv",), "stranger", _BESIDE), id="Debian 12, user, venv"),
        pytest.param(Host(UBUNTU, (), "root", _BY_APT), id="Ubuntu 24.04, root"),
        pytest.param(Host(UBUNTU, ("python3-venv",), "stranger", _BESIDE), id="Ubuntu 24.04, user, venv"),
    ],
)
def test_bare_host_gets_the_agent_by_one_line(host: Host, root: Path, served: Served, one_line: str) -> None:
    name = "-".join(("bare", host.system.suite, host.user, *host.packages))
    environ = {"HOME": host.home, "SPM_AGENT_HOST": name, "SPM_AGENT_PERIOD_S": "1"}
    inside = Inside(root, user=host.user, folder=host.home, environ=environ)
    with Terminal(inside.command("sh", "-c", one_line)) as terminal:
        terminal.wait_for(f"psutil is missing: {host.says.format(home=host.home)}", _INSTALLED_S)
        terminal.wait_for(f"watches {name} every 1 s", _INSTALLED_S)
        assert wait_until(lambda: len(read(served, f'load_load1{{host="{name}"}}[1d]')) == 1, _SEEN_S), terminal.output
        print(terminal.output)
        terminal.press_ctrl_c()
        terminal.wait(_END_S)  # the shell says that it was interrupted
    assert "externally-managed" not in terminal.output
    assert "still runs" not in terminal.output
    with Terminal(inside.command("python3", "agent.pyz", "once")) as again:
        again.wait_for("mem,host=", _SEEN_S)
        again.wait(_END_S)
    assert "psutil is missing" not in again.output


def test_bare_host_says_what_is_missing_to_a_user_without_pip(tmp_path: Path, served: Served, one_line: str) -> None:
    folder = copied(bare(DEBIAN), tmp_path / "debian")
    install(folder, ("python3", "curl", "ca-certificates"))
    inside = Inside(folder, user="nobody", folder="/tmp", environ={"HOME": "/tmp"})
    refused = inside.run("sh", "-c", one_line)
    shutil.rmtree(folder)
    assert refused.returncode == 1
    assert "psutil is missing, and could not be installed: apt install python3-psutil" in refused.stdout
    assert "Traceback" not in refused.stdout
