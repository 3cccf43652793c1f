"""Applies operators between a vector and a scalar, and between the matching elements of two vectors.

Two vectors are matched once for all steps: rows with equal matching labels form pairs, and an operator works on the
rows of all pairs at once. Conflicts at single steps (two elements that match the same one) are counted per step. A
comparison keeps the left value where it holds; with `bool` it gives 0 or 1. Arithmetic removes the metric's name.
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
from spm.query.promql.operators.vector import Vector, merge_rows
from spm.query.promql.planning.plan import Matching
from spm.query.series.label_table import METADATA, Groups, Labels, group_by, group_without, labels_text, without_name

_CELLS_AT_ONCE = 1 << 18  # elements of pairs that are computed at a time: two megabytes for each operand


def vector_scalar(op: str, vector: Vector, scalar: F64, *, swapped: bool, as_bool: bool) -> Vector:
    """Applies an operator to every element and the step's scalar; `swapped` if the scalar is the left operand."""
    left, right = (scalar, vector.values) if swapped else (vector.values, scalar)
    if op in ARITHMETIC:
        return vector.with_elements(ARITHMETIC[op](left, right), vector.present)
    holds = COMPARISON[op](left, right)
    if as_bool:
        return vector.with_elements(holds.astype(np.float64), vector.present)
    return Vector(vector.labels, vector.values, vector.present & holds, vector.nameless)


def vector_vector(op: str, left: Vector, right: Vector, matching: Matching, *, as_bool: bool) -> Vector:
    """Applies an operator to the elements that match, one to one or, with a grouping, many to one."""
    if matching.many == "right":
        return _match(op, right, left, matching, as_bool=as_bool, swapped=True)
    return _match(op, left, right, matching, as_bool=as_bool, swapped=False)


def set_operation(op: str, left: Vector, right: Vector, matching: Matching) -> Vector:
    """Applies `and` (left elements with a match), `unless` (those without), or `or` (left and unmatched right ones)."""
    groups = _signatures(left, right, matching)
    codes_left, codes_right = groups.codes[: len(left.labels)], groups.codes[len(left.labels) :]
    if op == "or":
        unmatched = right.present & ~_has_element(left.present, codes_left, len(groups.labels))[codes_right]
        others = Vector(right.labels, right.values, unmatched, right.nameless).without_empty_rows()
        if (len(left.labels) + len(others.labels)) * left.values.shape[1] > QUERY_CELLS_MAX:
            subject = f"'or' gives {len(left.labels)} and {len(others.labels)} series"
            raise _too_large(subject, left.values.shape[1])
        return merge_rows([left.without_empty_rows(), others])
    matched = _has_element(right.present, codes_right, len(groups.labels))[codes_left]
    return Vector(left.labels, left.values, left.present & (matched if op == "and" else ~matched), left.nameless)


def _too_large(subject: str, steps: int) -> QueryTooLarge:
    return QueryTooLarge(
        f"{subject} at {steps} steps; at most {QUERY_CELLS_MAX} values are computed: use a longer step or fewer series"
    )


def _match(op: str, many: Vector, one: Vector, matching: Matching, *, as_bool: bool, swapped: bool) -> Vector:
    groups = _signatures(many, one, matching)
    codes_many, codes_one = groups.codes[: len(many.labels)], groups.codes[len(many.labels) :]
    fill_one, fill_many = matching.fill_right, matching.fill_left  # the numbers that replace a missing element
    if swapped:
        fill_one, fill_many = fill_many, fill_one
    needed_steps = np.ones(many.values.shape[1], np.bool_) if matching.filled else many.present.any(axis=0)
    _check_one(one.labels, one.present & needed_steps, codes_one, groups, "left" if swapped else "right")
    rows_many, rows_one = _pairs(codes_many, codes_one, len(groups.labels))
    if len(rows_many) * many.values.shape[1] > QUERY_CELLS_MAX:
        raise _too_large(f"'{op}' matches {len(rows_many)} pairs of series", many.values.shape[1])
    values, filtered, both = _apply_to_pairs(op, many, one, (rows_many, rows_one), as_bool=as_bool, swapped=swapped)
    unmatched, unmatched_many = _UnmatchedElements(op, matching, as_bool, swapped), None
    if fill_one is not None:
        unmatched_many = many.present & ~_has_element(one.present, codes_one, len(groups.labels))[codes_many]
    if not matching.many:
        matched = _counts(both, codes_many[rows_many], len(groups.labels))  # an element that a comparison drops counts
        if unmatched_many is not None:
            matched += _counts(unmatched_many, codes_many, len(groups.labels))
        if (matched > 1).any():
            raise QueryFailed(
                "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)"
            )
    labels = [
        _result_labels(op, many.labels[m], one.labels[o], matching)
        for m, o in zip(rows_many.tolist(), rows_one.tolist(), strict=True)
    ]
    nameless = many.nameless[rows_many] | as_bool
    if matching.many and filtered is not both:
        merge_rows([Vector(labels, values, both, nameless)])  # raises for equal label sets, also of dropped elements
    parts = [Vector(labels, values, filtered, nameless)]
    if fill_one is not None and unmatched_many is not None:
        parts.append(unmatched.many(many, unmatched_many, fill_one))
    if fill_many is not None:
        has_many = _has_element(many.present, codes_many, len(groups.labels))
        parts.append(unmatched.one(one, one.present & ~has_many[codes_one], fill_many))
    return merge_rows(parts)


