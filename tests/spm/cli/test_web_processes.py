"""Several web processes at one address (``SPM_WEB_PROCESSES``): whichever of them answers, /metrics speaks for all."""

import fcntl
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from spm.cli.options import Options
from spm.cli.preflight import WEB_METRICS, clear_metrics
from spm.cli.supervisor import programs
from tests.servers.migrated import place_migrated
from tests.servers.processes import Process, answers, free_ports, wait_ready, wait_until

ROOT = Path(__file__).resolve().parents[3]
PROCESSES, PINGS = 2, 40
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SET_UP = """
import django; django.setup()
from django.core.management import call_command
from spm.accounts import internal_app, tokens
call_command("migrate", verbosity=0)
print(tokens.issue(internal_app.create(), name="a scraper", scopes=["read"])[1])
"""


@dataclass(frozen=True, slots=True)
class Web:
    """The web server of a product, and a scraper's token."""

    process: Process
    url: str
    token: str
    data: Path

    def get(self, path: str) -> str:
        """Over a connection of its own, so that any process may answer."""
        request = urllib.request.Request(f"{self.url}{path}", headers={"Authorization": f"Bearer {self.token}"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(answer.read().decode())

    def pings(self) -> float:
        """Answered pings, as /metrics counts them."""
        families = text_string_to_metric_families(self.get("/metrics"))
        servers = [one for family in families for one in family.samples if one.name == "spm_http_requests_total"]
        return sum(one.value for one in servers if one.labels["view"] == "ingest:ping" and one.labels["code"] == "204")

    def servers(self) -> list[psutil.Process]:
        """gunicorn's own children."""
        return psutil.Process(self.process.pid()).children()

    def counted(self) -> set[int]:
        """The processes that have counted requests."""
        return {int(file.stem.rpartition("_")[2]) for file in (self.data / WEB_METRICS).glob("counter_*.db")}


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    data = tmp_path_factory.mktemp("several")
    [port] = free_ports(1)
    options = Options(ROOT, data, "127.0.0.1", port, json=True, agent=False, web_processes=PROCESSES)
    program = programs(options, None)[0]
    secrets = {"SPM_SECRET_KEY": "only for tests", "SPM_PEPPER": "only for tests", "SPM_OWN_METRICS_S": "1"}
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("SPM_", "PYTEST_"))}
    environ = {**environ, **program.environ, **secrets, "SPM_DOTENV": os.devnull, "PYTHONPATH": str(ROOT)}
    clear_metrics(data)
    (data / "static").mkdir()
    single = {name: value for name, value in environ.items() if name != "PROMETHEUS_MULTIPROC_DIR"}
    place_migrated(data)
    token = subprocess.run(
        [sys.executable, "-c", SET_UP], env=single, cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()
    process = Process("web", data)
    process.start(program.command, environ)
    wait_ready(lambda: answers(port), [process], 120)
    yield Web(process, f"http://127.0.0.1:{port}", token, data)
    process.stop(30)


def ping_until_all_have_answered(web: Web) -> int:
    """How many pings it took until each process had answered some."""
    for count in range(1, 2_000):
        web.get("/ping")
        if {server.pid for server in web.servers()} <= web.counted() and count >= PINGS:
            return count
    raise AssertionError(f"{web.counted()} alone answer, of {web.servers()}")


def test_metrics_of_several_web_processes_are_their_sum_and_never_fall_when_one_is_killed(web: Web) -> None:
    before = web.pings()
    sent = ping_until_all_have_answered(web)
    assert [web.pings() - before for _ in range(6)] == [sent] * 6, "every process says the same"
    victim = web.servers()[0].pid
    os.kill(victim, signal.SIGKILL)
    fresh = wait_until(
        lambda: victim not in (servers := [s.pid for s in web.servers()]) and len(servers) == PROCESSES, 60
    )
    assert fresh, "nobody took its place"
    again = ping_until_all_have_answered(web)
    assert web.pings() - before == sent + again


def test_each_web_process_sends_its_own_metrics_under_a_name_of_its_own(web: Web) -> None:
    """A lock on its file holds a name as long as its process lives; after a kill the next process takes the name."""
    ping_until_all_have_answered(web)
    names = [web.data / "metrics" / f"web-{number}" for number in range(PROCESSES + 1)]
    assert wait_until(lambda: [is_locked(name) for name in names] == [True] * PROCESSES + [False], 30)


def is_locked(name: Path) -> bool:
    if not name.exists():
        return False
    with name.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
