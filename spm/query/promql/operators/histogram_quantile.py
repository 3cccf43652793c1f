"""Computes quantiles and fractions of classic histograms: series that count the observations up to their label `le`.

1. Series that differ in `le` only form a histogram (`group_buckets`); their bounds are sorted once for all steps. 2. At
each step the present buckets are collected: those with equal bounds are added, and the last bound must be +Inf.
3. Counts that fall where they must rise are raised: tiny differences silently, others with an annotation. 4. The
observations within a bucket are assumed to be spread evenly. Enter by `group_buckets`, `quantile` and `fraction`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from spm.arrays import BOOL, F64, I64
from spm.query.promql.operators.annotations import Annotations, ForcedMonotonicity
from spm.query.promql.operators.vector import Vector
from spm.query.request.batches import METRIC_NAME
from spm.query.series.label_table import group_equal

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|inf|infinity)", re.IGNORECASE)
_TOLERANCE = 1e-12  # the relative difference of two counts that rounding may cause
_QUARTERS = np.array([2.0**0.25, 2.0**0.5, 2.0**0.75]) / 2  # as mantissas
_LEAST_NORMAL = 2.2250738585072014e-308


@dataclass(frozen=True, slots=True)
class Histograms:
    """The bucket rows of a vector: those of histogram h are rows[starts[h]:starts[h + 1]], bounds ascending."""

    labels: Sequence[dict[str, str]]
    rows: I64
    starts: I64
    bounds: F64  # of the rows

    def vector(self, values: F64, present: BOOL) -> Vector:
        """Make a vector with one row per histogram, whose names are marked for removal."""
        return Vector(self.labels, values, present, np.ones(len(self.labels), np.bool_))


def group_buckets(vector: Vector, annotations: Annotations, position: int) -> Histograms:
    """Group the rows of a vector into histograms; a series whose bound is not a number is dropped with a warning."""
    texts = [labels.get("le", "") for labels in vector.labels]
    has_bound = np.array([_NUMBER.fullmatch(text) is not None for text in texts], np.bool_)
    has_element = vector.present.any(axis=1)
    for row in np.flatnonzero(has_element & ~has_bound).tolist():
        annotations.bad_bucket(vector.labels[row].get(METRIC_NAME, ""), texts[row], position)
    rows = np.flatnonzero(has_element & has_bound)
    bare = [{name: value for name, value in vector.labels[row].items() if name != "le"} for row in rows.tolist()]
    groups = group_equal(bare)
    bounds = np.array([float(texts[row]) for row in rows.tolist()])
    order = np.lexsort((bounds, groups.codes))
    starts = np.searchsorted(groups.codes[order], np.arange(len(groups.labels) + 1))
    converted = np.unique(groups.codes[_are_quarters(bounds)]).tolist()
    for metric in dict.fromkeys(groups.labels[code].get(METRIC_NAME, "") for code in converted):
        annotations.exponential_buckets(metric, position)
    return Histograms(groups.labels, rows[order], starts.astype(np.int64), bounds[order])


def _are_quarters(bounds: F64) -> BOOL:
    """Whether each bound is 2^(k/4), k no multiple of 4: only converters of exponential buckets have these bits."""
    mantissas, _ = np.frexp(np.abs(bounds))
    return np.isin(mantissas, _QUARTERS)


def quantile(
    vector: Vector, histograms: Histograms, q: F64, *, times: I64, annotations: Annotations, position: int
) -> Vector:
    """Compute the q-quantile per histogram and step; `q` has one number per step."""
    shape = len(histograms.labels), vector.values.shape[1]
    values, present = np.zeros(shape), np.zeros(shape, np.bool_)
    raised = np.zeros((len(histograms.labels), 3))
    span = np.zeros((len(histograms.labels), 3), np.int64)
    _quantiles(
        vector.values,
        vector.present,
        histograms.rows,
        histograms.starts,
        histograms.bounds,
        q,
        values,
        present,
        raised,
        span,
    )
    for row in np.flatnonzero(span[:, 0]).tolist():
        least, greatest, difference = raised[row].tolist()
        count, first, last = span[row].tolist()
        forced = ForcedMonotonicity(least, greatest, difference, count, int(times[first]), int(times[last]))
        annotations.forced_monotonicity(histograms.labels[row].get(METRIC_NAME, ""), position, forced)
    return histograms.vector(values, present)


def fraction(vector: Vector, histograms: Histograms, lower: F64, upper: F64) -> Vector:
    """Compute the share of observations between two values, per histogram and step."""
    shape = len(histograms.labels), vector.values.shape[1]
    values, present = np.zeros(shape), np.zeros(shape, np.bool_)
    _fractions(
        vector.values,
        vector.present,
        histograms.rows,
        histograms.starts,
        histograms.bounds,
        lower,
        upper,
        values,
        present,
    )
    return histograms.vector(values, present)


@njit(cache=True, nogil=True, error_model="numpy")
def _collect_buckets(
    values: F64, present: BOOL, rows: I64, bounds: F64, step: int, own_bounds: F64, own_counts: F64
) -> int:
    """Collect the buckets of one histogram at one step, adding those of equal bounds; return their number."""
    count = 0
    for i in range(len(rows)):
        if not present[rows[i], step]:
            continue
        if count and own_bounds[count - 1] == bounds[i]:
            own_counts[count - 1] += values[rows[i], step]
        else:
            own_bounds[count], own_counts[count] = bounds[i], values[rows[i], step]
            count += 1
    return count


@njit(cache=True, nogil=True, error_model="numpy")
def _almost_equal(a: float, b: float) -> bool:
    if a == b or (np.isnan(a) and np.isnan(b)):
        return True
    total, difference = abs(a) + abs(b), abs(a - b)
    if a == 0 or b == 0 or total < _LEAST_NORMAL:
        return difference < _TOLERANCE * _LEAST_NORMAL
    return difference / min(total, 1.7976931348623157e308) < _TOLERANCE


@njit(cache=True, nogil=True, error_model="numpy")
def _make_monotonic(bounds: F64, counts: F64, size: int) -> Any:
    """Make counts monotonic; return (whether any was raised noticeably, least and greatest such bound, difference)."""
    forced, least, greatest, difference = False, np.inf, -np.inf, 0.0
    before = counts[0]
    for i in range(1, size):
        here = counts[i]
        if here == before:
            continue
        if _almost_equal(before, here):
            counts[i] = before
        elif here < before:
            counts[i] = before
            forced = True
            least, greatest = min(least, bounds[i]), max(greatest, bounds[i])
            difference = max(difference, before - here)
        else:
            before = here
    return forced, least, greatest, difference


@njit(cache=True, nogil=True, error_model="numpy")
def _quantile(bounds: F64, counts: F64, size: int, q: float) -> Any:
    observations = counts[size - 1]
    if size < 2 or observations == 0:
        return np.nan
    rank = q * observations
    place = 0
    while place < size - 1 and not counts[place] >= rank:
        place += 1
    if place == size - 1:
        return bounds[size - 2]
    if place == 0 and bounds[0] <= 0:
        return bounds[0]
    start, count = 0.0, counts[place]
    if place > 0:
        start = bounds[place - 1]
        count -= counts[place - 1]
        rank -= counts[place - 1]
    return start + (bounds[place] - start) * (rank / count)


@njit(cache=True, nogil=True, error_model="numpy")
def _quantiles(
    values: F64,
    present: BOOL,
    rows: I64,
    starts: I64,
    bounds: F64,
    q: F64,
    out: F64,
    present_out: BOOL,
    raised: F64,
    span: I64,
) -> None:
    widest = np.max(np.diff(starts)) if len(starts) > 1 else 0
    own_bounds, own_counts = np.empty(widest), np.empty(widest)
    for histogram in range(len(starts) - 1):
        part = slice(starts[histogram], starts[histogram + 1])
        for step in range(values.shape[1]):
            size = _collect_buckets(values, present, rows[part], bounds[part], step, own_bounds, own_counts)
            if size == 0:
                continue
            present_out[histogram, step] = True
            if np.isnan(q[step]):
                out[histogram, step] = np.nan
            elif q[step] < 0:
                out[histogram, step] = -np.inf
            elif q[step] > 1:
                out[histogram, step] = np.inf
            elif own_bounds[size - 1] != np.inf:
                out[histogram, step] = np.nan
            else:
                forced, least, greatest, difference = _make_monotonic(own_bounds, own_counts, size)
                out[histogram, step] = _quantile(own_bounds, own_counts, size, q[step])
                if forced:
                    first = span[histogram, 0] == 0
                    raised[histogram, 0] = least if first else min(least, raised[histogram, 0])
                    raised[histogram, 1] = greatest if first else max(greatest, raised[histogram, 1])
                    raised[histogram, 2] = max(difference, raised[histogram, 2])
                    span[histogram, 0] += 1
                    span[histogram, 1] = step if first else span[histogram, 1]
                    span[histogram, 2] = step


@njit(cache=True, nogil=True, error_model="numpy")
def _rank(bounds: F64, counts: F64, size: int, at: float) -> Any:
    """Compute the number of observations below a value."""
    rank = 0.0
    start = 0.0 if bounds[0] > 0 else -np.inf
    for i in range(size):
        if i > 0:
            start = bounds[i - 1]
        if start >= at:
            return rank
        if bounds[i] > at:
            if start == -np.inf:
                return counts[i]
            return rank + (counts[i] - rank) * (at - start) / (bounds[i] - start)
        rank = counts[i]
    return counts[size - 1]


@njit(cache=True, nogil=True, error_model="numpy")
def _fractions(
    values: F64, present: BOOL, rows: I64, starts: I64, bounds: F64, lower: F64, upper: F64, out: F64, present_out: BOOL
) -> None:
    widest = np.max(np.diff(starts)) if len(starts) > 1 else 0
    own_bounds, own_counts = np.empty(widest), np.empty(widest)
    for histogram in range(len(starts) - 1):
        part = slice(starts[histogram], starts[histogram + 1])
        for step in range(values.shape[1]):
            size = _collect_buckets(values, present, rows[part], bounds[part], step, own_bounds, own_counts)
            if size == 0:
                continue
            present_out[histogram, step] = True
            count, low, high = own_counts[size - 1], lower[step], upper[step]
            if own_bounds[size - 1] != np.inf or count == 0 or np.isnan(low) or np.isnan(high):
                out[histogram, step] = np.nan
            elif low >= high:
                out[histogram, step] = 0.0
            else:
                first = min(_rank(own_bounds, own_counts, size, low), count)
                last = min(_rank(own_bounds, own_counts, size, high), count)
                out[histogram, step] = (last - first) / count
