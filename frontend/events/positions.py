"""Listeners that read the lasting stream of events from a position: ``?stream_position=``.

The database has the events; this only waits and reads. A listener that is woken reads the next page after its position
in a thread of the pool; listeners at one place share the reading, and a page with events is kept a while, as the next
listener wants it too. An idle listener is one future. Enter by ``PositionStreams``.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson
from django.db import close_old_connections

from frontend.events import wire_forms
from frontend.events.event_ids import Feed
from frontend.events.rights import Grant
from frontend.events.streams import Seat
from spm import limits
from spm.bounded import LruCache
from spm.clock import Clock, jitter
from spm.events import log, relay
from spm.web.fair_pool import FairPool

Send = Callable[[dict[str, Any]], Awaitable[None]]
_PAGE_EVENTS = 100  # of one answer: at most 500 kB
_PAGES_KEPT = 64


@dataclass(frozen=True, slots=True)
class Place:
    """Where a listener is in the stream: an app's events, some or all kinds of them, after a position."""

    grant: Grant
    kinds: tuple[str, ...]
    position: int


@dataclass(frozen=True, slots=True)
class Read:
    """What comes after a place, as bytes, and the position to go on from."""

    events: tuple[tuple[int, bytes], ...]
    through: int

    @property
    def is_full(self) -> bool:
        """Whether there may be more at once."""
        return len(self.events) == _PAGE_EVENTS


class PositionStreams:
    """Reads for the listeners of one event loop."""

    def __init__(self, pool: FairPool, clock: Clock) -> None:
        self._pool, self._clock = pool, clock
        self._pages: LruCache[Place, Read] = LruCache(_PAGES_KEPT)
        self._reading: dict[Place, asyncio.Task[Read]] = {}

    async def begin(self, grant: Grant, text: str, kinds: tuple[str, ...]) -> tuple[Place, Read]:
        """Return the place that a listener names, and what comes after it.

        Raises ``BadQuery``, ``PositionGone`` or ``PoolFull``.
        """
        position = await self._run(grant, partial(log.position_of, grant.organisation_id, text))
        place = Place(grant, kinds, position)
        return place, await self._read(place)

    async def stream(self, seat: Seat, send: Send, place: Place, page: Read) -> None:
        """Send a listener what comes after its place, until it leaves or is ended."""
        retry_ms = round(jitter(limits.EVENTS_RETRY_MS, 0.8))
        await _send_piece(send, wire_forms.opening_bytes(retry_ms, str(place.position)))
        while not seat.has_left:
            if page.events:
                await _send_piece(send, b"".join(_block(position, body) for position, body in page.events))
            elif page.through > place.position:
                await _send_piece(send, wire_forms.quiet_bytes(str(page.through)))
            place = Place(place.grant, place.kinds, page.through)
            if page.is_full or await self._is_woken(seat, place, jitter(limits.EVENTS_QUIET_S, 0.1)):
                page = await self._read(place)
                continue
            if seat.is_over or seat.has_left:
                break
            await _send_piece(send, wire_forms.quiet_bytes(str(place.position)))
            page = Read((), place.position)  # nothing is read for it: the watch wakes it when the stream goes on
        await send({"type": "http.response.body", "body": wire_forms.end_bytes(seat.end_reason)})

    async def poll(self, seat: Seat, place: Place, page: Read, seconds: float) -> bytes:
        """Return the answer of a long poll: when there are events, or after so many seconds."""
        until = self._clock.monotonic() + seconds
        while not page.events and not seat.is_over and not seat.has_left:
            place = Place(place.grant, place.kinds, page.through)
            if not await self._is_woken(seat, place, until - self._clock.monotonic()):
                break
            page = await self._read(place)
        events = [orjson.Fragment(body) for _, body in page.events]
        return orjson.dumps({"events": events, "stream_position": page.through})

    async def _is_woken(self, seat: Seat, place: Place, seconds: float) -> bool:
        """Wait until the stream goes on; false when the time is over, or the listener's."""
        until = self._clock.monotonic() + seconds
        while not (seat.is_over or seat.has_left):
            if seat.listener.ring.seen[Feed.EVENTS] > place.position:
                return True
            left = until - self._clock.monotonic()
            if left <= 0:
                return False
            await seat.wait(left)
        return False

    async def _read(self, place: Place) -> Read:
        page = self._pages.get(place)
        if page is not None:
            return page
        reading = self._reading.get(place)
        if reading is None:
            reading = asyncio.get_running_loop().create_task(self._run(place.grant, partial(_page_after, place)))
            self._reading[place] = reading
            reading.add_done_callback(lambda _: self._reading.pop(place, None))
        page = await asyncio.shield(reading)
        if page.events:
            self._pages.put(place, page)
        return page

    async def _run(self, grant: Grant, work: Callable[[], Any]) -> Any:
        return await self._pool.run(("events", grant.organisation_id), partial(_in_thread, work))


def _page_after(place: Place) -> Read:
    organisation = place.grant.organisation_id
    relay.advance(organisation)
    page = log.read(organisation, place.grant.app_id, place.position, kinds=place.kinds, count=_PAGE_EVENTS)
    return Read(tuple((event.position or 0, orjson.dumps(log.as_json(event))) for event in page.events), page.through)


def _in_thread(work: Callable[[], Any]) -> Any:
    close_old_connections()
    try:
        return work()
    finally:
        close_old_connections()


def _block(position: int, body: bytes) -> bytes:
    return b"id: %d\nevent: event\ndata: %s\n\n" % (position, body)


async def _send_piece(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})
