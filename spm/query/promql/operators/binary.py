"""Operators between vectors and scalars, and between the matching elements of two vectors.

Two vectors are matched once for all steps: rows with the same signature form pairs, and an operator works on the pairs'
rows as a whole. What may go wrong only at some steps (two elements that match the same one) is counted there. A
comparison keeps the left value where it holds; with `bool` it gives 0 or 1. Arithmetic takes the metric's name away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit

from spm.arrays import BOOL, F64, I64, U8
from spm.errors import QueryFailed, QueryTooLarge
from spm.limits import QUERY_CELLS_MAX
from spm.query.promql.kernels.functions import ARITHMETIC, COMPARISON
from spm.query.promql.operators.label_groups import Groups, group_by, group_without, shown, without_name
from spm.query.promql.operators.vector import Vector, united
from spm.query.promql.planning.plan import Matching
from spm.query.request.batches import METRIC_NAME
from spm.query.series.label_table import Labels

_CELLS_AT_ONCE = 1 << 18  # of pairs that are computed at a time: two megabytes an operand


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
        others = Vector(right.labels, right.values, spare, right.nameless).shown()
        if (len(left.labels) + len(others.labels)) * left.values.shape[1] > QUERY_CELLS_MAX:
            found = f"'or' gives {len(left.labels)} and {len(others.labels)} series"
            raise _too_large(found, left.values.shape[1])
        return united([left.shown(), others])
    matched = _seen(right.present, codes_right, len(groups.labels))[codes_left]
    return Vector(left.labels, left.values, left.present & (matched if op == "and" else ~matched), left.nameless)


def _too_large(found: str, steps: int) -> QueryTooLarge:
    return QueryTooLarge(
        f"{found} at {steps} steps; at most {QUERY_CELLS_MAX} values are computed: use a longer step or fewer series"
    )


def _matched(op: str, many: Vector, one: Vector, matching: Matching, *, as_bool: bool, swapped: bool) -> Vector:
    groups = _signatures(many, one, matching)
    codes_many, codes_one = groups.codes[: len(many.labels)], groups.codes[len(many.labels) :]
    fill_one, fill_many = matching.fill_right, matching.fill_left  # what stands for a missing element of that side
    if swapped:
        fill_one, fill_many = fill_many, fill_one
    met = np.ones(many.values.shape[1], np.bool_) if matching.filled else many.present.any(axis=0)
    _check_one(one.labels, one.present & met, codes_one, groups, "left" if swapped else "right")
    rows_many, rows_one = _pairs(codes_many, codes_one, len(groups.labels))
    if len(rows_many) * many.values.shape[1] > QUERY_CELLS_MAX:
        raise _too_large(f"'{op}' matches {len(rows_many)} pairs of series", many.values.shape[1])
    values, kept, both = _joined(op, many, one, (rows_many, rows_one), as_bool=as_bool, swapped=swapped)
    alone, lone_many = _Alone(op, matching, as_bool, swapped), None
    if fill_one is not None:
        lone_many = many.present & ~_seen(one.present, codes_one, len(groups.labels))[codes_many]
    if not matching.many:
        matched = _counts(both, codes_many[rows_many], len(groups.labels))  # also what a comparison drops is a match
        if lone_many is not None:
            matched += _counts(lone_many, codes_many, len(groups.labels))
        if (matched > 1).any():
            raise QueryFailed(
                "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)"
            )
    labels = [
        _result_labels(op, many.labels[m], one.labels[o], matching)
        for m, o in zip(rows_many.tolist(), rows_one.tolist(), strict=True)
    ]
    nameless = many.nameless[rows_many] | as_bool
    if matching.many and kept is not both:
        united([Vector(labels, values, both, nameless)])  # raises for what would look alike, dropped or not
    parts = [Vector(labels, values, kept, nameless)]
    if fill_one is not None and lone_many is not None:
        parts.append(alone.many(many, lone_many, fill_one))
    if fill_many is not None:
        seen_many = _seen(many.present, codes_many, len(groups.labels))
        parts.append(alone.one(one, one.present & ~seen_many[codes_one], fill_many))
    return united(parts)


@dataclass(frozen=True, slots=True)
class _Alone:
    """What becomes of elements that match none, when a number stands for the missing side."""

    op: str
    matching: Matching
    as_bool: bool
    swapped: bool

    def many(self, many: Vector, lone: BOOL, fill: float) -> Vector:
        """Elements of the many side; the filling one has the labels they match by."""
        own, lone = _rows_with(many, lone)
        labels = [_result_labels(self.op, each, _key(each, self.matching), self.matching) for each in own.labels]
        return self._vector(labels, own, lone, own.values, np.broadcast_to(fill, lone.shape))

    def one(self, one: Vector, lone: BOOL, fill: float) -> Vector:
        """Likewise of the one side."""
        own, lone = _rows_with(one, lone)
        labels = [_result_labels(self.op, _key(each, self.matching), each, self.matching) for each in own.labels]
        return self._vector(labels, own, lone, np.broadcast_to(fill, lone.shape), own.values)

    def _vector(self, labels: Sequence[Labels], own: Vector, lone: BOOL, many: F64, one: F64) -> Vector:
        values, holds = _applied(self.op, many, one, as_bool=self.as_bool, swapped=self.swapped)
        kept = lone if holds is None else lone & holds
        return Vector(labels, np.ascontiguousarray(values), kept, own.nameless | self.as_bool)


def _rows_with(vector: Vector, wanted: BOOL) -> tuple[Vector, BOOL]:
    """The rows of which anything is wanted."""
    rows = np.flatnonzero(wanted.any(axis=1))
    return (vector, wanted) if len(rows) == len(wanted) else (vector.take(rows), wanted[rows])


def _key(labels: Labels, matching: Matching) -> Labels:
    """The labels that an element matches by."""
    if matching.on:
        return {name: value for name, value in labels.items() if name in matching.labels}
    left_out = (*matching.labels, METRIC_NAME)
    return {name: value for name, value in labels.items() if name not in left_out}


def _check_one(labels: Sequence[Labels], present: BOOL, codes: I64, groups: Groups, side: str) -> None:
    """Two elements of the one side in one group at one step are refused, with an example."""
    clash = _counts(present, codes, len(groups.labels)) > 1
    if not clash.any():
        return
    group, step = (int(each[0]) for each in np.nonzero(clash))
    rows = np.flatnonzero((codes == group) & present[:, step])[:2].tolist()
    twins = ", ".join(sorted(shown(labels[row]) for row in rows))
    raise QueryFailed(
        f"found duplicate series for the match group {shown(groups.labels[group])} on the {side} hand-side of the "
        f"operation: [{twins}];many-to-many matching not allowed: matching labels must be unique on one side"
    )


def _signatures(left: Vector, right: Vector, matching: Matching) -> Groups:
    both = [*left.labels, *right.labels]
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


def _joined(
    op: str, many: Vector, one: Vector, rows: tuple[I64, I64], *, as_bool: bool, swapped: bool
) -> tuple[F64, BOOL, BOOL]:
    """(values of pairs of rows, where both are there and a comparison holds, where both are there).

    Some pairs at a time, so that their operands are not all lined up at once.
    """
    shape = (len(rows[0]), many.values.shape[1])
    values, both = np.empty(shape), np.empty(shape, np.bool_)
    kept = both if op in ARITHMETIC or as_bool else np.empty(shape, np.bool_)
    at_once = max(_CELLS_AT_ONCE // max(shape[1], 1), 1)
    for first in range(0, shape[0], at_once):
        here = slice(first, first + at_once)
        of_many, of_one = rows[0][here], rows[1][here]
        both[here] = many.present[of_many] & one.present[of_one]
        values[here], holds = _applied(op, many.values[of_many], one.values[of_one], as_bool=as_bool, swapped=swapped)
        if holds is not None:
            kept[here] = both[here] & holds
    return values, kept, both


def _applied(op: str, many: F64, one: F64, *, as_bool: bool, swapped: bool) -> tuple[F64, BOOL | None]:
    """(values, where a comparison that filters holds)."""
    left, right = (one, many) if swapped else (many, one)
    if op in ARITHMETIC:
        return ARITHMETIC[op](left, right), None
    holds = COMPARISON[op](left, right)
    return (holds.astype(np.float64), None) if as_bool else (left, holds)


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


def _counts(present: BOOL, codes: I64, groups: int) -> U8:
    """How many elements each group has at each step: none, one, or (3) more than one."""
    counts = np.zeros((groups, present.shape[1]), np.uint8)
    _count(np.ascontiguousarray(present).view(np.uint8), codes, counts)
    return counts


def _seen(present: BOOL, codes: I64, groups: int) -> BOOL:
    return _counts(present, codes, groups) > 0


@njit(cache=True, nogil=True, error_model="numpy")
def _count(present: U8, codes: I64, counts: U8) -> None:
    for row in range(present.shape[0]):
        for step in range(present.shape[1]):
            count = counts[codes[row], step]
            counts[codes[row], step] = count | present[row, step] | (count & present[row, step]) << 1
