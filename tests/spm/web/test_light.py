"""Claims about spm/web/wsgi_bridge.py: light requests are answered by the event loop, for a share of its time."""

import socket
import threading
from collections.abc import Iterable
from typing import Any

import pytest

from spm.clock import FakeClock
from spm.web import wsgi_bridge
from spm.web.http_protocol import AnswerAtOnce, Reply
from spm.web.wsgi_bridge import Environ, LoopShare
from tests.servers.processes import wait_until
from tests.spm.web.bridging import Start, bridged, everything
from tests.spm.web.test_wsgi_bridge import parts, plain


def names_thread(environ: Environ, start: Start) -> Iterable[bytes]:
    """Answers with its thread's name and the body."""
    return plain(start, threading.current_thread().name[:5].encode() + b" " + environ["wsgi.input"].read())


def reads_and_leaves(environ: Environ, _: Start) -> None:
    """Reads the body, and leaves the request to a thread."""
    environ["wsgi.input"].read()


def fails(environ: Environ, _: Start) -> None:
    """Has a fault."""
    reads_and_leaves(environ, _)
    raise ZeroDivisionError


POST = b"POST / HTTP/1.1\r\nContent-Length: 3\r\n"


@pytest.mark.parametrize(
    ("at_once", "name"),
    [(names_thread, b"Threa"), (reads_and_leaves, b"pages"), (fails, b"pages")],
    ids=["light", "left", "failed"],
)
def test_a_light_request_is_answered_by_the_loop_and_any_other_by_a_thread(
    at_once: Any, name: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with bridged(names_thread, at_once=at_once) as site:
        for _ in range(3):
            assert parts(site.ask(POST, b"abc"))[::2] == (200, name + b" abc")
        assert wait_until(site.is_idle, 20)
    assert ("ZeroDivisionError" in caplog.text) == (at_once is fails)


def test_a_key_without_room_gets_no_light_answer_either() -> None:
    go_on = threading.Event()

    def hold(environ: Environ, start: Start) -> Iterable[bytes]:
        go_on.wait(20)
        return names_thread(environ, start)

    def leave_first(environ: Environ, start: Start) -> Iterable[bytes] | None:
        return None if environ["PATH_INFO"] == "/first" else names_thread(environ, start)

    with bridged(hold, threads=1, at_once=leave_first) as site:
        first, second = site.connect(), site.connect()
        first.sendall(b"GET /first HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
        assert wait_until(lambda: site.pool.running == 1, 20)
        second.sendall(b"GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
        assert wait_until(lambda: site.pool.waiting == 1, 20)
        go_on.set()
        for client in (first, second):
            assert parts(everything(client))[2] == b"pages "
            client.close()


GET = b"GET /%b HTTP/1.1\r\nHost: here\r\n\r\n"


class Answers:
    """A light application that answers further requests, too, and notes them all."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.fault: Exception | None = None

    def __call__(self, environ: Environ, start: Start) -> Iterable[bytes]:
        self.requests.append(b"parsed " + environ["PATH_INFO"].encode())
        return plain(start, environ["PATH_INFO"].encode())

    def further(self, _: Environ) -> AnswerAtOnce:
        """Return what answers with the target."""
        return self.answer

    def answer(self, target: bytes, _: bytes) -> Reply:
        """Answer with the target."""
        if self.fault is not None:
            raise self.fault
        self.requests.append(b"at once " + target)
        return 200, b"content-length: %d\r\n" % len(target), target


def ask_on(client: socket.socket, path: bytes) -> bytes:
    """The body of an answer on an open connection."""
    client.sendall(GET % path)
    said = b""
    while not said.endswith(b"/" + path):
        said += client.recv(65_536)
    return said.partition(b"\r\n\r\n")[2]


def test_further_light_requests_of_a_connection_are_answered_without_being_parsed() -> None:
    answers = Answers()
    with bridged(names_thread, at_once=answers, further=answers.further) as site, site.connect() as client:
        for path in (b"1", b"2", b"3"):
            assert ask_on(client, path) == b"/" + path
        assert wait_until(site.is_idle, 20)
    assert answers.requests == [b"parsed /1", b"at once /2", b"at once /3"]


@pytest.mark.parametrize("why", ["no room", "a fault", "no share"])
def test_a_further_request_that_cannot_be_answered_at_once_is_parsed(
    why: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers = Answers()
    with bridged(answers, at_once=answers, further=answers.further) as site, site.connect() as client:
        ask_on(client, b"1")
        if why == "no room":
            monkeypatch.setattr(site.pool, "has_room", lambda _: False)
            monkeypatch.setattr(site.pool, "run", _at_once)
        elif why == "no share":
            monkeypatch.setattr(LoopShare, "run", lambda self, act: None)
        else:
            answers.fault = ZeroDivisionError("of a test")
        assert ask_on(client, b"2") == b"/2"
    assert answers.requests == [b"parsed /1", b"parsed /2"]
    assert ("ZeroDivisionError" in caplog.text) == (why == "a fault")


async def _at_once(_key: Any, work: Any, **_: Any) -> Any:
    return work()


def test_light_requests_get_a_share_of_the_loop_and_further_ones_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wsgi_bridge, "LIGHT_LOOP_SHARE", 0.5)
    monkeypatch.setattr(wsgi_bridge, "LIGHT_LOOP_BURST_S", 0.004)
    clock, calls = FakeClock(), list[int]()
    share = LoopShare(clock)

    def runs(ms: int) -> bool:
        def work() -> bool:
            calls.append(ms)
            clock.advance(ms)
            return True

        return share.run(work) is True

    assert [runs(2), runs(16), runs(1)] == [True, True, False]  # the second one begins within the burst
    clock.advance(9)
    assert not runs(1)  # half a millisecond is still owed
    clock.advance(2)
    assert runs(0)
    clock.advance(3_600_000)
    assert [runs(9), runs(1)] == [True, False]  # an idle hour is worth one burst
    assert calls == [2, 16, 0, 9]
