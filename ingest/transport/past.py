"""Tells messages with samples of long ago from live ones: such a message may touch thousands of hours, each some rows.

What is live waits for none of them. The direct transport commits them in a thread of their own; over RabbitMQ they have
queues of their own, which a worker's second consumer reads. ``PastLoad`` tells apps that send many of them from others,
which need not wait behind these. Pure, but for the clock. Enter by ``are_past``.
"""

import threading
from collections import Counter
from collections.abc import Sequence

import numpy as np

from ingest.transport.limits import PAST_HOURS_MANY, PAST_LOAD_APPS_MAX, PAST_LOAD_S
from spm import limits
from spm.arrays import I64
from spm.clock import Clock
from spm.wire import Envelope


def has_past(ts: I64, stamp_ms: int) -> bool:
    """Whether any of the samples of one message is older than ``LIVE_HOURS``."""
    return bool(len(ts)) and int(ts.min()) < stamp_ms - limits.LIVE_HOURS * limits.HOUR_MS


def are_past(ts: I64, samples: I64, stamp_ms: I64) -> list[bool]:
    """Return of each message whether it has a sample older than ``LIVE_HOURS``; mostly none has, by one look.

    ``ts``: of the samples of all messages, one message after the other; ``samples``: their number in each.
    """
    if not len(ts) or ts.min() >= stamp_ms.max() - limits.LIVE_HOURS * limits.HOUR_MS:
        return [False] * len(samples)
    past = np.zeros(len(samples), np.bool_)
    filled = samples > 0
    starts = (np.cumsum(samples) - samples)[filled]
    oldest = np.minimum.reduceat(ts, starts)
    past[filled] = oldest < stamp_ms[filled] - limits.LIVE_HOURS * limits.HOUR_MS
    answer: list[bool] = past.tolist()
    return answer


def are_envelopes_past(envelopes: Sequence[Envelope]) -> list[bool]:
    """Return ``are_past`` of some envelopes."""
    ts = np.concatenate([envelope.ts for envelope in envelopes])
    sizes = np.array([len(envelope) for envelope in envelopes], np.int64)
    return are_past(ts, sizes, np.array([envelope.stamp.ms for envelope in envelopes], np.int64))


def hours_at_most(envelope: Envelope) -> int:
    """Return a bound of the hours that a message with samples touches."""
    return min(len(envelope), 1 + (int(envelope.ts.max()) - int(envelope.ts.min())) // limits.HOUR_MS + 1)


class PastLoad:
    """The hours of long ago that each app has sent through this process within the present minute. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._hours: Counter[int] = Counter()  # by app
        self._until = 0.0

    def add(self, envelope: Envelope) -> bool:
        """Count a message; return whether its app had sent many of them already."""
        now, app = self._clock.monotonic(), envelope.app
        with self._lock:
            if now >= self._until or len(self._hours) >= PAST_LOAD_APPS_MAX:
                self._hours.clear()
                self._until = now + PAST_LOAD_S
            sent = self._hours[app]
            self._hours[app] = sent + hours_at_most(envelope)
            return sent >= PAST_HOURS_MANY
