"""The HTTP/1.1 protocol of the web server: uvicorn's, with bounds on all that a client may hold.

A head is taken by the parser when it is whole, a body as it comes, and nothing of a next request before the answer to
the one before it. So an unfinished head costs its bytes, and no request can be read twice or in two ways. A broken
request gets one short answer; after the last answer of a connection, what still comes is read and dropped for a while,
so that the client sees that answer instead of a reset.

Of uvicorn 0.54 these are used: ``HttpToolsProtocol`` with its attributes ``parser``, ``transport``, ``flow``,
``client``, ``scheme``, ``server``, ``headers``, ``url``, ``scope``, ``cycle``, ``loop``, ``app``, ``app_state``,
``server_state``, ``asgi_version``, ``root_path``, ``access_log`` and ``_start_asgi_task``; ``FlowControl``;
``RequestResponseCycle``. A test pins them. Enter by ``BoundedHttpProtocol``.
"""

import asyncio
import re
from typing import Any

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from spm.web.client_address import FORWARDING_HEADERS, Origin, origin
from spm.web.http_protocol.bounds import NEVER, pace_due
from spm.web.http_protocol.connections import BODY, HEAD, IDLE, LINGERING, RUNNING, SILENT, Connections, Phase
from spm.web.http_protocol.exchange import Client, ClientClock, Exchange
from spm.web.http_protocol.head import (
    BadHead,
    UpgradeWanted,
    check_framing,
    check_unfinished,
    headers_of,
    keeps_alive,
    short_answer,
    target_of,
    unquoted,
    version_of,
    without_blank_lines,
)
from spm.web.http_protocol.repeated import Repeats, WholeAnswer

_HEAD_END = b"\r\n\r\n"
_UPGRADE = re.compile(rb"\r\nupgrade:[^\r\n]*", re.IGNORECASE)
_SPECIAL = FORWARDING_HEADERS | {b"host", b"expect", b"transfer-encoding", b"content-length", b"connection"}


