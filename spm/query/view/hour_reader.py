"""Reads the samples a query selects, hour by hour, into one run of samples per series.

The pages of an hour-shard are added as they are if one generation holds all its samples and nothing of it is hidden;
otherwise the winners among its versions are added. On a busy process those pages are in the cache: they are looked up
for many hours at a time, since a look-up for each hour costs more than everything done with its result. Only cached
pages are used so; any other page is read when its hour comes, so that a query which reads too much ends before it has
filled the memory. Enter by ``SampleReader.read``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import field
from itertools import chain, islice
from typing import NamedTuple, cast

from spm import limits
from spm.errors import IntegrityError, NotInMemory, QueryTooLarge
from spm.fast_dataclass import dataclass
from spm.limits import DAY_HOURS
from spm.query.request.provenance import RAW
from spm.query.samples.page_selection import CachedTimelines, PageSelection, SelectedPages, SharedPage
from spm.query.samples.sample_runs import SampleRunsBuilder
from spm.query.samples.unpacked_pages import PageKey, UnpackedPage, process_unpacked_pages
from spm.query.view.decoded_rows import TIMELINES_OF_PAGES, timelines_key
from spm.query.view.view import ReadPlan, View
from spm.store import keys
from spm.store.manifest import Generation
from spm.store.versions import generations
from spm.store.versions.generations import HourShard
from spm.store.versions.retractions import touching

_RUNS_AT_ONCE = 12_000  # sample runs whose pages are looked up together: a millisecond or two between deadline checks
ShardHour = tuple[int, int]  # shard, hour
Hour = tuple[int, list[int]]  # and the shards that hold samples of it


class CachedHour(NamedTuple):
    """The cached pages of an hour-shard, the selection of their series, and their timelines."""

    pages: Sequence[SharedPage]
    selection: PageSelection
    timelines: CachedTimelines | None  # ``None`` only where no series is selected
    inner: Sequence[UnpackedPage | None]  # of its packed values, as far as they are unpacked


@dataclass(frozen=True, slots=True)
class SampleReader:
    """Reads the samples of one query."""

    view: View
    plan: ReadPlan
    selected: SelectedPages
    _chunk_keys: dict[int, tuple[tuple[int, ...], list[bytes]]] = field(default_factory=dict)  # see ``_keys_of``

    def read(self, hours: Iterable[Hour]) -> None:
        """Add the winners of these hours; raises ``QueryTooLarge``."""
        remaining, at_once = iter(hours), max(1, min(DAY_HOURS, _RUNS_AT_ONCE // self.selected.series_count))
        while batch := list(islice(remaining, at_once)):
            self.view.check_deadline()
            cached = self._cached_hours(batch)
            for hour, shards in batch:
                self._read_hour(hour, shards, cached)
                self._check(self.selected.builder)

    def _check(self, builder: SampleRunsBuilder) -> None:
        if builder.samples > limits.QUERY_SAMPLES_MAX:
            raise QueryTooLarge(f"the query reads more than {limits.QUERY_SAMPLES_MAX} samples: narrow it")
        if builder.nbytes > limits.QUERY_BYTES_MAX:
            raise QueryTooLarge(
                f"the samples that the query reads take more than {limits.QUERY_BYTES_MAX // 1_000_000} MB: "
                "ask for less time or fewer series"
            )

    def _read_hour(self, hour: int, shards: Sequence[int], cached: dict[ShardHour, CachedHour]) -> None:
        is_whole = self.selected.covers(hour)
        planned = [shard for shard in shards if shard in self.plan.by_shard]
        if not self.plan.disjoint and len(planned) > 1:
            self.selected.add_winners(self.view.winners(hour, shards, self.plan), is_whole=is_whole)
            return
        for shard in planned:
            is_added = self._add_pages(shard, hour, cached.get((shard, hour)), is_whole=is_whole)
            if not (is_added or self._add_few(shard, hour)):
                self.selected.add_winners(self.view.winners(hour, [shard], self.plan), is_whole=is_whole)

    def _add_pages(self, shard: int, hour: int, cached: CachedHour | None, *, is_whole: bool) -> bool:
        """Add the pages of an hour-shard; false, and nothing is added, if only its winners can be used."""
        try:
            if cached is None:
                return self._fetch_and_add_pages(shard, hour, is_whole=is_whole)
            if cached.timelines is not None:
                self._check_decoded(cached.selection, cached.inner)
                self.view.provenance.use(RAW, hour)
                self.selected.add_pages(
                    cached.pages, cached.selection, cached.timelines, cached.inner, is_whole=is_whole
                )
            return True
        except IntegrityError:
            self.view.raise_if_outdated(hour)
            raise

    def _fetch_and_add_pages(self, shard: int, hour: int, *, is_whole: bool) -> bool:
        view, generation = self.view, self._only_generation(shard, hour)
        view.check_deadline()
        if generation is None:
            return False
        hour_shard, request = HourShard(shard, view.app, hour), self.plan.by_shard[shard]
        chunks = generations.open_chunks(
            view.fetch, lambda: view.directory(hour_shard, generation), hour_shard, generation, request
        )
        if not chunks:
            return True
        metrics, chunk_pages = zip(*chunks, strict=True)
        pages = cast("tuple[SharedPage, ...]", chunk_pages)  # as ``DecodedRows`` makes them
        selection = self.selected.selection(metrics, pages, generation.timeline_shift)
        if not selection.pages:
            return True
        inner = process_unpacked_pages().cached(self.selected.inner_keys(selection, pages))
        self._check_decoded(selection, inner)
        view.provenance.use(RAW, hour)
        timelines = view.rows.timelines(view.reader, hour_shard, generation, selection.pages)
        if timelines is None:
            return False
        self.selected.add_pages(pages, selection, timelines, inner, is_whole=is_whole)
        return True

    def _add_few(self, shard: int, hour: int) -> bool:
        """Add the winners of a few series; false, and nothing is added, where their versions must be merged first."""
        selected, builder = self.selected, self.selected.builder
        span_ms = builder.start_ms, builder.end_ms
        gathered = self.view.gathered(shard, hour, self.plan, selected.by_metric, span_ms)
        if gathered is not None and len(gathered.values):
            builder.add(gathered.entries, [gathered.values], gathered.timelines, len(gathered.values))
        return gathered is not None

    def _check_decoded(self, selection: PageSelection, inner: Sequence[UnpackedPage | None]) -> None:
        """Raise ``NotInMemory`` if values must be unpacked by a read from memory."""
        if self.view.in_memory and selection.packed and (not inner or None in inner):
            raise NotInMemory("packed values")

    def _only_generation(self, shard: int, hour: int) -> Generation | None:
        """The generation that holds all samples of an hour-shard, if nothing of it is hidden; else ``None``."""
        tail, visibility, shard_hour = self.view.tail, self.view.visibility, (shard, hour)
        if shard_hour in tail.by_shard_hour or shard_hour in tail.missing:
            return None
        entry = self.view.entry(shard, hour)
        if len(entry.state.generations) != 1 or entry.state.replay:
            return None
        if not visibility.shows_all_to(entry.stamp_max_ms):
            return None
        if visibility.retractions and touching(visibility.retractions, entry, hour):
            return None
        return entry.state.generations[0]

    # --- pages in the cache

    def _cached_hours(self, hours: Sequence[Hour]) -> dict[ShardHour, CachedHour]:
        """The hour-shards of some hours whose pages can all be added from the cache."""
        hour_shards: list[tuple[int, int, Generation]] = []
        row_keys: list[bytes] = []
        for hour, shards in hours:
            for shard in shards:
                generation = self._only_generation(shard, hour) if shard in self.plan.by_shard else None
                # With page bits, pages are so large that their look-ups cost little beside them.
                if generation is not None and not generation.page_bits:
                    hour_shards.append((shard, hour, generation))
                    row_keys += keys.chunks(self._keys_of(shard)[1], hour, generation.number, 0)
        return self._complete_hours(hour_shards, self.view.rows.cached("chunks", row_keys)) if hour_shards else {}

    def _complete_hours(
        self, hour_shards: Sequence[tuple[int, int, Generation]], chunks: Sequence[object]
    ) -> dict[ShardHour, CachedHour]:
        """The hour-shards of which all pages are in the cache.

        ``chunks`` has the cached pages of all these hour-shards, one after the other; ``None`` for those not cached.
        """
        complete: list[tuple[ShardHour, Sequence[SharedPage], PageSelection]] = []
        row_keys: list[bytes] = []
        page_keys: list[list[PageKey]] = []
        end = 0
        for shard, hour, generation in hour_shards:
            metrics = self._keys_of(shard)[0]
            begin, end = end, end + len(metrics)
            own = chunks[begin:end]
            if set(map(type, own)) == {SharedPage}:  # none is missing, and none damaged
                pages = cast("Sequence[SharedPage]", own)
                selection = self.selected.selection(metrics, pages, generation.timeline_shift)
                complete.append(((shard, hour), pages, selection))
                row_keys.append(timelines_key(shard, self.view.app, hour, generation, selection.pages))
                page_keys.append(self.selected.inner_keys(selection, pages))
        cached = self.view.rows.cached(TIMELINES_OF_PAGES, row_keys)
        unpacked = iter(process_unpacked_pages().cached([*chain.from_iterable(page_keys)]))
        hours: dict[ShardHour, CachedHour] = {}
        for (shard_hour, pages, selection), own_keys, timelines in zip(complete, page_keys, cached, strict=True):
            inner = [*islice(unpacked, len(own_keys))]
            if timelines is not None or not selection.pages:
                hours[shard_hour] = CachedHour(pages, selection, cast("CachedTimelines | None", timelines), inner)
        return hours

    def _keys_of(self, shard: int) -> tuple[tuple[int, ...], list[bytes]]:
        """(the requested metrics that may lie in a shard, the beginnings of the keys of their pages)."""
        if shard not in self._chunk_keys:
            metrics = tuple(self.plan.by_shard[shard].series)
            self._chunk_keys[shard] = metrics, keys.chunk_heads(shard, self.view.app, metrics)
        return self._chunk_keys[shard]
