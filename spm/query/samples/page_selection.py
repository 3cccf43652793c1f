"""Adds the samples of an hour to a query's sample runs: pages as they are, or winners picked from versions.

Pages of one metric name the same series in the same order hour after hour, and equal columns are kept once
(``intern``). So the selection of their series and timelines is computed once per query, for all pages of an hour-shard
together, and reused for every other hour with an equal layout. Enter by ``SelectedPages``.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import NamedTuple, cast

import numpy as np
from numba import njit

from spm.arrays import I32, I64, U64
from spm.errors import CorruptBlock, IntegrityError
from spm.fast_dataclass import dataclass
from spm.limits import HOUR_MS
from spm.query.request.provenance import Provenance
from spm.query.samples import sample_runs
from spm.query.samples.intern import intern
from spm.query.samples.packed_columns import PackedPart
from spm.query.samples.pointers import address_of, shorts_at, unsigned_at
from spm.query.samples.sample_runs import SampleRuns, SampleRunsBuilder, Timelines, is_ascending
from spm.query.samples.unpacked_pages import PageKey, UnpackedPage, process_unpacked_pages
from spm.query.series.index import SeriesByMetric
from spm.store.encoding.chunk_page import ChunkPage
from spm.store.encoding.paged import PagedValues, TakePlan
from spm.store.versions.generations import TimelinePool
from spm.store.versions.kernels import first_not_below
from spm.store.versions.merge import Winners

Pages = tuple[int, ...]  # of a pool of timelines


@dataclass(frozen=True, slots=True)
class CachedTimelines:
    """The timelines of some pages of a generation's pool, each of which has one version of every time."""

    timelines: Timelines
    counts: I32
    positions: tuple[Pages, Pages]  # numbers of the pages, and the first timeline of each

    @classmethod
    def of(cls, pool: TimelinePool) -> "CachedTimelines | None":
        """The timelines of a pool; ``None`` if it is damaged or has several versions of a time."""
        if (pool.bases < 0).any() or not is_ascending(pool.ts, pool.counts):
            return None
        positions = tuple(pool.pages.tolist()), tuple(pool.bases.tolist())
        return cls(Timelines.of(pool.ts, pool.counts), intern(pool.counts), positions)


@dataclasses.dataclass(frozen=True, slots=True)
class SharedPage(ChunkPage):
    """A page whose columns but the values are shared with pages that have equal ones."""

    address: int = 0  # of the first value; 0 where they are packed
    layout: bytes = b""  # six int64: number of series; addresses of series, timeline and counts; values of each or -1;
    # address of the ends of packed values' pages, or 0

    @classmethod
    def of(cls, page: ChunkPage) -> "SharedPage":
        """Share the columns of a page; raises ``CorruptBlock`` for types that kernels cannot read by their address."""
        types = [column.dtype for column in (page.series, page.timeline, page.counts)]
        if types != _TYPES or not (isinstance(page.values, PagedValues) or page.values.dtype == np.float64):
            raise CorruptBlock("a chunk has columns of a wrong kind", got=types)
        series, values, address, ends = intern(np.ascontiguousarray(page.series)), page.values, 0, 0
        if isinstance(values, PagedValues):
            values = replace(values, ends=intern(values.ends))
            ends = address_of(values.ends)
        else:
            values = np.ascontiguousarray(values)
            address = address_of(values)
        timeline, counts = intern(np.ascontiguousarray(page.timeline)), intern(np.ascontiguousarray(page.counts))
        even = int(counts[0]) if len(counts) and (counts == counts[0]).all() else _UNEVEN
        layout = [len(series), address_of(series), address_of(timeline), address_of(counts), even, ends]
        return cls(series, timeline, counts, values, address, np.array(layout, np.int64).tobytes())


_LAYOUT_FIELDS, _UNEVEN = 6, -1
_FEW = 8  # up to one in so many of a page's series, each is looked up; more are collected in one pass over the page
_TYPES = [np.uint64, np.int32, np.int32]


