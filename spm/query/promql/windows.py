"""Samples to steps: the newest sample before each step, and functions of the samples in a window, over all series.

`sweep` moves two pointers along each series, so that a sample enters and leaves every window once, and asks `overtime`
for the value of each window; it pauses now and then to look at the clock. `instants` is the same for an instant
selector. Windows are left-open, (t - range, t]. Functions of windows never see stale markers: these are taken out
first; an instant selector ends a series at them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from spm.query.promql.overtime import FUNCTIONS, RATE, SMOOTH, value
from spm.query.select import SeriesBatch, Tick, nothing

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

STALE_BITS = np.uint64(0x7FF0000000000002)
KEEPS_NAME = frozenset({"last_over_time", "first_over_time"})
VISITS_AT_ONCE = 20_000_000  # samples visited between two looks at the clock: some tens of ms, sorting ten times that


@dataclass(frozen=True, slots=True)
class Steps:
    """Evaluation times: `count` of them from `first_ms`, `step_ms` apart (offset already taken off)."""

    first_ms: int
    step_ms: int
    count: int

    @property
    def last_ms(self) -> int:
        """The latest of them."""
        return self.first_ms + (self.count - 1) * self.step_ms

    @property
    def times(self) -> I64:
        """All of them."""
        return self.first_ms + np.arange(self.count, dtype=np.int64) * self.step_ms


def sweep(
    function: str, batch: SeriesBatch, steps: Steps, range_ms: int, *parameters: F64, tick: Tick = nothing
) -> tuple[F64, Bool]:
    """The function's value per series and step, and where it has one. A parameter has one number per step."""
    clean = without_stale(batch)
    shape = (len(clean.offsets) - 1, steps.count)
    values, present = np.empty(shape, np.float64), np.zeros(shape, np.bool_)
    numbers = [np.ascontiguousarray(p, np.float64) for p in (*parameters, *[np.zeros(steps.count)] * 2)[:2]]
    paused(
        lambda cursor: _sweep(
            FUNCTIONS[function], clean.offsets, clean.ts, clean.values, steps.first_ms, steps.step_ms, range_ms,
            numbers[0], numbers[1], values, present, cursor, VISITS_AT_ONCE,
        ),
        tick,
    )  # fmt: skip
    return values, present


def paused(step: Callable[[I64], bool], tick: Tick) -> None:
    """Call a kernel that stops after so much work until it is done, with a look at the clock in between."""
    cursor = np.zeros(2, np.int64)
    while not step(cursor):
        tick()


def instants(batch: SeriesBatch, steps: Steps, lookback_ms: int) -> tuple[F64, Bool]:
    """The newest sample per series and step, unless it is too old or a stale marker."""
    return _newest(batch, batch.values, steps, lookback_ms)


def stamps(batch: SeriesBatch, steps: Steps, lookback_ms: int) -> tuple[F64, Bool]:
    """The time of the newest sample, in seconds."""
    return _newest(batch, batch.ts / 1000, steps, lookback_ms)


def _newest(batch: SeriesBatch, shown: F64, steps: Steps, lookback_ms: int) -> tuple[F64, Bool]:
    shape = (len(batch.offsets) - 1, steps.count)
    values, present = np.empty(shape, np.float64), np.zeros(shape, np.bool_)
    _instants(
        batch.offsets, batch.ts, batch.values.view(np.uint64), shown.view(np.uint64),
        steps.first_ms, steps.step_ms, lookback_ms, values.view(np.uint64), present,
    )  # fmt: skip
    return values, present


def times(column: I64) -> I64:
    """Contiguous and writeable, so that kernels are compiled for one kind of array only."""
    return np.require(column, np.int64, ("C", "W"))


def numbers(column: F64) -> F64:
    """Likewise for floats, every bit kept."""
    return np.require(column, np.float64, ("C", "W"))


def without_stale(batch: SeriesBatch) -> SeriesBatch:
    """The same samples without stale markers."""
    real = batch.values.view(np.uint64) != STALE_BITS
    if real.all():
        return batch
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(real, dtype=np.int64)))
    return SeriesBatch(batch.labels, before[batch.offsets], batch.ts[real], batch.values[real])


@njit(cache=True, nogil=True, error_model="numpy")
def _instants(
    offsets: I64, ts: I64, bits: Any, shown: Any, first_ms: int, step_ms: int, lookback_ms: int, out: Any, present: Bool
) -> None:
    stale = np.uint64(0x7FF0000000000002)
    for series in range(len(offsets) - 1):
        newest, end = offsets[series] - 1, offsets[series + 1]
        for step in range(out.shape[1]):
            t = first_ms + step * step_ms
            while newest + 1 < end and ts[newest + 1] <= t:
                newest += 1
            if newest >= offsets[series] and ts[newest] > t - lookback_ms and bits[newest] != stale:
                out[series, step] = shown[newest]
                present[series, step] = True


@njit(cache=True, nogil=True, error_model="numpy")
def _sweep(
    code: int, offsets: I64, ts: I64, values: F64, first_ms: int, step_ms: int, range_ms: int,
    first: F64, second: F64, out: F64, present: Bool, cursor: I64, visits: int,
) -> bool:  # fmt: skip
    """Goes on at the cursor (series, step); True when all is done, False when it has visited so many samples."""
    needed = 2 if RATE <= code <= SMOOTH else 1
    for series in range(cursor[0], len(offsets) - 1):
        low, high, end = offsets[series], offsets[series], offsets[series + 1]
        for step in range(cursor[1], out.shape[1]):
            t = first_ms + step * step_ms
            while high < end and ts[high] <= t:
                high += 1
            while low < high and ts[low] <= t - range_ms:
                low += 1
            if high - low >= needed:
                out[series, step] = value(code, ts[low:high], values[low:high], t, range_ms, first[step], second[step])
                present[series, step] = True
            visits -= high - low + 1
            if visits < 0:
                cursor[0], cursor[1] = series, step + 1
                return False
        cursor[1] = 0
    return True
