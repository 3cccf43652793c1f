"""A real server on loopback whose requests a WSGI application of the test answers through the bridge.

Enter by ``bridged``; ``Bridged.say`` speaks raw bytes.
"""

import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import uvicorn
import uvloop

from spm.clock import SystemClock
from spm.web.fair_pool import FairPool
from spm.web.http_protocol import BoundedHttpProtocol, Connections
from spm.web.wsgi_bridge import Environ, Work, WsgiBridge

Start = Callable[..., Any]
Application = Callable[[Environ, Start], Iterable[bytes]]


@dataclass
class Bridged:
    """A running server."""

    port: int
    pool: FairPool
    bridge: WsgiBridge
    work: Work

    def connect(self) -> socket.socket:
        """A connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def say(self, raw: bytes) -> bytes:
        """The whole answer to a request, after which the connection ends."""
        with self.connect() as client:
            client.sendall(raw)
            return everything(client)

    def ask(self, head: bytes = b"GET / HTTP/1.1\r\n", body: bytes = b"") -> bytes:
        """The whole answer to a request with this head, without its last empty line."""
        return self.say(head + b"Host: here\r\nConnection: close\r\n\r\n" + body)

    @property
    def held_bytes(self) -> int:
        """Bytes of bodies that the bridge holds."""
        return self.bridge._bytes.total

    def is_idle(self) -> bool:
        """Whether no request is left."""
        return (self.pool.running, self.pool.waiting, self.held_bytes) == (0, 0, 0)


def everything(client: socket.socket) -> bytes:
    """What comes until the connection ends."""
    pieces = []
    while piece := client.recv(65_536):
        pieces.append(piece)
    return b"".join(pieces)


@contextmanager
def bridged(application: Application, *, threads: int = 2, waiting: int = 100, **work: Any) -> Iterator[Bridged]:
    """A server for the time of a test; nothing may be left of its requests."""
    pool = FairPool(
        "pages",
        threads=threads,
        threads_max=threads,
        per_key_max=threads,
        waiting_max=waiting,
        per_key_waiting_max=waiting,
    )
    running: list[Bridged] = []

    async def serve() -> None:
        bridge = WsgiBridge(SystemClock(), lambda key, organisation: None)
        running.append(Bridged(port, pool, bridge, Work(application, pool, "one", **work)))
        ready.set()
        await server.serve([listener])

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        one = running[0]
        key = scope["query_string"] or one.work.key
        await one.bridge(replace(one.work, key=key), scope, receive, send)

    listener, ready = socket.create_server(("127.0.0.1", 0)), threading.Event()
    port = listener.getsockname()[1]
    config = uvicorn.Config(
        answer,
        http=partial(BoundedHttpProtocol, connections=Connections()),  # type: ignore[arg-type]
        interface="asgi3",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: uvloop.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(20)
    try:
        yield running[0]
    finally:
        server.should_exit = server.force_exit = True
        thread.join(20)
        pool.close()
    assert not thread.is_alive(), "the server did not end"