@dataclass(frozen=True, slots=True)
class PageSelection:
    """The selected series of an hour-shard's pages, valid for all hour-shards whose pages have this layout."""

    layout_pages: Sequence[SharedPage]  # keep the columns alive whose addresses are the layout
    whole: tuple[int, ...]  # numbers of the pages whose values are one column, with any selected series
    packed: tuple[PackedPart, ...]  # of the pages whose values are packed: together they fill one column, the first
    packed_count: int  # its values
    inner: "InnerPages | None"  # where the packed values lie once their pages are unpacked; ``None`` if runs are cut
    entries: I64  # [N, 4], without their timelines
    counts: I32
    timeline: I32
    shift: int
    pages: Pages  # of the pool; none where no series is selected
    samples: int
    _complete_entries: dict[tuple[int, tuple[Pages, Pages]], "_Complete"] = field(default_factory=dict)

    @classmethod
    def of(
        cls, metrics: Sequence[int], chunks: Sequence[SharedPage], layout: bytes, by_metric: SeriesByMetric, shift: int
    ) -> "PageSelection":
        """Select in pages of these metrics; a page of their generation's pool has ``1 << shift`` timelines.

        ``layout``: the layouts of the pages, joined.
        """
        ids, spans = by_metric.ids, np.array([by_metric.spans[metric] for metric in metrics], np.int64)
        layouts = np.frombuffer(layout, np.int64).reshape(-1, _LAYOUT_FIELDS)
        room = int((spans[:, 1] - spans[:, 0]).sum())  # of a metric with several pages each may have all
        entries, per_page = np.empty((room, 4), np.int64), np.zeros(len(chunks), np.int64)
        counts, timeline = np.empty(room, np.int32), np.empty(room, np.int32)
        size, samples = _select(layouts, ids, by_metric.numbers, spans, entries, counts, timeline, per_page)
        entries, counts, timeline = entries[:size], counts[:size], timeline[:size]
        whole, packed, packed_count = _take_parts(chunks, entries, counts, per_page, by_metric.ranks)
        inner = InnerPages.of(chunks, packed, entries) if packed else None
        pages = tuple(sorted(set((timeline >> shift).tolist())))
        return cls(chunks, whole, packed, packed_count, inner, entries, counts, timeline, shift, pages, samples)

    def entries_along(self, cached: CachedTimelines, *, inner: bool = False) -> I64:
        """The entries with timelines of a pool; raises ``IntegrityError`` if values and times differ in length.

        ``inner``: they refer to inner pages, which are the first columns, instead of one column of packed values.
        """
        key = id(cached.counts), cached.positions
        complete = self._complete_entries.get(key)
        if complete is None:
            pages, bases = (np.array(each, np.int64) for each in cached.positions)
            entries = self.entries.copy()
            lengths = cached.timelines.lengths
            if not _place_timelines(entries, self.timeline, self.counts, self.shift, pages, bases, lengths):
                raise IntegrityError("a chunk and its timelines differ in length")
            complete = self._complete_entries[key] = _Complete(cached, entries, self._with_inner(entries))
        return complete.inner if inner else complete.entries

    def _with_inner(self, entries: I64) -> I64:
        if self.inner is None:
            return entries
        return np.concatenate((entries[:, :1], self.inner.places, entries[:, 3:]), axis=1)


class _Complete(NamedTuple):
    """Entries with timelines: of packed values in one column, and in inner pages."""

    timelines: CachedTimelines  # stay alive, so that no others have their id
    entries: I64
    inner: I64


class InnerPages(NamedTuple):
    """The pages inside of packed values that have the selected series, and where these begin in them."""

    numbers: tuple[tuple[int, int], ...]  # page of the hour-shard, page inside of its values
    places: I64  # [N, 2] of each entry: its column, of which inner pages are the first, and the first value there

    @classmethod
    def of(cls, chunks: Sequence[SharedPage], packed: Sequence[PackedPart], entries: I64) -> "InnerPages | None":
        """Find the inner pages; ``None`` if a series is in more than one."""
        numbers: list[tuple[int, int]] = []
        places, entry = entries[:, 1:3].copy(), np.flatnonzero(entries[:, 1] == 0)
        end = 0
        for part in packed:
            values, own = chunks[part.page].packed, entry[end : end + len(part.first)]
            inner, ends = values.page_of(part.first), values.ends
            if (part.first + part.counts > ends[inner]).any():
                return None
            used, column = np.unique(inner, return_inverse=True)
            places[own, 0] = len(numbers) + column
            places[own, 1] = part.first - np.where(inner > 0, ends[inner - 1], 0)
            numbers += [(part.page, number) for number in used.tolist()]
            end += len(part.first)
        whole = entries[:, 1] > 0
        places[whole, 0] += len(numbers) - 1
        return cls(tuple(numbers), places)


