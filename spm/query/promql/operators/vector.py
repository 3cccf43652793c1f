"""What the evaluator computes with: an instant vector over all steps at once.

A row is a series, a column a step; where `present` is false the value means nothing. The metric's name is not taken
away when a function changes what the number means, but marked (`nameless`) and removed at the very end, so that
grouping by `__name__` still works in between. Two rows that come to have the same labels are one series, if they never
meet.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit

from spm.arrays import BOOL, F64, I64
from spm.errors import QueryFailed
from spm.fast_dataclass import dataclass
from spm.query.promql.operators.label_groups import METADATA, group_equal, without_name
from spm.query.series.label_table import Labels, LabelTable, taken, used


@dataclass(frozen=True, slots=True)
class Vector:
    """Elements of S series at T steps."""

    labels: Sequence[Labels]
    values: F64  # [S, T]
    present: BOOL  # [S, T]
    nameless: BOOL  # [S]: the metric's name is to be removed in the end

    def having(self, values: F64, present: BOOL) -> Vector:
        """The same series with other elements, the names marked for removal.

        Rows that stood apart because only one of them was to lose its name are one series from here on.
        """
        made = Vector(self.labels, values, present, np.ones(len(self.labels), np.bool_))
        return united([made]) if self.mixed else made

    @property
    def mixed(self) -> bool:
        """Whether some rows are to lose their names, and others are not."""
        return bool(self.nameless.any() and not self.nameless.all())

    def take(self, rows: I64) -> Vector:
        """These rows, in this order."""
        values, present = self.values.take(rows, axis=0), self.present.take(rows, axis=0)
        return Vector(taken(self.labels, rows), values, present, self.nameless[rows])

    def shown(self) -> Vector:
        """Only the rows that have any element."""
        held = self.present.any(axis=1)
        return self if held.all() else self.take(np.flatnonzero(held))


def named(labels: Sequence[Labels], values: F64, present: BOOL, *, nameless: bool) -> Vector:
    """A vector whose rows all keep, or all lose, their metric's name."""
    return Vector(labels, values, present, np.full(len(labels), nameless, np.bool_))


def stacked(parts: list[Vector]) -> Vector:
    """The rows of some vectors over the same steps, one after the other."""
    parts = [part for part in parts if len(part.labels)] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    return Vector(
        [labels for part in parts for labels in part.labels],
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.present for part in parts]),
        np.concatenate([part.nameless for part in parts]),
    )


def finished(vector: Vector) -> Vector:
    """Names removed, rows of one series joined, empty rows left out: ready to be shown."""
    vector = vector.shown()
    if not vector.nameless.any():
        return vector
    one_metric = vector.nameless.all() and all(len(used(vector.labels, name)) == 1 for name in METADATA)
    cleaned = named(_bare(vector), vector.values, vector.present, nameless=False)
    # Series of one metric differ in something else than its name: only several metrics can come to look the same.
    return cleaned if one_metric else united([cleaned])


def _bare(vector: Vector) -> Sequence[Labels]:
    if isinstance(vector.labels, LabelTable) and vector.nameless.all():
        return vector.labels.without(METADATA)
    return [
        without_name(labels) if drop else labels for labels, drop in zip(vector.labels, vector.nameless, strict=True)
    ]


def united(parts: list[Vector]) -> Vector:
    """The rows of some vectors, those with the same labels joined; `QueryFailed` if two have an element at one step.

    A row that is to lose its name and one that keeps it stay apart: in the end they are different series. Of rows
    without a name that means nothing.
    """
    labels = parts[0].labels if len(parts) == 1 else [each for part in parts for each in part.labels]
    groups = group_equal(labels)
    if len(groups.labels) == len(labels):
        return stacked(parts)
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
        elements, there = np.ascontiguousarray(part.values), np.ascontiguousarray(part.present)
        if not _joined(elements, there, own, twins, values, present):
            raise QueryFailed("vector cannot contain metrics with the same labelset")
    return Vector(taken(labels, rows), values, present, nameless[rows])


@njit(cache=True, nogil=True, error_model="numpy")
def _joined(values: F64, present: BOOL, places: I64, twins: I64, out: F64, there: BOOL) -> bool:
    """Whether every element has found its place free, and that of a row with the same labels."""
    for row in range(len(places)):
        place = places[row]
        twin = twins[place]
        for step in range(values.shape[1]):
            if present[row, step]:
                if there[place, step] or (twin >= 0 and there[twin, step]):
                    return False
                out[place, step], there[place, step] = values[row, step], True
    return True
