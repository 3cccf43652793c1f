"""Stamping: gives a message its identity, once (PROTOCOL 1), and counts it (PROTOCOL 26).

``take_process`` draws a process number that nobody used before. ``Stamper.stamp_message`` gives stamps that only grow
within it, whatever the clock does, and counts under the same lock: "up to this stamp, so many messages of this app". A
message is open until ``confirm`` says that the queue or the store has it. Workers, runs and redeliveries never stamp
again. ``announcer`` writes the counts to the store. No Django, no Celery here.
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from spm.clock import Clock
from spm.errors import BadMessage
from spm.limits import ACCEPT_APPS_MAX, HOUR_MS, MESSAGE_HOURS_MAX, SEQUENCE_MAX
from spm.store.backends.base import Backend
from spm.store.ledger import counters
from spm.wire import Envelope, Parsed, Stamp, hour_of

PROCESS_MAX = 1 << 32  # a stamp's process number has 32 bits


def take_process(backend: Backend) -> int:
    """Return a process number (from 1) that was never used before."""
    return counters.take(backend, b"processes", below=PROCESS_MAX)


@dataclass(slots=True)
class AppCount:
    """What a process has accepted of one app up to the stamp ``last``; open messages are not confirmed yet."""

    last: Stamp
    messages: int = 0
    samples: int = 0
    rejected: int = 0
    open_messages: int = 0
    open_samples: int = 0


class Stamper:
    """Gives stamps above ``floor_ms`` for one process number, and counts them by app. Thread-safe.

    ``past``: it stamps messages with samples of long ago, for which no judge waits.
    """

    def __init__(self, process: int, clock: Clock, floor_ms: int = 0, *, past: bool = False) -> None:
        self.process, self.past = process, past
        self.retired = False  # it stamps no more, and its open messages stay open
        self._clock = clock
        self._lock = threading.Lock()
        self._last = Stamp(floor_ms, process, 0)
        self._counts: dict[int, AppCount] = {}  # by app
        self._changed: dict[int, None] = {}  # apps whose counts are not announced yet, the oldest change first
        self._open = 0

    def next_stamp(self) -> Stamp:
        """Return the clock's millisecond, or the last stamp's with the next sequence if that is not later."""
        with self._lock:
            return self._next()

    @property
    def last_stamp(self) -> Stamp:
        """The last stamp; just after ``lift`` that is the floor itself, which no message has."""
        return self._last

    def next_ms(self) -> int:
        """Return the time of the next stamp, if only this number stamps meanwhile."""
        return max(self._clock.now_ms(), self._last.ms)

    def follow(self, other: "Stamper") -> None:
        """Give only stamps from now on that win over those which another number of this process has given."""
        if other._last.ms >= self._last.ms:
            self.lift(other._last.ms + 1)

    def lift(self, floor_ms: int) -> None:
        """Give only stamps above this time from now on (``spm.store.ledger.stamp_floor``)."""
        with self._lock:
            if floor_ms > self._last.ms:
                self._last = Stamp(floor_ms, self.process, 0)

    def stamp_message(self, *, app: int, source: str, parsed: Parsed, message_id: bytes) -> Envelope:
        """Return the stamped envelope of a parsed body; raise ``BadMessage`` when it spreads over too many hours."""
        assert not self.retired, "BUG: stamped by a process that has ended"
        _check_hours(parsed)
        return Envelope(
            app=app,
            source=source,
            stamp=self._count(app, len(parsed.ts), parsed.rejected),
            message_id=message_id,
            series=parsed.series,
            series_index=parsed.series_index,
            ts=parsed.ts,
            values=parsed.values,
            rejected=parsed.rejected,
        )

    def confirm(self, envelope: Envelope) -> None:
        """Close a message that the queue or the store has; called once for each."""
        with self._lock:
            count = self._counts[envelope.app]
            count.open_messages -= 1
            count.open_samples -= len(envelope)
            self._open -= 1
            self._changed[envelope.app] = None

    def retire(self) -> None:
        """Stamp no more: the outcome of a stamped message is unknown to this process, or the process ends."""
        with self._lock:
            self.retired = True
            self._changed |= dict.fromkeys(self._counts)

    def can_count(self, app: int) -> bool:
        """Whether it counts the app already, or has room to begin."""
        return app in self._counts or len(self._counts) < ACCEPT_APPS_MAX

    def is_idle(self) -> bool:
        """Whether no message is open."""
        return self._open == 0

    def has_changes(self) -> bool:
        """Whether some counts are not announced yet."""
        return bool(self._changed)

    def changed_apps(self) -> list[int]:
        """Return the apps whose counts are not announced yet."""
        with self._lock:
            return list(self._changed)

    def take_changes(self, most: int) -> list[tuple[int, AppCount]]:
        """Return the counts of apps that changed, the longest waiting first; they then count as announced."""
        with self._lock:
            apps = list(self._changed)[:most]
            for app in apps:
                del self._changed[app]
            return [(app, replace(self._counts[app])) for app in apps]

    def announce_again(self, apps: Iterable[int]) -> None:
        """Put apps that were taken as changes back in front."""
        with self._lock:
            self._changed = dict.fromkeys(apps) | self._changed

    def _count(self, app: int, samples: int, rejected: int) -> Stamp:
        with self._lock:
            stamp = self._next()
            count = self._counts.get(app)
            if count is None:
                count = self._counts[app] = AppCount(stamp)
            count.last = stamp
            count.messages += 1
            count.samples += samples
            count.rejected += rejected
            count.open_messages += 1
            count.open_samples += samples
            self._open += 1
            self._changed[app] = None
            return stamp

    def _next(self) -> Stamp:
        now = self._clock.now_ms()
        last = self._last
        if now > last.ms:
            self._last = Stamp(now, self.process, 0)
        elif last.sequence < SEQUENCE_MAX:
            self._last = Stamp(last.ms, self.process, last.sequence + 1)
        else:
            self._last = Stamp(last.ms + 1, self.process, 0)
        return self._last


def _check_hours(parsed: Parsed) -> None:
    """Bound the hours of a message: each becomes a row that names all the others."""
    if len(parsed.ts) <= MESSAGE_HOURS_MAX or int(parsed.ts.max()) - int(parsed.ts.min()) < MESSAGE_HOURS_MAX * HOUR_MS:
        return
    touched = len(np.unique(hour_of(parsed.ts)))
    if touched > MESSAGE_HOURS_MAX:
        raise BadMessage(
            "the message spreads over too many hours",
            got=touched,
            wanted=f"at most {MESSAGE_HOURS_MAX}",
            remedy="Send it in parts, each with neighbouring times.",
        )