def _unpacked(
    pages: Sequence[SharedPage], inner: InnerPages, cached: Sequence[UnpackedPage | None]
) -> Sequence[UnpackedPage]:
    """Return the inner pages of an hour-shard: those that are cached, and the others unpacked now."""
    if None not in cached:
        return cast("Sequence[UnpackedPage]", cached)
    missing: dict[int, list[int]] = {}
    for (page, number), known in zip(inner.numbers, cached, strict=True):
        if known is None:
            missing.setdefault(page, []).append(number)
    fresh: dict[tuple[int, int], UnpackedPage] = {}
    for page, numbers in missing.items():
        unpacked = process_unpacked_pages().unpack(pages[page].packed, numbers)
        fresh.update(zip([(page, number) for number in numbers], unpacked, strict=True))
    return [fresh[key] if known is None else known for key, known in zip(inner.numbers, cached, strict=True)]


def _take_parts(
    chunks: Sequence[SharedPage], entries: I64, counts: I32, per_page: I64, ranks: I64
) -> tuple[tuple[int, ...], tuple[PackedPart, ...], int]:
    """Return (pages taken as they are, parts of pages with packed values, number of their values).

    Let the entries refer to the columns that come of it: packed ones are the first, the others follow.
    """
    used = np.flatnonzero(per_page).tolist()
    first_whole = int(any(isinstance(chunks[page].values, PagedValues) for page in used))
    whole: list[int] = []
    packed: list[PackedPart] = []
    begin = end = 0
    for page in used:
        own = slice(end, end := end + int(per_page[page]))
        values = chunks[page].values
        if isinstance(values, PagedValues):
            ends, first = np.cumsum(counts[own], dtype=np.int64), entries[own, 2].copy()
            plan, count = TakePlan.of(first, counts[own], values.ends), int(ends[-1])
            packed.append(PackedPart(page, first, counts[own], ranks[entries[own, 0]], begin, plan, count))
            entries[own, 1], entries[own, 2] = 0, begin + ends - counts[own]
            begin += count
        else:
            entries[own, 1] = first_whole + len(whole)
            whole.append(page)
    return tuple(whole), tuple(packed), begin


@njit(cache=True, nogil=True)
def _select(
    layouts: I64, ids: U64, numbers: I64, spans: I64, entries: I64, counts: I32, timeline: I32, per_page: I64
) -> tuple[int, int]:
    """Find the selected series in each page, both ascending; returns (number of entries, samples).

    ``per_page``: how many entries each page has; entries number the pages that have any.
    """
    size = samples = used = 0
    for page in range(len(layouts)):
        series_count, even, begin, end = layouts[page, 0], layouts[page, 4], spans[page, 0], spans[page, 1]
        series, lengths = unsigned_at(layouts[page, 1], series_count), shorts_at(layouts[page, 3], series_count)
        timelines, place, at = shorts_at(layouts[page, 2], series_count), 0, 0
        few = even != _UNEVEN and (end - begin) * _FEW <= series_count
        for selected in range(begin, end):
            if few:
                place = _lower_bound(series, place, ids[selected])
                at = place * even
            else:
                while place < series_count and series[place] < ids[selected]:
                    at += lengths[place]
                    place += 1
            if place < series_count and series[place] == ids[selected]:
                entries[size] = numbers[selected], used, at, 0
                counts[size], timeline[size] = lengths[place], timelines[place]
                size, samples, per_page[page] = size + 1, samples + lengths[place], per_page[page] + 1
        used += per_page[page] > 0
    return size, samples


@njit(cache=True, nogil=True)
def _lower_bound(series: U64, low: int, series_id: np.uint64) -> int:
    """The first place from ``low`` on that is not below an id."""
    high = len(series)
    while low < high:
        middle = (low + high) // 2
        if series[middle] < series_id:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def _place_timelines(
    entries: I64, timeline: I32, counts: I32, shift: int, pages: I64, bases: I64, lengths: I64
) -> bool:
    """Write the timeline of each entry; false if one is missing or differs from the entry's values in length.

    ``bases``: the first timeline of each page of the pool, which has ``1 << shift`` timelines.
    """
    for entry in range(len(entries)):
        page = timeline[entry] >> shift
        at = np.searchsorted(pages, page)
        known = at < len(pages) and pages[at] == page
        place = bases[at] + (timeline[entry] - (page << shift)) if known else -1
        if place < 0 or place >= len(lengths) or lengths[place] != counts[entry]:
            return False
        entries[entry, 3] = place
    return True


@njit(cache=True, nogil=True)
def _entries_of_winners(series: U64, metrics: U64, first: I64, ids: U64, names: U64, numbers: I64) -> I64:
    """The entries of winners in one column, a timeline each; all of the series are among the selected ones.

    Both the winners' and the selected series are sorted by (metric, id).
    """
    entries, place = np.empty((len(series), 4), np.int64), 0
    for i in range(len(series)):
        place = first_not_below(names, ids, place, metrics[i], series[i])
        entries[i] = numbers[place], 0, first[i], i
    return entries


