"""Aggregations over the series of a group, for all groups and steps in one pass.

The pass goes row by row, so that memory is read in order, and keeps one accumulator per group and step. Elements are
taken in the order of the series. Sums are compensated, deviations by Welford's method, NaN never wins a min or max
unless it is alone: all as in Prometheus. What chooses among the elements instead stands in `choose`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from spm.arrays import BOOL, F64, I64
from spm.query.promql.kernels.over_time import quantile_of
from spm.query.promql.operators.label_groups import Groups
from spm.query.promql.operators.vector import Vector, named
from spm.store.rollup.aggregates import compensated

SUM, AVG, MIN, MAX, COUNT, GROUP, STDDEV, STDVAR = range(8)
_CODES = {
    "sum": SUM,
    "avg": AVG,
    "min": MIN,
    "max": MAX,
    "count": COUNT,
    "group": GROUP,
    "stddev": STDDEV,
    "stdvar": STDVAR,
}
_CELLS_AT_ONCE = 1 << 18  # two megabytes for each accumulator, which a processor keeps near
_STEPS_AT_LEAST = 8  # values that one look at memory brings


def aggregate(op: str, vector: Vector, groups: Groups, parameter: F64) -> Vector:
    """One element per group; `parameter` (of `quantile`) has one number per step."""
    if op == "quantile":
        values, seen = _quantiles(vector.values, vector.present, *groups.members(), parameter)
    else:
        values, seen = _reduced(_CODES[op], vector.values, vector.present, groups.codes, len(groups.labels))
    return named(groups.labels, values, seen, nameless=False)


@njit(cache=True, nogil=True, error_model="numpy")
def _reduced(code: int, values: F64, present: BOOL, codes: I64, groups: int) -> Any:
    """Some steps at a time, so that what is kept beside a result is small, however many groups there are."""
    steps = values.shape[1]
    out, there = np.zeros((groups, steps)), np.zeros((groups, steps), np.bool_)
    width = min(steps, max(_CELLS_AT_ONCE // max(groups, 1), _STEPS_AT_LEAST))
    spreads = code in (STDDEV, STDVAR)
    seen, second = (
        np.empty((groups, width), np.int64),
        np.empty((groups, width if spreads or code in (SUM, AVG) else 0)),
    )
    lost_mean, lost_second = np.empty((groups, width if spreads else 0)), np.empty((groups, width if spreads else 0))
    for begin in range(0, steps, max(width, 1)):
        end = min(begin + width, steps)
        seen[:], second[:], lost_mean[:], lost_second[:] = 0, 0.0, 0.0, 0.0
        if spreads:
            _spread(values, present, codes, begin, end, out, second, lost_mean, lost_second, seen)
        else:
            _accumulated(code, values, present, codes, begin, end, out, second, seen)
        if code == AVG:
            _retry_overflowed(values, present, codes, begin, end, out, second, seen)
        _finish(code, begin, end, out, second, seen, there)
    return out, there


# Below, places are counted from zero: an index that begins elsewhere might be negative, for all a compiler knows.


@njit(cache=True, nogil=True, error_model="numpy")
def _accumulated(
    code: int, values: F64, present: BOOL, codes: I64, begin: int, end: int, out: F64, second: F64, seen: I64
) -> None:
    for row in range(values.shape[0]):
        group = codes[row]
        own, there, total = values[row, begin:end], present[row, begin:end], out[group, begin:end]
        lost, count = second[group], seen[group]
        for at in range(len(own)):
            if not there[at]:
                continue
            value = own[at]
            count[at] += 1
            if code in (SUM, AVG):
                total[at], lost[at] = compensated(total[at], lost[at], value)
            elif code in (MIN, MAX):
                best = total[at]
                if count[at] == 1 or np.isnan(best) or (value > best if code == MAX else value < best):
                    total[at] = value


@njit(cache=True, nogil=True, error_model="numpy")
def _spread(
    values: F64,
    present: BOOL,
    codes: I64,
    begin: int,
    end: int,
    out: F64,
    second: F64,
    lost_mean: F64,
    lost_second: F64,
    seen: I64,
) -> None:
    """The mean, and the squares of the distances from it, with what is lost of both: times are large beside them."""
    for row in range(values.shape[0]):
        group = codes[row]
        own, there, means = values[row, begin:end], present[row, begin:end], out[group, begin:end]
        squares, low, lost, count = second[group], lost_mean[group], lost_second[group], seen[group]
        for at in range(len(own)):
            if not there[at]:
                continue
            count[at] += 1
            distance = own[at] - means[at] - low[at]
            means[at], low[at] = compensated(means[at], low[at], distance / count[at])
            squared = distance * (own[at] - means[at] - low[at])
            squares[at], lost[at] = compensated(squares[at], lost[at], squared)
    second += lost_second


@njit(cache=True, nogil=True, error_model="numpy")
def _retry_overflowed(
    values: F64, present: BOOL, codes: I64, begin: int, end: int, out: F64, second: F64, seen: I64
) -> None:
    """Sums that left the range of floats are formed again from parts of their mean, scaled to be divided later."""
    for group in range(out.shape[0]):
        total, more, count = out[group, begin:end], second[group], seen[group]
        for at in range(len(total)):
            if np.isinf(total[at]):
                mean, lost = 0.0, 0.0
                for row in range(values.shape[0]):
                    if codes[row] == group and present[row, begin + at]:
                        mean, lost = compensated(mean, lost, values[row, begin + at] / count[at])
                total[at], more[at] = np.nan, mean + lost


@njit(cache=True, nogil=True, error_model="numpy")
def _finish(code: int, begin: int, end: int, out: F64, second: F64, seen: I64, present: BOOL) -> None:
    for group in range(out.shape[0]):
        total, there = out[group, begin:end], present[group, begin:end]
        more, counts = second[group], seen[group]
        for at in range(len(total)):
            count = counts[at]
            if count == 0:
                continue
            there[at] = True
            if code == SUM:
                total[at] += more[at]
            elif code == AVG:
                if np.isnan(total[at]):
                    total[at] = more[at]
                elif count == 1:  # a division by one changes nothing and takes long
                    total[at] += more[at]
                else:
                    total[at] = total[at] / count + more[at] / count
            elif code == COUNT:
                total[at] = count
            elif code == GROUP:
                total[at] = 1.0
            elif code == STDVAR:
                total[at] = more[at] / count
            elif code == STDDEV:
                total[at] = np.sqrt(more[at] / count)


@njit(cache=True, nogil=True, error_model="numpy")
def _quantiles(values: F64, present: BOOL, order: I64, starts: I64, q: F64) -> Any:
    groups, steps = len(starts) - 1, values.shape[1]
    out, seen = np.zeros((groups, steps)), np.zeros((groups, steps), np.bool_)
    for group in range(groups):
        rows = order[starts[group] : starts[group + 1]]
        held = np.empty(len(rows))
        for step in range(steps):
            count = 0
            for row in rows:
                if present[row, step]:
                    held[count] = values[row, step]
                    count += 1
            if count:
                out[group, step] = quantile_of(held[:count], q[step])
                seen[group, step] = True
    return out, seen
