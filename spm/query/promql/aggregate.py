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
_CELLS_AT_ONCE = 1 << 17  # a megabyte for each accumulator, which a processor keeps near
_STEPS_AT_LEAST = 8  # values that one look at memory brings


def aggregate(op: str, vector: Vector, groups: Groups, parameter: F64) -> Vector:
    """One element per group; `parameter` (of `quantile`) has one number per step."""
    if op == "quantile":
        values, seen = _quantiles(vector.values, vector.present, *groups.members(), parameter)
    else:
        values, seen = _reduced(_CODES[op], vector.values, vector.present, groups.codes, len(groups.labels))
    return named(groups.labels, values, seen, nameless=False)


@njit(cache=True, nogil=True, error_model="numpy")
def _reduced(code: int, values: F64, present: Bool, codes: I64, groups: int) -> Any:
    """Some steps at a time, so that what is kept beside a result is small, however many groups there are."""
    steps = values.shape[1]
    out, there = np.zeros((groups, steps)), np.zeros((groups, steps), np.bool_)
    width = min(steps, max(_CELLS_AT_ONCE // max(groups, 1), _STEPS_AT_LEAST))
    spreads = code in (STDDEV, STDVAR)
    seen, second = (
        np.empty((groups, width), np.int64),
        np.empty((groups, width if spreads or code in (SUM, AVG) else 0)),
    )
    lost_total, lost_second = np.empty((groups, width if spreads else 0)), np.empty((groups, width if spreads else 0))
    for begin in range(0, steps, max(width, 1)):
        end = min(begin + width, steps)
        seen[:], second[:], lost_total[:], lost_second[:] = 0, 0.0, 0.0, 0.0
        if spreads:
            _spread(values, present, codes, begin, end, out, second, lost_total, lost_second, seen)
        else:
            _accumulated(code, values, present, codes, begin, end, out, second, seen)
        if code == AVG:
            _retry_overflowed(values, present, codes, begin, end, out, second, seen)
        _finish(code, begin, end, out, second, seen, there)
    return out, there


@njit(cache=True, nogil=True, error_model="numpy")
def _accumulated(
    code: int, values: F64, present: Bool, codes: I64, begin: int, end: int, out: F64, second: F64, seen: I64
) -> None:
    for row in range(values.shape[0]):
        group = codes[row]
        for step in range(begin, end):
            if not present[row, step]:
                continue
            value, at = values[row, step], step - begin
            seen[group, at] += 1
            if code in (SUM, AVG):
                out[group, step], second[group, at] = compensated(out[group, step], second[group, at], value)
            elif code in (MIN, MAX):
                best = out[group, step]
                if seen[group, at] == 1 or np.isnan(best) or (value > best if code == MAX else value < best):
                    out[group, step] = value


@njit(cache=True, nogil=True, error_model="numpy")
def _spread(
    values: F64, present: Bool, codes: I64, begin: int, end: int, out: F64, second: F64, lost_mean: F64,
    lost_second: F64, seen: I64,
) -> None:  # fmt: skip
    """The mean, and squares of the distances from it; what is lost of both is kept: times are large beside their
    distances."""
    for row in range(values.shape[0]):
        group = codes[row]
        for step in range(begin, end):
            if not present[row, step]:
                continue
            at = step - begin
            seen[group, at] += 1
            mean, low = out[group, step], lost_mean[group, at]
            distance = values[row, step] - mean - low
            mean, low = compensated(mean, low, distance / seen[group, at])
            out[group, step], lost_mean[group, at] = mean, low
            squared = distance * (values[row, step] - mean - low)
            added = compensated(second[group, at], lost_second[group, at], squared)
            second[group, at], lost_second[group, at] = added
    second += lost_second


@njit(cache=True, nogil=True, error_model="numpy")
def _retry_overflowed(
    values: F64, present: Bool, codes: I64, begin: int, end: int, out: F64, second: F64, seen: I64
) -> None:
    """Sums that left the range of floats are formed again from parts of their mean, scaled to be divided later."""
    for group in range(out.shape[0]):
        for step in range(begin, end):
            if np.isinf(out[group, step]):
                mean, lost = 0.0, 0.0
                for row in range(values.shape[0]):
                    if codes[row] == group and present[row, step]:
                        mean, lost = compensated(mean, lost, values[row, step] / seen[group, step - begin])
                out[group, step], second[group, step - begin] = np.nan, mean + lost


@njit(cache=True, nogil=True, error_model="numpy")
def _finish(code: int, begin: int, end: int, out: F64, second: F64, seen: I64, there: Bool) -> None:
    for group in range(out.shape[0]):
        for step in range(begin, end):
            at = step - begin
            count = seen[group, at]
            if count == 0:
                continue
            there[group, step] = True
            if code == SUM:
                out[group, step] += second[group, at]
            elif code == AVG:
                if np.isnan(out[group, step]):
                    out[group, step] = second[group, at]
                elif count == 1:  # a division by one changes nothing and takes long
                    out[group, step] += second[group, at]
                else:
                    out[group, step] = out[group, step] / count + second[group, at] / count
            elif code == COUNT:
                out[group, step] = count
            elif code == GROUP:
                out[group, step] = 1.0
            elif code == STDVAR:
                out[group, step] = second[group, at] / count
            elif code == STDDEV:
                out[group, step] = np.sqrt(second[group, at] / count)


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
