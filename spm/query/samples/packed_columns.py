"""Values of sample runs that are still packed: unpacked for some series at a time, while these are evaluated.

A query over many series holds their pages as they are stored, a byte or two for each value, and unpacks the values of
one group of series after the other, so that its memory is its result and one group. The values of all packed columns of
a query have a *place* each: one column follows the other, and in a column one part follows the other. Enter by
``PackedColumns.take``.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from spm.arrays import F64, I32, I64
from spm.fast_dataclass import dataclass
from spm.store.encoding.chunk_page import ChunkPage
from spm.store.encoding.paged import TakePlan


@dataclass(frozen=True, slots=True)
class PackedPart:
    """The selected series of one page whose values are packed, and which place their values have in a column."""

    page: int  # its number
    first: I64  # [N] place of each series' values in the page
    counts: I32  # [N]
    ranks: I64  # [N] of the series, ascending
    begin: int  # place in the column
    plan: TakePlan  # to take all of them
    count: int  # of all their values


class PackedColumn(NamedTuple):
    """The selected packed values of an hour-shard; hours with an equal layout have the same ``parts``."""

    pages: Sequence[ChunkPage]
    parts: tuple[PackedPart, ...]
    begin: int  # place of the first value

    @property
    def nbytes(self) -> int:
        """The memory that the pages of its parts take."""
        return sum(self.pages[part.page].packed.nbytes for part in self.parts)


class _Taken(NamedTuple):
    """What is taken of one part: ``size`` values from ``begin`` on of its column."""

    page: int
    plan: TakePlan
    begin: int
    size: int


@dataclass(frozen=True, slots=True)
class PackedColumns:
    """The packed values of a query's sample runs, in the order of time."""

    columns: Sequence[PackedColumn]
    ranks: I64  # [S] of the series of the runs, in the order in which pages hold them
    samples: int  # of the runs whose values are packed
    nbytes: int  # of the pages that hold them

    def take(self, first: int, end: int) -> tuple[I64, I64, F64]:
        """Unpack the values of the series with a rank in ``first:end``; raise ``CorruptBlock``.

        Returns the place of the first value of each stretch that was taken, ascending, its place in the column that
        is returned, and that column.
        """
        taken: dict[int, list[_Taken]] = {}
        stretches: list[tuple[PackedColumn, _Taken]] = []
        for column in self.columns:
            parts = taken.get(id(column.parts))
            if parts is None:
                parts = taken[id(column.parts)] = _plan(column, first, end)
            stretches += [(column, part) for part in parts]
        counts = np.array([part.size for _, part in stretches], np.int64)
        ends = np.cumsum(counts)
        values = np.empty(int(ends[-1]) if len(ends) else 0)
        for (column, part), stretch_end in zip(stretches, ends.tolist(), strict=True):
            column.pages[part.page].packed.take(part.plan, values[stretch_end - part.size : stretch_end])
        places = np.array([column.begin + part.begin for column, part in stretches], np.int64)
        return places, ends - counts, values


def _plan(column: PackedColumn, first: int, end: int) -> list[_Taken]:
    """What is taken of each part that has series with a rank in ``first:end``."""
    result = []
    for part in column.parts:
        begin, stop = np.searchsorted(part.ranks, (first, end)).tolist()
        if begin < stop:
            own, plan = slice(begin, stop), part.plan
            if stop - begin < len(part.ranks):
                plan = TakePlan.of(part.first[own].copy(), part.counts[own], column.pages[part.page].packed.ends)
            before, count = int(part.counts[:begin].sum()), int(part.counts[own].sum())
            result.append(_Taken(part.page, plan, part.begin + before, count))
    return result
