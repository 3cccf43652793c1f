"""A real server on loopback with the bounded protocol and a small application, and a client that speaks raw bytes.

The server is uvicorn on uvloop in a thread of the test's process, so that a test sees its connections and its log.
Enter by ``serving`` and ``say``.
"""

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import uvicorn
import uvloop

from spm.web.client_address import TrustedProxies
from spm.web.http_protocol import BoundedHttpProtocol, Connections, HttpBounds

QUICK = HttpBounds(
    head_s=0.4,
    silent_s=0.6,
    idle_s=0.8,
    body_stall_s=0.5,
    body_grace_s=0.8,
    answer_stall_s=0.6,
    answer_grace_s=1.0,
    linger_s=1.5,
    linger_stall_s=0.4,
    sweep_s=0.05,
)
HOST = b"Host: here\r\n"
GET = b"GET /echo HTTP/1.1\r\n" + HOST + b"\r\n"


@dataclass
class Answer:
    """One answer as it came."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def request(self) -> dict[str, Any]:
        """What the application saw, of an answer of ``/echo``."""
        parsed: dict[str, Any] = json.loads(self.body)
        return parsed


@dataclass
class Served:
    """A running server."""

    port: int
    connections: Connections
    log: list[logging.LogRecord]
    server: uvicorn.Server
    thread: threading.Thread
    gone: threading.Event = field(default_factory=threading.Event)  # a client left while /wait was running
    requests: list[str] = field(default_factory=list)  # paths in the order in which the application was called

    def stop(self) -> None:
        """Ask the server to end, without waiting."""
        self.server.should_exit = True

    def tracebacks(self) -> list[str]:
        """Messages logged with a traceback, or as errors."""
        return [r.getMessage() for r in self.log if r.exc_info or r.levelno >= logging.ERROR]


class _Log(logging.Handler):
    def __init__(self, records: list[logging.LogRecord]) -> None:
        super().__init__()
        self._records = records

    def emit(self, record: logging.LogRecord) -> None:
        self._records.append(record)


@contextmanager
def serving(bounds: HttpBounds = QUICK, proxies: tuple[str, ...] = (), grace_s: int = 5) -> Iterator[Served]:
    """A server for the time of a test."""
    connections = Connections(bounds, TrustedProxies.parse(proxies))
    records: list[logging.LogRecord] = []
    running: list[Served] = []
    handler = _Log(records)
    names = ("uvicorn.error", "asyncio")
    for name in names:
        logging.getLogger(name).addHandler(handler)
    socket_ = socket.create_server(("127.0.0.1", 0), backlog=4_096)
    config = uvicorn.Config(
        partial(application, running),
        http=partial(BoundedHttpProtocol, connections=connections),  # type: ignore[arg-type]
        interface="asgi3",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        timeout_graceful_shutdown=grace_s,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: uvloop.run(server.serve([socket_])), daemon=True)
    served = Served(socket_.getsockname()[1], connections, records, server, thread)
    running.append(served)
    thread.start()
    try:
        yield served
    finally:
        server.should_exit = server.force_exit = True
        thread.join(20)
        for name in names:
            logging.getLogger(name).removeHandler(handler)
    assert not thread.is_alive(), "the server did not end"


async def application(running: list[Served], scope: Any, receive: Any, send: Any) -> None:
    """Answers by path; what is not listed is an echo of the request."""
    [served] = running
    path = scope["path"]
    served.requests.append(path)
    if path in _SPECIAL:
        await _SPECIAL[path](served, scope, receive, send)
        return
    body = await whole_body(receive)
    if body is not None:
        await answer(send, 200, json.dumps(seen(scope, body)).encode())


async def whole_body(receive: Any) -> bytes | None:
    """A request's body; ``None`` if its client left before the end."""
    pieces = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        pieces.append(message["body"])
        if not message["more_body"]:
            return b"".join(pieces)


def seen(scope: Any, body: bytes) -> dict[str, Any]:
    """What an application sees of a request."""
    plain = {name: scope[name] for name in ("method", "path", "http_version", "scheme", "client")}
    headers = [[name.decode(), value.decode("latin-1")] for name, value in scope["headers"]]
    query = scope["query_string"].decode()
    return {
        **plain,
        "query": query,
        "raw_path": scope["raw_path"].decode(),
        "headers": headers,
        "body": body.decode("latin-1"),
    }


