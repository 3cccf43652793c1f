"""Aggregations over the series of a group, for all groups and steps in one pass.

The pass goes row by row, so that memory is read in order, and keeps one accumulator per group and step. Elements are
taken in the order of the series. Sums are compensated, deviations by Welford's method, NaN never wins a min or max
unless it is alone: all as in Prometheus. What chooses among the elements instead stands in `choose`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from spm.query.promql.labels import Groups
from spm.query.promql.overtime import compensated, quantile_of
from spm.query.promql.vector import Vector, named

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

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


def aggregate(op: str, vector: Vector, groups: Groups, parameter: F64) -> Vector:
    """One element per group; `parameter` (of `quantile`) has one number per step."""
    if op == "quantile":
        values, seen = _quantiles(vector.values, vector.present, *groups.members(), parameter)
    else:
        values, seen = _reduced(_CODES[op], vector.values, vector.present, groups.codes, len(groups.labels))
    return named(groups.labels, values, seen, nameless=False)


@njit(cache=True, nogil=True, error_model="numpy")
def _reduced(code: int, values: F64, present: Bool, codes: I64, groups: int) -> Any:
    steps = values.shape[1]
    total, second, seen = np.zeros((groups, steps)), np.zeros((groups, steps)), np.zeros((groups, steps), np.int64)
    spreads = code in (STDDEV, STDVAR)  # total is the mean, second the squares of the distances from it, and what is
    shape = (groups, steps) if spreads else (0, 0)  # lost of both is kept: times are large beside their distances
    lost_total, lost_second = np.zeros(shape), np.zeros(shape)
    for row in range(values.shape[0]):
        group = codes[row]
        for step in range(steps):
            if not present[row, step]:
                continue
            value = values[row, step]
            seen[group, step] += 1
            if code in (SUM, AVG):
                added = compensated(total[group, step], second[group, step], value)
                total[group, step], second[group, step] = added
            elif spreads:
                mean, low = total[group, step], lost_total[group, step]
                distance = value - mean - low
                mean, low = compensated(mean, low, distance / seen[group, step])
                total[group, step], lost_total[group, step] = mean, low
                squared = distance * (value - mean - low)
                added = compensated(second[group, step], lost_second[group, step], squared)
                second[group, step], lost_second[group, step] = added
            elif code in (MIN, MAX):
                best = total[group, step]
                if seen[group, step] == 1 or np.isnan(best) or (value > best if code == MAX else value < best):
                    total[group, step] = value
    if code == AVG:
        _retry_overflowed(values, present, codes, total, second, seen)
    if spreads:
        second += lost_second
    _finish(code, total, second, seen)
    return total, seen > 0


@njit(cache=True, nogil=True, error_model="numpy")
def _retry_overflowed(values: F64, present: Bool, codes: I64, total: F64, second: F64, seen: I64) -> None:
    """Sums that left the range of floats are formed again from parts of their mean, scaled to be divided later."""
    overflowed = np.isinf(total)
    if not overflowed.any():
        return
    for group in range(total.shape[0]):
        for step in range(total.shape[1]):
            if overflowed[group, step]:
                mean, lost = 0.0, 0.0
                for row in range(values.shape[0]):
                    if codes[row] == group and present[row, step]:
                        mean, lost = compensated(mean, lost, values[row, step] / seen[group, step])
                total[group, step], second[group, step] = np.nan, mean + lost


@njit(cache=True, nogil=True, error_model="numpy")
def _finish(code: int, total: F64, second: F64, seen: I64) -> None:
    for group in range(total.shape[0]):
        for step in range(total.shape[1]):
            count = seen[group, step]
            if count == 0:
                continue
            if code == SUM:
                total[group, step] += second[group, step]
            elif code == AVG:
                if np.isnan(total[group, step]):
                    total[group, step] = second[group, step]
                elif count == 1:  # a division by one changes nothing and takes long
                    total[group, step] += second[group, step]
                else:
                    total[group, step] = total[group, step] / count + second[group, step] / count
            elif code == COUNT:
                total[group, step] = count
            elif code == GROUP:
                total[group, step] = 1.0
            elif code == STDVAR:
                total[group, step] = second[group, step] / count
            elif code == STDDEV:
                total[group, step] = np.sqrt(second[group, step] / count)


@njit(cache=True, nogil=True, error_model="numpy")
def _quantiles(values: F64, present: Bool, order: I64, starts: I64, q: F64) -> Any:
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
