"""Computes the aggregations that select elements or count equal ones: topk, bottomk, limitk, limit_ratio, count_values.

Selected elements keep their labels. Of equal values the series that is earlier in the vector comes first; NaN comes
last. `limit_ratio` selects by a hash of a series' labels, so that it selects the same series at every step and on every
machine, and the ratios r and r - 1 select complementary parts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numba import njit

from spm.arrays import BOOL, F64, I64, U64
from spm.errors import QueryFailed, QueryTooLarge
from spm.limits import QUERY_CELLS_MAX
from spm.query.promql.operators.vector import Vector, make_vector
from spm.query.promql.syntax.numerals import plain
from spm.query.series.label_table import Groups, Labels, group_by, group_without

_ELEMENTS_AT_ONCE = 500_000  # of count_values: counting them takes some tens of megabytes
_INT64_LEAST, _INT64_GREATEST = -(2.0**63), 2.0**63


def select(op: str, vector: Vector, groups: Groups, parameter: F64) -> Vector:
    """Selects elements of each group; those of an instant topk or bottomk are sorted by value."""
    if op == "limit_ratio":
        return _with_present(vector, vector.present & _is_in_ratio(vector.labels, parameter))
    counts = _counts(parameter, len(vector.labels))
    order, starts = groups.members()
    if op == "limitk":
        return _with_present(vector, _first(vector.present, order, starts, counts))
    selected = _with_present(vector, _extremes(vector.values, vector.present, order, starts, counts, op == "topk"))
    return rank(selected, groups, greatest=op == "topk") if selected.values.shape[1] == 1 else selected


def rank(vector: Vector, groups: Groups, *, greatest: bool) -> Vector:
    """Sorts the rows of an instant vector by group, then by value, NaN last."""
    keys = vector.values[:, 0]
    order = np.lexsort((-keys if greatest else keys, np.isnan(keys), groups.codes))
    return vector.take(order[vector.present[order, 0]])


def count_values(vector: Vector, label: str, *, labels: tuple[str, ...], without: bool) -> Vector:
    """Counts the elements of each group that have each value; the value becomes a label."""
    distinct = _distinct(vector)
    texts = [plain(number) for number in distinct.view(np.float64).tolist()]
    pairs = _pairs(vector, distinct)
    series = [vector.labels[pair // len(texts)] | {label: texts[pair % len(texts)]} for pair in pairs.tolist()]
    groups = group_without(series, labels) if without else group_by(series, (*labels, label))
    counts = np.zeros((len(groups.labels), vector.values.shape[1]))
    for part, steps in _coded_elements(vector, distinct):
        np.add.at(counts, (groups.codes[np.searchsorted(pairs, part)], steps), 1.0)
    return make_vector(groups.labels, counts, counts > 0, nameless=False)


def _distinct(vector: Vector) -> U64:
    """Returns the distinct bit patterns of all values, ascending."""
    values = np.empty(0, np.uint64)
    for part in _parts(vector):
        values = np.union1d(values, vector.values[part][vector.present[part]].view(np.uint64))
        _check_size(len(values), vector)  # each value gives at least one series
    return values


def _pairs(vector: Vector, distinct: U64) -> I64:
    """Returns the pairs (series, value) that occur at any step, each coded in one number, ascending."""
    parts, count = [np.empty(0, np.int64)], 0
    for part, _ in _coded_elements(vector, distinct):
        parts.append(np.unique(part))
        count += len(parts[-1])
        _check_size(count, vector)
    return np.concatenate(parts)


def _check_size(count: int, vector: Vector) -> None:
    if count * vector.values.shape[1] > QUERY_CELLS_MAX:
        raise QueryTooLarge(
            f"count_values gives {count} series or more at {vector.values.shape[1]} steps; at most {QUERY_CELLS_MAX} "
            "values are computed: round the values first, or use a longer step or fewer series"
        )


def _coded_elements(vector: Vector, distinct: U64) -> Iterator[tuple[I64, I64]]:
    """Yields (pair of series and value coded in one number, step) of all elements, some series at a time."""
    for part in _parts(vector):
        rows, steps = np.nonzero(vector.present[part])
        codes = np.searchsorted(distinct, vector.values[part][vector.present[part]].view(np.uint64))
        yield (rows + part.start) * len(distinct) + codes, steps


def _parts(vector: Vector) -> Iterator[slice]:
    at_once = max(_ELEMENTS_AT_ONCE // max(vector.values.shape[1], 1), 1)
    return (slice(first, first + at_once) for first in range(0, len(vector.labels), at_once))


def _with_present(vector: Vector, present: BOOL) -> Vector:
    return Vector(vector.labels, vector.values, present, vector.nameless)


def _counts(parameter: F64, series: int) -> I64:
    if np.isnan(parameter).any():
        raise QueryFailed("Parameter value is NaN")
    if not (parameter >= 1).any():
        return np.zeros(len(parameter), np.int64)
    if (parameter <= _INT64_LEAST).any():
        raise QueryFailed(f"Scalar value {parameter.min():g} underflows int64")
    if (parameter >= _INT64_GREATEST).any():
        raise QueryFailed(f"Scalar value {parameter.max():g} overflows int64")
    return np.clip(parameter, 0, series).astype(np.int64)


def _is_in_ratio(labels: Sequence[Labels], parameter: F64) -> BOOL:
    if np.isnan(parameter).any():
        raise QueryFailed("Ratio value is NaN")
    ratio = np.clip(parameter, -1.0, 1.0)
    positions = np.array([_position(each) for each in labels]).reshape(-1, 1)
    selected: BOOL = np.where(ratio >= 0, positions < ratio, positions >= 1.0 + ratio)
    return selected


def _position(labels: Labels) -> float:
    """Hashes the labels to a number in [0, 1)."""
    text = "\xff".join(f"{name}\xff{value}" for name, value in sorted(labels.items()))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=6).digest()) / 2**48


@njit(cache=True, nogil=True, error_model="numpy")
def _first(present: BOOL, order: I64, starts: I64, counts: I64) -> Any:
    """Selects the first elements of each group at each step."""
    selected = np.zeros(present.shape, np.bool_)
    for group in range(len(starts) - 1):
        for step in range(present.shape[1]):
            remaining = counts[step]
            for row in order[starts[group] : starts[group + 1]]:
                if remaining > 0 and present[row, step]:
                    selected[row, step] = True
                    remaining -= 1
    return selected


@njit(cache=True, nogil=True, error_model="numpy")
def _extremes(values: F64, present: BOOL, order: I64, starts: I64, counts: I64, greatest: bool) -> Any:
    """Selects the first `counts[step]` elements of each group by value; of equal ones the earlier series, NaN last."""
    selected = np.zeros(present.shape, np.bool_)
    for group in range(len(starts) - 1):
        rows = order[starts[group] : starts[group + 1]]
        for step in range(values.shape[1]):
            here = rows[np.array([present[row, step] for row in rows])]
            keys = np.array([values[row, step] for row in here])
            numbers = here[~np.isnan(keys)]
            keys = keys[~np.isnan(keys)]
            ranks = numbers[np.argsort(-keys if greatest else keys, kind="mergesort")]
            for row in ranks[: counts[step]]:
                selected[row, step] = True
            remaining = counts[step] - len(ranks)
            for row in here:
                if remaining > 0 and np.isnan(values[row, step]):
                    selected[row, step] = True
                    remaining -= 1
    return selected
