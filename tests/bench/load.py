"""Many connections that each send the next body once the last one was answered, by one event loop. Enter by ``drive``.

The sender costs some 10 µs a request, in a process of its own, so that a server's figures are the server's.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import httptools
import uvloop

_TAKEN = (200, 202, 204)


@dataclass(slots=True)
class Result:
    """Seconds of each answered request, and how long all of them took; ``refused``: answers by other statuses."""

    took: list[float] = field(default_factory=list)
    refused: dict[int, int] = field(default_factory=dict)
    wall_s: float = 0.0


class _Sender(asyncio.Protocol):
    """One connection."""

    def __init__(self, requests: Iterator[bytes], result: Result, until: float, done: "asyncio.Future[None]") -> None:
        self._requests, self._result, self._until, self._done = requests, result, until, done
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._begun = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._next()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        """Note an answer, and send the next request."""
        status = self._parser.get_status_code()
        if status in _TAKEN:
            self._result.took.append(time.perf_counter() - self._begun)
        else:
            self._result.refused[status] = self._result.refused.get(status, 0) + 1
        self._parser = httptools.HttpResponseParser(self)
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_result(None)

    def _next(self) -> None:
        assert self._transport is not None
        request = next(self._requests, None) if time.perf_counter() < self._until else None
        if request is None:
            self._transport.close()
            return
        self._begun = time.perf_counter()
        self._transport.write(request)


def drive(port: int, requests: Sequence[bytes], *, connections: int, seconds: float = 60.0) -> Result:
    """Send the requests, or as many as fit into the time."""
    return uvloop.run(_drive(port, requests, connections, seconds))


async def _drive(port: int, requests: Sequence[bytes], connections: int, seconds: float) -> Result:
    loop, result = asyncio.get_running_loop(), Result()
    shared, begun = iter(requests), time.perf_counter()
    done: list[asyncio.Future[None]] = [loop.create_future() for _ in range(connections)]
    for each in done:
        await loop.create_connection(
            lambda each=each: _Sender(shared, result, begun + seconds, each),  # type: ignore[misc]
            "127.0.0.1",
            port,
        )
    await asyncio.gather(*done)
    result.wall_s = time.perf_counter() - begun
    return result


async def _pace(port: int, requests: Sequence[bytes], per_s: float) -> Result:
    """Send the requests evenly, each over the connection whose turn it is."""
    result, begun = Result(), time.perf_counter()
    pool: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def one(number: int, request: bytes) -> None:
        await asyncio.sleep(max(0.0, begun + number / per_s - time.perf_counter()))
        reader, writer = pool.pop() if pool else await asyncio.open_connection("127.0.0.1", port)
        at = time.perf_counter()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        if status in _TAKEN:
            result.took.append(time.perf_counter() - at)
        else:
            result.refused[status] = result.refused.get(status, 0) + 1
        pool.append((reader, writer))

    await asyncio.gather(*(one(number, request) for number, request in enumerate(requests)))
    for _, writer in pool:
        writer.close()
    result.wall_s = time.perf_counter() - begun
    return result


def pace(port: int, requests: Sequence[bytes], *, per_s: float) -> Result:
    """Send bodies whose answers have none, so many a second."""
    return uvloop.run(_pace(port, requests, per_s))


def post(path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    """Return the bytes of a POST."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body
