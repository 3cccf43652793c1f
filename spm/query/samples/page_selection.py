"""From what an hour holds to strips: pages as they are, or winners that were picked out of versions.

Pages of one metric name the same series in the same order hour after hour, and their columns are kept once (``alike``);
so which of them are wanted, and along which lines they lie, is found out once per query, for all pages of an hour
together. Enter by ``Woven``.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

import numpy as np
from numba import njit

from spm.arrays import I32, I64, U64
from spm.errors import CorruptBlock, IntegrityError
from spm.fast_dataclass import dataclass
from spm.limits import HOUR_MS
from spm.query.request.provenance import Basis
from spm.query.samples.intern import alike
from spm.query.samples.pointers import address_of, shorts_at, unsigned_at
from spm.query.samples.sample_runs import Lines, Strips, Weaver, ascending, entries_of
from spm.store.encoding.blocks import ChunkPage
from spm.store.versions.generations import TimelinePool
from spm.store.versions.merge import Winners

Pages = tuple[int, ...]  # of a pool of timelines


@dataclass(frozen=True, slots=True)
class ByMetric:
    """What a query has chosen, in the order of (metric, id): ids of series, their numbers, and where a metric's lie."""

    ids: U64
    numbers: I64  # among the chosen
    spans: Mapping[int, tuple[int, int]]

    def __contains__(self, metric: int) -> bool:
        return metric in self.spans

    def __getitem__(self, metric: int) -> tuple[U64, I64]:
        first, end = self.spans[metric]
        return self.ids[first:end], self.numbers[first:end]


@dataclass(frozen=True, slots=True)
class Known:
    """The lines of some pages of a generation's pool, each of which has one version of every time."""

    lines: Lines
    counts: I32
    place: tuple[Pages, Pages]  # numbers of the pages, and where the lines of each begin

    @classmethod
    def of(cls, pool: TimelinePool) -> "Known | None":
        """From a pool; ``None`` for one that is damaged, or has several versions of a time."""
        if (pool.bases < 0).any() or not ascending(pool.ts, pool.counts):
            return None
        place = tuple(pool.pages.tolist()), tuple(pool.bases.tolist())
        return cls(Lines.of(pool.ts, pool.counts), alike(pool.counts), place)


@dataclasses.dataclass(frozen=True, slots=True)
class SharedPage(ChunkPage):
    """A page whose columns but the values are shared with pages that have equal ones."""

    address: int = 0  # of the first value
    look: bytes = b""  # how many series, addresses of series, timeline and counts, values of each or -1: five int64

    @classmethod
    def of(cls, page: ChunkPage) -> "SharedPage":
        """Raises ``CorruptBlock`` for a page with columns of a kind that kernels cannot read by their address."""
        kinds = [column.dtype for column in (page.series, page.timeline, page.counts, page.values)]
        if kinds != _KINDS:
            raise CorruptBlock("a chunk has columns of a wrong kind", got=kinds)
        series, values = alike(np.ascontiguousarray(page.series)), np.ascontiguousarray(page.values)
        timeline, counts = alike(np.ascontiguousarray(page.timeline)), alike(np.ascontiguousarray(page.counts))
        even = int(counts[0]) if len(counts) and (counts == counts[0]).all() else _UNEVEN
        look = [len(series), address_of(series), address_of(timeline), address_of(counts), even]
        return cls(series, timeline, counts, values, address_of(values), np.array(look, np.int64).tobytes())


_LOOK, _UNEVEN = 5, -1
_FEW = 8  # of a page's series one in so many, or fewer, are looked up; more are met by walking along
_KINDS = [np.uint64, np.int32, np.int32, np.float64]


@dataclass(frozen=True, slots=True)
class Sheaf:
    """Which series of a unit's pages are wanted, for all units whose pages look alike."""

    pages_alike: Sequence[SharedPage]  # keep the columns alive whose addresses are the key
    used: tuple[int, ...]  # numbers of the pages in which any series is wanted; entries number these from 0
    entries: I64  # [N, 4], without their lines
    counts: I32
    timeline: I32
    shift: int
    pages: Pages  # of the pool; none where no series is wanted
    samples: int
    _along: dict[tuple[int, tuple[Pages, Pages]], tuple[Known, I64]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, metrics: Sequence[int], chunks: Sequence[SharedPage], look: bytes, by_metric: ByMetric, shift: int
    ) -> "Sheaf":
        """Of some pages of these metrics, whose generation has so many timelines to a page of its pool.

        ``look``: those of the pages, joined.
        """
        ids, spans = by_metric.ids, np.array([by_metric.spans[metric] for metric in metrics], np.int64)
        looks = np.frombuffer(look, np.int64).reshape(-1, _LOOK)
        room = int((spans[:, 1] - spans[:, 0]).sum())  # of a metric with several pages each may have all
        entries, each = np.empty((room, 4), np.int64), np.zeros(len(chunks), np.int64)
        counts, timeline = np.empty(room, np.int32), np.empty(room, np.int32)
        found, samples = _wanted(looks, ids, by_metric.numbers, spans, entries, counts, timeline, each)
        used, timeline = tuple(np.flatnonzero(each).tolist()), timeline[:found]
        pages = tuple(sorted(set((timeline >> shift).tolist())))
        return cls(chunks, used, entries[:found], counts[:found], timeline, shift, pages, samples)

    def along(self, known: Known) -> I64:
        """The entries with their lines; raises ``IntegrityError`` where values and times do not go together."""
        key = id(known.counts), known.place
        found = self._along.get(key)
        if found is None:
            pages, bases = (np.array(each, np.int64) for each in known.place)
            entries = self.entries.copy()
            if not _lined(entries, self.timeline, self.counts, self.shift, pages, bases, known.lines.lengths):
                raise IntegrityError("a chunk and its timelines differ in length")
            found = self._along[key] = known, entries
        return found[1]


