"""Every kind of answer, byte by byte where it matters, and what happens when either side breaks off."""

import asyncio
import socket
import time
from typing import Any

import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from spm.web.http_protocol import BoundedHttpProtocol, Connections
from tests.servers.processes import wait_until
from tests.spm.web.http_protocol import serving
from tests.spm.web.http_protocol.serving import HOST, Answer, Served, answers, connect, read_all, say
from tests.support.event_loop import on_loop


def ask(served: Served, line: str, *headers: str) -> Answer:
    """The answer to a request without a body."""
    lines = "".join(f"{header}\r\n" for header in ("Host: here", *headers))
    [answer] = say(served, f"{line}\r\n{lines}\r\n".encode(), methods=line.split()[0])
    return answer


@pytest.mark.parametrize(
    ("line", "headers", "status", "wanted", "body"),
    [
        ("GET /large?5 HTTP/1.1", [], 200, {"content-length": "5"}, b"xxxxx"),
        ("GET /large?0 HTTP/1.1", [], 200, {"content-length": "0"}, b""),
        ("GET /large?300000 HTTP/1.1", [], 200, {"content-length": "300000"}, b"x" * 300_000),
        ("HEAD /large?5 HTTP/1.1", [], 200, {"content-length": "5"}, b""),
        ("GET /empty HTTP/1.1", [], 204, {}, b""),
        ("GET /pieces HTTP/1.1", [], 200, {"transfer-encoding": "chunked"}, b"abbbbbbbbb"),
        ("HEAD /pieces HTTP/1.1", [], 200, {}, b""),
        ("GET /pieces HTTP/1.0", [], 200, {"connection": "close"}, b"abbbbbbbbb"),
        ("GET /pieces HTTP/1.0", ["Connection: keep-alive"], 200, {"connection": "close"}, b"abbbbbbbbb"),
        ("GET /large?5 HTTP/1.0", [], 200, {"connection": "close", "content-length": "5"}, b"xxxxx"),
        (
            "GET /large?5 HTTP/1.0",
            ["Connection: Keep-Alive"],
            200,
            {"connection": "keep-alive", "content-length": "5"},
            b"xxxxx",
        ),
        ("GET /large?5 HTTP/1.1", ["Connection: close"], 200, {"connection": "close", "content-length": "5"}, b"xxxxx"),
        (
            "GET /large?5 HTTP/1.1",
            ["Connection: x, close"],
            200,
            {"connection": "close", "content-length": "5"},
            b"xxxxx",
        ),
    ],
)
def test_an_answer_has_the_frame_that_its_request_can_read(
    served: Served, line: str, headers: list[str], status: int, wanted: dict[str, str], body: bytes
) -> None:
    answer = ask(served, line, *headers)
    frame = {name: value for name, value in answer.headers.items() if name not in ("date", "server")}
    assert (answer.status, frame, answer.body) == (status, wanted, body)


def test_a_kept_connection_of_http_1_0_takes_a_second_request(served: Served) -> None:
    one = b"GET /large?5 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
    assert [answer.body for answer in say(served, one + one)] == [b"xxxxx"] * 2


class Transport:
    """Takes what a protocol writes."""

    def __init__(self, peer: Any = ("127.0.0.1", 9), own: Any = ("127.0.0.1", 80)) -> None:
        self.writes: list[bytes] = []
        self.known = {"peername": peer, "sockname": own}
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def get_extra_info(self, name: str) -> Any:
        return self.known.get(name)

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0


@pytest.mark.parametrize(
    ("request_line", "number"), [(b"/large?9", 1), (b"/large?100000", 1), (b"/large?200000", 2), (b"/empty", 1)]
)
def test_head_and_body_leave_in_one_write_unless_the_body_is_large(request_line: bytes, number: int) -> None:
    transport = on_loop(transport_after(Transport(), b"GET " + request_line + b" HTTP/1.1\r\n" + HOST + b"\r\n"))
    written = transport.writes
    assert len(written) == number
    assert answers(b"".join(written))[0].status in (200, 204)


async def transport_after(transport: Any, request: bytes, app: Any = None) -> Any:
    """The transport, after a request on it was answered."""
    config = Config(app or _app, interface="asgi3", lifespan="off", proxy_headers=False, log_config=None)
    config.load()
    protocol = BoundedHttpProtocol(config, ServerState(), {}, connections=Connections())
    protocol.connection_made(transport)
    if not transport.aborted:
        protocol.data_received(request)
    await asyncio.sleep(0)
    return transport


