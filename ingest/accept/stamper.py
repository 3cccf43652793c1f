"""Stamping: the one moment at which a message gets its identity (rule 1), and is counted (rule 26).

``take_process`` draws a process number nobody used before; ``Acceptor.accept`` gives stamps that only grow within it,
whatever the clock does, and counts under the same lock: "up to this stamp, so many messages of this app". A message is
open until ``settled`` says that the queue or the store has it. Workers, runs and redeliveries never stamp again. No
Django, no Celery here; who tells the store about the counts is ``announce``.
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
    """A process number (from 1) never used before."""
    return counters.take(backend, b"processes", below=PROCESS_MAX)


@dataclass(slots=True)
class Count:
    """What a process has accepted of one app since it began, up to the stamp ``last``; open: not confirmed yet."""

    last: Stamp
    messages: int = 0
    samples: int = 0
    rejected: int = 0
    open_messages: int = 0
    open_samples: int = 0


class Acceptor:
    """Gives stamps in the name of one process, and counts them by app. Thread-safe."""

    def __init__(self, process: int, clock: Clock) -> None:
        self.process = process
        self.retired = False  # it stamps no more, and whatever of it is open stays so
        self._clock = clock
        self._lock = threading.Lock()
        self._last = Stamp(0, process, 0)
        self._counts: dict[int, Count] = {}  # by app
        self._news: dict[int, None] = {}  # apps with something to tell, oldest news first
        self._open = 0

    def stamp(self) -> Stamp:
        """The next stamp: the clock's millisecond, or the last one's with the next sequence if that is not later."""
        with self._lock:
            return self._next()

    def accept(self, *, app: int, source: str, parsed: Parsed, message_id: bytes) -> Envelope:
        """The stamped envelope of a parsed body; raises ``BadMessage`` when it touches too many hours."""
        assert not self.retired, "BUG: stamped by a process that has ended"
        _bounded(parsed)
        return Envelope(
            app=app,
            source=source,
            stamp=self._counted(app, len(parsed.ts), parsed.rejected),
            message_id=message_id,
            series=parsed.series,
            series_index=parsed.series_index,
            ts=parsed.ts,
            values=parsed.values,
            rejected=parsed.rejected,
        )

    def settled(self, envelope: Envelope) -> None:
        """The queue or the store has this message; said once of each."""
        with self._lock:
            count = self._counts[envelope.app]
            count.open_messages -= 1
            count.open_samples -= len(envelope)
            self._open -= 1
            self._news[envelope.app] = None

    def retire(self) -> None:
        """Stamp no more: something that was stamped is lost to this process, or the process ends."""
        with self._lock:
            self.retired = True
            self._news |= dict.fromkeys(self._counts)

    def takes(self, app: int) -> bool:
        """Whether it keeps a count of the app, or can begin one."""
        return app in self._counts or len(self._counts) < ACCEPT_APPS_MAX

    def idle(self) -> bool:
        """Whether nothing of it is open."""
        return self._open == 0

    def has_news(self) -> bool:
        """Whether there is something to tell."""
        return bool(self._news)

    def take_news(self, most: int) -> list[tuple[int, Count]]:
        """The counts of apps with news, those first that have waited longest; they are news no more."""
        with self._lock:
            apps = list(self._news)[:most]
            for app in apps:
                del self._news[app]
            return [(app, replace(self._counts[app])) for app in apps]

    def tell_again(self, apps: Iterable[int]) -> None:
        """What was taken as news is to be told once more."""
        with self._lock:
            self._news = dict.fromkeys(apps) | self._news

    def _counted(self, app: int, samples: int, rejected: int) -> Stamp:
        with self._lock:
            stamp = self._next()
            count = self._counts.get(app)
            if count is None:
                count = self._counts[app] = Count(stamp)
            count.last = stamp
            count.messages += 1
            count.samples += samples
            count.rejected += rejected
            count.open_messages += 1
            count.open_samples += samples
            self._open += 1
            self._news[app] = None
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


def _bounded(parsed: Parsed) -> None:
    """Each hour of a message becomes a row that names all the others: their number has a limit."""
    if not len(parsed.ts) or int(parsed.ts.max()) - int(parsed.ts.min()) < MESSAGE_HOURS_MAX * HOUR_MS:
        return
    touched = len(np.unique(hour_of(parsed.ts)))
    if touched > MESSAGE_HOURS_MAX:
        raise BadMessage(
            "the message spreads over too many hours",
            got=touched,
            wanted=f"at most {MESSAGE_HOURS_MAX}",
            remedy="Send it in parts, each with neighbouring times.",
        )