@njit(cache=True, nogil=True)
def _wanted(
    looks: I64, ids: U64, numbers: I64, spans: I64, entries: I64, counts: I32, timeline: I32, each: I64
) -> tuple[int, int]:
    """Finds in each page's series those that are wanted of it, both ascending; (how many entries, samples).

    ``each``: how many of each page; entries name those pages by number that have any.
    """
    found = samples = used = 0
    for page in range(len(looks)):
        held, even, begin, end = looks[page, 0], looks[page, 4], spans[page, 0], spans[page, 1]
        series, lengths = unsigned_at(looks[page, 1], held), shorts_at(looks[page, 3], held)
        lines, place, at = shorts_at(looks[page, 2], held), 0, 0
        few = even != _UNEVEN and (end - begin) * _FEW <= held
        for wanted in range(begin, end):
            if few:
                place = _lower(series, place, ids[wanted])
                at = place * even
            else:
                while place < held and series[place] < ids[wanted]:
                    at += lengths[place]
                    place += 1
            if place < held and series[place] == ids[wanted]:
                entries[found] = numbers[wanted], used, at, 0
                counts[found], timeline[found] = lengths[place], lines[place]
                found, samples, each[page] = found + 1, samples + lengths[place], each[page] + 1
        used += each[page] > 0
    return found, samples


@njit(cache=True, nogil=True)
def _lower(series: U64, low: int, wanted: np.uint64) -> int:
    """The first place from ``low`` on that is not below what is wanted."""
    high = len(series)
    while low < high:
        middle = (low + high) // 2
        if series[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def _lined(entries: I64, timeline: I32, counts: I32, shift: int, pages: I64, bases: I64, lengths: I64) -> bool:
    """Writes the line of each entry: that of its timeline; whether all are there, and as long as the entries' values.

    ``bases``: where the lines begin of each of the pool's pages, which have ``1 << shift`` timelines.
    """
    for entry in range(len(entries)):
        page = timeline[entry] >> shift
        at = np.searchsorted(pages, page)
        known = at < len(pages) and pages[at] == page
        line = bases[at] + (timeline[entry] - (page << shift)) if known else -1
        if line < 0 or line >= len(lengths) or lengths[line] != counts[entry]:
            return False
        entries[entry, 3] = line
    return True


@dataclass(frozen=True, slots=True)
class Woven:
    """The strips of the chosen series of one query."""

    by_metric: ByMetric
    weaver: Weaver
    _sheaves: dict[tuple[int, tuple[int, ...], bytes], Sheaf] = field(default_factory=dict)

    @property
    def series(self) -> int:
        """How many are chosen."""
        return len(self.by_metric.ids)

    def holds(self, hour: int) -> bool:
        """Whether the whole hour is asked for."""
        return self.weaver.start_ms <= hour * HOUR_MS and (hour + 1) * HOUR_MS <= self.weaver.end_ms

    def sheaf(self, metrics: tuple[int, ...], pages: Sequence[SharedPage], shift: int) -> Sheaf:
        """What is wanted of these pages of a unit, at least one; ``metrics`` says of which metric each is."""
        look = b"".join([page.look for page in pages])
        found = self._sheaves.get((shift, metrics, look))
        if found is None:
            found = self._sheaves[shift, metrics, look] = Sheaf.of(metrics, pages, look, self.by_metric, shift)
        return found

    def opened(self, pages: Sequence[SharedPage], sheaf: Sheaf, known: Known, *, whole: bool) -> None:
        """Add what is wanted of these pages along their lines."""
        lines = known.lines if whole else known.lines.within(self.weaver.start_ms, self.weaver.end_ms)
        used = [pages[number] for number in sheaf.used]
        values, addresses = [page.values for page in used], [page.address for page in used]
        self.weaver.add(sheaf.along(known), values, lines, sheaf.samples, addresses)

    def picked(self, parts: Sequence[Winners], *, whole: bool) -> None:
        """Add winners."""
        for part in parts:
            if len(part.ts):
                lines = whole_lines = Lines.of(part.ts, part.counts)
                if not whole:
                    lines = lines.within(self.weaver.start_ms, self.weaver.end_ms)
                every = np.arange(len(part.counts), dtype=np.int64)
                values = np.ascontiguousarray(part.values, np.float64)
                entries = entries_of(self._rows(part), np.zeros_like(every), whole_lines.first, every)
                self.weaver.add(entries, [values], lines, len(part.ts))

    def _rows(self, part: Winners) -> I64:
        """The numbers of a part's series among the chosen, all of which are among them."""
        rows = np.empty(len(part.series), np.int64)
        for metric in np.unique(part.metrics).tolist():
            ids, numbers = self.by_metric[metric]
            mine = part.metrics == np.uint64(metric)
            rows[mine] = numbers[np.searchsorted(ids, part.series[mine])]
        return rows

    def strips(self, labels: Callable[[I64], Sequence[dict[str, str]]], basis: Basis) -> Strips:
        """The strips of the chosen that have samples, in order; ``labels`` gives those of some numbers."""
        return self.weaver.woven(self.series, labels, basis)
