"""One request and its answer, between an ASGI application and a connection.

The head of an answer whose length is known leaves with the first piece of its body: two writes are two system calls,
and wake the reader twice. An answer that begins before its request has come whole is the connection's last one. A
client that has left is no fault of the application: nothing is logged with a traceback for it. Enter by ``Exchange``.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HEADER_RE, HEADER_VALUE_RE, STATUS_LINE, RequestResponseCycle
from uvicorn.server import ServerState

_JOINED_MAX = 1 << 17  # bytes of a piece: copying a larger one takes longer than a system call
_LINES_MAX = 1_024  # checked header lines that are remembered
_BODYLESS = (204, 304)
_NO_SCOPE: Any = {}
_LENGTH, _CODING, _CLOSE = "content-length", "coding", "close"


class ClientClock(FlowControl):
    """Uvicorn's flow control, with a clock that stands while the client is paused."""

    def __init__(self, transport: asyncio.Transport, now: Callable[[], float]) -> None:
        super().__init__(transport)
        self.paused_s = 0.0  # in all, before the current pause
        self._now = now
        self._paused_at = 0.0

    def client_now(self) -> float:
        """Seconds of the clock by which the client is judged."""
        return (self._paused_at if self.read_paused else self._now()) - self.paused_s

    def pause_reading(self) -> None:
        """Stops reading from the client."""
        if not self.read_paused:
            self._paused_at = self._now()
        super().pause_reading()

    def resume_reading(self) -> None:
        """Reads from the client again."""
        if self.read_paused:
            self.paused_s += self._now() - self._paused_at
        super().resume_reading()


class Client:
    """Says whether the sender of a request still waits for its answer; any thread may look."""

    __slots__ = ("gone",)

    def __init__(self) -> None:
        self.gone = False


class Sink(Protocol):
    """What an exchange asks of its connection."""

    request_complete: bool
    scope: Any
    transport: Any
    flow: ClientClock
    logger: logging.Logger
    access_logger: logging.Logger
    access_log: bool
    server_state: ServerState

    def write(self, data: bytes) -> None:
        """Sends bytes of an answer."""

    def on_response_complete(self) -> None:
        """Goes on after an answer."""

    def cut(self) -> None:
        """Ends the connection where an answer breaks off."""


