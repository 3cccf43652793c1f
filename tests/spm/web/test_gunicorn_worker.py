"""gunicorn's worker that stays with a connection, on a real server that tells how often a thread was given one."""

import http.client
import io
import logging
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import pytest
from gunicorn.config import Config
from gunicorn.http import RequestParser

from spm.limits import WEB_KEEP_ALIVE_WAIT_MS
from spm.web.gunicorn_worker import KeepAliveWorker
from tests.servers.processes import Process, answers, free_ports, wait_ready, wait_until

ROOT = Path(__file__).resolve().parents[3]
THREADS = 4
APPLICATION = """
import time
from spm.web.gunicorn_worker import KeepAliveWorker

class Counted(KeepAliveWorker):
    given = waited = 0

    def enqueue_req(self, conn):
        Counted.given += 1
        super().enqueue_req(conn)

    def _next_request_comes(self, conn):
        Counted.waited += 1
        return super()._next_request_comes(conn)

def application(environ, start_response):
    time.sleep(float(environ["QUERY_STRING"] or 0))
    body = f"{Counted.given} {Counted.waited}".encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""

KINDS = """
import json

def said(environ):
    own = "REQUEST_METHOD PATH_INFO QUERY_STRING RAW_URI SERVER_PROTOCOL CONTENT_TYPE CONTENT_LENGTH"
    found = {name: environ.get(name) for name in own.split()}
    return json.dumps({**found, **{k: v for k, v in sorted(environ.items()) if k.startswith("HTTP_")}}).encode()

