"""From what a slot holds to strips: pages as they are, or winners that were picked out of versions.

Pages of one metric name the same series in the same order hour after hour, and their columns are kept once (``alike``);
so which of them are wanted, and along which lines they lie, is found out once per query. Enter by ``Woven``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from spm.errors import IntegrityError
from spm.limits import HOUR_MS
from spm.query.alike import alike
from spm.query.strips import Lines, Strips, Weaver, ascending
from spm.store.blocks import ChunkPage
from spm.store.merge import Picked
from spm.store.units import Pool
from spm.wire import I32, I64, U64

ByMetric = Mapping[int, tuple[U64, I64]]
Pages = tuple[int, ...]  # of a pool of timelines


@dataclass(frozen=True, slots=True)
class Known:
    """The lines of some pages of a generation's pool, each of which has one version of every time."""

    lines: Lines
    counts: I32
    place: tuple[Pages, Pages]  # numbers of the pages, and where the lines of each begin

    @classmethod
    def of(cls, pool: Pool) -> "Known | None":
        """From a pool; ``None`` for one that is damaged, or has several versions of a time."""
        if (pool.bases < 0).any() or not ascending(pool.ts, pool.counts):
            return None
        place = tuple(pool.pages.tolist()), tuple(pool.bases.tolist())
        return cls(Lines.of(pool.ts, pool.counts), alike(pool.counts), place)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Which series of pages that look alike are wanted: their numbers among the chosen, where their values begin."""

    page: ChunkPage  # keeps the columns alive whose identity is the key
    rows: I64
    first: I64
    counts: I32
    timeline: I32
    pages: Pages
    _along: dict[tuple[int, tuple[Pages, Pages]], tuple[Known, I64, int]] = field(default_factory=dict)

    def along(self, known: Known, shift: int) -> tuple[I64, int]:
        """(the line of each, samples in all); raises ``IntegrityError`` where values and times do not go together."""
        key = id(known.counts), known.place
        found = self._along.get(key)
        if found is None:
            numbers, bases = (np.array(each, np.int64) for each in known.place)
            page = self.timeline >> shift
            line = bases[np.searchsorted(numbers, page)] + (self.timeline - (page.astype(np.int64) << shift))
            if line.min() < 0 or line.max() >= len(known.counts) or (known.counts[line] != self.counts).any():
                raise IntegrityError("a chunk and its timelines differ in length")
            found = self._along[key] = known, line, int(self.counts.sum())
        return found[1], found[2]


@dataclass(frozen=True, slots=True)
class Woven:
    """The strips of the chosen series of one query."""

    by_metric: ByMetric  # metric id -> (series ids ascending, their numbers among the chosen)
    series: int  # how many are chosen
    weaver: Weaver
    _layouts: dict[tuple[int, int, int, int], _Layout] = field(default_factory=dict)

    def holds(self, slot: int) -> bool:
        """Whether the whole slot is asked for."""
        return self.weaver.start_ms <= slot * HOUR_MS and (slot + 1) * HOUR_MS <= self.weaver.end_ms

    def opened(
        self, chunks: Sequence[tuple[int, ChunkPage]], shift: int, lines_of: Callable[[Pages], Known | None], *,
        whole: bool,
    ) -> bool:  # fmt: skip
        """Add pages as they are; false where that cannot be."""
        parts = [(page, self._layout(metric, page, shift)) for metric, page in chunks]
        parts = [(page, layout) for page, layout in parts if len(layout.rows)]
        if not parts:
            return True
        known = lines_of(tuple(sorted({number for _, layout in parts for number in layout.pages})))
        if known is None:
            return False
        lines = known.lines if whole else known.lines.within(self.weaver.start_ms, self.weaver.end_ms)
        for page, layout in parts:
            line, count = layout.along(known, shift)
            self.weaver.add(layout.rows, page.values, layout.first, line, lines, count)
        return True

    def _layout(self, metric: int, page: ChunkPage, shift: int) -> _Layout:
        key = metric, id(page.series), id(page.counts), id(page.timeline)
        found = self._layouts.get(key)
        if found is None:
            ids, numbers = self.by_metric[metric]
            at = np.searchsorted(page.series, ids)
            inside = at < len(page.series)
            inside[inside] = page.series[at[inside]] == ids[inside]
            picked, starts = at[inside], np.cumsum(page.counts, dtype=np.int64) - page.counts
            timeline = page.timeline[picked]
            pages = tuple(np.unique(timeline >> shift).tolist())
            found = _Layout(page, numbers[inside], starts[picked], page.counts[picked], timeline, pages)
            self._layouts[key] = found
        return found

    def picked(self, parts: Sequence[Picked], *, whole: bool) -> None:
        """Add winners."""
        for part in parts:
            if len(part.ts):
                lines = whole_lines = Lines.of(part.ts, part.counts)
                if not whole:
                    lines = lines.within(self.weaver.start_ms, self.weaver.end_ms)
                every = np.arange(len(part.counts), dtype=np.int64)
                self.weaver.add(self._rows(part), part.values, whole_lines.first, every, lines, len(part.ts))

    def _rows(self, part: Picked) -> I64:
        """The numbers of a part's series among the chosen, all of which are among them."""
        rows = np.empty(len(part.series), np.int64)
        for metric in np.unique(part.metrics).tolist():
            ids, numbers = self.by_metric[metric]
            mine = part.metrics == np.uint64(metric)
            rows[mine] = numbers[np.searchsorted(ids, part.series[mine])]
        return rows

    def strips(self) -> tuple[I64, Strips]:
        """(numbers of the chosen that have samples, their strips), in the order of these numbers."""
        return self.weaver.woven(self.series)
