"""Framing by generated requests: our reading beside another parser's, and clients beside each other behind proxies."""

import asyncio
import random
import re
from typing import Any

import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from spm.web.http_protocol import BoundedHttpProtocol, Connections
from tests.spm.web.http_protocol.generated import Request, conversation, in_pieces, read_by_h11
from tests.spm.web.http_protocol.serving import whole_body
from tests.support.event_loop import on_loop

# h11 ends where we go on: it takes no blank line before a request, and no second request in HTTP/1.0.
STRICTER = ("no request line received", "closed")


class Transport:
    """Takes what a protocol writes, until it closes."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.closed = False

    def write(self, data: bytes) -> None:
        self.written += data

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 9) if name in ("peername", "sockname") else None

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def write_eof(self) -> None:
        """Nothing."""

    pause_reading = resume_reading = write_eof

    def can_write_eof(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return 0


class Reader:
    """Feeds conversations to the protocol, each on a connection of its own, and notes what the application gets."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.config = Config(self._app, interface="asgi3", lifespan="off", proxy_headers=False, log_config=None)
        self.config.load()
        self.connections = Connections()

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        body = await whole_body(receive)
        if body is None:
            return
        query = scope["query_string"].decode()
        target = scope["raw_path"].decode() + (f"?{query}" if query else "")
        self.requests.append(Request(scope["method"], target, body))
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})

    async def read(self, pieces: list[bytes]) -> tuple[list[Request], bytes]:
        """The requests of a conversation, and the answers."""
        self.requests, transport = [], Transport()
        protocol: Any = BoundedHttpProtocol(self.config, ServerState(), {}, connections=self.connections)
        protocol.connection_made(transport)
        for piece in pieces:
            if not transport.closed:
                protocol.data_received(piece)
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        if not transport.closed and not protocol.eof_received():
            transport.close()
        await asyncio.sleep(0)
        protocol.connection_lost(None)
        await asyncio.sleep(0)
        return self.requests, bytes(transport.written)


def compared(seed: int, conversations: int) -> tuple[int, int]:
    """Fails where we read what h11 does not; returns how many requests we read, and how many h11 did."""

    async def compare() -> tuple[int, int]:
        reader, dice = Reader(), random.Random(seed)
        ours, theirs = 0, 0
        for number in range(conversations):
            data = b"".join(conversation(dice, f"{seed}-{number}", dice.randint(1, 6), dice.choice((0.0, 0.05, 0.3))))
            requests, written = await reader.read(in_pieces(dice, data))
            wanted, why = read_by_h11(data)
            mutual = min(len(requests), len(wanted))
            assert requests[:mutual] == wanted[:mutual], data
            assert len(requests) <= len(wanted) or why in STRICTER, (why, data)
            statuses = re.findall(rb"HTTP/1.1 (\d\d\d) ", written)
            finals = [status for status in statuses if status != b"100"]
            assert finals[: len(requests)] == [b"200"] * len(requests), (written, data)
            assert len(finals) <= len(requests) + 1, (written, data)
            ours, theirs = ours + len(requests), theirs + len(wanted)
        return ours, theirs

    return on_loop(compare())


def test_what_reaches_the_application_is_what_another_parser_reads_in_the_same_bytes() -> None:
    ours, theirs = compared(seed=1, conversations=1_500)
    assert ours > theirs / 2  # h11 takes more of what could be read in two ways


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(10, 20))
def test_a_hundred_thousand_requests_are_read_as_another_parser_reads_them(seed: int) -> None:
    ours, theirs = compared(seed=seed, conversations=8_000)
    print(f"seed {seed}: {ours} requests read, {theirs} by h11")
