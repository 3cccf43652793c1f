"""On a real web server with two processes: both share query admission, and a closed connection ends its query."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import pytest

from spm.limits import QUERY_PARALLEL_MAX
from spm.query.request.admission import MachineSlots
from tests.servers.migrated import environment_of, place_migrated
from tests.servers.processes import Process, answers, free_ports, wait_ready, wait_until

ROOT = Path(__file__).resolve().parents[3]
ENDLESS = {"query": "max_over_time(vector(1)[11d:1s])", "start": "1700000000", "end": "1700010999", "step": "1"}
GIVE_UP_S = 600  # on a busy machine
KIND = ("--worker-class", "spm.web.loop_worker.LoopWorker", "--workers", "2")
SERVER = ("gunicorn", "spm.web.asgi:open_dispatcher", *KIND)
PREPARE = """
from django.core.management import call_command
from spm.accounts import tokens
from spm.accounts.models import App, Organisation
call_command("migrate", verbosity=0)
app = App.objects.create(organisation=Organisation.objects.create(name="o"), name="a")
assert app.organisation_id == 1
print(tokens.issue(app, name="t", scopes=["read"])[1])
"""
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Site:
    """A running web server."""

    folder: Path
    port: int
    token: str
    pid: int

    def begin(self) -> socket.socket:
        """Send a query that runs longer than any client waits; its answer is not read."""
        query = urlencode(ENDLESS)
        link = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        head = f"GET /prometheus/api/v1/query_range?{query} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        link.sendall(f"{head}Authorization: Bearer {self.token}\r\n\r\n".encode())
        return link

    def cpu_s(self) -> float:
        """Return the CPU time that the web processes have used so far."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        stats = [Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split() for child in children]
        return sum(int(fields[11]) + int(fields[12]) for fields in stats) / _TICKS


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    [port] = free_ports(1)
    environment = {
        **environment_of(folder),
        "SPM_OWN_METRICS_S": "0",
        "SPM_BASE_URL": f"http://127.0.0.1:{port}",
    }

    place_migrated(folder)
    command = [sys.executable, str(ROOT / "manage.py"), "shell", "-v0", "-c", PREPARE]
    prepared = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=GIVE_UP_S)
    assert prepared.returncode == 0, prepared.stderr
    token = prepared.stdout.split()[-1]
    server = Process("web", folder)
    server.start([sys.executable, "-m", *SERVER, "--bind", f"127.0.0.1:{port}"], environment)
    wait_ready(lambda: answers(port), [server], GIVE_UP_S)
    pid = server.pid()
    assert pid is not None
    yield Site(folder, port, token, pid)
    server.stop()


def free(slots: MachineSlots) -> int:
    """Count the free slots of the first organisation."""
    acquired = []
    while (slot := slots.acquire(1)) is not None:
        acquired.append(slot)
    for slot in acquired:
        slots.release(slot)
    return len(acquired)


@pytest.mark.slow
@pytest.mark.serial
@pytest.mark.timed
@pytest.mark.timeout(1_800)
def test_client_that_leaves_ends_its_query_within_a_second_and_frees_its_slot(site: Site) -> None:
    slots = MachineSlots(site.folder / "turns")
    assert free(slots) == QUERY_PARALLEL_MAX
    links = [site.begin() for _ in range(QUERY_PARALLEL_MAX + 4)]
    assert wait_until(lambda: free(slots) == 0, GIVE_UP_S), "the queries never began"
    time.sleep(1)
    assert free(slots) == 0  # those that wait have begun nothing, in either process
    before = site.cpu_s()
    time.sleep(0.5)
    assert site.cpu_s() > before, "nothing works"
    before = site.cpu_s()
    for link in links:
        link.close()
    assert wait_until(lambda: free(slots) == QUERY_PARALLEL_MAX, 30), "a query goes on for nobody"
    assert site.cpu_s() - before < 1.0 * QUERY_PARALLEL_MAX
    ended = site.cpu_s()
    time.sleep(1)
    assert site.cpu_s() - ended < 0.3  # nothing is left behind
