"""On a real web server with two processes: streams of both hear of new data, and go on after a restart without loss."""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.servers.migrated import environment_of, place_migrated
from tests.servers.processes import Process, answers, free_ports, wait_ready, wait_until

ROOT = Path(__file__).resolve().parents[3]
GIVE_UP_S = 600  # on a busy machine
KIND = ("--worker-class", "spm.web.loop_worker.LoopWorker", "--workers", "2")
SERVER = ("gunicorn", "spm.web.asgi:open_dispatcher", *KIND)
PREPARE = """
from django.core.management import call_command
from spm.accounts import tokens
from spm.accounts.models import App, Organisation
call_command("migrate", verbosity=0)
for name in "ab":
    app = App.objects.create(organisation=Organisation.objects.create(name=name), name=name)
    print("TOKEN", tokens.issue(app, name="t", scopes=["read", "ingest", "events"])[1])
"""


@dataclass(frozen=True, slots=True)
class Site:
    """A running web server, with a token of each of two apps."""

    port: int
    tokens: tuple[str, str]
    process: Process

    def call(self, method: str, path: str, body: object = None, *, token: str) -> tuple[int, Any]:
        """The answer to a program."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    def post(self, token: str, text: str) -> int:
        """Write an event; return its position."""
        code, answer = self.call("POST", "/api/v1/events", {"kind": "deploy", "text": text}, token=token)
        assert code == 201, answer
        return int(answer["stream_position"])

    def push(self, token: str) -> None:
        """Send one sample."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("POST", "/write", b"cpu value=1", {"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        assert answer.status == 204, answer.read()


@dataclass
class Stream:
    """An open stream, read by a thread.

    One that ``comes_back`` connects again after its end, as browsers do: it may have met a process that was to end.
    """

    site: Site
    token: str
    last: str = ""
    query: str = ""
    comes_back: bool = False
    lines: list[str] = field(default_factory=list)
    status: int = 0
    ended: bool = False
    is_whole: bool = False

    def __post_init__(self) -> None:
        threading.Thread(target=self._read, daemon=True).start()
        assert wait_until(lambda: bool(self.lines), 60), f"no stream: {self.status}"

    def _read(self) -> None:
        self._read_one()
        while self.comes_back and self.is_whole:
            self.last = self.last_id or self.last
            self.is_whole = False
            self._read_one()
        self.ended = True

    def _read_one(self) -> None:
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "text/event-stream"}
        headers |= {"Last-Event-ID": self.last} if self.last else {}
        connection = http.client.HTTPConnection("127.0.0.1", self.site.port, timeout=GIVE_UP_S)
        try:
            connection.request("GET", f"/api/v1/events{self.query}", headers=headers)
            response = connection.getresponse()
            self.status = response.status
            while line := response.readline():
                self.lines.append(line.decode().rstrip("\n"))
            self.is_whole = True
        except (http.client.HTTPException, OSError):
            pass

    @property
    def events(self) -> list[str]:
        """The names of the events so far."""
        return [line.removeprefix("event: ") for line in self.lines if line.startswith("event: ")]

    @property
    def last_id(self) -> str:
        """The id to go on from; empty before the first one."""
        return ["", *(line.removeprefix("id: ") for line in self.lines if line.startswith("id: "))][-1]


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
    first, second = [line.split()[1] for line in prepared.stdout.splitlines() if line.startswith("TOKEN ")]
    server = Process("web", folder)
    server.start([sys.executable, "-m", *SERVER, "--bind", f"127.0.0.1:{port}"], environment)
    wait_ready(lambda: answers(port), [server], GIVE_UP_S)
    yield Site(port, (first, second), server)
    server.stop()


def _settled(streams: list[Stream]) -> list[str]:
    """Return the last id of each stream, once nothing new has come for a while: a busy machine tells late."""
    for _ in range(12):
        ids = [stream.last_id for stream in streams]
        time.sleep(2.5)
        if ids == [stream.last_id for stream in streams]:
            return ids
    raise AssertionError("the streams do not settle")


@pytest.mark.slow
@pytest.mark.serial
@pytest.mark.timeout(1_800)
def test_streams_of_all_processes_hear_of_data_of_their_app_and_go_on_after_a_restart(site: Site) -> None:
    mine, others = site.tokens
    streams = [Stream(site, mine) for _ in range(6)]
    foreign = Stream(site, others)
    site.push(mine)
    assert wait_until(lambda: all("data" in stream.events for stream in streams), 60)
    assert wait_until(lambda: all("source" in stream.events for stream in streams), 60)
    rings = {stream.last_id.split("-")[0] for stream in streams}
    assert len(rings) <= 2
    pid = site.process.pid()
    assert pid is not None
    before = _settled(streams)
    os.kill(pid, signal.SIGHUP)
    assert wait_until(lambda: all(stream.ended for stream in [*streams, foreign]), 60)
    assert all(stream.is_whole for stream in [*streams, foreign]), "a stream broke off"
    assert foreign.events == []
    again = [Stream(site, mine, last, comes_back=True) for last in before]
    time.sleep(2.5)
    assert [stream.events for stream in again] == [[]] * 6  # nothing is lost, nothing comes twice
    site.push(mine)
    assert wait_until(lambda: all("data" in stream.events for stream in again), 60)
    assert all(stream.events == ["data"] for stream in again)
    assert not any(stream.ended for stream in again)


@pytest.mark.seed("A16", compares="what a reader gets that was away, and one that listens, with what was posted")
def test_a16_a_reader_goes_on_from_a_position_and_misses_nothing(site: Site) -> None:
    token, other = site.tokens
    first = site.post(token, "api 1")
    site.post(other, "of others")
    listening = Stream(site, token, query=f"?stream_position={first}")
    site.post(token, "api 2")
    assert wait_until(lambda: any('"text":"api 2"' in line for line in listening.lines), GIVE_UP_S)
    assert listening.last_id == str(first + 1)
    code, page = site.call("GET", f"/api/v1/events?stream_position={first - 1}", token=token)
    assert (code, [event["text"] for event in page["events"]]) == (200, ["api 1", "api 2"])
    assert page["stream_position"] == first + 1
    code, refusal = site.call("GET", "/api/v1/events?stream_position=99", token=token)
    assert (code, "ahead of the newest event" in refusal["error"]) == (400, True)
    listening.is_whole, listening.comes_back = False, False
