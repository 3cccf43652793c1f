"""Operators between vectors and scalars, and between the matching elements of two vectors.

Two vectors are matched once for all steps: rows with the same signature form pairs, and an operator works on the pairs'
rows as a whole. What may go wrong only at some steps (two elements that match the same one) is counted there. A
comparison keeps the left value where it holds; with `bool` it gives 0 or 1. Arithmetic takes the metric's name away.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from spm.errors import QueryFailed, QueryTooLarge
from spm.limits import QUERY_CELLS_MAX
from spm.query.promql.functions import ARITHMETIC, COMPARISON
from spm.query.promql.labels import Groups, Labels, group_by, group_without, without_name
from spm.query.promql.plan import Matching
from spm.query.promql.vector import Vector, united

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


def vector_scalar(op: str, vector: Vector, scalar: F64, *, swapped: bool, as_bool: bool) -> Vector:
    """An operator between every element and the step's scalar; `swapped` when the scalar stands on the left."""
    left, right = (scalar, vector.values) if swapped else (vector.values, scalar)
    if op in ARITHMETIC:
        return vector.having(ARITHMETIC[op](left, right), vector.present)
    holds = COMPARISON[op](left, right)
    if as_bool:
        return vector.having(holds.astype(np.float64), vector.present)
    return Vector(vector.labels, vector.values, vector.present & holds, vector.nameless)


def vector_vector(op: str, left: Vector, right: Vector, matching: Matching, *, as_bool: bool) -> Vector:
    """An operator between the elements that match, one to one or, with a grouping, many to one."""
    if matching.many == "right":
        return _matched(op, right, left, matching, as_bool=as_bool, swapped=True)
    return _matched(op, left, right, matching, as_bool=as_bool, swapped=False)


def set_operation(op: str, left: Vector, right: Vector, matching: Matching) -> Vector:
    """`and`: left elements with a match; `unless`: those without; `or`: all left ones, and right ones without."""
    groups = _signatures(left, right, matching)
    codes_left, codes_right = groups.codes[: len(left.labels)], groups.codes[len(left.labels) :]
    if op == "or":
        spare = right.present & ~_seen(left.present, codes_left, len(groups.labels))[codes_right]
        return united(
            Vector(
                left.labels + right.labels,
                np.concatenate((left.values, right.values)),
                np.concatenate((left.present, spare)),
                np.concatenate((left.nameless, right.nameless)),
            )
        )
    matched = _seen(right.present, codes_right, len(groups.labels))[codes_left]
    return Vector(left.labels, left.values, left.present & (matched if op == "and" else ~matched), left.nameless)


def _matched(op: str, many: Vector, one: Vector, matching: Matching, *, as_bool: bool, swapped: bool) -> Vector:
    groups = _signatures(many, one, matching)
    codes_many, codes_one = groups.codes[: len(many.labels)], groups.codes[len(many.labels) :]
    met = many.present.any(axis=0)
    if (_counts(one.present & met, codes_one, len(groups.labels)) > 1).any():
        raise QueryFailed("many-to-many matching not allowed: matching labels must be unique on one side")
    rows_many, rows_one = _pairs(codes_many, codes_one, len(groups.labels))
    if len(rows_many) * many.values.shape[1] > QUERY_CELLS_MAX:
        raise QueryTooLarge(f"an operator matches {len(rows_many)} pairs of series over {many.values.shape[1]} steps")
    values, holds = _applied(op, many.values[rows_many], one.values[rows_one], as_bool=as_bool, swapped=swapped)
    present = many.present[rows_many] & one.present[rows_one] & holds
    if not matching.many and (_counts(present, codes_many[rows_many], len(groups.labels)) > 1).any():
        raise QueryFailed("multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)")
    labels = [
        _result_labels(op, many.labels[m], one.labels[o], matching)
        for m, o in zip(rows_many.tolist(), rows_one.tolist(), strict=True)
    ]
    return united(Vector(labels, values, present, many.nameless[rows_many] | as_bool))


def _signatures(left: Vector, right: Vector, matching: Matching) -> Groups:
    both = left.labels + right.labels
    return group_by(both, matching.labels) if matching.on else group_without(both, matching.labels)


def _pairs(codes_many: I64, codes_one: I64, groups: int) -> tuple[I64, I64]:
    """Every row of the one side with every row of the other that has the same code."""
    order = np.argsort(codes_one, kind="stable")
    sizes = np.bincount(codes_one, minlength=groups)
    starts = np.cumsum(sizes) - sizes
    per_row = sizes[codes_many]
    rows_many = np.repeat(np.arange(len(codes_many)), per_row)
    within = np.arange(len(rows_many)) - np.repeat(np.cumsum(per_row) - per_row, per_row)
    return rows_many, order[np.repeat(starts[codes_many], per_row) + within]


def _applied(op: str, many: F64, one: F64, *, as_bool: bool, swapped: bool) -> tuple[F64, Bool]:
    left, right = (one, many) if swapped else (many, one)
    if op in ARITHMETIC:
        return ARITHMETIC[op](left, right), np.ones(many.shape, np.bool_)
    holds = COMPARISON[op](left, right)
    return (holds.astype(np.float64), np.ones(many.shape, np.bool_)) if as_bool else (left, holds)


def _result_labels(op: str, many: Labels, one: Labels, matching: Matching) -> Labels:
    labels = without_name(many) if op in ARITHMETIC else dict(many)
    if not matching.many:
        if matching.on:
            return {name: value for name, value in labels.items() if name in matching.labels}
        return {name: value for name, value in labels.items() if name not in matching.labels}
    for name in matching.include:
        labels.pop(name, None)
        if one.get(name):
            labels[name] = one[name]
    return labels


def _counts(present: Bool, codes: I64, groups: int) -> I64:
    """How many elements each group has at each step."""
    counts = np.zeros((groups, present.shape[1]), np.int64)
    np.add.at(counts, codes, present)
    return counts


def _seen(present: Bool, codes: I64, groups: int) -> Bool:
    return _counts(present, codes, groups) > 0
