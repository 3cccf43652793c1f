"""Evaluates ranges with `anchored` and `smoothed`: values at their borders are not extrapolated from samples inside.

An anchored range begins with the last sample at or before its start, so that an increase is the difference of two
samples. A smoothed range is cut exactly at both borders; the values there are interpolated linearly between the samples
on both sides. Both read as far beyond the range as an instant selector looks back. Only functions of changes support
them.
"""

from typing import Any

import numpy as np
from numba import njit

from spm.arrays import BOOL, F64, I64
from spm.query.promql.kernels.over_time import CHANGES, FUNCTIONS, INCREASE, RATE, RESETS
from spm.query.promql.kernels.windows import VISITS_AT_ONCE, Steps, run_in_slices, without_stale
from spm.query.request.batches import DeadlineCheck, SeriesBatch

SUPPORTED = {
    "anchored": ("changes", "delta", "increase", "rate", "resets"),
    "smoothed": ("delta", "increase", "rate"),
}


def margins(mode: str, lookback_ms: int) -> tuple[int, int]:
    """Return how far (ms) before the start and after the end of a range samples are needed."""
    return (lookback_ms if mode else 0), (lookback_ms if mode == "smoothed" else 0)


def sweep(
    function: str,
    batch: SeriesBatch,
    steps: Steps,
    *,
    range_ms: int,
    lookback_ms: int,
    smoothed: bool,
    check_deadline: DeadlineCheck,
) -> tuple[F64, BOOL]:
    """Evaluate a function per series and step; return its values and where it has one."""
    clean = without_stale(batch)
    shape = (len(clean.offsets) - 1, steps.count)
    values, present = np.zeros(shape, np.float64), np.zeros(shape, np.bool_)
    run_in_slices(
        lambda cursor: _sweep(
            FUNCTIONS[function],
            clean.offsets,
            clean.ts,
            clean.values,
            steps.first_ms,
            steps.step_ms,
            range_ms,
            lookback_ms,
            smoothed,
            values,
            present,
            cursor,
            VISITS_AT_ONCE,
        ),
        check_deadline,
    )
    return values, present


def instants(batch: SeriesBatch, steps: Steps, lookback_ms: int) -> tuple[F64, BOOL]:
    """Interpolate linearly between the samples around each step; without a later sample, take the earlier."""
    clean = without_stale(batch)
    shape = (len(clean.offsets) - 1, steps.count)
    values, present = np.zeros(shape, np.float64), np.zeros(shape, np.bool_)
    _instants(clean.offsets, clean.ts, clean.values, steps.first_ms, steps.step_ms, lookback_ms, values, present)
    return values, present


def samples(batch: SeriesBatch, start_ms: int, end_ms: int, *, smoothed: bool) -> SeriesBatch:
    """Return the samples of a range, with a value at both of its borders."""
    clean = without_stale(batch)
    ts, values, counts = [], [], []
    for low, high in zip(clean.offsets[:-1].tolist(), clean.offsets[1:].tolist(), strict=True):
        own_ts, own = _with_borders(clean.ts[low:high], clean.values[low:high], start_ms, end_ms, smoothed=smoothed)
        ts.append(own_ts)
        values.append(own)
        counts.append(len(own))
    offsets = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).astype(np.int64)
    empty_ts, empty = np.empty(0, np.int64), np.empty(0)
    return SeriesBatch(clean.labels, offsets, np.concatenate([empty_ts, *ts]), np.concatenate([empty, *values]))


def _with_borders(ts: I64, values: F64, start_ms: int, end_ms: int, *, smoothed: bool) -> tuple[I64, F64]:
    inside = (ts > start_ms) & (ts < end_ms)
    before = np.flatnonzero(ts <= start_ms)
    if not (ts > start_ms).any():
        return ts[:0], values[:0]
    borders = np.array([start_ms, end_ms], np.int64)
    if smoothed:
        left, right = (_interpolate(border, ts, values) for border in (start_ms, end_ms))
    else:
        first = before[-1] if len(before) else 0
        left, right = values[first], values[ts <= end_ms][-1] if (ts <= end_ms).any() else values[first]
    head, tail = borders[:1], borders[1:]
    return np.concatenate([head, ts[inside], tail]), np.concatenate([[left], values[inside], [right]])


