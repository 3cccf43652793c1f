"""Merged samples of one metric and hour, as a row of `chunks` holds them: values whose series can be opened in part.

Few values are one column, and the row is one frame of version 1. More are packed in pages (``paged``): a frame of
version 2 has the series and the directory, and the pages follow it. Enter by ``ChunkPage``.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from spm.arrays import F64, I32, I64, U64
from spm.errors import CorruptBlock
from spm.store.encoding import blocks, kernels, paged
from spm.store.encoding.codec import Column
from spm.store.encoding.paged import PagedValues, TakePlan

_SERIES = ("series_hash", "timeline", "counts")


@dataclass(frozen=True, slots=True)
class ChunkPage:
    """Per series (u64[S], sorted) its timeline's number, length and values; ``values`` may still be packed."""

    series: U64
    timeline: I32
    counts: I32
    values: F64 | PagedValues

    def to_bytes(self) -> bytes:
        """The row's bytes."""
        values = self.unpacked()
        columns: dict[str, Column] = {
            "series_hash": self.series,
            "timeline": self.timeline,
            "counts": self.counts,
        }
        if len(values) < paged.PAGED_FROM:
            return blocks.encode_columns(blocks.CHUNK, columns | {"values": values}, version=1)
        directory, pages = paged.pack(values, self.counts)
        head = blocks.pack_columns(blocks.CHUNK, columns | directory)
        return blocks.frame(blocks.CHUNK, len(head).to_bytes(4, "big") + head) + pages

    @classmethod
    def from_bytes(cls, raw: bytes) -> "ChunkPage":
        """Decode a row, with its values still packed where it has pages; raise ``CorruptBlock`` for any damage."""
        page, damage = cls.undamaged(raw)
        if damage is not None:
            raise damage
        return page

    @classmethod
    def undamaged(cls, raw: bytes) -> "tuple[ChunkPage, CorruptBlock | None]":
        """Decode a row; without the series of damaged pages, and with what is wrong. Raise ``CorruptBlock``."""
        frame, pages = blocks.split_pages(raw)
        version, (c, _) = blocks.read(blocks.CHUNK, frame)
        _has(c, (*_SERIES, *(("values",) if version == 1 else paged.DIRECTORY)))
        blocks.same_length(c, _SERIES)
        if version == 1:
            blocks.adds_up(c["counts"], len(c["values"]))
            return cls(c["series_hash"], c["timeline"], c["counts"], c["values"]), None
        total = int(c["counts"].sum())
        blocks.adds_up(c["counts"], total)
        values = PagedValues.of(c, pages, total)
        page = cls(c["series_hash"], c["timeline"], c["counts"], values)
        damaged = values.damaged()
        if not damaged:
            return page, None
        wanted = f"{len(values.ends)} pages with their checksums"
        return page._without(damaged), CorruptBlock("pages of a chunk fail their checksum", got=damaged, wanted=wanted)

    def unpacked(self) -> F64:
        """All values; raise ``CorruptBlock``."""
        return self.values.whole() if isinstance(self.values, PagedValues) else self.values

    @property
    def packed(self) -> PagedValues:
        """The values of a page whose values are packed."""
        assert isinstance(self.values, PagedValues), "BUG: these values are one column"
        return self.values

    def values_of(self, rows: I64) -> F64:
        """The values of these series (numbers, ascending), one series after the other; raise ``CorruptBlock``."""
        counts, starts = self.counts[rows], (np.cumsum(self.counts, dtype=np.int64) - self.counts)[rows]
        count = int(counts.sum())
        if isinstance(self.values, PagedValues):
            values = np.empty(count)
            self.values.take(TakePlan.of(starts, counts, self.values.ends), values)
            return values
        return self.values[kernels.take_segments(starts, counts, count)]

    def _without(self, damaged: list[int]) -> "ChunkPage":
        """Return the series of which no value lies in these pages."""
        assert isinstance(self.values, PagedValues), "BUG: only pages are damaged apart"
        ends = np.cumsum(self.counts, dtype=np.int64)
        first = self.values.page_of(ends - self.counts)
        last = np.maximum(first, self.values.page_of(ends - 1))
        before = np.concatenate([[0], np.cumsum(np.isin(np.arange(len(self.values.ends)), damaged))])
        rows: I64 = np.flatnonzero(before[last + 1] == before[first])
        return ChunkPage(self.series[rows], self.timeline[rows], self.counts[rows], self.values_of(rows))


def _has(columns: Mapping[str, Column], names: tuple[str, ...]) -> None:
    missing = [name for name in names if name not in columns]
    if missing:
        raise CorruptBlock("a block lacks columns", got=sorted(columns), wanted=missing)
