"""Functions of windows that are whole hours, from hourly and daily aggregates instead of samples.

`span` decides whether a window can be answered so: every border of every step lies on an hour. It cuts the time into
cells: a UTC day that no border cuts is one, else each hour. `combine` joins the cells of each window: counts and sums
are added, extremes compared, a change is taken from the first and last sample and extrapolated exactly as from samples,
counter resets included. Where aggregates cannot tell what samples would give (a NaN that hides what a counter gained, a
sum beyond the range of floats), it says so, and the caller reads the samples if they are still there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from spm.arrays import BOOL, F64, I64
from spm.limits import DAY_HOURS, HOUR_MS, QUERY_DAYS_MAX
from spm.query.promql.kernels import over_time
from spm.query.promql.kernels.over_time import (
    AVG,
    COUNT,
    DELTA,
    FIRST,
    INCREASE,
    LAST,
    MAX,
    MIN,
    PRESENT,
    RATE,
    SUM,
    extrapolated,
)
from spm.query.promql.kernels.windows import Steps
from spm.query.request.batches import HourBatch
from spm.store.rollup.aggregates import compensated

_EXACT = frozenset({COUNT, PRESENT, SUM, AVG, MIN, MAX, FIRST, LAST, RATE, INCREASE, DELTA})
_CHANGES = frozenset({RATE, INCREASE, DELTA})


@dataclass(frozen=True, slots=True)
class Span:
    """The cells of a query, borders[i]:borders[i + 1] in hours, and the cells low[t]:high[t] of each step's window."""

    borders: I64
    low: I64
    high: I64


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows first_ms[t] < ts <= last_ms[t], and the cells low[t]:high[t] that each of them is made of."""

    low: I64
    high: I64
    first_ms: I64
    last_ms: I64

    @classmethod
    def of(cls, span: Span, steps: Steps, range_ms: int) -> Windows:
        """Those that end at the steps."""
        return cls(span.low, span.high, steps.times - range_ms, steps.times)


@dataclass(frozen=True, slots=True)
class Combined:
    """Values and presence [S, T]; ``doubtful`` where samples might give another number."""

    values: F64
    present: BOOL
    doubtful: bool


def span(function: str, steps: Steps, range_ms: int) -> Span | None:
    """The cells that answer the function at all steps exactly, if there are such."""
    return cells(steps, range_ms) if answers(function) else None


def answers(function: str) -> bool:
    """Whether aggregates can give the function's value."""
    return over_time.FUNCTIONS.get(function) in _EXACT