@pytest.mark.parametrize(
    ("peer", "own", "client"),
    [
        (("5.5.5.5", 9), ("127.0.0.1", 80), ("5.5.5.5", 9)),
        (None, "/run/web.socket", ("1.2.3.4", 0)),
        (None, ("127.0.0.1", 80), None),
    ],
    ids=["a stranger", "a proxy at a Unix socket", "one that has gone before it was looked at"],
)
def test_only_a_peer_without_an_address_of_a_unix_socket_is_believed(peer: Any, own: Any, client: Any) -> None:
    clients = []

    async def app(scope: Any, *_: Any) -> None:
        clients.append(scope["client"])

    request = b"GET / HTTP/1.1\r\n" + HOST + b"X-Forwarded-For: 1.2.3.4\r\n\r\n"
    transport = on_loop(transport_after(Transport(peer, own), request, app))
    assert clients == ([client] if client else [])
    assert transport.aborted is (client is None)


async def _app(scope: Any, receive: Any, send: Any) -> None:
    await serving._SPECIAL[scope["path"]](None, scope, receive, send)  # type: ignore[arg-type]


def test_an_application_that_fails_is_answered_500_and_logged(served: Served) -> None:
    for path in ("/fail", "/lie"):
        served.log.clear()
        answer = ask(served, f"GET {path} HTTP/1.1")
        assert (answer.status, answer.headers["connection"]) == (500, "close")
        assert served.tracebacks() == ["Exception in ASGI application"]
    served.log.clear()


def test_an_answer_that_breaks_off_ends_its_connection(served: Served) -> None:
    served.log.clear()
    with connect(served) as link:
        link.sendall(b"GET /half HTTP/1.1\r\n" + HOST + b"\r\n")
        assert not read_all(link).endswith(b"half half")
    assert served.tracebacks() == ["Exception in ASGI application"]
    served.log.clear()


@pytest.mark.timed
def test_the_body_is_asked_for_when_the_application_first_reads(served: Served) -> None:
    with connect(served) as link:
        link.sendall(b"POST /sleepy HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\n")
        begun = time.monotonic()
        assert link.recv(1 << 16) == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert time.monotonic() - begun > 0.3
        link.sendall(b"abc")
        link.shutdown(socket.SHUT_WR)
        assert answers(read_all(link))[0].body == b"3"


@pytest.mark.parametrize(
    ("head", "statuses"),
    [
        (b"POST /early HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\n", [413]),
        (b"POST /echo HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc", [200]),
        (b"POST /echo HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: 0\r\n\r\n", [200]),
        (b"POST /echo HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc", [200]),
    ],
    ids=["refused", "sent at once", "empty", "HTTP/1.0"],
)
def test_a_body_that_nobody_wants_or_that_is_there_is_not_asked_for(
    served: Served, head: bytes, statuses: list[int]
) -> None:
    assert [answer.status for answer in say(served, head)] == statuses


@pytest.mark.parametrize("way", ["closed", "half-closed", "reset"])
def test_the_application_hears_that_its_client_has_left(served: Served, way: str) -> None:
    served.gone.clear()
    with connect(served) as link:
        link.sendall(b"GET /wait HTTP/1.1\r\n" + HOST + b"\r\n")
        time.sleep(0.1)
        if way == "half-closed":
            link.shutdown(socket.SHUT_WR)
            assert served.gone.wait(60)
        elif way == "reset":
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    assert served.gone.wait(60)
    assert [message for message in served.tracebacks() if "whole answer" not in message] == []
    served.log.clear()


def test_a_client_that_has_sent_all_it_will_gets_its_answers(served: Served) -> None:
    got = say(served, (b"GET /slow HTTP/1.1\r\n" + HOST + b"\r\n") * 2)
    assert [answer.body for answer in got] == [b"slow", b"slow"]


def test_a_client_that_leaves_in_the_middle_of_its_answer_costs_no_traceback(served: Served) -> None:
    served.log.clear()
    for _ in range(5):
        with connect(served) as link:
            link.sendall(b"GET /large?30000000 HTTP/1.1\r\n" + HOST + b"\r\n")
            link.recv(1_000)
    assert wait_until(lambda: len(served.connections) == 0, 10)
    assert served.tracebacks() == []
