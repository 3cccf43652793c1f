"""The second process: opens streams of events, and notes when each hears of new data.

    python -m tests.bench.listeners.client PORT COUNT TOKEN…

The streams come from several addresses of the loopback network, since one address may open only so many. Prints how
many are open; after each line of its input, when data came.
"""

import asyncio
import json
import resource
import sys
import time
from collections.abc import Sequence

import uvloop

_PER_ADDRESS, _AT_ONCE = 400, 64


class _Stream(asyncio.Protocol):
    """One listener: notes when data came."""

    def __init__(self, head: bytes, times: list[float]) -> None:
        self.head, self.times = head, times
        self.opened: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(self.head)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        if not self.opened.done():
            self.opened.set_result(b" 200 OK" in data)
        if b"event: data" in data:
            self.times.append(time.time())

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.opened.done():
            self.opened.set_result(False)


async def _listen(port: int, count: int, secrets: Sequence[str]) -> None:
    loop, times, gate = asyncio.get_running_loop(), list[float](), asyncio.Semaphore(_AT_ONCE)
    streams = list[_Stream]()

    async def open_one(number: int) -> None:
        head = (
            "GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\nUser-Agent: listener\r\n"
            f"Authorization: Bearer {secrets[number % len(secrets)]}\r\n\r\n"
        ).encode()
        address = (f"127.0.0.{2 + number // _PER_ADDRESS}", 0)
        async with gate:
            stream = _Stream(head, times)
            streams.append(stream)
            await loop.create_connection(lambda: stream, "127.0.0.1", port, local_addr=address)
            await stream.opened

    began = time.perf_counter()
    results = await asyncio.gather(*map(open_one, range(count)), return_exceptions=True)
    errors = [str(each) for each in results if isinstance(each, BaseException)]
    open_count = sum(stream.opened.done() and stream.opened.result() for stream in streams)
    answer = {"open": open_count, "refused": count - open_count, "seconds": time.perf_counter() - began}
    print(json.dumps({**answer, "errors": errors[:3]}), flush=True)
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps({"data_at": times}), flush=True)


if __name__ == "__main__":
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    uvloop.run(_listen(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
