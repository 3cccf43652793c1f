"""Thins lines to the extremes of each pixel, so that no spike is lost at any zoom, and rounds values. Pure.

Enter by ``extremes``; ``interleave`` joins two answers of the engine, the lowest and the highest sample of each step.
"""

from dataclasses import replace

import numpy as np

from spm.arrays import F64, I64
from spm.query.promql.engine import Result

DIGITS = 6  # of a rounded value: more than a chart of any size shows


def extremes(times: I64, values: F64, width: int) -> tuple[I64, F64]:
    """Keep two points of each ``width`` of them: the lowest and the highest of each line, in their order.

    A column of one line without any value stays empty, so gaps of a column's width or more are still gaps.
    """
    first = np.arange(0, len(times), width)
    middle = np.minimum(first + width // 2, len(times) - 1)
    thin = np.stack([_extremes_in_order(line, width) for line in values] or [np.empty(0)])[: len(values)]
    pairs = np.column_stack((times[first], times[middle])).ravel()
    if middle[-1] == first[-1]:  # the last column has a single point
        return pairs[:-1], thin[:, : len(pairs) - 1]
    return pairs, thin


def outline(low: F64, high: F64, width: int, count: int) -> tuple[F64, F64]:
    """Return the edges of a band at the first ``count`` points that ``extremes`` keeps."""
    first = np.arange(0, len(low), width)
    edges = np.fmin.reduceat(low, first), np.fmax.reduceat(high, first)
    return np.repeat(edges[0], 2)[:count], np.repeat(edges[1], 2)[:count]


def interleave(low: Result, high: Result, step_ms: int) -> Result:
    """Join the lowest and the highest sample of each step as two points; both results have the same series."""
    order = {tuple(sorted(labels.items())): row for row, labels in enumerate(high.labels)}
    rows = np.array([order[tuple(sorted(labels.items()))] for labels in low.labels], np.int64)
    count = 2 * len(low.times)
    values, present = np.empty((len(rows), count)), np.empty((len(rows), count), np.bool_)
    values[:, ::2], values[:, 1::2] = low.values, high.values[rows]
    present[:, ::2], present[:, 1::2] = low.present, high.present[rows]
    times = np.column_stack((low.times - step_ms // 2, low.times)).ravel()
    return replace(low, times=times, values=values, present=present)


def round_digits(values: F64) -> F64:
    """Round to ``DIGITS`` significant digits."""
    with np.errstate(all="ignore"):
        power = DIGITS - 1 - np.floor(np.log10(np.abs(values)))
        finer, coarser = 10.0 ** np.maximum(power, 0), 10.0 ** np.maximum(-power, 0)
        rounded: F64 = np.round(values * finer / coarser) * coarser / finer
        return np.where(np.isfinite(rounded), rounded, values)


def _extremes_in_order(line: F64, width: int) -> F64:
    """Return two values per column: its extremes, the earlier one first."""
    count = -(-len(line) // width)
    padded = np.full(count * width, np.nan)
    padded[: len(line)] = line
    table = padded.reshape(count, width)
    low_at = np.argmin(np.where(np.isnan(table), np.inf, table), axis=1)
    high_at = np.argmax(np.where(np.isnan(table), -np.inf, table), axis=1)
    each = np.arange(count)
    in_order = np.stack((np.minimum(low_at, high_at), np.maximum(low_at, high_at)))
    values: F64 = table[each, in_order].T.ravel()
    return values
