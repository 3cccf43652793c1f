"""The second process: slow heads, slow bodies, slow readers and idle connections, so many of each.

    python -m tests.bench.slow.clients HOST PORT COUNT [TOKEN]

To a server on the loopback network they come from many of its addresses, as one address may open only so many.
Connections that the server closes are opened again. Prints a line when all have been open once, and one with what
happened after each line of its input.
"""

import asyncio
import contextlib
import os
import resource
import socket
import sys
from collections import Counter
from itertools import count
from typing import cast

import uvloop

_PER_ADDRESS, _AT_ONCE = 100, 100
_DRIP_S, _AGAIN_S = 3.0, 0.5
_RECEIVE_BYTES = 4_096
_OWN_FILES = 100  # open in this process beside connections
_LARGE = "/static/unfold/css/styles.css"  # some hundred kilobytes for anybody


def requests(token: str) -> dict[str, tuple[bytes, bytes]]:
    """What each kind sends at once, and what it sends by a byte every few seconds."""
    who = f"Authorization: Bearer {token}\r\n" if token else "Cookie: csrftoken=a\r\n"
    push = "/write" if token else "/login"
    body = f"POST {push} HTTP/1.1\r\nHost: localhost\r\n{who}Content-Length: 100000\r\n\r\na".encode()
    reader = f"GET {_LARGE} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: identity\r\n\r\n".encode()
    return {
        "head": (b"GET /ping HTTP/1.1\r\nHost: localhost\r\nA: ", b"a"),
        "body": (body, b"a"),
        "reader": (reader * 20, b""),
        "idle": (b"", b""),
    }


class Slow(asyncio.Protocol):
    """One connection, which is opened again when it is lost."""

    def __init__(self, mixed: "MixedClients", kind: str, at_once: bytes, drip: bytes) -> None:
        self._mixed, self._kind = mixed, kind
        self._at_once, self._drip = at_once, drip
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)
        self._mixed.events[f"{self._kind} opened"] += 1
        self._mixed.open[self._kind] += 1
        transport.write(self._at_once)
        if self._kind == "reader":
            self._mixed.loop.call_soon(transport.pause_reading)
        if self._drip:
            self._mixed.loop.call_later(_DRIP_S, self._drips)

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"HTTP/"):
            self._mixed.events[f"{self._kind} {data[9:12].decode('latin-1')}"] += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self._mixed.open[self._kind] -= 1
        self._transport = None
        self._mixed.loop.call_later(_AGAIN_S, self._mixed.open_one, self._kind)

    def _drips(self) -> None:
        if self._transport is not None:
            self._transport.write(self._drip)
            self._mixed.loop.call_later(_DRIP_S, self._drips)


class MixedClients:
    """All connections."""

    def __init__(self, host: str, port: int, token: str) -> None:
        self.loop = asyncio.get_running_loop()
        self.open: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        self._address, self._requests = (host, port), requests(token)
        self._numbers, self._tasks = count(), set[asyncio.Task[None]]()
        self._gate = asyncio.Semaphore(_AT_ONCE)

    def open_one(self, kind: str) -> None:
        """Open a connection as soon as others have been opened."""
        task = self.loop.create_task(self._open(kind))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _open(self, kind: str) -> None:
        async with self._gate:
            link = socket.socket()
            link.setblocking(False)
            if kind == "reader":
                link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
            if self._address[0].startswith("127."):
                number = next(self._numbers) // _PER_ADDRESS
                link.bind((f"127.0.{1 + number // 200 % 200}.{1 + number % 200}", 0))
            with contextlib.suppress(OSError):
                await asyncio.wait_for(self.loop.sock_connect(link, self._address), 30)
                await self.loop.create_connection(lambda: Slow(self, kind, *self._requests[kind]), sock=link)
                return
            self.events[f"{kind} not opened"] += 1
            link.close()
            self.loop.call_later(_AGAIN_S, self.open_one, kind)

    async def run(self, number: int) -> None:
        """Open so many of each kind; go on until the input ends."""
        for _ in range(number):
            for kind in self._requests:
                self.open_one(kind)
        while any(self.events[f"{kind} opened"] < number for kind in self._requests):
            await asyncio.sleep(0.1)
        print("open:", dict(self.open), flush=True)
        while await self.loop.run_in_executor(None, sys.stdin.readline):
            print("open:", dict(self.open), "since the begin:", dict(self.events), flush=True)


async def _run(host: str, port: str, number: str, token: str = "") -> None:
    await MixedClients(host, int(port), token).run(int(number))


def _allow_files(number: int) -> None:
    """Raise the limit of open files as far as it is needed; ends the process where that is not allowed."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(most, number), max(most, number)))
    except ValueError:
        sys.exit(f"got a limit of {most} open files, wanted {number}: raise it (ulimit -Hn), or ask for fewer clients")


if __name__ == "__main__":
    _allow_files(len(requests("")) * int(sys.argv[3]) + _OWN_FILES)
    os.nice(19)  # clients have processors of their own
    uvloop.run(_run(*sys.argv[1:]))