def application(environ, start_response):
    kind, body = environ["PATH_INFO"].strip("/"), said(environ)
    if kind == "read":
        body += environ["wsgi.input"].read()
    if kind == "early":
        raise RuntimeError("before anything was said")
    status = {"none": "204 No Content", "same": "304 Not Modified"}.get(kind, "200 OK")
    headers = [("Content-Type", "text/plain"), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"), ("Connection", "close")]
    bodies = {"empty": [], "pieces": [b"a", b"", b"b" * 9], "large": [b"x" * 300_000], "more": [body, b"more"]}
    pieces = bodies.get(kind, [] if kind in ("none", "same") else [body])
    if kind not in ("empty", "pieces", "none", "same", "more", "nothing"):
        headers.append(("Content-Length", str(sum(map(len, pieces)))))
    if kind == "more":  # than it says
        headers.append(("Content-Length", str(len(body))))
    environ["HTTP_LEFT_BEHIND"] = "by the request before"
    write = start_response(status, headers)
    if kind == "file":
        return environ["wsgi.file_wrapper"](open(__file__, "rb"))
    if kind == "write":
        write(pieces.pop())
    if kind in ("half", "nothing"):
        return halves(body if kind == "half" else b"")
    return pieces

def halves(body):
    yield body[:9]
    raise RuntimeError("in the middle")
"""
HOST = "Host: here\r\n"
REQUESTS = [
    *(
        f"GET /{kind}?a=%2F&b HTTP/1.1\r\n{HOST}\r\n"
        for kind in (
            "plain",
            "plain",
            "empty",
            "pieces",
            "large",
            "none",
            "same",
            "more",
            "write",
            "%C3%A9",
            "file",
            "plain",
        )
    ),
    f"HEAD /plain HTTP/1.1\r\n{HOST}\r\n",
    f"HEAD /pieces HTTP/1.1\r\n{HOST}\r\n",
    f"GET //x HTTP/1.1\r\n{HOST}\r\n",
    *(f"POST /{kind} HTTP/1.1\r\n{HOST}Content-Length: 4\r\n\r\nGET " for kind in ("read", "read", "plain", "plain")),
    f"POST /read HTTP/1.1\r\n{HOST}Content-Length: 2\r\nContent-Type: text/x\r\n\r\nab",
    *[f"POST /read HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-T: 1\r\n\r\n"] * 2,
    *[f"POST /read HTTP/1.1\r\n{HOST}Expect: 100-continue\r\nContent-Length: 1\r\n\r\nz"] * 2,
    *[f"GET /plain HTTP/1.1\r\n{HOST}X-Forwarded-Proto: https\r\nCookie: c=1\r\nCookie: d=2\r\n\r\n"] * 2,
    *[f"GET /plain HTTP/1.1\r\n{HOST}\r\n"] * 2,
    "GET /plain HTTP/1.1\r\n\r\n",
    f"GET /plain HTTP/1.1\r\n{HOST}\r\n",
    f"GET /plain HTTP/1.1\r\n{HOST}\r\n",
    f"GET /plain HTTP/1.0\r\n{HOST}Connection: keep-alive\r\n\r\n",
    f"GET /plain HTTP/1.1\r\n{HOST}Connection: keep-alive\r\n\r\n",
]
LAST = [
    "GET /half HTTP/1.1\r\n",
    "GET /nothing HTTP/1.1\r\n",
    "GET /early HTTP/1.1\r\n",
    "GET /plain HTTP/1.0\r\n",
    "GET /plain HTTP/1.1\r\nConnection: close\r\n",
]


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
            return thread_and_request(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) >= (0, 0)
        except OSError:
            return False

    wait_ready(ready, [process], 60)
    yield process, port
    process.stop()


def thread_and_request(link: http.client.HTTPConnection) -> tuple[int, int]:
    """How often the server had given a connection to a thread, and a thread had waited for one, when it answered."""
    link.request("GET", "/?0.001")
    answer = link.getresponse()
    assert answer.status == 200
    given, waited = answer.read().split()
    return int(given), int(waited)


def test_requests_that_come_one_upon_another_stay_with_their_thread(server: tuple[Process, int]) -> None:
    link = http.client.HTTPConnection("127.0.0.1", server[1], timeout=60)
    given = [thread_and_request(link)[0] for _ in range(400)]
    assert given[-1] - given[0] < 200  # gunicorn's own: 399; how often this client pauses depends on the machine


def test_no_thread_waits_for_a_connection_that_asks_now_and_then(server: tuple[Process, int]) -> None:
    link, answers = http.client.HTTPConnection("127.0.0.1", server[1], timeout=60), []
    for _ in range(20):
        answers.append(thread_and_request(link))
        time.sleep(10 * WEB_KEEP_ALIVE_WAIT_MS / 1000)
    assert [given - answers[0][0] for given, _ in answers] == list(range(20))
    assert {waited for _, waited in answers} == {0}


def test_connections_that_never_pause_leave_threads_for_others(server: tuple[Process, int]) -> None:
    ended = threading.Event()

    def ask() -> None:
        link = http.client.HTTPConnection("127.0.0.1", server[1], timeout=60)
        while not ended.is_set():
            thread_and_request(link)

    busy = [threading.Thread(target=ask) for _ in range(3 * THREADS)]
    for client in busy:
        client.start()
    try:
        slowest = 0.0
        for _ in range(50):
            before = time.monotonic()
            thread_and_request(http.client.HTTPConnection("127.0.0.1", server[1], timeout=60))
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
    worker = object.__new__(KeepAliveWorker)
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

    monkeypatch.setattr("spm.web.gunicorn_worker.select", SimpleNamespace(poll=Poll, POLLIN=1))
    monkeypatch.setattr("spm.web.gunicorn_worker.WEB_KEEP_ALIVE_SPIN_MS", 50)
    worker = object.__new__(KeepAliveWorker)
    worker.nr_conns, worker.keepalived_conns, worker.pending_conns = connections, [], []
    before = time.monotonic()
    assert not worker._next_request_comes(SimpleNamespace(sock=None))
    assert waits[-1] == WEB_KEEP_ALIVE_WAIT_MS
    assert set(waits[:-1]) == ({0} if spins else set())
    assert (time.monotonic() - before >= 0.05) is spins


def test_pipelined_requests_are_answered(server: tuple[Process, int]) -> None:
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
                thread_and_request(link)
        except (OSError, http.client.HTTPException):
            ended.set()

    client = threading.Thread(target=ask)
    client.start()
    before = time.monotonic()
    process.stop(grace_s=30)
    ended.set()
    client.join()
    assert time.monotonic() - before < 15


def test_a_connection_whose_answer_breaks_off_is_closed_where_its_end_is_counted() -> None:
    """Closed twice it would be counted twice, and threads that are taken would look free."""

    def broken(_: object, start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", [("Content-Length", "9")])
        yield b"half"
        raise RuntimeError

    ours, theirs = socket.socketpair()
    with ours, theirs:
        worker = object.__new__(KeepAliveWorker)
        worker.cfg, worker.log, worker.wsgi = Config(), logging.getLogger("gunicorn.error"), broken
        worker.log.access_log_enabled = False
        worker.nr, worker.max_requests, worker.max_keepalived, worker.keepalived_conns = 0, 9, 9, []
        worker.alive = True
        theirs.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        conn = SimpleNamespace(sock=ours, client=("127.0.0.1", 1), server=("127.0.0.1", 2))
        conn.parser = RequestParser(worker.cfg, ours, conn.client)
        with pytest.raises(StopIteration):
            worker.handle_request(next(conn.parser), conn)
        assert ours.fileno() >= 0
        assert theirs.recv(4096).endswith(b"half")


STALLING = """
import time
import spm.limits
spm.limits.WEB_STALL_S = 1
from spm.web.gunicorn_worker import KeepAliveWorker

ended = []

def application(environ, start_response):
    if environ["PATH_INFO"] == "/ended":
        start_response("200 OK", [("Content-Length", "1")])
        return [str(len(ended)).encode()]
    start_response("200 OK", [])
    return Pieces()

class Pieces:
    def __iter__(self):
        return (b"x" * 1_000_000 for _ in range(50))

    def close(self):
        ended.append(1)
"""


def test_a_client_that_takes_no_byte_of_its_answer_is_left_and_a_slow_one_is_not(tmp_path: Path) -> None:
    (tmp_path / "stalling.py").write_text(STALLING)
    [port] = free_ports(1)
    words = ["--worker-class", "stalling.KeepAliveWorker", "--threads", "4", "--no-control-socket"]
    process = Process("web", tmp_path)
    process.start(
        [sys.executable, "-m", "gunicorn", "stalling:application", "--bind", f"127.0.0.1:{port}", *words],
        {"PYTHONPATH": f"{tmp_path}:{ROOT}"},
    )
    wait_ready(lambda: answers(port), [process], 60)
    links = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(2)]
    try:
        for link in links:
            link.sendall(b"GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
        size, before = 0, time.monotonic()
        while piece := links[1].recv(1 << 20):
            size += len(piece)
            time.sleep(max(0, before + 4 * size / 50_000_000 - time.monotonic()))
        assert size > 50_000_000
        assert wait_until(lambda: ended_of(port) == b"2", 60)
    finally:
        process.stop()
        for link in links:
            link.close()


def ended_of(port: int) -> bytes:
    """How many long answers have ended."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    link.request("GET", "/ended")
    return link.getresponse().read()


def test_every_kind_of_answer_is_byte_by_byte_that_of_gunicorns_own_worker(tmp_path: Path) -> None:
    """On one connection without a pause, so that requests are met that are like the one before, and not quite."""
    (tmp_path / "kinds.py").write_text(KINDS)
    ports, processes = free_ports(2), []
    for port, kind in zip(ports, ("gthread", "spm.web.gunicorn_worker.KeepAliveWorker"), strict=True):
        (tmp_path / kind).mkdir()
        processes.append(Process("web", tmp_path / kind))
        processes[-1].start(
            [
                sys.executable,
                "-m",
                "gunicorn",
                "kinds:application",
                "--bind",
                f"127.0.0.1:{port}",
                "--worker-class",
                kind,
                "--threads",
                str(THREADS),
                "--no-control-socket",
                "--keep-alive",
                "60",
            ],
            {"PYTHONPATH": f"{tmp_path}:{ROOT}"},
        )
    try:
        for last in LAST:
            wanted, received = (conversation(port, processes, [*REQUESTS, f"{last}{HOST}\r\n"]) for port in ports)
            assert received == wanted
            assert received.count(b"HTTP/1.1 ") >= len(REQUESTS)
    finally:
        for process in processes:
            process.stop()


def conversation(port: int, processes: list[Process], requests: list[str]) -> bytes:
    """All that a server says, but for the time of day."""

    def there() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=60).close()
        except OSError:
            return False
        return True

    wait_ready(there, processes, 60)
    with socket.create_connection(("127.0.0.1", port), timeout=20) as link:
        read = link.makefile("rb")
        said = b""
        for request in requests[:-1]:
            link.sendall(request.encode())
            said += answer_of(read, request.startswith("HEAD"))
        link.sendall(requests[-1].encode())
        return re.sub(rb"Date: [^\r]*", b"", said + read.read())


def answer_of(read: BinaryIO, head: bool) -> bytes:
    """One answer, however its end is marked."""
    lines = [read.readline(), *iter(read.readline, b"\r\n")]
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines[1:])}
    said = b"".join(lines) + b"\r\n"
    if lines[0].startswith(b"HTTP/1.1 100"):
        return said + answer_of(read, head)
    if head or lines[0].split()[1] in (b"204", b"304"):
        return said
    if headers.get(b"transfer-encoding") == b"chunked":
        while (size := int(line := read.readline(), 16)) >= 0:
            said += line + read.read(size + 2)
            if not size:
                return said
    return said + read.read(int(headers[b"content-length"]))
