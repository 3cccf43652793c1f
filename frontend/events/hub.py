"""The rings of events, and who listens to which. Pure: no thread, no clock, no network.

Each app with listeners has one ring of its newest events. A listener has no queue, only its place in the ring: one
that is slow, or comes back with an id, takes what it lacks from there. What the ring no longer has, nobody can give:
then the listener gets a reset, which says "load again". An event that ``replaces`` (new data, a new
position) leaves only the newest of its feed in the ring, since it says all that the ones before it said. A ring
without listeners stays for a while, so that a long poll finds it again.

Not thread-safe: it belongs to one event loop. Enter by ``EventHub``.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from frontend.events.event_ids import NOTHING_SEEN, TABLES, EventId, Feed, Seen, with_seen
from spm import limits
from spm.clock import random_u64
from spm.errors import LimitExceeded


class ListenersFull(LimitExceeded):
    """There are as many listeners as there may be: try again later."""


@dataclass(frozen=True, slots=True)
class News:
    """Something new of one app. ``number``: its own in its feed; ``is_settled``: all below it in the feed are known."""

    app: int
    feed: Feed
    number: int
    kind: str
    body: bytes  # JSON
    is_settled: bool = True

    @property
    def replaces(self) -> bool:
        """Whether it says all that earlier news of its feed said."""
        return self.feed in (Feed.DATA, Feed.EVENTS)


@dataclass(frozen=True, slots=True)
class Event:
    """News with its number in the ring, and the id that a listener has after it."""

    number: int
    news: News
    id_text: str


@dataclass(frozen=True, slots=True)
class Batch:
    """What a listener lacked: events in their order, or that it must load again; and its id after it."""

    events: tuple[Event, ...]
    last: str
    is_reset: bool = False


class Ring:
    """The newest events of one app, oldest first."""

    __slots__ = ("app", "dropped", "events", "floor", "listeners", "name", "number", "seen", "size", "unused_since_s")

    def __init__(self, app: int, seen: Seen, size: int) -> None:
        self.app, self.size = app, size
        self.name = random_u64() >> 32
        self.number = 0  # of the newest event
        self.dropped = 0  # number of the newest event that was dropped for want of room
        self.seen = self.floor = seen  # after the newest event; of what may be missing here
        self.events: dict[int, Event] = {}
        self.listeners: dict[Listener, None] = {}
        self.unused_since_s: float | None = None

    def add(self, news: News) -> None:
        """Append an event."""
        if news.is_settled:
            self.seen = with_seen(self.seen, news.feed, news.number)
        self.number += 1
        if news.replaces:
            for number in [number for number, event in self.events.items() if event.news.feed is news.feed]:
                del self.events[number]
        self.events[self.number] = Event(self.number, news, self.id_text())
        if len(self.events) > self.size:
            oldest = self.events.pop(next(iter(self.events)))
            self.dropped = oldest.number
            self.floor = with_seen(self.floor, oldest.news.feed, oldest.news.number)

    def lose(self) -> None:
        """Drop everything: something happened that nobody here knows of."""
        self.number += 1
        self.dropped, self.floor = self.number, self.seen
        self.events.clear()

    def id_text(self) -> str:
        """The id after the newest event."""
        return str(EventId(self.name, self.number, self.seen))

    def after(self, number: int) -> list[Event]:
        """The events after a number, oldest first."""
        newer = []
        for each in reversed(self.events.values()):
            if each.number <= number:
                break
            newer.append(each)
        return newer[::-1]

    def covers(self, seen: Seen) -> bool:
        """Whether the ring has every event of the tables that is missing in ``seen``."""
        return all(seen[feed] >= self.floor[feed] for feed in TABLES)


class Listener:
    """One who listens to an app: its place in the ring, and how to wake it."""

    __slots__ = ("_backlog", "_must_reset", "_number", "_seen", "organisation", "ring", "wake")

    def __init__(self, ring: Ring, organisation: int, wake: Callable[[], None]) -> None:
        self.ring, self.organisation, self.wake = ring, organisation, wake
        self._number, self._must_reset = ring.number, False
        self._seen = NOTHING_SEEN  # elsewhere: by another process, which may have looked before this one
        self._backlog: tuple[Event, ...] = ()

    def resume(self, after: EventId) -> None:
        """Go on after an id. If it is of another ring (a former one, another process), what was seen says where."""
        ring = self.ring
        if after.ring == ring.name and after.number <= ring.number:
            self._number = after.number
        elif after.ring != ring.name and ring.covers(after.seen):
            self._seen = after.seen
            self._backlog = tuple(event for event in ring.events.values() if self._is_new(event.news))
        else:
            self.reset()

    def reset(self) -> None:
        """Tell the listener to load again."""
        self._must_reset = True

    def take(self) -> Batch | None:
        """Return what it lacks, and move on; ``None`` if it lacks nothing."""
        ring = self.ring
        if self._must_reset or self._number < ring.dropped:
            self._must_reset, self._backlog, self._number = False, (), ring.number
            return Batch((), ring.id_text(), is_reset=True)
        events = [*self._backlog, *(event for event in ring.after(self._number) if self._is_new(event.news))]
        self._backlog, self._number = (), ring.number
        return Batch(tuple(events), ring.id_text()) if events else None

    def _is_new(self, news: News) -> bool:
        return news.number > self._seen[news.feed]


class EventHub:
    """All rings and listeners of one process."""

    def __init__(
        self,
        *,
        ring_size: int = limits.EVENTS_RING,
        listeners_max: int = limits.EVENTS_LISTENERS_MAX,
        organisation_max: int = limits.EVENTS_LISTENERS_ORGANISATION_MAX,
    ) -> None:
        self._ring_size, self._listeners_max, self._organisation_max = ring_size, listeners_max, organisation_max
        self._rings: dict[int, Ring] = {}
        self._of_organisation: dict[int, int] = {}
        self._count = 0
        self._seen = NOTHING_SEEN

    def __len__(self) -> int:
        return self._count

    def is_unused(self) -> bool:
        """Whether there is no ring."""
        return not self._rings

    def apps(self) -> list[int]:
        """The apps that somebody listens to, or has listened to a moment ago: between two long polls nobody does."""
        return list(self._rings)

    def has_seen(self, seen: Seen) -> None:
        """Note up to which numbers of the tables everything is known: an app's first ring begins there."""
        self._seen = seen
        for ring in self._rings.values():
            ring.seen = tuple(map(max, seen, ring.seen))

    def check_room(self, organisation: int) -> None:
        """Raise ``ListenersFull`` where another listener of the organisation has no room."""
        own = self._of_organisation.get(organisation, 0)
        if own >= self._organisation_max:
            raise ListenersFull(
                "your organisation has too many listeners at once",
                got=own + 1,
                wanted=f"at most {self._organisation_max} in one web process",
                remedy="Close some, or share one among several readers. The bound is EVENTS_LISTENERS_ORGANISATION_MAX "
                "in spm/limits.py.",
            )
        if self._count >= self._listeners_max:
            raise ListenersFull(
                "this web process has too many listeners",
                got=self._count + 1,
                wanted=f"at most {self._listeners_max}",
                remedy="Try again later; the operator may start more web processes (SPM_WEB_PROCESSES). The bound is "
                "EVENTS_LISTENERS_MAX in spm/limits.py.",
            )

    def join(self, app: int, organisation: int, wake: Callable[[], None], after: EventId | None = None) -> Listener:
        """Add a listener, who gets what is new from now on, or after an id. Raises ``ListenersFull``."""
        self.check_room(organisation)
        ring = self._rings.get(app)
        if ring is None:
            ring = self._rings[app] = Ring(app, self._seen, self._ring_size)
        listener = Listener(ring, organisation, wake)
        if after is not None:
            listener.resume(after)
        ring.listeners[listener] = None
        ring.unused_since_s = None
        self._count += 1
        self._of_organisation[organisation] = self._of_organisation.get(organisation, 0) + 1
        return listener

    def leave(self, listener: Listener, now_s: float) -> None:
        """Remove a listener; a second time changes nothing."""
        if listener not in listener.ring.listeners:
            return
        del listener.ring.listeners[listener]
        if not listener.ring.listeners:
            listener.ring.unused_since_s = now_s
        self._count -= 1
        left = self._of_organisation[listener.organisation] - 1
        if left:
            self._of_organisation[listener.organisation] = left
        else:
            del self._of_organisation[listener.organisation]

    def publish(self, news: Iterable[News]) -> list[Listener]:
        """Put news into the rings of their apps; return the listeners to be woken. Others' news is dropped."""
        changed: dict[int, Ring] = {}
        for each in news:
            ring = self._rings.get(each.app)
            if ring is not None:
                ring.add(each)
                changed[each.app] = ring
        return [listener for ring in changed.values() for listener in ring.listeners]

    def lose(self, app: int | None = None) -> list[Listener]:
        """Note that events of an app (``None``: of all) were missed; return the listeners to be woken."""
        rings = [ring for ring in self._rings.values() if app in (None, ring.app)]
        for ring in rings:
            ring.lose()
        return [listener for ring in rings for listener in ring.listeners]

    def forget_unused(self, now_s: float, after_s: float) -> None:
        """Drop the rings to which nobody has listened for ``after_s``."""
        for ring in [*self._rings.values()]:
            if ring.unused_since_s is not None and now_s - ring.unused_since_s >= after_s:
                del self._rings[ring.app]
