"""Evaluates range functions over windows of whole hours from hourly and daily aggregates instead of samples.

`exact_cells` decides whether that is possible: every border of every window must lie on an hour. It divides the time
into cells: each UTC day without a border inside, and each other hour. `combine` joins the cells of each window: it adds
counts and sums, compares extremes, and takes a change from the first and last sample, extrapolated exactly as from
samples, with counter resets. A result is `doubtful` where samples might give another number (a NaN that hides an
increase, a sum beyond the range of floats); the caller then reads the samples if they are still stored.
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
    extrapolation_factor,
)
from spm.query.promql.kernels.windows import Steps
from spm.query.request.batches import HourBatch
from spm.store.rollup.aggregates import compensated

_EXACT = frozenset({COUNT, PRESENT, SUM, AVG, MIN, MAX, FIRST, LAST, RATE, INCREASE, DELTA})
_CHANGES = frozenset({RATE, INCREASE, DELTA})


@dataclass(frozen=True, slots=True)
class HourCells:
    """Cells borders[i]:borders[i + 1] in hours, and for each step t the cells low[t]:high[t] of its window."""

    borders: I64
    low: I64
    high: I64


@dataclass(frozen=True, slots=True)
class CellWindows:
    """Windows first_ms[t] < ts <= last_ms[t], each with its cells low[t]:high[t]."""

    low: I64
    high: I64
    first_ms: I64
    last_ms: I64

    @classmethod
    def of(cls, span: HourCells, steps: Steps, range_ms: int) -> CellWindows:
        """Returns the windows that end at the steps."""
        return cls(span.low, span.high, steps.times - range_ms, steps.times)


@dataclass(frozen=True, slots=True)
class Combined:
    """Values and presence [S, T]; ``doubtful`` where samples might give another number."""

    values: F64
    present: BOOL
    doubtful: bool


def exact_cells(function: str, steps: Steps, range_ms: int) -> HourCells | None:
    """Returns the cells from which the function is exact at all steps, or `None`."""
    return hour_cells(steps, range_ms) if has_exact_aggregates(function) else None


def has_exact_aggregates(function: str) -> bool:
    """Whether the function can be computed from aggregates without loss."""
    return over_time.FUNCTIONS.get(function) in _EXACT


def hour_cells(steps: Steps, range_ms: int) -> HourCells | None:
    """Returns the cells of the windows, or `None` if a border does not lie on an hour or the range is too long."""
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
    is_cell = np.zeros(
        last // DAY_HOURS - day + 1, np.bool_
    )  # of the days from `day` on: those without a border inside
    is_cell[-(-first // DAY_HOURS) - day : last // DAY_HOURS - day] = True
    for window_borders in (starts, ends):
        is_cell[window_borders[window_borders % DAY_HOURS != 0] // DAY_HOURS - day] = False
    if not is_cell.any():
        return HourCells(hours, starts - first, ends - first)
    borders = hours[(hours % DAY_HOURS == 0) | ~is_cell[hours // DAY_HOURS - day]]
    return HourCells(borders, np.searchsorted(borders, starts), np.searchsorted(borders, ends))


def columns(function: str) -> tuple[str, ...]:
    """Returns the aggregates that a function needs beside the count."""
    code = over_time.FUNCTIONS[function]
    if code in _CHANGES:
        return ("first", "first_ts", "last", "last_ts", "increase")
    if code in (COUNT, PRESENT):
        return ()
    return ({MIN: "min", MAX: "max", FIRST: "first", LAST: "last"}.get(code, "sum"),)


def columns_with_extremes(function: str) -> tuple[str, ...]:
    """Returns the aggregates that resolve a doubtful sum: extremes show whether a sample is not finite."""
    return (*columns(function), "min", "max") if over_time.FUNCTIONS[function] in (SUM, AVG) else columns(function)


def combine(function: str, hours: HourBatch, windows: CellWindows) -> Combined:
    """Evaluates the function to a value per series and window."""
    code = over_time.FUNCTIONS[function]
    shape = (len(hours.labels), len(windows.low))
    values, present = np.empty(shape, np.float64), np.zeros(shape, np.bool_)
    if code in _CHANGES:
        doubtful = _combine_changes(
            code,
            hours.count,
            hours.first,
            hours.first_ts,
            hours.last,
            hours.last_ts,
            hours.increase,
            windows.low,
            windows.high,
            windows.first_ms,
            windows.last_ms,
            values,
            present,
        )
        return Combined(values, present, bool(doubtful))
    column = {MIN: hours.min, MAX: hours.max, FIRST: hours.first, LAST: hours.last}.get(code, hours.sum)
    if code in (COUNT, PRESENT):
        column = np.zeros(hours.count.shape)  # not read
    _combine_values(code, hours.count, column, windows.low, windows.high, values, present)
    doubtful = code in (SUM, AVG) and _is_beyond_range(hours, windows, present & ~np.isfinite(values))
    return Combined(values, present, doubtful)


def _is_beyond_range(hours: HourBatch, windows: CellWindows, suspect: BOOL) -> bool:
    """Whether a sum is not finite although all its samples are: then only the samples in their order give its value."""
    if not suspect.any() or not hours.min.size:
        return bool(suspect.any())
    rows = np.flatnonzero(suspect.any(axis=1))
    has_odd_sample = (hours.count > 0) & ~(np.isfinite(hours.min) & np.isfinite(hours.max))
    has_odd_sample |= np.isnan(hours.sum)  # min and max ignore NaN
    before = np.zeros((len(rows), has_odd_sample.shape[1] + 1), np.int64)
    np.cumsum(has_odd_sample[rows], axis=1, out=before[:, 1:])
    explained = before[:, windows.high] > before[:, windows.low]
    return bool((suspect[rows] & ~explained).any())


@njit(cache=True, nogil=True, error_model="numpy")
def _combine_values(code: int, count: I64, column: F64, low: I64, high: I64, out: F64, present: BOOL) -> None:
    for series in range(count.shape[0]):
        for step in range(out.shape[1]):
            samples, value, error = 0, 0.0, 0.0
            for hour in range(low[step], high[step]):
                if count[series, hour] == 0:
                    continue
                here = column[series, hour]
                if code in (SUM, AVG):
                    value, error = compensated(value, error, here)
                elif samples == 0 or code == LAST:
                    value = here
                elif code == MIN:
                    value = here if np.isnan(value) or here < value else value
                elif code == MAX:
                    value = here if np.isnan(value) or here > value else value
                samples += count[series, hour]
            if samples == 0:
                continue
            present[series, step] = True
            if code == SUM:
                value += error
            elif code == AVG:
                value = value / samples + error / samples
            elif code == COUNT:
                value = float(samples)
            elif code == PRESENT:
                value = 1.0
            out[series, step] = value


@njit(cache=True, nogil=True, error_model="numpy")
def _combine_changes(
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
            samples, resets, head, tail, not_finite = 0, 0.0, -1, -1, False
            for hour in range(low[step], high[step]):
                if count[series, hour] == 0:
                    continue
                # Counter resets: the increase of an hour beyond last - first, and a fall between two hours.
                if tail >= 0 and first[series, hour] < last[series, tail]:
                    resets += last[series, tail]
                if count[series, hour] > 1:
                    resets += increase[series, hour] - (last[series, hour] - first[series, hour])
                samples += count[series, hour]
                head = hour if head < 0 else head
                tail = hour
                # A number that is not finite hides the resets beside it.
                not_finite |= not (
                    np.isfinite(first[series, hour])
                    and np.isfinite(last[series, hour])
                    and np.isfinite(increase[series, hour])
                )
            if samples < 2:
                continue
            doubtful |= not_finite
            range_ms = last_ms[step] - first_ms[step]
            gained = last[series, tail] - first[series, head] + (0.0 if code == DELTA else resets)
            factor = extrapolation_factor(
                samples,
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