@dataclass(frozen=True, slots=True)
class SelectedPages:
    """The pages and winners of one query's series, added hour by hour to its sample runs."""

    by_metric: SeriesByMetric
    builder: SampleRunsBuilder
    _selections: dict[tuple[int, tuple[int, ...], bytes], PageSelection] = field(default_factory=dict)

    @property
    def series_count(self) -> int:
        """How many series are selected."""
        return len(self.by_metric.ids)

    @property
    def _is_wide(self) -> bool:
        """Whether so many samples were added that packed values stay packed."""
        return self.builder.samples >= sample_runs.UNPACKED_SAMPLES

    def covers(self, hour: int) -> bool:
        """Whether all of an hour lies in the time range."""
        return self.builder.start_ms <= hour * HOUR_MS and (hour + 1) * HOUR_MS <= self.builder.end_ms

    def selection(self, metrics: tuple[int, ...], pages: Sequence[SharedPage], shift: int) -> PageSelection:
        """The selection in these pages (at least one) of an hour-shard; ``metrics`` has the metric of each page."""
        layout = b"".join([page.layout for page in pages])
        selection = self._selections.get((shift, metrics, layout))
        if selection is None:
            selection = PageSelection.of(metrics, pages, layout, self.by_metric, shift)
            self._selections[shift, metrics, layout] = selection
        return selection

    def inner_keys(self, selection: PageSelection, pages: Sequence[SharedPage]) -> list[PageKey]:
        """The keys of the inner pages that adding these pages asks for; none where their values stay packed."""
        if selection.inner is None or self._is_wide:
            return []
        return [(pages[page].packed.number, number) for page, number in selection.inner.numbers]

    def add_pages(
        self,
        pages: Sequence[SharedPage],
        selection: PageSelection,
        cached: CachedTimelines,
        inner: Sequence[UnpackedPage | None] = (),
        *,
        is_whole: bool,
    ) -> None:
        """Add the selected series of these pages along their timelines; ``is_whole``: the range covers the hour.

        ``inner`` has the inner pages that are unpacked already, as far as their cache was asked for them.
        """
        timelines = cached.timelines
        if not is_whole:
            timelines = timelines.within(self.builder.start_ms, self.builder.end_ms)
        stays_packed = bool(selection.packed) and self._is_wide
        is_inner = selection.inner is not None and not stays_packed
        entries, count = selection.entries_along(cached, inner=is_inner), selection.samples
        values = [pages[number].unpacked() for number in selection.whole]
        addresses = [pages[number].address for number in selection.whole]
        if stays_packed:
            is_packed = entries[:, 1] == 0
            packed, entries = entries[is_packed], entries[~is_packed]
            self.builder.add_packed(packed, pages, selection.packed, timelines, selection.packed_count)
            entries[:, 1] -= 1
            count -= selection.packed_count
        elif selection.inner:
            unpacked = _unpacked(pages, selection.inner, inner or [None] * len(selection.inner.numbers))
            inner_values, inner_addresses = zip(*unpacked, strict=True)
            values, addresses = [*inner_values, *values], [*inner_addresses, *addresses]
        elif selection.packed:
            column = np.empty(selection.packed_count)
            for part in selection.packed:
                pages[part.page].packed.take(part.plan, column[part.begin : part.begin + part.count])
            values, addresses = [column, *values], [address_of(column), *addresses]
        if values:
            self.builder.add(entries, values, timelines, count, addresses)

    def add_winners(self, parts: Sequence[Winners], *, is_whole: bool) -> None:
        """Add winners; ``is_whole``: the time range covers their hour."""
        for part in parts:
            if len(part.ts):
                timelines = uncut = Timelines.of(part.ts, part.counts)
                if not is_whole:
                    timelines = uncut.within(self.builder.start_ms, self.builder.end_ms)
                selected = self.by_metric
                entries = _entries_of_winners(
                    part.series, part.metrics, uncut.first, selected.ids, selected.metrics, selected.numbers
                )
                values = np.ascontiguousarray(part.values, np.float64)
                self.builder.add(entries, [values], timelines, len(part.ts))

    def runs(self, labels: Callable[[I64], Sequence[dict[str, str]]], provenance: Provenance) -> SampleRuns:
        """The runs of the selected series that have samples, in order; ``labels`` gives the labels of some numbers."""
        return self.builder.build(self.by_metric.ranks, labels, provenance)
