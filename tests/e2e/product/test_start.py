"""The whole product as ``bin/start`` runs it: what it says, what it weighs, what it survives, how it ends."""

import json
import os
import resource
import signal
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
import pytest

from tests.servers.processes import free_ports, wait_until

ROOT = Path(__file__).resolve().parents[3]
pytestmark = [pytest.mark.slow, pytest.mark.serial, pytest.mark.timeout(600)]
OWN_BYTES_MAX = 360_000_000  # without files, which other programs may share
IDLE_S = 20  # long enough for the agent's first message and the first tick of every task


@dataclass(frozen=True, slots=True)
class Started:
    """A product that is ready."""

    process: subprocess.Popen[str]
    login: dict[str, object]
    data: Path
    worked_s: float  # CPU seconds of all its processes until it was ready
    first_login: dict[str, object] = field(default_factory=dict)  # what it said at the start before this one

    def family(self) -> list[psutil.Process]:
        """The supervisor and all below it."""
        top = psutil.Process(self.process.pid)
        return [top, *top.children(recursive=True)]

    def pids(self) -> dict[str, int]:
        """Its processes; none while their file is being written."""
        text = (self.data / "processes.json").read_text()
        pids: dict[str, int] = json.loads(text) if text.endswith("\n") else {}
        return pids

    def answers(self) -> bool:
        try:
            return self.get("/") == 200
        except OSError:
            return False

    def get(self, path: str) -> int:
        with urllib.request.urlopen(f"{self.login['url']}{path}", timeout=30) as answer:
            return int(answer.status)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60)


def start(data: Path, *arguments: str) -> Started:
    """Start the product on a free port, with the settings of a stranger: none."""
    [port] = free_ports(1)
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("SPM_") and k != "DJANGO_SETTINGS_MODULE"}
    environ = {**inherited, "SPM_DATA": str(data), "SPM_DOTENV": os.devnull}
    before = _children_s()
    subprocess.run([sys.executable, "-m", "spm.cli.setup"], cwd=ROOT, env=environ, check=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "spm.cli.serve", "--json", "--port", str(port), *arguments],
        cwd=ROOT,
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "it ended before it was ready"
    started = Started(process, json.loads(line), data, 0.0)
    times = [member.cpu_times() for member in started.family()]
    worked = sum(t.user + t.system + t.children_user + t.children_system for t in times)
    return replace(started, worked_s=_children_s() - before + worked)


def _own_bytes(process: psutil.Process) -> int:
    """Its memory that is no file's; what it shares with its family is divided among them. None if it has ended."""
    try:
        rows = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return 1024 * sum(int(row.split()[1]) for row in rows if row.startswith("Pss_Anon:"))


def _children_s() -> float:
    """CPU seconds of the processes this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    """One product for the tests that leave it running; set up once before, so that what is timed is a later start."""
    data = tmp_path_factory.mktemp("product") / "data"
    first = start(data, "--no-agent")
    first.stop()
    started = replace(start(data), first_login=first.login)
    yield started
    started.stop()  # unless a test has


def test_product_says_in_one_line_where_it_is_and_how_to_log_in(product: Started) -> None:
    assert list(product.login) == ["url", "login", "password", "app", "token"]
    assert all(product.login.values())


def test_product_keeps_the_first_login_for_its_owner_alone(product: Started) -> None:
    path = product.data / "first-login.json"
    assert json.loads(path.read_text()) == product.login
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_product_is_ready_at_a_later_start_for_what_two_cores_do_in_ten_seconds(product: Started) -> None:
    assert product.worked_s < 2 * 10 * 0.8  # its processes start side by side, though not all of the time
    assert product.get("/") == 200


def test_product_has_at_most_360_megabytes_of_its_own_idle_and_runs_no_java(product: Started) -> None:
    time.sleep(IDLE_S)
    family = product.family()
    assert sum(map(_own_bytes, family)) <= OWN_BYTES_MAX
    assert [process.name() for process in family if "java" in process.name()] == []


@pytest.mark.parametrize("name", ["web", "worker", "agent"])
def test_product_starts_a_killed_process_again(product: Started, name: str) -> None:
    before = product.pids()[name]
    os.kill(before, signal.SIGKILL)
    assert wait_until(lambda: product.pids().get(name, before) != before, 60)
    assert psutil.pid_exists(product.pids()[name])
    assert wait_until(product.answers, 60), "it does not work again"


def test_product_keeps_data_and_login_over_a_restart(product: Started) -> None:
    assert {**product.login, "url": product.first_login["url"]} == product.first_login


def test_product_ends_with_status_0_and_leaves_no_process_behind(product: Started) -> None:
    family = product.family()
    log = product.data / "log" / "web.log"
    before = log.read_text().count("Shutting down: Master")
    assert product.stop() == 0
    assert psutil.wait_procs(family, timeout=10)[1] == []
    assert log.read_text().count("Shutting down: Master") == before + 1  # asked, not killed


def test_product_killed_takes_its_children_with_it(tmp_path: Path) -> None:
    started = start(tmp_path / "data")
    family = started.family()
    started.process.kill()
    started.process.wait()
    assert psutil.wait_procs(family, timeout=30)[1] == []
