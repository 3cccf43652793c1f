"""Hourly and daily aggregates of series: the pure kernels that compute and merge them.

The columns: count, sum, sum of squares, min, max, first and last with their times, increase, sketch.

`aggregate` turns the winners of one hour, sorted by (series, ts), into one row per series; `merge_rows` merges rows of
consecutive time ranges (hours into a day) and adds the increase between them. Prometheus stale markers are left out. An
ordinary NaN counts and makes the sum NaN; min, max and sketch ignore it. Sums are formed in the order (series, ts), so
that two computations over equal winners agree bit for bit; the rounding error is carried along (Neumaier 1974) and
added at the end. This module never reads a store and never chooses a winner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from spm.arrays import BOOL, F64, I64, U64
from spm.store.rollup import sketch as sketching
from spm.store.rollup.sketch import Sketches


@dataclass(frozen=True, slots=True)
class Aggregates:
    """One row per series, ascending by series; only series with at least one sample that counts.

    A column that was not requested is empty, and so is ``sketch`` where there is none (``has_sketch``).
    """

    series: U64
    count: I64
    sum: F64
    sumsq: F64
    min: F64
    max: F64
    first: F64
    first_ts: I64
    last: F64
    last_ts: I64
    increase: F64
    sketch: Sketches = field(default_factory=Sketches.empty)

    def __len__(self) -> int:
        return len(self.series)

    @property
    def has_sketch(self) -> BOOL:
        """Which rows have a sketch: all that hold a number, unless some of their parts are rows of form 1."""
        if len(self.sketch) != len(self):
            return np.isnan(self.min)
        return np.isnan(self.min) | (np.diff(self.sketch.starts) > 0)

    def take(self, rows: npt.NDArray[Any]) -> Aggregates:
        """The aggregates of some rows (indices or a mask)."""
        size = len(self)
        columns = {name: getattr(self, name) for name, _ in COLUMNS}
        taken = {name: column[rows] if len(column) == size else column for name, column in columns.items()}
        sketch = self.sketch.take(rows) if len(self.sketch) == size else self.sketch
        return Aggregates(series=self.series[rows], **taken, sketch=sketch)

    @staticmethod
    def empty() -> Aggregates:
        none = {name: np.empty(0, dtype) for name, dtype in COLUMNS}
        return Aggregates(series=np.empty(0, np.uint64), **none, sketch=Sketches.empty())


# The columns beside `series` and `sketch`, in the order of the rows in the store.
COLUMNS: tuple[tuple[str, type[Any]], ...] = tuple(
    (name, np.int64 if name in ("count", "first_ts", "last_ts") else np.float64)
    for name in ("count", "sum", "sumsq", "min", "max", "first", "first_ts", "last", "last_ts", "increase")
)


def aggregate(series: U64, starts: I64, ts: I64, values: F64, *, sketches: bool = True) -> Aggregates:
    """Aggregate winners: series i holds the rows starts[i]:starts[i+1], ascending in time and without repeats.

    Without ``sketches`` no sketches are computed, for readers that need none.
    """
    rows = aggregate_all(series, starts, ts, values, sketches=sketches)
    has_samples = rows.count > 0
    return rows if has_samples.all() else rows.take(has_samples)


def aggregate_all(series: U64, starts: I64, ts: I64, values: F64, *, sketches: bool = True) -> Aggregates:
    """Aggregate winners into one row for each given series, also for those without a sample that counts."""
    assert len(starts) == len(series) + 1, "BUG: starts must have one entry more than series"
    bits = np.ascontiguousarray(values).view(np.uint64)
    starts = np.ascontiguousarray(starts, np.int64)
    columns = _aggregate(starts, np.ascontiguousarray(ts, np.int64), bits)
    sketch = sketching.of_winners(starts, values) if sketches else Sketches.empty()
    return Aggregates(series=np.ascontiguousarray(series, np.uint64), **_as_columns(columns), sketch=sketch)


def run_starts(series: U64) -> I64:
    """The index at which each run of equal ids begins, and the end of the last run."""
    if len(series) == 0:
        return np.zeros(1, np.int64)
    inner = np.flatnonzero(series[1:] != series[:-1]) + 1
    return np.concatenate((np.zeros(1, np.int64), inner, np.array([len(series)], np.int64)))


def concatenate(parts: Sequence[Aggregates]) -> Aggregates:
    """Concatenate the rows of the parts."""
    if len(parts) == 1:
        return parts[0]
    joined = {name: np.concatenate([np.empty(0, dtype), *(getattr(p, name) for p in parts)]) for name, dtype in COLUMNS}
    series = np.concatenate([np.empty(0, np.uint64), *(p.series for p in parts)])
    sketches = [p.sketch if len(p.sketch) == len(p) else Sketches.empty(len(p)) for p in parts]
    has_sketches = any(len(p.sketch) for p in parts)
    return Aggregates(series=series, **joined, sketch=sketching.concat(sketches) if has_sketches else Sketches.empty())


def merge_rows(rows: Aggregates) -> Aggregates:
    """Merge the rows of each series, which are neighbours in the order of time, into one row.

    The `increase` from the last sample of one row to the first of the next is added here and only here.
    """
    heads = run_starts(rows.series)
    columns = _merge(
        heads,
        rows.count,
        rows.sum,
        rows.sumsq,
        rows.min,
        rows.max,
        rows.first.view(np.uint64),
        rows.first_ts,
        rows.last.view(np.uint64),
        rows.last_ts,
        rows.increase,
    )
    return Aggregates(series=rows.series[heads[:-1]], **_as_columns(columns), sketch=_merge_sketches(rows, heads))


def _merge_sketches(rows: Aggregates, heads: I64) -> Sketches:
    """Merge the sketches of each group. A group with a part that has no sketch gets none, never one of the rest."""
    if len(rows.sketch) != len(rows):
        return Sketches.empty()
    merged = sketching.merge_groups(rows.sketch, heads)
    is_incomplete = (
        np.add.reduceat(~rows.has_sketch, heads[:-1], dtype=np.int64) > 0 if len(rows) else np.empty(0, np.bool_)
    )
    return merged.without(is_incomplete) if is_incomplete.any() else merged


def _as_columns(raw: tuple[npt.NDArray[Any], ...]) -> dict[str, npt.NDArray[Any]]:
    """Name the kernels' columns. They handle `first` and `last` as bits, so that no NaN payload is lost."""
    pairs = zip(raw, COLUMNS, strict=True)
    return {name: column.view(kind) if column.dtype == np.uint64 else column for column, (name, kind) in pairs}


