"""Listeners on the event loop: their streams and long polls, the looks at what is new, and the checks of rights.

A listener is one task that waits; a wake is one future. While there are rings, one task looks once a second, in a
thread of its own (``ChangeWatch``), publishes, and has rights checked that are due. Nothing of it runs without
listeners. A stream whose reader is slow waits within ``send``; what it misses meanwhile is in the ring or becomes a
reset, and the protocol closes it when it takes nothing for a minute. Enter by ``EventStreams``.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ParamSpec, Protocol, TypeVar

from django.db import close_old_connections, connections

from frontend.events import wire_forms
from frontend.events.change_watch import Look
from frontend.events.event_ids import EventId
from frontend.events.hub import EventHub, Listener
from frontend.events.rights import Credential, Grant, NoSuchApp, NotSignedIn, grant_of
from spm import limits, telemetry
from spm.bounded import TtlMap
from spm.clock import Clock, jitter
from spm.errors import SpmError
from spm.web.fair_pool import FairPool

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Check = Callable[[Credential], Grant]
P = ParamSpec("P")
T = TypeVar("T")
_LOG = logging.getLogger(__name__)


class Watch(Protocol):
    """What looks at changes."""

    def look(self, apps: Sequence[int]) -> Look:
        """Return what is new."""


class EventsUnavailable(SpmError):
    """Nobody can listen now: the database does not answer."""


Shown = tuple[Credential, Grant]


class Seat:
    """A listener's place on the loop."""

    __slots__ = ("_turn", "end_reason", "has_left", "is_over", "listener", "rights")
    listener: Listener

    def __init__(self, rights: "_Rights") -> None:
        self.rights = rights
        self.is_over = self.has_left = False  # we end it; the client has gone
        self.end_reason = ""
        self._turn: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """Let it look."""
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)

    def end(self, reason: str = "") -> None:
        """Let it end; the reason is for listeners who must not come back."""
        self.is_over, self.end_reason = True, reason
        self.wake()

    def leave(self, _task: object = None) -> None:
        """Note that the client has gone."""
        self.has_left = True
        self.wake()

    async def wait(self, seconds: float) -> None:
        """Wait until it is woken, at most so many seconds."""
        loop = asyncio.get_running_loop()
        self._turn = loop.create_future()
        timer = loop.call_later(seconds, self.wake)
        try:
            await self._turn
        finally:
            timer.cancel()
            self._turn = None


@dataclass(slots=True)
class _Rights:
    """What was granted to a credential, when that was last checked, and the listeners that showed it."""

    shown: Shown
    checked_s: float
    seats: set[Seat] = field(default_factory=set)


