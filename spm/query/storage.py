"""The data of one app, for the evaluator: ``AppStorage`` implements ``select.Storage`` over the tables.

It keeps, per process, the series index, the merged tail and decoded pages; each query makes a fresh ``Scan`` from them
and answers from it alone. Hours come from the tier where rule 11 allows, and are computed from raw where not.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np

from spm import limits
from spm.clock import Clock
from spm.errors import IntegrityError, QueryTooLarge
from spm.limits import DAY_SLOTS, HOUR_MS
from spm.query.cache import PageCache
from spm.query.scan import Moved, Rows, Scan, read_manifests, wanted_of
from spm.query.select import HourBatch, Matcher, SeriesBatch
from spm.query.series import SeriesIndex
from spm.query.tail import Tail, TailView
from spm.store import aggregates, kernels, keys, manifest
from spm.store.aggregates import COLUMNS, Aggregates
from spm.store.backends.base import Backend, Reader
from spm.store.keys import Distribution
from spm.store.manifest import Manifest
from spm.store.merge import Picked
from spm.store.quarantine import Quarantine
from spm.store.tiers import Steps
from spm.store.units import Wanted
from spm.wire import I32, I64, U64

T = TypeVar("T")
_AHEAD_SLOTS = limits.FUTURE_MS // HOUR_MS + 1  # nothing is accepted further ahead


@dataclass(frozen=True, slots=True)
class _Pairs:
    """The chosen series: ids and metric ids by row. An id names a series within its metric only."""

    series: U64
    metrics: U64

    def rows(self, series: U64, metrics: U64) -> I32:
        """The row of each of these pairs, all of which are among the chosen."""
        ids, names = np.unique(self.series), np.unique(self.metrics)

        def codes(s: U64, m: U64) -> I64:
            return np.searchsorted(names, m) * len(ids) + np.searchsorted(ids, s)

        own = codes(self.series, self.metrics)
        order = np.argsort(own)
        return order[np.searchsorted(own[order], codes(series, metrics))].astype(np.int32)

    def apart(self) -> list[I64]:
        """The rows in groups within which an id names one series: as a rule one group, else one for each metric."""
        every = np.arange(len(self.series))
        if len(np.unique(self.series)) == len(self.series):
            return [every] if len(every) else []
        return [every[self.metrics == name] for name in np.unique(self.metrics)]


class AppStorage:
    """Reads one app. Thread-safe."""

    def __init__(
        self, backend: Backend, app: int, *, distribution: Distribution, clock: Clock, cache: PageCache
    ) -> None:
        self._backend, self._app, self._clock = backend, app, clock
        self._buckets = list(distribution.all(app))
        self._distribution = distribution
        self._quarantine = Quarantine(backend, clock)
        self._rows = Rows(app, cache, self._quarantine)
        self._tail = Tail(app, self._buckets, clock, self._rows.log)
        self._index = SeriesIndex(app, lambda key, raw, error: self._quarantine.report(app, "series", key, raw, error))
        self._nonces: dict[int, int] = {}
        self._lock = threading.RLock()

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> SeriesBatch:
        """Samples with start_ms < ts ≤ end_ms of the series that match, winners only, ascending per series."""
        return self._view(start_ms, end_ms, lambda scan: self._select(scan, matchers, start_ms, end_ms))

    def _select(self, scan: Scan, matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> SeriesBatch:
        chosen, pairs, wanted = self._chosen(matchers)
        parts: list[Picked] = []
        samples = 0
        for bucket, slot in scan.units(start_ms // HOUR_MS, (end_ms - 1) // HOUR_MS) if len(chosen) else []:
            for part in scan.unit(bucket, slot, wanted):
                cut = _within(part, start_ms, end_ms, slot)
                samples += len(cut.ts)
                parts.append(cut)
            if samples > limits.QUERY_SAMPLES_MAX:
                raise QueryTooLarge(f"the query reads more than {limits.QUERY_SAMPLES_MAX} samples: narrow it")
        return self._batch(chosen, pairs, parts)

    def _batch(self, chosen: I64, pairs: _Pairs, parts: Sequence[Picked]) -> SeriesBatch:
        """Parts in the order of time become one batch: a stable counting sort by series."""
        if not parts:
            return SeriesBatch([], np.zeros(1, np.int64), np.empty(0, np.int64), np.empty(0))
        owners = [pairs.rows(p.series, p.metrics)[kernels.spread(p.counts, len(p.ts))] for p in parts]
        owner = np.concatenate(owners)
        counts, rows = kernels.group_by_series(owner, len(chosen))
        held = counts > 0
        offsets = np.concatenate([[0], np.cumsum(counts[held], dtype=np.int64)])
        ts, values = np.concatenate([p.ts for p in parts]), np.concatenate([p.values for p in parts])
        return SeriesBatch(self._index.labels(chosen[held].tolist()), offsets, ts[rows], values[rows])

    def select_hours(self, matchers: Sequence[Matcher], first_slot: int, last_slot: int) -> HourBatch:
        """Aggregates of whole slots, both ends included: from `hours` where exact, else from raw."""
        start, end = first_slot * HOUR_MS, (last_slot + 1) * HOUR_MS
        return self._view(start, end, lambda scan: self._hours(scan, matchers, first_slot, last_slot))

    def _hours(self, scan: Scan, matchers: Sequence[Matcher], first: int, last: int) -> HourBatch:
        chosen, pairs, _ = self._chosen(matchers)
        slots = np.arange(first, last + 1)
        tables = {name: np.full((len(chosen), len(slots)), _EMPTY[kind], kind) for name, kind in COLUMNS}
        units = scan.units(first, last) if len(chosen) else []
        for rows in pairs.apart():
            wanted = wanted_of(pairs.series[rows], pairs.metrics[rows])
            tier = _HourTier(scan, self._app, wanted)
            order = rows[np.argsort(pairs.series[rows])]
            for bucket, slot in units:
                exact = tier.at(bucket, slot)
                for part in [exact] if exact is not None else map(_aggregated, scan.unit(bucket, slot, wanted)):
                    _put(tables, order, pairs.series[order], slot - first, part)
        held = tables["count"].any(axis=1)
        labels = self._index.labels(chosen[held].tolist())
        return HourBatch(labels=labels, slots=slots, **{name: table[held] for name, table in tables.items()})

    def series(self, matcher_sets: Sequence[Sequence[Matcher]], start_ms: int, end_ms: int) -> list[dict[str, str]]:
        """Labels of the series that match any of the sets."""
        return self._named(lambda: self._index.labels(self._any(matcher_sets).tolist()))

    def label_names(self, matcher_sets: Sequence[Sequence[Matcher]], start_ms: int, end_ms: int) -> list[str]:
        """Sorted names of the labels of those series."""
        return self._named(lambda: self._index.names(self._any(matcher_sets)))

    def label_values(
        self, name: str, matcher_sets: Sequence[Sequence[Matcher]], start_ms: int, end_ms: int
    ) -> list[str]:
        """Sorted values of one label of those series."""
        return self._named(lambda: self._index.values(name, self._any(matcher_sets)))

    def notes(self) -> list[str]:
        """What answers rest on: the age of the un-compacted tail, and quarantined rows."""
        seen = self._tail.as_of_ms
        tail = [f"un-compacted data as of {np.datetime64(seen, 'ms')}Z"] if seen else []
        return tail + self._quarantine.notes()

    def _named(self, answer: Callable[[], T]) -> T:
        """Answer from the dictionary alone: names do not depend on the time range (they live as long as the app)."""
        now = self._clock.now_ms()

        def locked(_: Scan) -> T:
            with self._lock:
                return answer()

        return self._view(now - HOUR_MS, now, locked)

    def _any(self, matcher_sets: Sequence[Sequence[Matcher]]) -> I64:
        if not matcher_sets:
            return np.arange(len(self._index))
        return np.unique(np.concatenate([self._index.select(m) for m in matcher_sets]))

    def _chosen(self, matchers: Sequence[Matcher]) -> tuple[I64, _Pairs, Wanted]:
        """Rows of the index that match, their ids and metrics, and what to read for them."""
        with self._lock:
            chosen = self._index.select(matchers)
            ids, metrics = self._index.columns()
        if len(chosen) > limits.QUERY_SERIES_MAX:
            raise QueryTooLarge(f"{len(chosen)} series match; at most {limits.QUERY_SERIES_MAX}: narrow the selector")
        return chosen, _Pairs(ids[chosen], metrics[chosen]), wanted_of(ids[chosen], metrics[chosen])

    def _view(self, start_ms: int, end_ms: int, answer: Callable[[Scan], T]) -> T:
        """Answer from a consistent view; start again when a run has moved on meanwhile (rule 10)."""
        for attempt in range(limits.RESTARTS_MAX):
            try:
                with self._scan(start_ms, end_ms, force=attempt > 0) as scan:
                    return answer(scan)
            except Moved:
                continue
        raise IntegrityError(f"runs moved on {limits.RESTARTS_MAX} times during one query")

    @contextmanager
    def _scan(self, start_ms: int, end_ms: int, *, force: bool) -> Iterator[Scan]:
        """Pending first, then manifests (rule 9).

        The snapshot is taken under the lock: one taken before might be older than the tail that another query has just
        refreshed, and a manifest must never be older than the pending records it is used with.
        """
        with ExitStack() as stack:
            with self._lock:
                reader = stack.enter_context(self._backend.snapshot())
                tail = self._refreshed(reader, force=force)
            last = min(end_ms, self._clock.now_ms() + _AHEAD_SLOTS * HOUR_MS) // HOUR_MS // DAY_SLOTS
            first = max(start_ms // HOUR_MS // DAY_SLOTS, 0, last - limits.QUERY_DAYS_MAX)
            manifests = read_manifests(reader, self._app, range(first, last + 1))
            self._notice(reader, manifests)
            yield Scan(self._app, self._buckets, reader, tail, manifests, self._rows)

    def _refreshed(self, reader: Reader, *, force: bool) -> TailView:
        """The tail, with every series it names in the index."""
        series, metrics = self._tail.refresh(reader, force=force)
        try:
            self._index.ensure(reader, series, metrics)
        except BaseException:
            self._tail.reset()  # it would not name them again
            raise
        return self._tail.view()

    def _notice(self, reader: Reader, manifests: dict[int, Manifest]) -> None:
        """A run may have taken blocks this process never saw: read the dictionary again when a manifest moved."""
        nonces = {day: m.nonce for day, m in manifests.items()}
        with self._lock:
            if any(self._nonces.get(day) != nonce for day, nonce in nonces.items()) or not len(self._index):
                self._index.load(reader)
                self._nonces.update(nonces)


def _within(part: Picked, start_ms: int, end_ms: int, slot: int) -> Picked:
    """Only rows with start_ms < ts ≤ end_ms."""
    if start_ms <= slot * HOUR_MS and (slot + 1) * HOUR_MS <= end_ms:
        return part
    kept = (part.ts > start_ms) & (part.ts <= end_ms)
    owner = kernels.spread(part.counts, len(part.ts))
    counts = np.bincount(owner[kept], minlength=len(part.counts)).astype(np.int32)
    return Picked(part.series, part.metrics, counts, part.ts[kept], part.values[kept])


def _aggregated(part: Picked) -> Aggregates:
    order = np.argsort(part.series, kind="stable")
    counts = part.counts[order]
    starts = np.cumsum(part.counts, dtype=np.int64) - part.counts
    rows = kernels.take_segments(starts[order], counts, len(part.ts))
    offsets = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    return aggregates.aggregate(part.series[order], offsets, part.ts[rows], part.values[rows])


_EMPTY: dict[type[Any], float] = {np.int64: 0, np.float64: np.nan}


def _put(tables: Mapping[str, np.ndarray], rows: I64, series: U64, column: int, part: Aggregates) -> None:
    """Aggregates of one slot into a column of [S, H]; ``rows`` are those of ``series`` (ascending), others pass by."""
    at = np.minimum(np.searchsorted(series, part.series), len(series) - 1)
    asked = series[at] == part.series
    for name, table in tables.items():
        table[rows[at[asked]], column] = getattr(part, name)[asked]


class _HourTier:
    """The hours in force that one query may use, fetched once per (bucket, day)."""

    def __init__(self, scan: Scan, app: int, wanted: Wanted) -> None:
        self._scan, self._app, self._wanted = scan, app, wanted
        self._packs: dict[tuple[int, int], list[Steps] | None] = {}

    def at(self, bucket: int, slot: int) -> Aggregates | None:
        """The slot's aggregates from the tier; ``None`` where it is not exact and raw must be read (rule 11)."""
        day = self._scan.manifests.get(slot // DAY_SLOTS)
        pack = day.hours.get(bucket) if day else None
        made = pack.slots.get(slot) if pack else None
        if day is None or pack is None or made is None or (bucket, slot) in self._scan.tail.units():
            return None
        state = day.entry(bucket, slot).state
        if made.inputs != manifest.fingerprint(state) or made.retractions:
            return None
        steps = self._pack(bucket, slot // DAY_SLOTS, pack.generation)
        return None if steps is None else _joined([s.at(slot) for s in steps])

    def _pack(self, bucket: int, day: int, generation: manifest.Generation) -> list[Steps] | None:
        if (bucket, day) not in self._packs:
            self._packs[bucket, day] = self._read(bucket, day, generation)
        return self._packs[bucket, day]

    def _read(self, bucket: int, day: int, generation: manifest.Generation) -> list[Steps] | None:
        """The pack's rows of the metrics asked for; ``None`` when one is absent or damaged: raw knows better."""
        names = [
            keys.hours(bucket, self._app, metric, day, generation.number, page)
            for metric, series in self._wanted.series.items()
            for page in sorted({generation.page_of(int(s)) for s in (series if series is not None else [])})
        ]
        found = self._scan.rows.fetch(self._scan.reader, "hours", names)
        steps = [row for row in found if isinstance(row, Steps)]
        return steps if len(steps) == len(names) else None


def _joined(parts: Sequence[Aggregates]) -> Aggregates:
    """Aggregates of different series side by side."""
    if not parts:
        return Aggregates.empty()
    return Aggregates(**{f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Aggregates)})