@njit(cache=True, nogil=True, error_model="numpy")
def compensated(total: float, error: float, added: float) -> Any:
    """One step of Neumaier's sum: the new total, and the rounding error so far."""
    result = total + added
    if np.isinf(result):
        return result, 0.0
    if abs(total) >= abs(added):
        return result, error + ((total - result) + added)
    return result, error + ((added - result) + total)


@njit(cache=True, nogil=True)
def _one_nan(number: float) -> float:
    """Replace any NaN by one: which payload an addition keeps is the compiler's choice, and tests compare bits."""
    return np.nan if np.isnan(number) else number


@njit(cache=True, nogil=True)
def _aggregate(starts: I64, ts: I64, bits: U64) -> Any:
    stale = np.uint64(0x7FF0000000000002)
    values = bits.view(np.float64)
    n = len(starts) - 1
    count = np.zeros(n, np.int64)
    total = np.zeros(n, np.float64)
    squares = np.zeros(n, np.float64)
    low = np.full(n, np.nan)
    high = np.full(n, np.nan)
    first = np.zeros(n, np.uint64)
    first_ts = np.zeros(n, np.int64)
    last = np.zeros(n, np.uint64)
    last_ts = np.zeros(n, np.int64)
    increase = np.zeros(n, np.float64)
    for i in range(n):
        begin, end = starts[i], starts[i + 1]
        while begin < end and bits[begin] == stale:
            begin += 1
        while begin < end and bits[end - 1] == stale:
            end -= 1
        if begin == end:
            continue
        first[i], first_ts[i] = bits[begin], ts[begin]
        last[i], last_ts[i] = bits[end - 1], ts[end - 1]
        samples, s, error, q, lo, hi, resets = 0, 0.0, 0.0, 0.0, np.nan, np.nan, 0.0
        before = values[begin]
        for k in range(begin, end):
            if bits[k] == stale:
                continue
            v = values[k]
            samples += 1
            s, error = compensated(s, error, v)
            q += v * v
            # A comparison with NaN is false: `not (v >= lo)` lets the first number in.
            if not np.isnan(v):
                if not (v >= lo):
                    lo = v
                if not (v <= hi):
                    hi = v
            if v < before:
                resets += before
            before = v
        count[i], total[i], squares[i], low[i], high[i] = samples, _one_nan(s + error), _one_nan(q), lo, hi
        if samples > 1:
            increase[i] = _one_nan(values[end - 1] - values[begin] + resets)
    return count, total, squares, low, high, first, first_ts, last, last_ts, increase


@njit(cache=True, nogil=True)
def _merge(
    heads: I64,
    counts: I64,
    sums: F64,
    sumsqs: F64,
    mins: F64,
    maxs: F64,
    firsts: U64,
    firsts_ts: I64,
    lasts: U64,
    lasts_ts: I64,
    increases: F64,
) -> Any:
    n = len(heads) - 1
    count = np.zeros(n, np.int64)
    total = np.zeros(n, np.float64)
    squares = np.zeros(n, np.float64)
    low = np.full(n, np.nan)
    high = np.full(n, np.nan)
    first = np.zeros(n, np.uint64)
    first_ts = np.zeros(n, np.int64)
    last = np.zeros(n, np.uint64)
    last_ts = np.zeros(n, np.int64)
    increase = np.zeros(n, np.float64)
    as_first = firsts.view(np.float64)
    as_last = lasts.view(np.float64)
    for i in range(n):
        begin, end = heads[i], heads[i + 1]
        first[i], first_ts[i] = firsts[begin], firsts_ts[begin]
        last[i], last_ts[i] = lasts[end - 1], lasts_ts[end - 1]
        samples, s, error, q, lo, hi, grown = (
            counts[begin],
            sums[begin],
            0.0,
            sumsqs[begin],
            mins[begin],
            maxs[begin],
            increases[begin],
        )
        for k in range(begin + 1, end):
            samples += counts[k]
            s, error = compensated(s, error, sums[k])
            q += sumsqs[k]
            if not np.isnan(mins[k]) and not (mins[k] >= lo):
                lo = mins[k]
            if not np.isnan(maxs[k]) and not (maxs[k] <= hi):
                hi = maxs[k]
            reset = as_first[k] < as_last[k - 1]
            grown += (as_first[k] if reset else as_first[k] - as_last[k - 1]) + increases[k]
        count[i], total[i], squares[i], low[i], high[i] = samples, _one_nan(s + error), _one_nan(q), lo, hi
        increase[i] = _one_nan(grown)
    return count, total, squares, low, high, first, first_ts, last, last_ts, increase
