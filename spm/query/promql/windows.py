"""Functions of samples in a window, swept over all series and steps.

`sweep` moves two pointers along each series, so that a sample enters and leaves every window once, and asks one kernel
for the value of each window. `instants` is the same for an instant selector. Windows are left-open, (t - range, t].
Counters are extrapolated exactly as Prometheus does it (`extrapolated`, shared with the hourly tier). Sums are
compensated (Neumaier). The kernels never see stale markers: `sweep` takes them out first, `instants` ends a series at
them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from spm.query.select import SeriesBatch

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

STALE_BITS = np.uint64(0x7FF0000000000002)

# Codes of the kernels. A numba kernel compares small ints; names are for people.
COUNT, PRESENT, LAST, FIRST, SUM, AVG, MIN, MAX, STDDEV, STDVAR, QUANTILE = range(11)
RATE, INCREASE, DELTA, IRATE, IDELTA = range(11, 16)
FUNCTIONS = {
    "count_over_time": COUNT,
    "present_over_time": PRESENT,
    "last_over_time": LAST,
    "first_over_time": FIRST,
    "sum_over_time": SUM,
    "avg_over_time": AVG,
    "min_over_time": MIN,
    "max_over_time": MAX,
    "stddev_over_time": STDDEV,
    "stdvar_over_time": STDVAR,
    "quantile_over_time": QUANTILE,
    "rate": RATE,
    "increase": INCREASE,
    "delta": DELTA,
    "irate": IRATE,
    "idelta": IDELTA,
}
KEEPS_NAME = frozenset({"last_over_time", "first_over_time"})


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


def sweep(function: str, batch: SeriesBatch, steps: Steps, range_ms: int, parameter: F64) -> tuple[F64, Bool]:
    """The function's value per series and step, and where it has one. `parameter` has one number per step."""
    clean = without_stale(batch)
    shape = (len(clean.offsets) - 1, steps.count)
    values, present = np.empty(shape, np.float64), np.zeros(shape, np.bool_)
    _sweep(
        FUNCTIONS[function], clean.offsets, clean.ts, clean.values,
        steps.first_ms, steps.step_ms, range_ms, parameter, values, present,
    )  # fmt: skip
    return values, present


