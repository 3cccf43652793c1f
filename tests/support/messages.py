"""Messages for tests: only what matters is said, the rest is filled in."""

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from spm.wire import Envelope, SeriesTable, Stamp, canonical

HOUR_MS = 3_600_000
START_MS = 472_222 * HOUR_MS
LONG_AGO_MS = 60 * HOUR_MS  # before live samples: these go through other queues
_TO_NOW_MS = (int(time.time() * 1_000) - START_MS) // HOUR_MS * HOUR_MS

RECENT_MS = START_MS + _TO_NOW_MS - 24 * HOUR_MS  # a whole hour of yesterday: live, and its runs are due


def message(
    number: int = 0, *, app: int = 1, source: str = "host", samples: int = 3, values: Sequence[float] | None = None
) -> Envelope:
    """Message ``number`` of a source: one sample of each of ``samples`` series, ten seconds after the one before."""
    forms = [canonical(f"metric_{i}", {"host": source}) for i in range(samples)]
    at_ms = START_MS + 1 + number * 10_000
    ts = np.full(samples, at_ms, np.int64)
    drawn = np.array(range(1000 * number, 1000 * number + samples) if values is None else values, np.float64)
    stamp = Stamp(at_ms + 500, 1, 0)
    index = np.arange(samples, dtype=np.int32)
    table = SeriesTable.from_canonical(forms)
    return Envelope(app, source, stamp, number.to_bytes(16, "big"), table, index, ts, drawn)


def recent(envelope: Envelope) -> Envelope:
    """The same message with live samples, by whole hours: those of long ago go through other queues."""
    return replace(envelope, ts=envelope.ts + _TO_NOW_MS)
