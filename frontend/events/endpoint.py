"""``GET /api/v1/events``: a stream of an app's events, or a long poll, as an ASGI application.

    ?app=N              the app, for a session; a token has its own
    ?after=ID           go on after this event; of a stream, ``Last-Event-ID`` goes before it
    ?timeout=SECONDS    of a long poll, ``EVENTS_POLL_MAX_S`` at most
    ?stream_position=N  read the lasting stream of events after a position, ``oldest`` or ``newest``; &kind=A,B

A client that accepts ``text/event-stream`` gets a stream, any other the JSON of a long poll. A poll without ``after``
is answered at once, with the id to go on from. Enter by ``EventEndpoint``.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

import orjson

from frontend.events.event_ids import NOTHING_SEEN, EventId
from frontend.events.hub import ListenersFull
from frontend.events.positions import Place, PositionStreams, Read
from frontend.events.rights import Credential, NoSuchApp, NotSignedIn, app_number, credential_of
from frontend.events.streams import EventStreams, EventsUnavailable, Seat
from spm import limits
from spm.clock import Clock
from spm.errors import BadQuery, SpmError
from spm.events.errors import PositionGone
from spm.telemetry import count_request
from spm.web.error_status import RETRYABLE, Statuses, status_of
from spm.web.fair_pool import PoolFull
from spm.web.protective_headers import protective_headers, transport_security

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
_STREAM = "text/event-stream"
_VIEW = "api:events"
_LOST = EventId(0, 0, NOTHING_SEEN)  # for an id that is none of ours: it is in no ring


class WrongMethod(SpmError):
    """The address takes GET."""


@dataclass(frozen=True, slots=True)
class _ListenRequest:
    """What a listener wants: a stream, from now on or after an id, or one answer within some seconds."""

    is_stream: bool
    is_new: bool = True
    timeout_s: float = 0.0
    position: str | None = None  # in the lasting stream
    kinds: tuple[str, ...] = ()


_STATUSES: Statuses = {
    NotSignedIn: 401,
    NoSuchApp: 404,
    PositionGone: 410,
    WrongMethod: 405,
    ListenersFull: 429,
    PoolFull: 429,
    EventsUnavailable: 503,
}


class EventEndpoint:
    """Answers the requests of one event loop."""

    def __init__(self, streams: EventStreams, positions: PositionStreams, clock: Clock) -> None:
        self._streams, self._positions, self._clock = streams, positions, clock

    def stop(self) -> None:
        """End all streams and polls, each with a whole answer."""
        self._streams.stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        begun, status, seat, request = self._clock.monotonic(), 200, None, _ListenRequest(is_stream=False)
        place: tuple[Place, Read] | None = None
        try:
            seat, request, place = await self._seat(scope)
        except SpmError as error:
            status = status_of(error, _STATUSES)
            await _send_answer(scope, send, status, _failure_of(error), _headers_of(status))
        count_request(_VIEW, scope["method"], status, begun)  # what follows is waiting
        if seat is None:
            return
        scope["headers"].clear()  # kilobytes of a browser's, times ten thousand
        watcher = asyncio.get_running_loop().create_task(_left(receive))
        watcher.add_done_callback(seat.leave)
        try:
            if request.is_stream:
                await send({"type": "http.response.start", "status": 200, "headers": _stream_head(scope["scheme"])})
                if place is not None:
                    await self._positions.stream(seat, send, *place)
                else:
                    await self._streams.stream(seat, send, is_new=request.is_new)
            else:
                await _send_answer(scope, send, 200, await self._poll(seat, request, place), {})
        finally:
            watcher.cancel()
            self._streams.leave(seat)

    async def _poll(self, seat: Seat, request: _ListenRequest, place: tuple[Place, Read] | None) -> bytes:
        if place is not None:
            return await self._positions.poll(seat, *place, request.timeout_s)
        return await self._streams.poll(seat, request.timeout_s)

    async def _seat(self, scope: Scope) -> "tuple[Seat, _ListenRequest, tuple[Place, Read] | None]":
        """Check a request and add its listener."""
        if scope["method"] != "GET":
            raise WrongMethod(f"{scope['method']} is not taken here, only GET")
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        credential, after, request = _question_of(headers, scope["query_string"])
        client = scope.get("client")
        grant = await self._streams.grant(client[0] if client else "", credential)
        seat = await self._streams.join(credential, grant, after)  # before the reading: what comes after it wakes
        if request.position is None:
            return seat, request, None
        try:
            return seat, request, await self._positions.begin(grant, request.position, request.kinds)
        except BaseException:
            self._streams.leave(seat)
            raise


def _question_of(
    headers: Mapping[bytes, str], query_string: bytes
) -> tuple[Credential, EventId | None, _ListenRequest]:
    """Read a request's head; raises ``BadQuery`` or ``NotSignedIn``."""
    try:
        fields = dict(parse_qsl(query_string.decode("ascii"), keep_blank_values=True, max_num_fields=20))
    except ValueError as error:
        raise BadQuery("the parameters cannot be read") from error
    is_stream = _STREAM in headers.get(b"accept", "")
    after = (headers.get(b"last-event-id", "") if is_stream else "") or fields.get("after", "")
    timeout_s = _seconds_of(fields.get("timeout"))
    position = fields.get("stream_position")
    if position is not None:
        kinds = tuple(filter(None, fields.get("kind", "").split(",")))
        last = headers.get(b"last-event-id", "") if is_stream else ""
        wanted = _ListenRequest(is_stream, timeout_s=timeout_s, position=last or position, kinds=kinds)
        return credential_of(*_shown(headers), app_number(fields.get("app"))), None, wanted
    app = app_number(fields.get("app"))
    credential = credential_of(*_shown(headers), app)
    request = _ListenRequest(is_stream, is_new=not after, timeout_s=timeout_s if after else 0)
    return credential, (EventId.parse(after) or _LOST) if after else None, request