def instants(batch: SeriesBatch, steps: Steps, lookback_ms: int) -> tuple[F64, Bool]:
    """The newest sample per series and step, unless it is too old or a stale marker."""
    shape = (len(batch.offsets) - 1, steps.count)
    values, present = np.empty(shape, np.float64), np.zeros(shape, np.bool_)
    _instants(
        batch.offsets, batch.ts, batch.values.view(np.uint64),
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


@njit(cache=True, nogil=True)
def _instants(
    offsets: I64, ts: I64, bits: Any, first_ms: int, step_ms: int, lookback_ms: int, out: Any, present: Bool
) -> None:
    stale = np.uint64(0x7FF0000000000002)
    for series in range(len(offsets) - 1):
        newest, end = offsets[series] - 1, offsets[series + 1]
        for step in range(out.shape[1]):
            t = first_ms + step * step_ms
            while newest + 1 < end and ts[newest + 1] <= t:
                newest += 1
            if newest >= offsets[series] and ts[newest] > t - lookback_ms and bits[newest] != stale:
                out[series, step] = bits[newest]
                present[series, step] = True


@njit(cache=True, nogil=True)
def _sweep(
    code: int, offsets: I64, ts: I64, values: F64, first_ms: int, step_ms: int, range_ms: int,
    parameter: F64, out: F64, present: Bool,
) -> None:  # fmt: skip
    for series in range(len(offsets) - 1):
        low, high, end = offsets[series], offsets[series], offsets[series + 1]
        for step in range(out.shape[1]):
            t = first_ms + step * step_ms
            while high < end and ts[high] <= t:
                high += 1
            while low < high and ts[low] <= t - range_ms:
                low += 1
            if high - low > (1 if code >= RATE else 0):
                out[series, step] = _value(code, ts[low:high], values[low:high], t, range_ms, parameter[step])
                present[series, step] = True


@njit(cache=True, nogil=True)
def _value(code: int, ts: I64, values: F64, t: int, range_ms: int, parameter: float) -> Any:
    if code in (MAX, MIN):
        return _extreme(values, code == MAX)
    if code in (RATE, INCREASE):
        return _counter(ts, values, t, range_ms, code == RATE)
    if code == SUM:
        return _sum(values)
    if code == AVG:
        return _mean(values)
    if code == LAST:
        return values[-1]
    if code == FIRST:
        return values[0]
    if code == COUNT:
        return float(len(values))
    if code == PRESENT:
        return 1.0
    if code in (STDVAR, STDDEV):
        variance = _variance(values)
        return np.sqrt(variance) if code == STDDEV else variance
    if code == QUANTILE:
        return quantile_of(values, parameter)
    if code == DELTA:
        change = values[-1] - values[0]
        return change * extrapolated(len(values), ts[0], ts[-1], values[0], change, t, range_ms, False)
    return _instant_change(ts, values, code == IRATE)


@njit(cache=True, nogil=True)
def _extreme(values: F64, greatest: bool) -> Any:
    found = values[0]
    for value in values:
        if np.isnan(found) or (value > found if greatest else value < found):
            found = value
    return found


@njit(cache=True, nogil=True)
def compensated(total: float, lost: float, value: float) -> Any:
    """One step of Neumaier's sum: the new total, and what rounding has lost so far."""
    added = total + value
    if np.isinf(added):
        return added, 0.0
    if abs(total) >= abs(value):
        return added, lost + ((total - added) + value)
    return added, lost + ((value - added) + total)


@njit(cache=True, nogil=True)
def _sum(values: F64) -> Any:
    total, lost = 0.0, 0.0
    for value in values:
        total, lost = compensated(total, lost, value)
    return total + lost


@njit(cache=True, nogil=True)
def _mean(values: F64) -> Any:
    total, lost = 0.0, 0.0
    for value in values:
        total, lost = compensated(total, lost, value)
    count = len(values)
    if not np.isinf(total):
        return total / count + lost / count
    # The sum has left the range of floats; the mean need not.
    total, lost = 0.0, 0.0
    for value in values:
        total, lost = compensated(total, lost, value / count)
    return total + lost


@njit(cache=True, nogil=True)
def _variance(values: F64) -> Any:
    mean, squares, seen = 0.0, 0.0, 0
    for value in values:
        seen += 1
        distance = value - mean
        mean += distance / seen
        squares += distance * (value - mean)
    return squares / seen


@njit(cache=True, nogil=True)
def quantile_of(values: F64, q: float) -> Any:
    """Linear interpolation between the two nearest ranks; NaNs rank lowest."""
    if len(values) == 0 or np.isnan(q):
        return np.nan
    if q < 0:
        return -np.inf
    if q > 1:
        return np.inf
    numbers = np.sort(values[~np.isnan(values)])
    nans = len(values) - len(numbers)
    rank = q * (len(values) - 1)
    lower = int(np.floor(rank))
    upper = min(len(values) - 1, lower + 1)
    weight = rank - lower
    below = numbers[lower - nans] if lower >= nans else np.nan
    above = numbers[upper - nans] if upper >= nans else np.nan
    return below * (1 - weight) + above * weight


@njit(cache=True, nogil=True)
def _counter(ts: I64, values: F64, t: int, range_ms: int, per_second: bool) -> Any:
    gained = values[-1] - values[0]
    before = values[0]
    for value in values:
        if value < before:
            gained += before
        before = value
    factor = extrapolated(len(values), ts[0], ts[-1], values[0], gained, t, range_ms, True)
    return gained * (factor / (range_ms / 1000) if per_second else factor)


@njit(cache=True, nogil=True)
def extrapolated(
    count: int, first_ts: int, last_ts: int, first: float, gained: float, t: int, range_ms: int, counter: bool
) -> Any:
    """By which factor the change between the first and last sample grows to cover the window.

    1. A border nearer than 1.1 average intervals is reached; a farther one is approached by half an interval.
    2. A counter is not extrapolated below zero: its line meets zero at some time, and the window starts no earlier.
    """
    to_start, to_end = (first_ts - (t - range_ms)) / 1000, (t - last_ts) / 1000
    sampled = (last_ts - first_ts) / 1000
    average = sampled / (count - 1)
    if to_start >= average * 1.1:
        to_start = average / 2
    if counter and gained > 0 and first >= 0:
        to_start = min(to_start, sampled * (first / gained))
    if to_end >= average * 1.1:
        to_end = average / 2
    return (sampled + to_start + to_end) / sampled


@njit(cache=True, nogil=True)
def _instant_change(ts: I64, values: F64, rate: bool) -> Any:
    change = values[-1] - values[-2]
    if not rate:
        return change
    if values[-1] < values[-2]:
        change = values[-1]
    return change / ((ts[-1] - ts[-2]) / 1000)
