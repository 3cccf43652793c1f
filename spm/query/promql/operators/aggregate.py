"""Aggregates the series of each group to one element, for all groups and steps in one pass.

The pass goes row by row, so that memory is read in order, and has one accumulator per group and step. As in Prometheus,
elements are taken in the order of the series, sums are compensated, deviations use Welford's method, and NaN is a min
or max only if there is no other value. Aggregations that select elements instead are in `select_elements`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from spm.arrays import BOOL, F64, I64
from spm.query.promql.kernels.over_time import quantile_of
from spm.query.promql.operators.vector import Vector, make_vector
from spm.query.series.label_table import Groups
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
_CELLS_AT_ONCE = 1 << 18  # two megabytes for each accumulator, which fit a processor's cache
_STEPS_AT_LEAST = 8  # values in one cache line


def aggregate(op: str, vector: Vector, groups: Groups, parameter: F64) -> Vector:
    """Aggregates to one element per group and step; `parameter` (of `quantile`) has one number per step."""
    if op == "quantile":
        values, present = _quantiles(vector.values, vector.present, *groups.members(), parameter)
    else:
        values, present = _aggregate_groups(_CODES[op], vector.values, vector.present, groups.codes, len(groups.labels))
    return make_vector(groups.labels, values, present, nameless=False)


@njit(cache=True, nogil=True, error_model="numpy")
def _aggregate_groups(code: int, values: F64, present: BOOL, codes: I64, groups: int) -> Any:
    """Aggregates some steps at a time, so that the accumulators stay small however many groups there are."""
    steps = values.shape[1]
    out, has_value = np.zeros((groups, steps)), np.zeros((groups, steps), np.bool_)
    width = min(steps, max(_CELLS_AT_ONCE // max(groups, 1), _STEPS_AT_LEAST))
    has_deviations = code in (STDDEV, STDVAR)
    counts, second = (
        np.empty((groups, width), np.int64),
        np.empty((groups, width if has_deviations or code in (SUM, AVG) else 0)),
    )
    mean_error, second_error = (
        np.empty((groups, width if has_deviations else 0)),
        np.empty((groups, width if has_deviations else 0)),
    )
    for begin in range(0, steps, max(width, 1)):
        end = min(begin + width, steps)
        counts[:], second[:], mean_error[:], second_error[:] = 0, 0.0, 0.0, 0.0
        if has_deviations:
            _accumulate_deviations(values, present, codes, begin, end, out, second, mean_error, second_error, counts)
        else:
            _accumulate(code, values, present, codes, begin, end, out, second, counts)
        if code == AVG:
            _retry_overflowed(values, present, codes, begin, end, out, second, counts)
        _finish(code, begin, end, out, second, counts, has_value)
    return out, has_value


# The loops below index slices from zero: a compiler cannot exclude that an index with another start is negative.


@njit(cache=True, nogil=True, error_model="numpy")
def _accumulate(
    code: int, values: F64, present: BOOL, codes: I64, begin: int, end: int, out: F64, second: F64, counts: I64
) -> None:
    for row in range(values.shape[0]):
        group = codes[row]
        own, has_value, total = values[row, begin:end], present[row, begin:end], out[group, begin:end]
        error, count = second[group], counts[group]
        for at in range(len(own)):
            if not has_value[at]:
                continue
            value = own[at]
            count[at] += 1
            if code in (SUM, AVG):
                total[at], error[at] = compensated(total[at], error[at], value)
            elif code in (MIN, MAX):
                best = total[at]
                if count[at] == 1 or np.isnan(best) or (value > best if code == MAX else value < best):
                    total[at] = value


@njit(cache=True, nogil=True, error_model="numpy")
def _accumulate_deviations(
    values: F64,
    present: BOOL,
    codes: I64,
    begin: int,
    end: int,
    out: F64,
    second: F64,
    mean_error: F64,
    second_error: F64,
    counts: I64,
) -> None:
    """Accumulates means and squared distances, both compensated: timestamps are large compared to their deviation."""
    for row in range(values.shape[0]):
        group = codes[row]
        own, has_value, means = values[row, begin:end], present[row, begin:end], out[group, begin:end]
        squares, low, error, count = second[group], mean_error[group], second_error[group], counts[group]
        for at in range(len(own)):
            if not has_value[at]:
                continue
            count[at] += 1
            distance = own[at] - means[at] - low[at]
            means[at], low[at] = compensated(means[at], low[at], distance / count[at])
            squared = distance * (own[at] - means[at] - low[at])
            squares[at], error[at] = compensated(squares[at], error[at], squared)
    second += second_error


@njit(cache=True, nogil=True, error_model="numpy")
def _retry_overflowed(
    values: F64, present: BOOL, codes: I64, begin: int, end: int, out: F64, second: F64, counts: I64
) -> None:
    """Computes averages whose sum left the range of floats again, as a sum of values divided by their count."""
    for group in range(out.shape[0]):
        total, rest, count = out[group, begin:end], second[group], counts[group]
        for at in range(len(total)):
            if np.isinf(total[at]):
                mean, error = 0.0, 0.0
                for row in range(values.shape[0]):
                    if codes[row] == group and present[row, begin + at]:
                        mean, error = compensated(mean, error, values[row, begin + at] / count[at])
                total[at], rest[at] = np.nan, mean + error


@njit(cache=True, nogil=True, error_model="numpy")
def _finish(code: int, begin: int, end: int, out: F64, second: F64, counts: I64, present: BOOL) -> None:
    for group in range(out.shape[0]):
        total, has_value = out[group, begin:end], present[group, begin:end]
        rest, own_counts = second[group], counts[group]
        for at in range(len(total)):
            count = own_counts[at]
            if count == 0:
                continue
            has_value[at] = True
            if code == SUM:
                total[at] += rest[at]
            elif code == AVG:
                if np.isnan(total[at]):
                    total[at] = rest[at]
                elif count == 1:  # a division by one changes nothing and takes long
                    total[at] += rest[at]
                else:
                    total[at] = total[at] / count + rest[at] / count
            elif code == COUNT:
                total[at] = count
            elif code == GROUP:
                total[at] = 1.0
            elif code == STDVAR:
                total[at] = rest[at] / count
            elif code == STDDEV:
                total[at] = np.sqrt(rest[at] / count)


@njit(cache=True, nogil=True, error_model="numpy")
def _quantiles(values: F64, present: BOOL, order: I64, starts: I64, q: F64) -> Any:
    groups, steps = len(starts) - 1, values.shape[1]
    out, has_value = np.zeros((groups, steps)), np.zeros((groups, steps), np.bool_)
    for group in range(groups):
        rows = order[starts[group] : starts[group + 1]]
        numbers = np.empty(len(rows))
        for step in range(steps):
            count = 0
            for row in rows:
                if present[row, step]:
                    numbers[count] = values[row, step]
                    count += 1
            if count:
                out[group, step] = quantile_of(numbers[:count], q[step])
                has_value[group, step] = True
    return out, has_value