def _shown(headers: Mapping[bytes, str]) -> tuple[str, str]:
    return headers.get(b"authorization", ""), headers.get(b"cookie", "")


def _failure_of(error: SpmError) -> dict[str, object]:
    return {"error": str(error), **({"oldest": error.oldest} if isinstance(error, PositionGone) else {})}


def _seconds_of(text: str | None) -> float:
    if text is None:
        return limits.EVENTS_POLL_S
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= limits.EVENTS_POLL_MAX_S:
        raise BadQuery(f"timeout={text[:20]!r} is no number of seconds from 0 to {limits.EVENTS_POLL_MAX_S}")
    return seconds


async def _left(receive: Receive) -> None:
    """Wait until the client leaves."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _stream_head(scheme: str) -> list[tuple[bytes, bytes]]:
    # nginx would gather small pieces, caches would keep them
    return _encoded(scheme, {"content-type": _STREAM, "x-accel-buffering": "no", "vary": "Accept"})


def _headers_of(status: int) -> dict[str, str]:
    if status == 405:
        return {"allow": "GET"}
    if status == 401:
        return {"www-authenticate": 'Bearer realm="spm"'}
    return {"retry-after": str(limits.RETRY_AFTER_S)} if status in RETRYABLE else {}


async def _send_answer(scope: Scope, send: Send, status: int, body: object, more: Mapping[str, str]) -> None:
    text = body if isinstance(body, bytes) else orjson.dumps(body)
    head = {"content-type": "application/json", "content-length": str(len(text)), "vary": "Accept", **more}
    await send({"type": "http.response.start", "status": status, "headers": _encoded(scope["scheme"], head)})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else text})


def _encoded(scheme: str, headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    every = {**protective_headers(), **transport_security(scheme == "https"), **headers}
    return [(name.lower().encode(), value.encode("latin-1")) for name, value in every.items()]