class BoundedHttpProtocol(HttpToolsProtocol):
    """One connection. ``connections`` has the bounds, and is shared by all connections of an event loop."""

    cycle: Exchange | WholeAnswer  # type: ignore[assignment]
    flow: ClientClock

    def __init__(self, *of_server: Any, connections: Connections, **named: Any) -> None:
        super().__init__(*of_server, **named)
        self.table = connections
        self.bounds = connections.bounds
        self.phase = RUNNING
        self.wheel_slot = 0
        self.address_key = ""
        self.request_complete = True  # nothing more of the current request is to come
        self.trusted = False
        self._unread: bytes | bytearray = b""
        self._searched = 0
        self._body_left: int | None = None  # bytes; None: as the chunks say
        self._special: dict[bytes, list[bytes]] = {}
        self._head: bytes = b""
        self.repeats = Repeats()
        self._begun = self._moved = 0.0
        self._received = 0  # bytes of the current head, body or dropped rest
        self._body_bytes = 0
        self._written = 0
        self._reader_begun = self._reader_moved = 0.0
        self._taken_before = self._taken = 0
        self._half_closed = False

    # --- the transport's calls ---

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins to wait for a request, or refuses the connection where there is no room for it."""
        super().connection_made(transport)
        self.table.start(self.loop)
        self.flow = ClientClock(transport, self.table.now)
        host = self.client[0] if self.client else None
        by_path = self.server is not None and self.server[1] is None  # a Unix socket: its peer has no address
        self.trusted = by_path if host is None else self.table.proxies.trusts(host)
        refusal = self.table.add(self, host)
        if host is None and not by_path:
            self.drop()  # it has gone; what it sent comes from nobody
        elif refusal:
            self._refuse(503, refusal)
        else:
            self._enter(SILENT)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tells the application that the client has left."""
        if self.cycle is not None:
            self.cycle.client.gone = True
        super().connection_lost(exc)
        self.table.remove(self)
        self._unread = b""

    def data_received(self, data: bytes) -> None:
        """Takes bytes of the client: of a request, or to be dropped after the last answer."""
        if self.phase is LINGERING:
            self._received += len(data)
            self._moved = self.table.now()
            if self._received > self.bounds.linger_bytes_max:
                self.transport.abort()
            return
        if self._unread:
            self._unread = bytearray(self._unread) if isinstance(self._unread, bytes) else self._unread
            self._unread += data
        else:
            self._unread = data
        self._advance()

    def eof_received(self) -> bool:  # type: ignore[override]  # the transport takes either
        """Answers what has come whole; the client may still read."""
        self._half_closed = True
        if self.phase <= HEAD and not self.unsent_bytes():
            return False  # the transport closes itself
        return self._end_of_input()

    def _end_of_input(self) -> bool:
        """Acts on the end of the client's bytes; returns whether the connection stays open for an answer."""
        if self.phase is BODY:
            self._refuse(400, "The body ended before its end.")
        elif self.phase is RUNNING and not self.transport.is_closing():
            self.cycle.client.gone = True
            self.cycle.message_event.set()
            return True
        if self.phase is LINGERING and self.unsent_bytes():
            return True
        self._close()
        return False

    def pause_writing(self) -> None:
        """Stops the application: its client takes less than it gives."""
        super().pause_writing()
        self._reader_begun = self._reader_moved = self.table.now()
        self._taken_before = self._taken = self._written - self.unsent_bytes()
        self.table.watch(self, self._reader_due(self._reader_begun))
        self.table.wait_for_reader(self)

    def resume_writing(self) -> None:
        """Lets the application go on."""
        super().resume_writing()
        self.table.reader_followed(self)

    def shutdown(self) -> None:
        """Closes the connection at once if it is idle, else after its answer."""
        if self.phase is LINGERING:
            self._begun = min(self._begun, self.table.now() + 1 - self.bounds.linger_s)
            self.table.watch(self, self._begun + self.bounds.linger_s)
        else:
            super().shutdown()

    # --- requests ---

    def _advance(self) -> None:
        """Gives the parser what has come, up to the end of the current request."""
        while self._unread and self.phase is not LINGERING and not self.transport.is_closing():
            if not self.request_complete:
                self._feed_body()
            elif self.phase is RUNNING:
                self._keep_for_later()
                return
            elif not self._feed_head():
                return
        if self.phase is BODY:
            if self._begun < 0:
                self._await_body()
        elif self.flow.read_paused and self.phase is RUNNING:
            self.flow.resume_reading()  # so that it is seen when the client leaves

    def _await_body(self) -> None:
        """Begins to judge the client by its body. One that waits to be asked for it is not judged before it is."""
        if self.cycle.waiting_for_100_continue:
            self.flow.pause_reading()
        self._begun = self._moved = self.flow.client_now()
        self.table.watch(self, self._client_due())

    def _keep_for_later(self) -> None:
        if len(self._unread) > self.bounds.pipelined_bytes_max:
            self._unread = b""
            self.cycle.keep_alive = False
        self.flow.pause_reading()

    def _feed_head(self) -> bool:
        """Starts the next request if its head is whole; returns whether it is."""
        data = self._unread
        if not self.flow.write_paused and self.repeats.answer(data, self):
            self._unread, self._searched = b"", 0
            self._enter(IDLE)
            return True
        taken = None if self.flow.write_paused else self.repeats.take(data, self)
        if taken is not None:
            self.cycle, end = taken
            self._unread, self._searched = data[end:], 0
            self.table.enter(self, RUNNING)
            return True
        if data[:2] == b"\r\n":
            data = self._unread = without_blank_lines(data)
            self._searched = 0
        end = data.find(_HEAD_END, self._searched)
        try:
            if end < 0 or end > self.bounds.head_bytes_max:
                self._wait_for_head(data)
                return False
            if data.find(b"\r\n", 0, self.bounds.request_line_bytes_max + 2) < 0:
                raise BadHead(414, "The request line is too long.")
            if not data[:1].isalpha():
                raise BadHead(400, "The request does not begin with a method.")
            self._searched = 0
            end += len(_HEAD_END)
            self._head, self._unread = bytes(data[:end]), data[end:]
            self._parse_head(self._head)
            self._head = b""
        except BadHead as error:
            self._refuse(error.status, error.text)
            return False
        return True

    def _wait_for_head(self, data: bytes | bytearray) -> None:
        if (
            len(data) > self.bounds.request_line_bytes_max
            and data.find(b"\r\n", 0, self.bounds.request_line_bytes_max + 2) < 0
        ):
            raise BadHead(414, f"The request line is longer than {self.bounds.request_line_bytes_max} bytes.")
        if len(data) > self.bounds.head_bytes_max:
            raise BadHead(431, f"The head is longer than {self.bounds.head_bytes_max} bytes.")
        if data:
            check_unfinished(data, self._searched)
        self._searched = max(0, len(data) - len(_HEAD_END) + 1)
        if self.phase is not HEAD:
            self._enter(HEAD)

    def _parse_head(self, head: bytes) -> None:
        """Starts the request of a whole head. One that asks for another protocol is answered in this one."""
        try:
            self.parser.feed_data(head)
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, BadHead):
                raise error.__context__ from None
            if isinstance(error.__context__, UpgradeWanted):
                self.parser = httptools.HttpRequestParser(self)
                self._parse_head(_UPGRADE.sub(b"", head))
                return
            raise BadHead(400, f"The request cannot be read: {error}.") from None
        if self.phase <= HEAD:  # the parser wants more of it: it begins HTTP/2
            raise BadHead(505, "This server speaks HTTP/1.1.")

    def _feed_body(self) -> None:
        piece, self._unread = self._unread, b""
        if self._body_left is not None:
            if len(piece) > self._body_left:
                piece, self._unread = piece[: self._body_left], piece[self._body_left :]
            self._body_left -= len(piece)
        self._received += len(piece)
        if self._begun >= 0:
            self._moved = self.flow.client_now()
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserError as error:
            if self.request_complete:  # what followed the chunks is lost, so the connection ends with this answer
                self.cycle.keep_alive = False
            else:
                self._refuse(400, f"The body cannot be read: {error}.")
            return
        chunked_max = self.bounds.head_bytes_max + self.bounds.chunk_overhead_max * self._body_bytes
        if self._body_left is None and not self.request_complete and self._received > chunked_max:
            self._refuse(400, "The body's chunks are too small.")

    # --- the parser's calls ---

    def on_message_begin(self) -> None:
        """Begins a request; bytes behind chunks are no request, since nobody knows where they began."""
        if self.phase is RUNNING:
            raise BadHead(400, "Nothing may follow chunks before their answer.")
        self.url, self.headers = b"", []
        self._special = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        """Takes a header. Those of trailers go into a list that nobody reads."""
        name = name.lower()
        self.headers.append((name, value))
        if name in _SPECIAL:
            self._special.setdefault(name, []).append(value)

    def on_headers_complete(self) -> None:
        """Checks the head and starts the application."""
        head, special, method = self._head, self._special, self.parser.get_method()
        if len(self.headers) > self.bounds.headers_max:
            raise BadHead(431, f"The head has more than {self.bounds.headers_max} headers.")
        version = version_of(head, method, self.url)
        if self.parser.should_upgrade():
            if method == b"CONNECT":
                raise BadHead(405, "This server is no proxy.")
            raise UpgradeWanted
        path, query, authority = target_of(self.url, method)
        if len(special) > 1 or b"host" not in special or len(special[b"host"]) > 1:
            check_framing(special, version)
        self.headers = headers_of(self.headers, head, authority)
        lengths = special.get(b"content-length")
        self._body_left = int(lengths[0]) if lengths else None if b"transfer-encoding" in special else 0
        self.repeats.begin(head if authority is None else b"", method, self.url, version, special)
        client, scheme = self._origin(special)
        presence = Client()
        self.scope = {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": version,
            "server": self.server,
            "client": client,
            "scheme": scheme,
            "method": method.decode("ascii"),
            "root_path": self.root_path,
            "path": self.root_path + unquoted(path),
            "raw_path": path,
            "query_string": query,
            "headers": self.headers,
            "state": self.app_state.copy(),
            "extensions": {"spm.client": presence, **self.repeats.offers()},  # type: ignore[dict-item]
        }
        self.cycle = Exchange(self, presence, keeps_alive(self.parser, version, special), b"expect" in special)
        self.headers, self.request_complete = [], False
        self._start_asgi_task(self.cycle, self.app)
        self.table.enter(self, BODY)
        self._begun, self._received, self._body_bytes = -1.0, 0, 0

    def _origin(self, special: dict[bytes, list[bytes]]) -> tuple[tuple[str, int] | None, Any]:
        """Returns the client's address and the scheme. What strangers say about them is removed from the headers."""
        if FORWARDING_HEADERS.isdisjoint(special):
            return self.client, self.scheme
        if not self.trusted:
            self.headers = [pair for pair in self.headers if pair[0] not in FORWARDING_HEADERS]
            return self.client, self.scheme
        host, port = self.client or ("", 0)
        sender = origin(Origin(host, port, str(self.scheme)), special, self.table.proxies)
        return (sender.host, sender.port) if sender.host else None, sender.scheme

    def on_body(self, body: bytes) -> None:
        """Takes a piece of the body, and pauses the client while the application takes none."""
        exchange = self.cycle
        assert isinstance(exchange, Exchange), "BUG: the parser has a body that was taken whole"
        self._body_bytes += len(body)
        exchange.body += body
        if len(exchange.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        exchange.message_event.set()

    def on_message_complete(self) -> None:
        """Ends the request; its answer may end later."""
        self.request_complete = True
        self.cycle.more_body = False
        self.cycle.message_event.set()
        self._enter(RUNNING)

    # --- answers ---

    def write(self, data: bytes) -> None:
        """Sends bytes of an answer."""
        self._written += len(data)
        self.transport.write(data)

    def unsent_bytes(self) -> int:
        """Returns how many bytes of answers wait for the client."""
        return int(self.transport.get_write_buffer_size())

    def reader_pace(self, now: float) -> tuple[float, float]:
        """Returns the seconds since bytes have waited for the client, and the bytes a second it took since then."""
        seconds = now - self._reader_begun
        taken = self._written - self.unsent_bytes() - self._taken_before
        return seconds, taken / max(seconds, 1.0)

    def on_response_complete(self) -> None:
        """Waits for the next request, goes on with it if it has come, or ends the connection."""
        self.server_state.total_requests += 1
        self.scope, self._special = None, {}  # type: ignore[assignment]  # uvicorn's own begin
        if self.transport.is_closing() or self.phase is LINGERING:
            return
        if not self.request_complete or (not self.cycle.keep_alive and self.flow.read_paused):
            self._linger()
        elif not self.cycle.keep_alive:
            self._close()
        else:
            self.repeats.end()
            self._enter(IDLE)
            self.flow.resume_reading()
            self._advance()
            if self._half_closed:
                self._end_of_input()

    def cut(self) -> None:
        """Ends the connection where an answer breaks off: its end must not look like that of the answer."""
        self.transport.abort()

    def _refuse(self, status: int, text: str) -> None:
        """Answers a request that cannot be read, or came too slowly, with the connection's last answer."""
        exchange = self.cycle
        if exchange is not None and not exchange.response_complete:
            exchange.client.gone = exchange.disconnected = True
            exchange.message_event.set()
            self.flow.resume_writing()
            if exchange.response_started:
                self.transport.abort()
                return
        self.write(short_answer(status, text, self.server_state.default_headers))
        self._linger()

    def _close(self) -> None:
        """Closes the connection when all of its answers are taken."""
        self.transport.close()
        if self.unsent_bytes():
            self._watch_reader()

    def _linger(self) -> None:
        """Reads and drops what still comes, until the client has read the last answer and closes."""
        self._unread, self._received = b"", 0
        self._begun = self._moved = self.table.now()
        self._enter(LINGERING)
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        if self.unsent_bytes():
            self._watch_reader()

    # --- time ---

    def _enter(self, phase: Phase) -> None:
        self.table.enter(self, phase)
        if phase is not RUNNING and phase is not LINGERING:
            self._begun = self.table.now()
        if phase is not RUNNING:
            self.table.watch(self, self._client_due())

    def _watch_reader(self) -> None:
        if not self.flow.write_paused:
            self._reader_begun = self._reader_moved = self.table.now()
            self._taken_before = self._taken = self._written - self.unsent_bytes()
        self.table.watch(self, self._reader_due(self._reader_begun))

    def due(self, now: float) -> float:
        """Returns when the client's time is over, or when to look again."""
        if self.transport.is_closing():
            return self._reader_due(now)
        if self.phase is LINGERING and self.unsent_bytes():
            self._begun = self._moved = now
            return self._reader_due(now)
        if self.flow.write_paused:
            return min(self._reader_due(now), self._client_due())
        return self._client_due()

    def _client_due(self) -> float:
        bounds = self.bounds
        if self.phase is not BODY:
            if self.phase is LINGERING:
                return min(self._begun + bounds.linger_s, self._moved + bounds.linger_stall_s)
            return self._begun + (bounds.idle_s, bounds.silent_s, bounds.head_s, NEVER)[self.phase - IDLE]
        if self.flow.read_paused:
            return self.table.now() + bounds.body_stall_s
        return self.flow.paused_s + pace_due(
            self._begun,
            self._moved,
            self._received,
            stall_s=bounds.body_stall_s,
            grace_s=bounds.body_grace_s,
            bytes_per_s_min=bounds.body_bytes_per_s_min,
        )

    def _reader_due(self, now: float) -> float:
        taken = self._written - self.unsent_bytes()
        if taken != self._taken:
            self._taken, self._reader_moved = taken, now
        return min(
            now + self.bounds.answer_stall_s / 8,
            pace_due(
                self._reader_begun,
                self._reader_moved,
                taken - self._taken_before,
                stall_s=self.bounds.answer_stall_s,
                grace_s=self.bounds.answer_grace_s,
                bytes_per_s_min=self.bounds.answer_bytes_per_s_min,
            ),
        )

    def expire(self) -> None:
        """Closes the connection because its client's time is over."""
        if self.transport.is_closing() or self.flow.write_paused or self.phase is LINGERING:
            self.transport.abort()
        elif self.phase is BODY:
            self._refuse(408, "The body came too slowly.")
        elif self.phase is HEAD:
            self._refuse(408, "The head came too slowly.")
        else:
            self._close()

    def drop(self) -> None:
        """Ends the connection at once."""
        self.transport.abort()