class Exchange(RequestResponseCycle):
    """Uvicorn's cycle of one request, which joins writes and speaks HTTP/1.0 too."""

    def __init__(self, sink: Sink, client: Client, keep_alive: bool, expects_continue: bool) -> None:
        super().__init__(
            sink.scope,
            sink.transport,
            sink.flow,
            sink.logger,
            sink.access_logger,
            sink.access_log,
            sink.server_state.default_headers,
            asyncio.Event(),
            expects_continue and sink.scope["http_version"] == "1.1",
            keep_alive,
            _nothing,
        )
        self.sink: Sink | None = sink
        self.client = client
        self._version = sink.scope["http_version"]
        self._head = b""
        self._bodyless = False
        self._end_delivered = False

    async def run_asgi(self, app: Any) -> None:
        """Runs the application for this request, and answers in its place if it fails."""
        try:
            await app(self.scope, self.receive, self.send)
            if self.client.gone:
                self._cut()
            elif not self.response_complete:
                self.logger.error("The application returned without a whole answer to %s.", self.scope["path"])
                await self._answer_failure()
        except asyncio.CancelledError:
            self.logger.warning("A request to %s was ended before its answer was whole.", self.scope["path"])
            self._cut()
        except BaseException as error:
            if self.client.gone:
                self.logger.info("A request to %s ended after its client had left: %r", self.scope["path"], error)
                self._cut()
            else:
                self.logger.error("Exception in ASGI application", exc_info=error)
                await self._answer_failure()
        finally:
            self.sink = None  # else each request is garbage that refers to itself
            self.scope = _NO_SCOPE  # its connection may be idle for long

    async def receive(self) -> Any:
        """Returns the next piece of the body, or that the client has left; waits for either."""
        if self.waiting_for_100_continue:
            self.waiting_for_100_continue = False
            if self.more_body and not self.body and self.sink is not None:
                self.sink.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        while True:
            if self.disconnected or self.response_complete:
                return {"type": "http.disconnect"}
            if self.body or not (self.more_body or self._end_delivered):
                self._end_delivered = not self.more_body
                body, self.body = bytes(self.body), bytearray()
                return {"type": "http.request", "body": body, "more_body": self.more_body}
            if self.client.gone:
                return {"type": "http.disconnect"}
            if self.more_body:
                self.flow.resume_reading()
            await self.message_event.wait()
            self.message_event.clear()

    async def send(self, message: Any) -> None:
        """Sends the head or a piece of the answer; waits while the client takes none. Nothing is sent to a client that
        has left.
        """
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected or self.sink is None:
            return
        kind = message["type"]
        if not self.response_started:
            if kind != "http.response.start":
                raise RuntimeError(f"got {kind}, wanted http.response.start")
            self._start(message["status"], message.get("headers", ()))
        elif self.response_complete or kind != "http.response.body":
            raise RuntimeError(
                f"got {kind}, wanted {'nothing more' if self.response_complete else 'http.response.body'}"
            )
        else:
            self._send_piece(message.get("body", b""), message.get("more_body", False))

    def _start(self, status: int, headers: Any) -> None:
        assert self.sink is not None, "BUG: an answer after its end"
        self.response_started, self.waiting_for_100_continue = True, False
        self.keep_alive = self.keep_alive and self.sink.request_complete
        self._bodyless = status in _BODYLESS or self.scope["method"] == "HEAD"
        lines = [STATUS_LINE[status]]
        for name, value in (*self.default_headers, *headers):
            line, kind = shared_line(name, value)
            if kind is _LENGTH:
                self.expected_content_length, self.chunked_encoding = int(value), False
            elif kind is not None:  # the connection's own matter
                self.keep_alive = self.keep_alive and kind is not _CLOSE
                continue
            lines.append(line)
        if self.chunked_encoding is None and not self._bodyless:
            if self._version == "1.1":
                self.chunked_encoding = True
                lines.append(b"transfer-encoding: chunked\r\n")
            else:
                self.keep_alive = False  # where the connection ends, the body does
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        elif self._version != "1.1":
            lines.append(b"connection: keep-alive\r\n")
        lines.append(b"\r\n")
        self._log(status)
        self._head = b"".join(lines)
        if self._bodyless or not self.expected_content_length:
            self._flush()

    def _send_piece(self, body: bytes, more_body: bool) -> None:
        assert self.sink is not None, "BUG: an answer after its end"
        if not self._bodyless:
            if self.chunked_encoding:
                body = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + (b"" if more_body else b"0\r\n\r\n")
            elif self.chunked_encoding is not None:
                left = self.expected_content_length - len(body)
                if left < 0 or (left and not more_body):
                    raise RuntimeError(
                        f"the answer's body is {abs(left)} bytes {'shorter' if left > 0 else 'longer'} than said"
                    )
                self.expected_content_length = left
            if self._head and len(body) <= _JOINED_MAX:
                body, self._head = self._head + body, b""
            self._flush()
            if body:
                self.sink.write(body)
        if not more_body:
            self.response_complete = True
            self.message_event.set()
            self.sink.on_response_complete()

    def _flush(self) -> None:
        if self._head and self.sink is not None:
            head, self._head = self._head, b""
            self.sink.write(head)

    def _log(self, status: int) -> None:
        if self.access_log:
            self.access_logger.info(
                '%s - "%s %s HTTP/%s" %d',
                self.scope["client"],
                self.scope["method"],
                self.scope["path"],
                self._version,
                status,
            )

    async def _answer_failure(self) -> None:
        if self.response_started and not self._head:
            self._cut()
            return
        self.response_started, self.chunked_encoding, self.expected_content_length = False, None, 0
        body = b"Internal Server Error\n"
        headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(body)), (b"connection", b"close")]
        await self.send({"type": "http.response.start", "status": 500, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})

    def _cut(self) -> None:
        if self.sink is not None and not self.response_complete and not self.disconnected:
            self.sink.cut()


@lru_cache(maxsize=_LINES_MAX)
def shared_line(name: bytes, value: bytes) -> tuple[bytes, str | None]:
    """Returns the line of a header, and what it says about the answer's form; many answers share their lines."""
    line, name = header_line(name, value), name.lower()
    kind = None
    if name == b"content-length":
        kind = _LENGTH
    elif name == b"transfer-encoding":
        kind = _CODING
    elif name == b"connection":
        kind = _CLOSE if b"close" in (token.strip() for token in value.lower().split(b",")) else _CODING
    return line, kind


def header_line(name: bytes, value: bytes) -> bytes:
    """Returns the line of a header; raises ``RuntimeError`` for one that would be more than that."""
    if HEADER_RE.search(name) or HEADER_VALUE_RE.search(value):
        raise RuntimeError(f"got the header {name!r}: {value!r}, wanted one without control characters")
    return name.lower() + b": " + value + b"\r\n"


def _nothing() -> None:
    """Takes the place of uvicorn's own call after an answer: the sink is called instead."""
