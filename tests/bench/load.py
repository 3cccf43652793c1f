"""Many connections that each send the next body once the last one was answered, by one event loop. Enter by ``drive``.

The sender costs some 10 µs a request, in a process of its own, so that a server's figures are the server's.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import httptools
import uvloop

_TAKEN = (200, 202, 204)
_ADDRESSES = 10  # of senders: a server takes so many connections from each


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


async def _pace(port: int, rounds: Sequence[Sequence[bytes]], per_s: float, begin: Callable[[], None]) -> Result:
    links: dict[int, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}
    result = Result()
    for requests in rounds:
        begin()
        result, begun = Result(), time.perf_counter()

        async def one(number: int, request: bytes, begun: float, result: Result) -> None:
            await asyncio.sleep(max(0.0, begun + number / per_s - time.perf_counter()))
            if number not in links:
                own = f"127.0.0.{number % _ADDRESSES + 1}"
                links[number] = await asyncio.open_connection("127.0.0.1", port, local_addr=(own, 0))
            reader, writer = links[number]
            at = time.perf_counter()
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            status = int(head.split(b" ", 2)[1])
            if status in _TAKEN:
                result.took.append(time.perf_counter() - at)
            else:
                result.refused[status] = result.refused.get(status, 0) + 1

        await asyncio.gather(*(one(number, request, begun, result) for number, request in enumerate(requests)))
        result.wall_s = time.perf_counter() - begun
    for _, writer in links.values():
        writer.close()
    return result


def pace(port: int, rounds: Sequence[Sequence[bytes]], *, per_s: float, begin: Callable[[], None]) -> Result:
    """Send bodies whose answers have none, so many a second, each of a round over a connection of its own.

    ``begin`` is called before each round; the result is that of the last one.
    """
    return uvloop.run(_pace(port, rounds, per_s, begin))


def post(path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    """Return the bytes of a POST."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body