@dataclass(frozen=True, slots=True)
class _UnmatchedElements:
    """Applies an operator to elements without a match, with the fill number as the missing operand."""

    op: str
    matching: Matching
    as_bool: bool
    swapped: bool

    def many(self, many: Vector, unmatched: BOOL, fill: float) -> Vector:
        """Apply it to unmatched elements of the many side; the fill operand gets the labels that they match by."""
        own, unmatched = _rows_with(many, unmatched)
        labels = [
            _result_labels(self.op, each, _matching_labels(each, self.matching), self.matching) for each in own.labels
        ]
        return self._vector(labels, own, unmatched, own.values, np.broadcast_to(fill, unmatched.shape))

    def one(self, one: Vector, unmatched: BOOL, fill: float) -> Vector:
        """Apply it to unmatched elements of the one side; the fill operand gets the labels that they match by."""
        own, unmatched = _rows_with(one, unmatched)
        labels = [
            _result_labels(self.op, _matching_labels(each, self.matching), each, self.matching) for each in own.labels
        ]
        return self._vector(labels, own, unmatched, np.broadcast_to(fill, unmatched.shape), own.values)

    def _vector(self, labels: Sequence[Labels], own: Vector, unmatched: BOOL, many: F64, one: F64) -> Vector:
        values, holds = _apply(self.op, many, one, as_bool=self.as_bool, swapped=self.swapped)
        present = unmatched if holds is None else unmatched & holds
        return Vector(labels, np.ascontiguousarray(values), present, own.nameless | self.as_bool)


def _rows_with(vector: Vector, marks: BOOL) -> tuple[Vector, BOOL]:
    """Returns the rows in which any element is marked, and their marks."""
    rows = np.flatnonzero(marks.any(axis=1))
    return (vector, marks) if len(rows) == len(marks) else (vector.take(rows), marks[rows])


def _matching_labels(labels: Labels, matching: Matching) -> Labels:
    """Returns the labels that an element matches by."""
    if matching.on:
        return {name: value for name, value in labels.items() if name in matching.labels}
    ignored = METADATA.union(matching.labels)
    return {name: value for name, value in labels.items() if name not in ignored}


def _check_one(labels: Sequence[Labels], present: BOOL, codes: I64, groups: Groups, side: str) -> None:
    """Raises `QueryFailed`, with an example, if two elements of the one side are in one group at one step."""
    conflicts = _counts(present, codes, len(groups.labels)) > 1
    if not conflicts.any():
        return
    group, step = (int(each[0]) for each in np.nonzero(conflicts))
    rows = np.flatnonzero((codes == group) & present[:, step])[:2].tolist()
    duplicates = ", ".join(sorted(labels_text(labels[row]) for row in rows))
    raise QueryFailed(
        f"found duplicate series for the match group {labels_text(groups.labels[group])} on the {side} hand-side of "
        f"the operation: [{duplicates}];many-to-many matching not allowed: matching labels must be unique on one side"
    )


def _signatures(left: Vector, right: Vector, matching: Matching) -> Groups:
    both = [*left.labels, *right.labels]
    return group_by(both, matching.labels) if matching.on else group_without(both, matching.labels)


def _pairs(codes_many: I64, codes_one: I64, groups: int) -> tuple[I64, I64]:
    """Returns the pairs of rows, one of each side, that have equal codes."""
    order = np.argsort(codes_one, kind="stable")
    sizes = np.bincount(codes_one, minlength=groups)
    starts = np.cumsum(sizes) - sizes
    per_row = sizes[codes_many]
    rows_many = np.repeat(np.arange(len(codes_many)), per_row)
    within = np.arange(len(rows_many)) - np.repeat(np.cumsum(per_row) - per_row, per_row)
    return rows_many, order[np.repeat(starts[codes_many], per_row) + within]


def _apply_to_pairs(
    op: str, many: Vector, one: Vector, rows: tuple[I64, I64], *, as_bool: bool, swapped: bool
) -> tuple[F64, BOOL, BOOL]:
    """Returns (values of the pairs, where both are present and a comparison holds, where both are present).

    It takes some pairs at a time, so that only their operands are copied at once.
    """
    shape = (len(rows[0]), many.values.shape[1])
    values, both = np.empty(shape), np.empty(shape, np.bool_)
    filtered = both if op in ARITHMETIC or as_bool else np.empty(shape, np.bool_)
    at_once = max(_CELLS_AT_ONCE // max(shape[1], 1), 1)
    for first in range(0, shape[0], at_once):
        here = slice(first, first + at_once)
        of_many, of_one = rows[0][here], rows[1][here]
        both[here] = many.present[of_many] & one.present[of_one]
        values[here], holds = _apply(op, many.values[of_many], one.values[of_one], as_bool=as_bool, swapped=swapped)
        if holds is not None:
            filtered[here] = both[here] & holds
    return values, filtered, both


def _apply(op: str, many: F64, one: F64, *, as_bool: bool, swapped: bool) -> tuple[F64, BOOL | None]:
    """Returns (values, where a filtering comparison holds)."""
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
    """Counts the elements of each group at each step as 0, 1, or (for two and more) 3."""
    counts = np.zeros((groups, present.shape[1]), np.uint8)
    _count(np.ascontiguousarray(present).view(np.uint8), codes, counts)
    return counts


def _has_element(present: BOOL, codes: I64, groups: int) -> BOOL:
    return _counts(present, codes, groups) > 0


@njit(cache=True, nogil=True, error_model="numpy")
def _count(present: U8, codes: I64, counts: U8) -> None:
    for row in range(present.shape[0]):
        for step in range(present.shape[1]):
            count = counts[codes[row], step]
            counts[codes[row], step] = count | present[row, step] | (count & present[row, step]) << 1
