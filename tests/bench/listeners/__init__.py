"""Idle listeners to events: memory of the server for ten thousand streams, and how soon all hear of new data.

The streams are opened by a second process (``client``). Enter by ``listeners``.
"""

import argparse
import json
import subprocess
import sys
import time

import psutil

from spm.limits import EVENTS_LISTENERS_ORGANISATION_MAX
from tests.bench import report
from tests.servers.product import ROOT, Served, processes

IDLE_S = 25  # above the time after which a silent stream gets a comment
_TOKENS = """
from spm.accounts import tokens
from spm.accounts.models import App, Organisation
for n in range({count}):
    app = App.objects.create(organisation=Organisation.objects.create(name=f"listeners {{n}}"), name="a")
    print("TOKEN", tokens.issue(app, name="t", scopes=["read", "ingest"])[1])
"""


def listeners(served: Served, options: argparse.Namespace) -> None:
    """Open the streams, wait, measure; then push one body to each app."""
    secrets = _tokens(served, -(-options.listeners // EVENTS_LISTENERS_ORGANISATION_MAX))
    command = [sys.executable, "-m", "tests.bench.listeners.client", str(served.port), str(options.listeners), *secrets]
    _open_one(served, secrets[0])
    before_bytes = _memory(served)
    client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert client.stdin is not None
    assert client.stdout is not None
    opened = json.loads(client.stdout.readline())
    time.sleep(2)
    cpu = served.cpu()
    time.sleep(IDLE_S)
    idle = report.spent(cpu, served.cpu(), 1)["all"] / 1e6 / IDLE_S
    grown = _memory(served) - before_bytes
    report.line(
        f"{opened['open']} idle listeners",
        refused=opened["refused"],
        connects_per_s=opened["open"] / opened["seconds"],
        megabytes=grown / 1e6,
        kilobytes_each=grown / 1e3 / max(opened["open"], 1),
        percent_of_a_core=100 * idle,
    )
    cpu, began = served.cpu(), time.time()
    connection = served.connection()
    for secret in secrets:
        connection.request("POST", "/write", b"heard value=1", {"Authorization": f"Bearer {secret}"})
        connection.getresponse().read()
    pings = _pings(served, seconds=4)
    client.stdin.write("report\n")
    client.stdin.flush()
    heard = json.loads(client.stdout.readline())
    after_s = sorted(at - began for at in heard["data_at"])
    spent_s = report.spent(cpu, served.cpu(), 1)["all"] / 1e6
    report.line(
        "new data to all of them",
        listeners=len(after_s),
        cpu_us_each=1e6 * spent_s / max(len(after_s), 1),
        **report.quantiles(after_s or [0.0]),
        last_ms=1e3 * (after_s or [0.0])[-1],
        ping_p99_ms=1e3 * pings[int(len(pings) * 0.99)],
    )
    client.stdin.close()
    client.wait(30)


def _tokens(served: Served, count: int) -> list[str]:
    command = [str(ROOT / "bin/manage"), "shell", "-v0", "-c", _TOKENS.format(count=count)]
    environment = {**_environment(), "SPM_DATA": str(served.data)}
    done = subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
    return [line.split()[1] for line in done.stdout.splitlines() if line.startswith("TOKEN ")]


def _environment() -> dict[str, str]:
    return dict(psutil.Process().environ())


def _open_one(served: Served, secret: str) -> None:
    """Load what the first listener loads."""
    connection = served.connection()
    connection.request("GET", "/api/v1/events?timeout=1", headers={"Authorization": f"Bearer {secret}"})
    assert connection.getresponse().read()
    _pings(served, seconds=2)


def _memory(served: Served) -> int:
    """Bytes of the web processes that no other process shares."""
    web = [process for process, line in processes(served.process.pid) if "gunicorn" in line]
    return sum(process.memory_full_info().uss for process in web)


def _pings(served: Served, seconds: float) -> list[float]:
    connection, took, until = served.connection(), list[float](), time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        connection.request("GET", "/ping")
        connection.getresponse().read()
        took.append(time.perf_counter() - began)
        time.sleep(0.005)
    return sorted(took)
