"""The agent as a program: small, alone, on time, and clean at its end."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from ingest.agent.spool import segments
from spm import limits
from tests.ingest.agent.conftest import FakeServer

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.slow
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path, server: FakeServer) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def starter(**extra: str) -> "subprocess.Popen[str]":
        environment = {
            "SPM_AGENT_URL": server.url,
            "SPM_AGENT_TOKEN": "t",
            "SPM_AGENT_SPOOL": str(tmp_path / "spool"),
            "SPM_AGENT_PERIOD_S": "1",
            **extra,
        }
        command = [sys.executable, "-m", "ingest.agent"]
        started.append(
            subprocess.Popen(command, cwd=ROOT, env={**os.environ, **environment}, stderr=subprocess.PIPE, text=True)
        )
        return started[-1]

    yield starter
    for process in started:
        process.kill()
        process.communicate()


def wait_for(condition: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def test_the_agent_imports_neither_django_nor_numpy_nor_pika() -> None:
    names = "('django', 'numpy', 'pika', 'celery', 'requests', 'spm.wire', 'ingest.transport')"
    check = f"import sys, ingest.agent.__main__; print([n for n in {names} if n in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", check], cwd=ROOT, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


@pytest.mark.timed
def test_the_agent_stays_small_while_it_pushes(start: Start, server: FakeServer) -> None:
    process = psutil.Process(start().pid)
    wait_for(lambda: len(server.requests) >= 3)
    assert process.memory_info().rss <= 40_000_000
    before = process.cpu_times()
    sent = len(server.requests)
    wait_for(lambda: len(server.requests) >= sent + 4)
    after = process.cpu_times()
    seconds = after.user + after.system - before.user - before.system
    assert seconds / 4 / 10 <= 0.01  # four looks, as of 40 s at the usual period
    assert "cpu,host=" in server.requests[-1].text
    assert "agent,host=" in server.requests[-1].text


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGINT])
def test_the_agent_ends_cleanly_after_a_signal(start: Start, server: FakeServer, name: signal.Signals) -> None:
    process = start()
    wait_for(lambda: bool(server.requests))
    process.send_signal(name)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in stderr


def test_a_killed_agent_loses_nothing_it_had_spooled(start: Start, server: FakeServer) -> None:
    server.script = [503] * 1_000
    process = start()
    wait_for(lambda: len(server.requests) >= 3)
    process.kill()
    process.wait()
    waited = server.ids[0]
    server.script.clear()
    server.requests.clear()
    start()
    wait_for(lambda: len(server.requests) >= 3)
    assert server.ids[0] == waited
    times = [int(request.text.rsplit(" ", 1)[1]) for request in server.requests]
    assert times == sorted(set(times))


@pytest.mark.timed
def test_collecting_continues_while_the_server_hangs(start: Start, server: FakeServer, tmp_path: Path) -> None:
    def waiting() -> int:
        return sum(segment.waiting(0) for segment in segments.inspect(tmp_path / "spool")[0])

    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and never answers
        process = start(SPM_AGENT_URL=f"http://127.0.0.1:{silent.getsockname()[1]}")
        wait_for(lambda: (tmp_path / "spool").exists() and waiting() >= 4)
        process.kill()
        process.wait()
    start()
    wait_for(lambda: len(server.requests) >= 4)
    times = [int(request.text.rsplit(" ", 1)[1]) for request in server.requests[:4]]
    assert times[-1] - times[0] < 1_000 * limits.AGENT_TIMEOUT_S  # all of them while the first push hung


def test_wrong_settings_are_one_clear_error(start: Start) -> None:
    process = start(SPM_AGENT_TOKEN="")
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 2
    assert stderr.startswith("spm-agent: no token; wanted SPM_AGENT_TOKEN or --token-file.")
    assert stderr.count("\n") == 1
