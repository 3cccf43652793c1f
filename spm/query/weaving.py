"""From what a slot holds to strips: pages as they are, or winners that were picked out of versions.

Pages of one metric name the same series in the same order hour after hour, and their columns are kept once (``alike``);
so which of them are wanted, and along which lines they lie, is found out once per query, for all pages of a slot
together. Enter by ``Woven``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numba import njit

from spm.errors import CorruptBlock, IntegrityError
from spm.limits import HOUR_MS
from spm.query.addresses import address_of, shorts_at, unsigned_at
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
class SharedPage(ChunkPage):
    """A page whose columns but the values are shared with pages that have equal ones."""

    address: int = 0  # of the first value
    look: tuple[int, int, int, int] = (0, 0, 0, 0)  # series, and the addresses of series, timeline and counts

    @classmethod
    def of(cls, page: ChunkPage) -> "SharedPage":
        """Raises ``CorruptBlock`` for a page with columns of a kind that kernels cannot read by their address."""
        kinds = [column.dtype for column in (page.series, page.timeline, page.counts, page.values)]
        if kinds != _KINDS:
            raise CorruptBlock("a chunk has columns of a wrong kind", got=kinds)
        series, values = alike(np.ascontiguousarray(page.series)), np.ascontiguousarray(page.values)
        timeline, counts = alike(np.ascontiguousarray(page.timeline)), alike(np.ascontiguousarray(page.counts))
        look = len(series), address_of(series), address_of(timeline), address_of(counts)
        return cls(series, timeline, counts, values, address_of(values), look)


_KINDS = [np.uint64, np.int32, np.int32, np.float64]


@dataclass(frozen=True, slots=True)
class _Sheaf:
    """Which series of a unit's pages are wanted, for all units whose pages look alike."""

    pages_alike: Sequence[SharedPage]  # keep the columns alive whose addresses are the key
    used: tuple[int, ...]  # numbers of the pages in which any series is wanted
    owner: I64  # which of these each strip is in
    rows: I64  # the number of each among the chosen
    first: I64  # where its values begin
    counts: I32
    timeline: I32
    shift: int
    pages: Pages  # of the pool
    samples: int
    _along: dict[tuple[int, tuple[Pages, Pages]], tuple[Known, I64]] = field(default_factory=dict)

    @classmethod
    def of(cls, chunks: Sequence[tuple[int, SharedPage]], by_metric: ByMetric, shift: int) -> "_Sheaf":
        """Of some pages whose generation has so many timelines to a page of its pool."""
        asked = [by_metric[metric] for metric, _ in chunks]
        ids, numbers = (np.concatenate(columns) for columns in zip(*asked, strict=True))
        ends = np.cumsum([len(wanted) for wanted, _ in asked])
        rows, first, owner = (np.empty(len(ids), np.int64) for _ in range(3))
        counts, timeline = np.empty(len(ids), np.int32), np.empty(len(ids), np.int32)
        looks, each = np.array([page.look for _, page in chunks], np.int64), np.zeros(len(chunks), np.int64)
        found = _wanted(looks, ids, numbers, ends, rows, first, owner, counts, timeline, each)
        used = tuple(np.flatnonzero(each).tolist())
        timeline = timeline[:found]
        pages = tuple(sorted(set((timeline >> shift).tolist())))
        return cls(
            [page for _, page in chunks], used, owner[:found], rows[:found], first[:found], counts[:found], timeline,
            shift, pages, int(counts[:found].sum()),
        )  # fmt: skip

    def along(self, known: Known) -> I64:
        """The line of each; raises ``IntegrityError`` where values and times do not go together."""
        key = id(known.counts), known.place
        found = self._along.get(key)
        if found is None:
            numbers, bases = (np.array(each, np.int64) for each in known.place)
            page = self.timeline >> self.shift
            line = bases[np.searchsorted(numbers, page)] + (self.timeline - (page.astype(np.int64) << self.shift))
            if line.min() < 0 or line.max() >= len(known.counts) or (known.counts[line] != self.counts).any():
                raise IntegrityError("a chunk and its timelines differ in length")
            found = self._along[key] = known, line
        return found[1]


@njit(cache=True, nogil=True)
def _wanted(
    looks: I64, ids: U64, numbers: I64, ends: I64, rows: I64, first: I64, owner: I64, counts: I32, timeline: I32,
    each: I64,
) -> Any:  # fmt: skip
    """Walks along each page's series and those that are wanted of it, both ascending; how many strips there are.

    ``each``: how many of each page; ``owner`` numbers the pages that have any.
    """
    found = used = begin = 0
    for page in range(len(looks)):
        held = looks[page, 0]
        series, lengths = unsigned_at(looks[page, 1], held), shorts_at(looks[page, 3], held)
        lines, place, at = shorts_at(looks[page, 2], held), 0, 0
        for wanted in range(begin, ends[page]):
            while place < held and series[place] < ids[wanted]:
                at += lengths[place]
                place += 1
            if place < held and series[place] == ids[wanted]:
                rows[found], first[found], owner[found] = numbers[wanted], at, used
                counts[found], timeline[found] = lengths[place], lines[place]
                found, each[page] = found + 1, each[page] + 1
        begin = ends[page]
        used += each[page] > 0
    return found


@dataclass(frozen=True, slots=True)
class Woven:
    """The strips of the chosen series of one query."""

    by_metric: ByMetric  # metric id -> (series ids ascending, their numbers among the chosen)
    series: int  # how many are chosen
    weaver: Weaver
    _sheaves: dict[tuple[int, tuple[tuple[int, tuple[int, int, int, int]], ...]], _Sheaf] = field(default_factory=dict)

    def holds(self, slot: int) -> bool:
        """Whether the whole slot is asked for."""
        return self.weaver.start_ms <= slot * HOUR_MS and (slot + 1) * HOUR_MS <= self.weaver.end_ms

    def opened(
        self, chunks: Sequence[tuple[int, SharedPage]], shift: int, lines_of: Callable[[Pages], Known | None], *,
        whole: bool,
    ) -> bool:  # fmt: skip
        """Add pages of one unit as they are; false where that cannot be."""
        sheaf = self._sheaf(chunks, shift) if chunks else None
        if sheaf is None or not len(sheaf.rows):
            return True
        known = lines_of(sheaf.pages)
        if known is None:
            return False
        lines = known.lines if whole else known.lines.within(self.weaver.start_ms, self.weaver.end_ms)
        used = [chunks[number][1] for number in sheaf.used]
        values, addresses = [page.values for page in used], [page.address for page in used]
        along = sheaf.along(known)
        self.weaver.add(sheaf.rows, values, sheaf.owner, sheaf.first, along, lines, sheaf.samples, addresses)
        return True

    def _sheaf(self, chunks: Sequence[tuple[int, SharedPage]], shift: int) -> _Sheaf:
        key = shift, tuple([(metric, page.look) for metric, page in chunks])
        found = self._sheaves.get(key)
        if found is None:
            found = self._sheaves[key] = _Sheaf.of(chunks, self.by_metric, shift)
        return found

    def picked(self, parts: Sequence[Picked], *, whole: bool) -> None:
        """Add winners."""
        for part in parts:
            if len(part.ts):
                lines = whole_lines = Lines.of(part.ts, part.counts)
                if not whole:
                    lines = lines.within(self.weaver.start_ms, self.weaver.end_ms)
                every = np.arange(len(part.counts), dtype=np.int64)
                values = np.ascontiguousarray(part.values, np.float64)
                self.weaver.add(
                    self._rows(part), [values], np.zeros_like(every), whole_lines.first, every, lines, len(part.ts)
                )

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