class EventStreams:
    """All listeners of one event loop. ``open_watch`` makes what looks at changes; ``pool`` runs checks of rights."""

    def __init__(
        self,
        open_watch: Callable[[], Watch],
        pool: FairPool,
        clock: Clock,
        *,
        check: Check = grant_of,
        hub: EventHub | None = None,
        look_s: float = limits.EVENTS_LOOK_S,
        quiet_s: float = limits.EVENTS_QUIET_S,
    ) -> None:
        self.hub = EventHub() if hub is None else hub
        self.is_stopping = False
        self._open_watch, self._pool, self._clock, self._check = open_watch, pool, clock, check
        self._look_s, self._quiet_s = look_s, quiet_s
        self._granted: TtlMap[Credential, Grant] = TtlMap(limits.EVENTS_LISTENERS_MAX, limits.TOKEN_CACHE_S)
        self._rights: dict[Shown, _Rights] = {}
        self._watching: asyncio.Task[None] | None = None
        self._begun: asyncio.Future[None] | None = None
        self._checking: asyncio.Task[None] | None = None
        self._joining = 0

    def stop(self) -> None:
        """End all streams and polls, each with a whole answer, and take no more."""
        self.is_stopping = True
        for rights in self._rights.values():
            for seat in rights.seats:
                seat.end()

    async def grant(self, key: Hashable, credential: Credential) -> Grant:
        """Return what a credential grants, or granted a few seconds ago; raise ``NotSignedIn`` or ``NoSuchApp``."""
        now_s = self._clock.monotonic()
        try:
            return self._granted.valid(credential, now_s)
        except KeyError:
            grant = await self._pool.run(("events", key), partial(_in_thread, self._check, credential))
        return self._granted.get_or_load(credential, now_s, lambda: grant)

    async def join(self, credential: Credential, grant: Grant, after: EventId | None) -> Seat:
        """Add a listener, who gets what is new from now on, or after an id.

        Raises ``ListenersFull`` or ``EventsUnavailable``.
        """
        self.hub.check_room(grant.organisation_id)
        await self._begin_watching()
        shown = credential, grant
        rights = self._rights.get(shown) or _Rights(shown, self._clock.monotonic())
        seat = Seat(rights)
        if self.is_stopping:
            seat.end()  # with a whole answer: browsers do not come back after an error
        seat.listener = self.hub.join(grant.app_id, grant.organisation_id, seat.wake, after)
        self._rights[shown] = rights
        rights.seats.add(seat)
        telemetry.EVENT_LISTENERS.set(len(self.hub))
        return seat

    def leave(self, seat: Seat) -> None:
        """Remove a listener."""
        self.hub.leave(seat.listener, self._clock.monotonic())
        seat.rights.seats.discard(seat)
        if not seat.rights.seats:
            self._rights.pop(seat.rights.shown, None)
        telemetry.EVENT_LISTENERS.set(len(self.hub))

    async def stream(self, seat: Seat, send: Send, *, is_new: bool) -> None:
        """Send a listener what is new until it leaves or is ended; a new one first gets the id to go on from."""
        listener, now = seat.listener, self._clock.monotonic
        last = listener.ring.id_text() if is_new else ""
        await _send_piece(send, wire_forms.opening_bytes(round(jitter(limits.EVENTS_RETRY_MS, 0.8)), last))
        quiet_at = now() + jitter(self._quiet_s, 0.1)
        while not seat.has_left:
            batch = listener.take()
            if batch is not None:
                await _send_piece(send, wire_forms.stream_bytes(batch))
                last, quiet_at = batch.last, now() + jitter(self._quiet_s, 0.1)
                continue
            if seat.is_over:
                break
            if now() >= quiet_at:
                present = listener.ring.id_text()
                await _send_piece(send, wire_forms.quiet_bytes(present if present != last else ""))
                last, quiet_at = present, now() + jitter(self._quiet_s, 0.1)
                continue
            await seat.wait(quiet_at - now())
        await send({"type": "http.response.body", "body": wire_forms.end_bytes(seat.end_reason)})

    async def poll(self, seat: Seat, seconds: float) -> bytes:
        """Return the answer of a long poll: when something is new, or after so many seconds."""
        until = self._clock.monotonic() + seconds
        while True:
            batch = seat.listener.take()
            left = until - self._clock.monotonic()
            if batch is not None or left <= 0 or seat.is_over or seat.has_left:
                return wire_forms.poll_bytes(batch, seat.listener.ring.id_text())
            await seat.wait(left)

    async def _begin_watching(self) -> None:
        """Wait until changes are watched."""
        if self._begun is None or self._watching is None or self._watching.done():
            loop = asyncio.get_running_loop()
            self._begun = loop.create_future()
            self._watching = loop.create_task(self._watch(self._begun))
        self._joining += 1
        try:
            await asyncio.shield(self._begun)
        except Exception as error:
            raise EventsUnavailable("changes cannot be watched now: try again later") from error
        finally:
            self._joining -= 1

    async def _watch(self, begun: "asyncio.Future[None]") -> None:
        executor = ThreadPoolExecutor(1, thread_name_prefix="events")
        try:
            watch = self._open_watch()
            self.hub.lose()  # what happened while nobody watched
            try:
                await self._look(executor, watch)
            except Exception as error:
                begun.set_exception(error)
                raise
            begun.set_result(None)
            is_failing = False
            while self._joining or not self.hub.is_unused():
                await asyncio.sleep(self._look_s)
                try:
                    await self._look(executor, watch)
                    is_failing = False
                except Exception:
                    if not is_failing:
                        _LOG.exception("changes cannot be watched now")
                    is_failing = True
                self.hub.forget_unused(self._clock.monotonic(), limits.EVENTS_IDLE_S)
                self._check_rights()
        except Exception:
            _LOG.exception("changes cannot be watched")
        finally:
            executor.submit(connections.close_all)
            executor.shutdown(wait=False)

    async def _look(self, executor: ThreadPoolExecutor, watch: Watch) -> None:
        look = await asyncio.get_running_loop().run_in_executor(executor, _in_thread, watch.look, self.hub.apps())
        listeners = self.hub.publish(look.news)
        self.hub.has_seen(look.seen)
        if look.is_incomplete:
            listeners = self.hub.lose()
        for start in range(0, len(listeners), limits.EVENTS_WAKE_AT_ONCE):
            for listener in listeners[start : start + limits.EVENTS_WAKE_AT_ONCE]:
                listener.wake()
            await asyncio.sleep(0)

    def _check_rights(self) -> None:
        """Have the rights checked that are due, and send away those who could not be checked for too long."""
        now_s = self._clock.monotonic()
        due = [each for each, rights in self._rights.items() if now_s - rights.checked_s >= limits.EVENTS_CHECK_S]
        for each in due:
            if now_s - self._rights[each].checked_s >= limits.EVENTS_UNCHECKED_S:
                self._end(each)
        if due and (self._checking is None or self._checking.done()):
            part = due[: limits.EVENTS_CHECKS_AT_ONCE]
            self._checking = asyncio.get_running_loop().create_task(self._check_now(part))

    async def _check_now(self, due: Sequence[Shown]) -> None:
        now_s = self._clock.monotonic()
        try:
            refusals = await self._pool.run("rights of listeners", partial(_in_thread, _refusals, self._check, due))
        except Exception:
            _LOG.exception("the rights of listeners cannot be checked now")
            return
        for each, refusal in zip(due, refusals, strict=True):
            if refusal:
                self._end(each, refusal)
            elif each in self._rights:
                self._rights[each].checked_s = now_s

    def _end(self, each: Shown, reason: str = "") -> None:
        for seat in self._rights[each].seats if each in self._rights else ():
            seat.end(reason)


def _in_thread(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Do work on the database in this thread; a broken or old connection is not used."""
    close_old_connections()
    try:
        return work(*arguments, **named)
    finally:
        close_old_connections()


def _refusals(check: Check, due: Sequence[Shown]) -> list[str]:
    """Return why each may no longer listen, "" for those who may."""
    return [_refusal(check, credential, grant) for credential, grant in due]


def _refusal(check: Check, credential: Credential, grant: Grant) -> str:
    try:
        return "" if check(credential) == grant else "the app is another one now"
    except (NotSignedIn, NoSuchApp) as error:
        return str(error)


async def _send_piece(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})
