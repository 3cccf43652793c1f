"""Stamping: the one moment at which a message gets its identity (rule 1).

``take_process`` draws a process number nobody used before; ``Acceptor.accept`` gives stamps that only grow within it,
whatever the clock does. Workers, runs and redeliveries never stamp again. No Django, no Celery here.
"""

import threading

import numpy as np

from spm.clock import Clock
from spm.errors import BadMessage
from spm.limits import HOUR_MS, MESSAGE_SLOTS_MAX, SEQUENCE_MAX
from spm.store import counters
from spm.store.backends.base import Backend
from spm.wire import Envelope, Parsed, Stamp, slot_of

PROCESS_MAX = 1 << 32  # a stamp's process number has 32 bits


def take_process(backend: Backend) -> int:
    """A process number (from 1) never used before."""
    return counters.take(backend, b"processes", below=PROCESS_MAX)


class Acceptor:
    """Gives stamps in the name of one process. Thread-safe."""

    def __init__(self, process: int, clock: Clock) -> None:
        self.process = process
        self._clock = clock
        self._lock = threading.Lock()
        self._last = Stamp(0, process, 0)

    def stamp(self) -> Stamp:
        """The next stamp: the clock's millisecond, or the last one's with the next sequence if that is not later."""
        with self._lock:
            now = self._clock.now_ms()
            last = self._last
            if now > last.ms:
                self._last = Stamp(now, self.process, 0)
            elif last.sequence < SEQUENCE_MAX:
                self._last = Stamp(last.ms, self.process, last.sequence + 1)
            else:
                self._last = Stamp(last.ms + 1, self.process, 0)
            return self._last

    def accept(self, *, app: int, source: str, parsed: Parsed, message_id: bytes) -> Envelope:
        """The stamped envelope of a parsed body; raises ``BadMessage`` when it touches too many hours."""
        _bounded(parsed)
        return Envelope(
            app=app,
            source=source,
            stamp=self.stamp(),
            message_id=message_id,
            series=parsed.series,
            series_index=parsed.series_index,
            ts=parsed.ts,
            values=parsed.values,
            rejected=parsed.rejected,
        )


def _bounded(parsed: Parsed) -> None:
    """Each hour of a message becomes a row that names all the others: their number has a limit."""
    if not len(parsed.ts) or int(parsed.ts.max()) - int(parsed.ts.min()) < MESSAGE_SLOTS_MAX * HOUR_MS:
        return
    touched = len(np.unique(slot_of(parsed.ts)))
    if touched > MESSAGE_SLOTS_MAX:
        raise BadMessage(
            "the message spreads over too many hours", got=touched, wanted=f"at most {MESSAGE_SLOTS_MAX}",
            remedy="Send it in parts, each with neighbouring times.",
        )  # fmt: skip