async def answer(send: Any, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    """Sends a whole answer of known length."""
    lines = [(b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": body})


async def _early(_: Served, __: Any, ___: Any, send: Any) -> None:
    await answer(send, 413, b"too large")


async def _wait(served: Served, scope: Any, receive: Any, _: Any) -> None:
    await whole_body(receive)
    while (await receive())["type"] != "http.disconnect":
        pass
    if scope["extensions"]["spm.client"].gone:
        served.gone.set()


async def _slow(_: Served, __: Any, receive: Any, send: Any) -> None:
    await whole_body(receive)
    await asyncio.sleep(0.5)
    await answer(send, 200, b"slow")


async def _sleepy(_: Served, __: Any, receive: Any, send: Any) -> None:
    """Takes its body late."""
    await asyncio.sleep(2)
    body = await whole_body(receive)
    await answer(send, 200, str(len(body or b"")).encode())


async def _large(_: Served, scope: Any, receive: Any, send: Any) -> None:
    await whole_body(receive)
    await answer(send, 200, b"x" * int(scope["query_string"]))


async def _pieces(_: Served, __: Any, receive: Any, send: Any) -> None:
    await whole_body(receive)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for piece in (b"a", b"", b"b" * 9):
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _empty(_: Served, __: Any, receive: Any, send: Any) -> None:
    await whole_body(receive)
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def _fail(_: Served, __: Any, receive: Any, ___: Any) -> None:
    await whole_body(receive)
    raise RuntimeError("before anything was said")


async def _half(_: Served, __: Any, receive: Any, send: Any) -> None:
    await whole_body(receive)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})
    await send({"type": "http.response.body", "body": b"half", "more_body": True})
    raise RuntimeError("in the middle")


async def _lie(_: Served, __: Any, receive: Any, send: Any) -> None:
    await whole_body(receive)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})
    await send({"type": "http.response.body", "body": b"ten bytes!"})


_SPECIAL = {
    "/early": _early,
    "/wait": _wait,
    "/slow": _slow,
    "/sleepy": _sleepy,
    "/large": _large,
    "/pieces": _pieces,
    "/empty": _empty,
    "/fail": _fail,
    "/half": _half,
    "/lie": _lie,
}


def connect(served: Served, *, source: str = "127.0.0.1", receive_bytes: int = 0, timeout: float = 10) -> socket.socket:
    """An open connection, from an address of this machine, if wanted with a small receive buffer."""
    link = socket.socket()
    if receive_bytes:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    link.settimeout(timeout)
    link.bind((source, 0))
    link.connect(("127.0.0.1", served.port))
    return link


def read_all(link: socket.socket) -> bytes:
    """Everything until the server closes; a reset counts as the end."""
    pieces = []
    try:
        while piece := link.recv(1 << 20):
            pieces.append(piece)
    except ConnectionResetError:
        pass
    return b"".join(pieces)


def say(served: Served, data: bytes, *, end: bool = True, methods: str = "") -> list[Answer]:
    """The answers to raw bytes on one connection, until the server closes it; the client half-closes if ``end``."""
    with connect(served) as link:
        link.sendall(data)
        if end:
            link.shutdown(socket.SHUT_WR)
        return answers(read_all(link), methods)


def answers(data: bytes, methods: str = "") -> list[Answer]:
    """All answers in ``data``; ``methods`` names those of the requests, with commas, where any was HEAD."""
    parsed: list[Answer] = []
    heads = methods.split(",") if methods else []
    while data:
        head, mark, rest = data.partition(b"\r\n\r\n")
        assert mark, f"half of a head: {data[:200]!r}"
        first, *lines = head.decode("latin-1").split("\r\n")
        status = int(first.split()[1])
        pairs = [line.split(": ", 1) for line in lines]
        headers = dict(pairs)
        assert len(headers) == len(pairs), f"a header stands twice: {lines}"
        bodyless = status in (100, 204, 304) or (bool(heads) and heads[len(parsed)] == "HEAD")
        body, data = (b"", rest) if bodyless else _body(headers, rest)
        parsed.append(Answer(status, headers, body))
    return parsed


def _body(headers: dict[str, str], rest: bytes) -> tuple[bytes, bytes]:
    if headers.get("transfer-encoding") == "chunked":
        pieces = []
        while True:
            line, _, rest = rest.partition(b"\r\n")
            size = int(line, 16)
            pieces.append(rest[:size])
            assert rest[size : size + 2] == b"\r\n"
            rest = rest[size + 2 :]
            if not size:
                return b"".join(pieces), rest
    if "content-length" not in headers:
        return rest, b""
    length = int(headers["content-length"])
    assert len(rest) >= length, f"half of a body: {rest!r}"
    return rest[:length], rest[length:]
