"""An instant vector over all steps at once: the value that the evaluator computes with.

A row is a series, a column a step; where `present` is false, the value is meaningless. A function that changes the
meaning of the numbers does not remove the metric's name but marks it (`nameless`); `finish` removes it at the end, so
that grouping by `__name__` works in between. Rows that get equal labels become one series if they have no step in
common.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit

from spm.arrays import BOOL, F64, I64
from spm.errors import QueryFailed
from spm.fast_dataclass import dataclass
from spm.query.series.label_table import (
    METADATA,
    Labels,
    group_equal,
    has_one_metric,
    label_order,
    take_labels,
    without_metadata,
)


@dataclass(frozen=True, slots=True)
class Vector:
    """The elements of S series at T steps."""

    labels: Sequence[Labels]
    values: F64  # [S, T]
    present: BOOL  # [S, T]
    nameless: BOOL  # [S]: the metric's name is to be removed at the end

    def with_elements(self, values: F64, present: BOOL) -> Vector:
        """Replace the elements, and mark all names for removal.

        Rows with equal labels of which only one was marked become one series.
        """
        vector = Vector(self.labels, values, present, np.ones(len(self.labels), np.bool_))
        return merge_rows([vector]) if self.is_mixed else vector

    @property
    def is_mixed(self) -> bool:
        """Whether the names of some rows are marked for removal, and those of others are not."""
        return bool(self.nameless.any() and not self.nameless.all())

    def take(self, rows: I64) -> Vector:
        """Select rows by number, in this order."""
        values, present = self.values.take(rows, axis=0), self.present.take(rows, axis=0)
        return Vector(take_labels(self.labels, rows), values, present, self.nameless[rows])

    def without_empty_rows(self) -> Vector:
        """Select the rows that have any element."""
        has_element = self.present.any(axis=1)
        return self if has_element.all() else self.take(np.flatnonzero(has_element))

    def in_label_order(self) -> Vector:
        """Sort the rows by their labels."""
        return self.take(label_order(self.labels)) if len(self.labels) > 1 else self


def make_vector(labels: Sequence[Labels], values: F64, present: BOOL, *, nameless: bool) -> Vector:
    """Make a vector in which the names of all rows, or of none, are marked for removal."""
    return Vector(labels, values, present, np.full(len(labels), nameless, np.bool_))


def stack(parts: list[Vector]) -> Vector:
    """Concatenate the rows of vectors over the same steps."""
    parts = [part for part in parts if len(part.labels)] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    return Vector(
        [labels for part in parts for labels in part.labels],
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.present for part in parts]),
        np.concatenate([part.nameless for part in parts]),
    )


def finish(vector: Vector, *, by_labels: bool = False) -> Vector:
    """Remove marked names and empty rows, merge rows of one series, and sort if asked: an evaluation's last step."""
    vector = vector.without_empty_rows()
    if vector.nameless.any():
        # Series of one metric differ in other labels than the name, so only several metrics can get equal labels.
        one_metric = vector.nameless.all() and has_one_metric(vector.labels)
        labels = without_metadata(vector.labels, vector.nameless)
        vector = make_vector(labels, vector.values, vector.present, nameless=False)
        vector = vector if one_metric else merge_rows([vector])
    return vector.in_label_order() if by_labels else vector


def merge_rows(parts: list[Vector]) -> Vector:
    """Concatenate vectors and merge rows with equal labels; raises `QueryFailed` if two have an element at one step.

    A row marked to lose its name and one that is not are not merged, because they end as different series; for rows
    without a name the mark does not matter.
    """
    labels = parts[0].labels if len(parts) == 1 else [each for part in parts for each in part.labels]
    groups = group_equal(labels)
    if len(groups.labels) == len(labels):
        return stack(parts)
    nameless = np.concatenate([part.nameless for part in parts])
    nameless[[METADATA.isdisjoint(each) for each in labels]] = False
    codes, rows, places = np.unique(groups.codes * 2 + nameless, return_index=True, return_inverse=True)
    twins = np.minimum(np.searchsorted(codes, codes ^ 1), len(codes) - 1)
    twins[codes[twins] != codes ^ 1] = -1
    shape = (len(codes), parts[0].values.shape[1])
    values, present, first = np.zeros(shape), np.zeros(shape, np.bool_), 0
    for part in parts:
        own = places[first : first + len(part.labels)]
        first += len(part.labels)
        elements, part_present = np.ascontiguousarray(part.values), np.ascontiguousarray(part.present)
        if not _copy_rows(elements, part_present, own, twins, values, present):
            raise QueryFailed("vector cannot contain metrics with the same labelset")
    return Vector(take_labels(labels, rows), values, present, nameless[rows])


@njit(cache=True, nogil=True, error_model="numpy")
def _copy_rows(values: F64, present: BOOL, places: I64, twins: I64, out: F64, occupied: BOOL) -> bool:
    """Copies elements to their places; false if a place, or that of a row with equal labels (its twin), is occupied."""
    for row in range(len(places)):
        place = places[row]
        twin = twins[place]
        for step in range(values.shape[1]):
            if present[row, step]:
                if occupied[place, step] or (twin >= 0 and occupied[twin, step]):
                    return False
                out[place, step], occupied[place, step] = values[row, step], True
    return True