def cells(steps: Steps, range_ms: int) -> Span | None:
    """The cells of windows whose every border lies on an hour."""
    if range_ms % HOUR_MS or not range_ms or steps.first_ms % HOUR_MS:
        return None
    if steps.count > 1 and steps.step_ms % HOUR_MS:
        return None
    ends = (steps.first_ms + np.arange(steps.count, dtype=np.int64) * steps.step_ms) // HOUR_MS
    starts = ends - range_ms // HOUR_MS
    first, last = int(starts[0]), int(ends[-1])
    if last - first > QUERY_DAYS_MAX * DAY_HOURS:
        return None
    hours, day = np.arange(first, last + 1), first // DAY_HOURS
    whole = np.zeros(last // DAY_HOURS - day + 1, np.bool_)  # the days from there on that no border cuts
    whole[-(-first // DAY_HOURS) - day : last // DAY_HOURS - day] = True
    for cut in (starts, ends):
        whole[cut[cut % DAY_HOURS != 0] // DAY_HOURS - day] = False
    if not whole.any():
        return Span(hours, starts - first, ends - first)
    borders = hours[(hours % DAY_HOURS == 0) | ~whole[hours // DAY_HOURS - day]]
    return Span(borders, np.searchsorted(borders, starts), np.searchsorted(borders, ends))


def columns(function: str) -> tuple[str, ...]:
    """The aggregates that a function is made of, beside the count."""
    code = over_time.FUNCTIONS[function]
    if code in _CHANGES:
        return ("first", "first_ts", "last", "last_ts", "increase")
    if code in (COUNT, PRESENT):
        return ()
    return ({MIN: "min", MAX: "max", FIRST: "first", LAST: "last"}.get(code, "sum"),)


def telling(function: str) -> tuple[str, ...]:
    """Aggregates that tell more where the others leave a doubt: whether a sum is odd as its samples are."""
    return (*columns(function), "min", "max") if over_time.FUNCTIONS[function] in (SUM, AVG) else columns(function)


def combine(function: str, hours: HourBatch, asked: Windows) -> Combined:
    """The function's value per series and window."""
    code = over_time.FUNCTIONS[function]
    shape = (len(hours.labels), len(asked.low))
    values, present = np.empty(shape, np.float64), np.zeros(shape, np.bool_)
    if code in _CHANGES:
        doubtful = _changes(
            code,
            hours.count,
            hours.first,
            hours.first_ts,
            hours.last,
            hours.last_ts,
            hours.increase,
            asked.low,
            asked.high,
            asked.first_ms,
            asked.last_ms,
            values,
            present,
        )
        return Combined(values, present, bool(doubtful))
    column = {MIN: hours.min, MAX: hours.max, FIRST: hours.first, LAST: hours.last}.get(code, hours.sum)
    if code in (COUNT, PRESENT):
        column = np.zeros(hours.count.shape)  # not looked at
    _levels(code, hours.count, column, asked.low, asked.high, values, present)
    doubtful = code in (SUM, AVG) and _is_beyond_range(hours, asked, present & ~np.isfinite(values))
    return Combined(values, present, doubtful)


def _is_beyond_range(hours: HourBatch, asked: Windows, odd: BOOL) -> bool:
    """Whether any of the odd sums may be so though no sample under it is: then the order of the samples tells more."""
    if not odd.any() or not hours.min.size:
        return bool(odd.any())
    rows = np.flatnonzero(odd.any(axis=1))
    strange = (hours.count > 0) & ~(np.isfinite(hours.min) & np.isfinite(hours.max))
    strange |= np.isnan(hours.sum)  # a NaN is passed over by min and max
    before = np.zeros((len(rows), strange.shape[1] + 1), np.int64)
    np.cumsum(strange[rows], axis=1, out=before[:, 1:])
    explained = before[:, asked.high] > before[:, asked.low]
    return bool((odd[rows] & ~explained).any())


@njit(cache=True, nogil=True, error_model="numpy")
def _levels(code: int, count: I64, column: F64, low: I64, high: I64, out: F64, present: BOOL) -> None:
    for series in range(count.shape[0]):
        for step in range(out.shape[1]):
            seen, value, lost = 0, 0.0, 0.0
            for hour in range(low[step], high[step]):
                if count[series, hour] == 0:
                    continue
                here = column[series, hour]
                if code in (SUM, AVG):
                    value, lost = compensated(value, lost, here)
                elif seen == 0 or code == LAST:
                    value = here
                elif code == MIN:
                    value = here if np.isnan(value) or here < value else value
                elif code == MAX:
                    value = here if np.isnan(value) or here > value else value
                seen += count[series, hour]
            if seen == 0:
                continue
            present[series, step] = True
            if code == SUM:
                value += lost
            elif code == AVG:
                value = value / seen + lost / seen
            elif code == COUNT:
                value = float(seen)
            elif code == PRESENT:
                value = 1.0
            out[series, step] = value


@njit(cache=True, nogil=True, error_model="numpy")
def _changes(
    code: int,
    count: I64,
    first: F64,
    first_ts: I64,
    last: F64,
    last_ts: I64,
    increase: F64,
    low: I64,
    high: I64,
    first_ms: I64,
    last_ms: I64,
    out: F64,
    present: BOOL,
) -> Any:
    doubtful = False
    for series in range(count.shape[0]):
        for step in range(out.shape[1]):
            seen, resets, head, tail, odd = 0, 0.0, -1, -1, False
            for hour in range(low[step], high[step]):
                if count[series, hour] == 0:
                    continue
                # What an hour gained beyond last - first, and a fall between hours, are counter resets.
                if tail >= 0 and first[series, hour] < last[series, tail]:
                    resets += last[series, tail]
                if count[series, hour] > 1:
                    resets += increase[series, hour] - (last[series, hour] - first[series, hour])
                seen += count[series, hour]
                head = hour if head < 0 else head
                tail = hour
                # What is not finite hides the resets beside it.
                odd |= not (
                    np.isfinite(first[series, hour])
                    and np.isfinite(last[series, hour])
                    and np.isfinite(increase[series, hour])
                )
            if seen < 2:
                continue
            doubtful |= odd
            range_ms = last_ms[step] - first_ms[step]
            gained = last[series, tail] - first[series, head] + (0.0 if code == DELTA else resets)
            factor = extrapolated(
                seen,
                first_ts[series, head],
                last_ts[series, tail],
                first[series, head],
                gained,
                last_ms[step],
                range_ms,
                code != DELTA,
            )
            out[series, step] = gained * (factor / (range_ms / 1000) if code == RATE else factor)
            present[series, step] = True
    return doubtful
