"""gunicorn's worker that stays with a connection, on a real server that tells how often a thread was given one."""

import http.client
import io
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from spm.attentive import Attentive
from spm.limits import WEB_ATTENDS_MS
from tests.stack.processes import Process, free_ports, wait_ready

ROOT = Path(__file__).resolve().parents[2]
THREADS = 4
APPLICATION = """
import time
from spm.attentive import Attentive

class Counted(Attentive):
    given = waited = 0

    def enqueue_req(self, conn):
        Counted.given += 1
        super().enqueue_req(conn)

    def _asks_again(self, conn):
        Counted.waited += 1
        return super()._asks_again(conn)

def application(environ, start_response):
    time.sleep(float(environ["QUERY_STRING"] or 0))
    body = f"{Counted.given} {Counted.waited}".encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[Process, int]]:
    """(process, port) of a server with few threads."""
    (tmp_path / "counted.py").write_text(APPLICATION)
    [port] = free_ports(1)
    words = ["--worker-class", "counted.Counted", "--threads", str(THREADS), "--no-control-socket"]
    process = Process("web", tmp_path)
    process.start(
        [sys.executable, "-m", "gunicorn", "counted:application", "--bind", f"127.0.0.1:{port}", *words],
        {"PYTHONPATH": f"{tmp_path}:{ROOT}"},
    )

    def ready() -> bool:
        try:
            return asked(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) >= (0, 0)
        except OSError:
            return False

    wait_ready(ready, [process], 60)
    yield process, port
    process.stop()


def asked(link: http.client.HTTPConnection) -> tuple[int, int]:
    """How often the server had given a connection to a thread, and a thread had waited for one, when it answered."""
    link.request("GET", "/?0.001")
    answer = link.getresponse()
    assert answer.status == 200
    given, waited = answer.read().split()
    return int(given), int(waited)


def test_requests_that_come_one_upon_another_stay_with_their_thread(server: tuple[Process, int]) -> None:
    link = http.client.HTTPConnection("127.0.0.1", server[1], timeout=60)
    given = [asked(link)[0] for _ in range(400)]
    assert given[-1] - given[0] < 200  # gunicorn's own: 399; how often this client pauses depends on the machine


def test_no_thread_waits_for_a_connection_that_asks_now_and_then(server: tuple[Process, int]) -> None:
    link, answers = http.client.HTTPConnection("127.0.0.1", server[1], timeout=60), []
    for _ in range(20):
        answers.append(asked(link))
        time.sleep(10 * WEB_ATTENDS_MS / 1000)
    assert [given - answers[0][0] for given, _ in answers] == list(range(20))
    assert {waited for _, waited in answers} == {0}


def test_connections_that_never_pause_leave_threads_for_others(server: tuple[Process, int]) -> None:
    ended = threading.Event()

    def ask() -> None:
        link = http.client.HTTPConnection("127.0.0.1", server[1], timeout=60)
        while not ended.is_set():
            asked(link)

    busy = [threading.Thread(target=ask) for _ in range(3 * THREADS)]
    for client in busy:
        client.start()
    try:
        slowest = 0.0
        for _ in range(50):
            before = time.monotonic()
            asked(http.client.HTTPConnection("127.0.0.1", server[1], timeout=60))
            slowest = max(slowest, time.monotonic() - before)
    finally:
        ended.set()
        for client in busy:
            client.join()
    assert slowest < 5


@pytest.mark.parametrize(
    ("connections", "idle", "silent", "unread", "tls", "stays"),
    [
        (1, 0, 0, b"", False, True),
        (2, 0, 0, b"", False, True),
        (3, 0, 0, b"", False, False),  # more than half of four threads have work
        (9, 4, 3, b"", False, True),  # nor do those count that wait in the loop
        (9, 4, 2, b"", False, False),
        (1, 0, 0, b"GET", False, False),  # the socket does not show what was read ahead
        (1, 0, 0, b"", True, False),
    ],
)
def test_a_thread_stays_only_while_half_of_them_are_free(
    connections: int, idle: int, silent: int, unread: bytes, tls: bool, stays: bool
) -> None:
    worker = object.__new__(Attentive)
    worker.nr_conns, worker.keepalived_conns, worker.pending_conns = connections, [None] * idle, [None] * silent
    worker.cfg = SimpleNamespace(threads=THREADS, is_ssl=tls)
    link = SimpleNamespace(parser=SimpleNamespace(unreader=SimpleNamespace(buf=io.BytesIO(unread))))
    assert worker._may_stay(link) is stays


@pytest.mark.parametrize(("connections", "spins"), [(1, True), (2, False)])
def test_a_thread_looks_without_sleeping_only_while_nobody_else_is_served(
    connections: int, spins: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    class Poll:
        def register(self, *_: object) -> None:
            """Nothing ever comes."""

        def poll(self, wait_ms: float) -> list[object]:
            waits.append(wait_ms)
            return []

    monkeypatch.setattr("spm.attentive.select", SimpleNamespace(poll=Poll, POLLIN=1))
    monkeypatch.setattr("spm.attentive.WEB_SPINS_MS", 50)
    worker = object.__new__(Attentive)
    worker.nr_conns, worker.keepalived_conns, worker.pending_conns = connections, [], []
    before = time.monotonic()
    assert not worker._asks_again(SimpleNamespace(sock=None))
    assert waits[-1] == WEB_ATTENDS_MS
    assert set(waits[:-1]) == ({0} if spins else set())
    assert (time.monotonic() - before >= 0.05) is spins


def test_what_was_sent_ahead_of_an_answer_is_answered(server: tuple[Process, int]) -> None:
    one = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server[1]), timeout=60) as link:
        read = link.makefile("rb")
        for together in (1, 1, 2, 3, 1):
            link.sendall(one * together)
            for _ in range(together):
                assert read.readline().startswith(b"HTTP/1.1 200")
                length = max(
                    int(line.split()[1]) for line in iter(read.readline, b"\r\n") if line.startswith(b"Content-L")
                )
                assert len(read.read(length)) == length


def test_a_stop_waits_for_no_connection_that_goes_on_asking(server: tuple[Process, int]) -> None:
    process, port = server
    link, ended = http.client.HTTPConnection("127.0.0.1", port, timeout=60), threading.Event()

    def ask() -> None:
        try:
            while not ended.is_set():
                asked(link)
        except (OSError, http.client.HTTPException):
            ended.set()

    client = threading.Thread(target=ask)
    client.start()
    before = time.monotonic()
    process.stop(grace_s=30)
    ended.set()
    client.join()
    assert time.monotonic() - before < 15