def _interpolate(t: int, ts: I64, values: F64) -> float:
    """Interpolate linearly at a time; before the first and after the last sample, take that sample's value."""
    after = min(int(np.searchsorted(ts, t)), len(ts) - 1)
    if after == 0 or ts[after] <= t:
        return float(values[after])
    return float(_between(t, ts[after - 1], values[after - 1], ts[after], values[after], False))


@njit(cache=True, nogil=True, error_model="numpy")
def _between(t: int, t1: int, v1: float, t2: int, v2: float, counter: bool) -> float:
    if counter and v2 < v1:
        v1 = 0.0  # a counter that fell was reset to zero
    return v1 + (v2 - v1) * float(t - t1) / float(t2 - t1)


@njit(cache=True, nogil=True, error_model="numpy")
def _instants(
    offsets: I64, ts: I64, values: F64, first_ms: int, step_ms: int, lookback_ms: int, out: F64, present: BOOL
) -> None:
    for series in range(len(offsets) - 1):
        start, end = offsets[series], offsets[series + 1]
        after = start  # the first sample at or after the step
        for step in range(out.shape[1]):
            t = first_ms + step * step_ms
            while after < end and ts[after] < t:
                after += 1
            near = after < end and ts[after] <= t + lookback_ms
            if near and ts[after] == t:
                out[series, step] = values[after]
            elif after > start and ts[after - 1] > t - lookback_ms:
                before = after - 1
                out[series, step] = (
                    _between(t, ts[before], values[before], ts[after], values[after], False) if near else values[before]
                )
            else:
                continue
            present[series, step] = True


@njit(cache=True, nogil=True, error_model="numpy")
def _sweep(
    code: int,
    offsets: I64,
    ts: I64,
    values: F64,
    first_ms: int,
    step_ms: int,
    range_ms: int,
    lookback_ms: int,
    smoothed: bool,
    out: F64,
    present: BOOL,
    cursor: I64,
    visits: int,
) -> bool:
    """Continue at the cursor (series, step); return whether all is done, or False after `visits` samples."""
    for series in range(cursor[0], len(offsets) - 1):
        low, high, end = offsets[series], offsets[series], offsets[series + 1]
        first = low  # the anchor: the last sample at or before the start, else the first of all
        for step in range(cursor[1], out.shape[1]):
            if visits < 0:
                cursor[0], cursor[1] = series, step
                return False
            t = first_ms + step * step_ms
            start = t - range_ms
            while high < end and ts[high] <= t + (lookback_ms if smoothed else 0):
                high += 1
            while low < high and ts[low] <= start - lookback_ms:
                low += 1
            visits -= high - low + 1
            if high == low or ts[high - 1] <= start:
                continue
            first = max(first, low)
            while first + 1 < high and ts[first + 1] <= start:
                first += 1
            last = high - 1
            if smoothed:
                while last > low and ts[last - 1] >= t:
                    last -= 1
                if ts[last] <= start or ts[first] > t:
                    continue
            if code in (CHANGES, RESETS):
                out[series, step] = _count_changes(values[first:high], code == CHANGES)
            else:
                out[series, step] = _change(ts, values, first, last, start, t, smoothed, code in (RATE, INCREASE)) / (
                    range_ms / 1000 if code == RATE else 1.0
                )
            present[series, step] = True
        cursor[1] = 0
    return True


@njit(cache=True, nogil=True, error_model="numpy")
def _count_changes(values: F64, changes: bool) -> float:
    count = 0.0
    for i in range(1, len(values)):
        if changes:
            count += values[i] != values[i - 1] and not (np.isnan(values[i]) and np.isnan(values[i - 1]))
        else:
            count += values[i] < values[i - 1]
    return count


@njit(cache=True, nogil=True, error_model="numpy")
def _change(ts: I64, values: F64, first: int, last: int, start: int, end: int, smoothed: bool, counter: bool) -> Any:
    left, right = values[first], values[last]
    if smoothed and ts[first] < start:
        left = _between(start, ts[first], values[first], ts[first + 1], values[first + 1], counter)
    if smoothed and last > first and ts[last] > end:
        right = _between(end, ts[last - 1], values[last - 1], ts[last], values[last], counter)
    change = right - left
    if counter:
        before = left
        for i in range(first, last + 1):
            if ts[i] <= start or ts[i] >= end:
                continue
            if values[i] < before:
                change += before
            before = values[i]
        if right < before:
            change += before
    return change
