"""Reads the data of one app for the evaluator: ``AppStorage`` implements ``query.storage.Storage`` over the tables.

``view.app_state.AppState`` has what a process remembers of the app; each query gets a new ``View`` from it and is
answered from that view alone. ``asof`` gives a storage that answers as accepted by a time. Aggregates come from the
coarsest resolution that is exact (``rolled.resolutions``), and every batch carries its provenance. Enter by
``AppStorage``.
"""

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from spm import limits
from spm.arrays import I64
from spm.clock import Clock
from spm.errors import IntegrityError
from spm.limits import DAY_HOURS, HOUR_MS
from spm.query.request.batches import (
    DeadlineCheck,
    HourBatch,
    Matcher,
    Segments,
    SeriesBatch,
    SketchBatch,
    no_deadline,
)
from spm.query.rolled import retraction_effects
from spm.query.rolled.grids import KINDS, Tables, empty_tables, read_cells, read_segments
from spm.query.rolled.resolutions import RollupReader
from spm.query.rolled.sketches import COLUMNS as SKETCH_COLUMNS
from spm.query.rolled.sketches import read_sketches
from spm.query.samples.page_selection import SelectedPages
from spm.query.samples.sample_runs import SampleRuns, SampleRunsBuilder
from spm.query.series.cardinality import Cardinality, measure_cardinality
from spm.query.series.index import SeriesSelection
from spm.query.series.label_table import LabelTable
from spm.query.view.app_state import AppState
from spm.query.view.arrivals import Arrivals, read_arrivals
from spm.query.view.decoded_rows import PageCache
from spm.query.view.fingerprint import SampleFingerprint
from spm.query.view.hour_reader import SampleReader
from spm.query.view.view import OutdatedView, ReadRequest, View
from spm.store.backends.base import Backend
from spm.store.keys import PlacementTable
from spm.store.ledger.watermarks import ProcessWatermarks
from spm.store.rollup.sketch import Sketches
from spm.store.versions.generations import PageRequest
from spm.store.versions.knowledge import Knowledge
from spm.store.versions.retractions import Retraction

T = TypeVar("T")
_NOTES_CACHED = 256


class AppStorage:
    """Reads one app. Thread-safe."""

    def __init__(
        self,
        backend: Backend,
        app: int,
        *,
        placement: PlacementTable,
        clock: Clock,
        cache: PageCache,
        note_bytes: Callable[[int], object] = lambda _: None,
    ) -> None:
        """``placement`` is used until the store has a table of the app; ``note_bytes`` hears what is held of it."""
        self._state = AppState(backend, app, placement, clock, cache, note_bytes)
        self._asof_ms: int | None = None
        self._sees_retracted = self._in_memory = False
        self._knowledge: Knowledge | None = None
        self._draft: Retraction | None = None
        self._remembering: AppStorage | None = None  # that reads from memory as this one does

    def asof(self, asof_ms: int) -> "AppStorage":
        """A storage of this app that answers as accepted by a time, without later samples and retractions."""
        earlier = self._copy()
        earlier._asof_ms = asof_ms
        return earlier

    def knowledge(self) -> tuple[Knowledge, Mapping[int, ProcessWatermarks]]:
        """What is known now, to be kept with a verdict, and the watermarks from which it was taken."""
        return self._state.read_knowledge()

    def restore_knowledge(self, vector: bytes, retractions: Collection[int]) -> Knowledge:
        """The K that a verdict kept."""
        return self._state.restore_knowledge(vector, retractions)

    def known_at(self, knowledge: Knowledge) -> "AppStorage":
        """A storage of this app that answers, for ever, as known at a K that it has read or restored."""
        earlier = self._copy()
        earlier._knowledge = knowledge
        return earlier

    def retractions(self, start_ms: int, end_ms: int) -> tuple[Retraction, ...]:
        """The retractions in force that may hide a sample between these times from this storage's answers."""
        request = self._request(start_ms, end_ms)
        return tuple(filter(request.is_retracted_by, self._state.read_retractions()))

    def arrivals(self, before: Knowledge | None, start_ms: int, end_ms: int) -> Arrivals:
        """The messages known at this storage's K and not at the one before that have samples in a time range."""

        def read(view: View) -> Arrivals:
            with self._state.lock:
                metrics = np.unique(self._state.index.columns()[1])
            everything = PageRequest(dict.fromkeys(metrics.tolist()))
            return read_arrivals(view, everything, before, start_ms, end_ms)

        return self.with_view(start_ms, end_ms, read)

    def with_retracted(self) -> "AppStorage":
        """A storage of this app that answers as if nothing had been retracted; what is erased stays hidden."""
        complete = self._copy()
        complete._sees_retracted = True
        return complete

    def with_draft(self, draft: Retraction) -> "AppStorage":
        """A storage of this app that answers as if a retraction that is only planned were in force."""
        planned = self._copy()
        planned._draft = draft
        return planned

    def in_memory(self) -> "AppStorage":
        """A storage of this app that never waits: it raises ``NotInMemory`` for what it cannot answer from memory."""
        if self._remembering is None:
            remembering = self._copy()
            remembering._in_memory = True
            self._remembering = remembering
        return self._remembering

    def _copy(self) -> "AppStorage":
        other = copy.copy(self)
        other._remembering = None
        return other

    # --- samples

    def select(
        self,
        matchers: Sequence[Matcher],
        start_ms: int,
        end_ms: int,
        *,
        check_deadline: DeadlineCheck = no_deadline,
    ) -> SeriesBatch:
        """Samples with start_ms < ts ≤ end_ms of the series that match, winners only, ascending per series."""
        return self.select_runs(matchers, start_ms, end_ms, check_deadline=check_deadline).batch()

    def select_runs(
        self,
        matchers: Sequence[Matcher],
        start_ms: int,
        end_ms: int,
        *,
        check_deadline: DeadlineCheck = no_deadline,
    ) -> SampleRuns:
        """The samples of ``select`` as runs, which are not copied."""

        def read(view: View) -> SampleRuns:
            return self._read_samples(view, self._selection(matchers, check_deadline), start_ms, end_ms)

        return self._answer(self._request(start_ms, end_ms, matchers, check_deadline), read)

    def portions(self, matchers: Sequence[Matcher], size: int) -> list[SeriesSelection]:
        """The series that match, in portions of ``size`` neighbours: for reads larger than memory."""

        def split(_: View) -> list[SeriesSelection]:
            selection = self._selection(matchers)
            return [selection.part(slice(at, at + size)) for at in range(0, len(selection), size)]

        return self._answer(self._request_of_names(), split)

    def without(self, portion: SeriesSelection, matcher_sets: Sequence[Sequence[Matcher]]) -> SeriesSelection:
        """The series of a portion that match none of the sets."""
        with self._state.lock:
            others = ~np.isin(portion.index, self._matching_any(matcher_sets)) if matcher_sets else slice(None)
        return portion.part(others)

    def labels_of(self, portion: SeriesSelection) -> Sequence[dict[str, str]]:
        """The labels of a portion's series, in its order."""
        with self._state.lock:
            return self._labels(portion.index)

    def hours_with_samples(self, start_ms: int, end_ms: int) -> list[int]:
        """The hours of this time range that have samples."""
        first, last = max(start_ms, 0) // HOUR_MS, max(end_ms - 1, 0) // HOUR_MS
        return self.with_view(start_ms, end_ms, lambda view: [hour for hour, _ in view.stored_hours(first, last)])

    def select_portion(
        self, portion: SeriesSelection, start_ms: int, end_ms: int, *, check_deadline: DeadlineCheck = no_deadline
    ) -> SeriesBatch:
        """The samples of a portion's series."""
        request = self._request(start_ms, end_ms, check_deadline=check_deadline)
        return self._answer(request, lambda view: self._read_samples(view, portion, start_ms, end_ms)).batch()

    def _read_samples(self, view: View, selection: SeriesSelection, start_ms: int, end_ms: int) -> SampleRuns:
        by_metric = selection.by_metric()
        selected = SelectedPages(by_metric, SampleRunsBuilder(start_ms, end_ms))
        if len(selection) and end_ms > start_ms:
            first, last = start_ms // HOUR_MS, (end_ms - 1) // HOUR_MS
            plan = view.plan(by_metric)
            for hour in view.sealed_hours(first, last):
                view.provenance.add_expired(hour, hours=False)
            SampleReader(view, plan, selected).read(view.stored_hours(first, last))
        return selected.runs(lambda rows: self._labels_of(selection, rows), view.provenance.build())

    # --- aggregates

    def select_hours(self, matchers: Sequence[Matcher], first_hour: int, last_hour: int) -> HourBatch:
        """Aggregates of whole hours, both ends included: all columns, from `hours` where exact, else from samples."""
        return self.select_cells(matchers, np.arange(first_hour, last_hour + 2), list(KINDS))

    def select_cells(
        self,
        matchers: Sequence[Matcher],
        borders: I64,
        names: Collection[str],
        *,
        check_deadline: DeadlineCheck = no_deadline,
    ) -> HourBatch:
        """Aggregates of cells, hours or whole days, between borders (hour numbers): only the columns named."""
        start_ms, end_ms = int(borders[0]) * HOUR_MS, int(borders[-1]) * HOUR_MS
        hours = np.arange(borders[0], borders[-1])

        def read(rollups: RollupReader) -> Tables:
            return read_cells(rollups, borders, {"count", *names})

        return self._answer(
            self._request(start_ms, end_ms, matchers, check_deadline),
            lambda view: self._read_tables(view, matchers, borders[:-1], hours, names, read),
        )

    def select_segments(
        self,
        matchers: Sequence[Matcher],
        segments: Segments,
        names: Collection[str],
        *,
        check_deadline: DeadlineCheck = no_deadline,
    ) -> HourBatch:
        """Aggregates of segments: whole hours and days from their own resolution where exact, all else from samples."""
        start_ms, end_ms = int(segments.borders[0]), int(segments.borders[-1])
        firsts, hours = segments.borders[:-1] // HOUR_MS, _whole_hours(segments)

        def read(rollups: RollupReader) -> Tables:
            return read_segments(rollups, segments, {"count", *names})

        return self._answer(
            self._request(start_ms, end_ms, matchers, check_deadline),
            lambda view: self._read_tables(view, matchers, firsts, hours, names, read),
        )

    def _read_tables(
        self,
        view: View,
        matchers: Sequence[Matcher],
        firsts: I64,
        hours: I64,
        names: Collection[str],
        read: Callable[[RollupReader], Tables],
    ) -> HourBatch:
        """A batch of cells that begin at the hours ``firsts``; ``hours`` are the whole hours in the needed cells."""
        selection, columns = self._selection(matchers, view.check_deadline), {"count", *names}
        rollups = RollupReader.of(view, selection, list(columns))
        tables = read(rollups) if len(selection) else empty_tables(0, 0, columns)
        retraction_effects.note_effects(rollups, hours)
        if not tables["count"].all():  # only then may a series be without data
            rows = np.flatnonzero(tables["count"].any(axis=1))
            selection, tables = selection.take(rows), {name: table.take(rows, axis=0) for name, table in tables.items()}
        values: dict[str, Any] = {name: tables.get(name, _NO_COLUMN) for name in KINDS}
        labels = self._labels(selection.index)
        return HourBatch(labels=labels, hours=firsts, provenance=view.provenance.build(), **values)

    def select_sketches(
        self, matchers: Sequence[Matcher], segments: Segments, *, check_deadline: DeadlineCheck = no_deadline
    ) -> SketchBatch:
        """Sketches of segments: whole hours and days from their own resolution where exact, all else from samples."""
        request = self._request(int(segments.borders[0]), int(segments.borders[-1]), matchers, check_deadline)
        return self._answer(request, lambda view: self._read_sketches(view, matchers, segments))

    def _read_sketches(self, view: View, matchers: Sequence[Matcher], segments: Segments) -> SketchBatch:
        selection = self._selection(matchers, view.check_deadline)
        rollups = RollupReader.of(view, selection, SKETCH_COLUMNS)
        rows, segment, sketches = read_sketches(rollups, segments) if len(selection) else NO_SKETCHES
        retraction_effects.note_effects(rollups, _whole_hours(segments))
        used, row = np.unique(rows, return_inverse=True)
        view.provenance.sketched = True
        return SketchBatch(self._labels(selection.index[used]), row, segment, sketches, view.provenance.build())

    # --- names

    def series(
        self,
        matcher_sets: Sequence[Sequence[Matcher]],
        start_ms: int,
        end_ms: int,
        *,
        most: int | None = None,
        check_deadline: DeadlineCheck = no_deadline,
    ) -> list[dict[str, str]]:
        """Labels of the series that match any of the sets, of ``most`` series at most."""

        def read() -> list[dict[str, str]]:
            return self._state.index.labels(self._matching_any(matcher_sets, check_deadline)[:most].tolist())

        return self._from_dictionary(read, check_deadline)

    def label_names(
        self,
        matcher_sets: Sequence[Sequence[Matcher]],
        start_ms: int,
        end_ms: int,
        *,
        check_deadline: DeadlineCheck = no_deadline,
    ) -> list[str]:
        """Sorted names of the labels of those series."""

        def read() -> list[str]:
            return self._state.index.names(self._matching_any(matcher_sets, check_deadline))

        return self._from_dictionary(read, check_deadline)

    def label_values(
        self,
        name: str,
        matcher_sets: Sequence[Sequence[Matcher]],
        start_ms: int,
        end_ms: int,
        *,
        check_deadline: DeadlineCheck = no_deadline,
    ) -> list[str]:
        """Sorted values of one label of those series."""

        def read() -> list[str]:
            return self._state.index.values(name, self._matching_any(matcher_sets, check_deadline))

        return self._from_dictionary(read, check_deadline)

    def damaged_count(self) -> int:
        """How many damaged rows this process has put into quarantine."""
        return self._state.quarantine.count

    def cardinality(self, most: int) -> Cardinality:
        """How many series there are, and which labels make them so many."""
        return self._from_dictionary(lambda: measure_cardinality(self._state.index, most))

    def notes(self) -> list[str]:
        """Notes that hold for all answers: the age of the un-compacted tail."""
        as_of_ms = self._state.tail.as_of_ms
        return [_as_of(as_of_ms)] if as_of_ms else []

    def damage(self) -> list[str]:
        """Warnings that hold for all answers: which rows are in quarantine and left out."""
        return self._state.quarantine.notes()

    # --- views

    @property
    def app(self) -> int:
        """The app's number."""
        return self._state.app

    def fingerprint(self, start_ms: int, end_ms: int) -> SampleFingerprint | None:
        """The fingerprint of the samples in this time range.

        It is ``None`` for an as-of storage, one with what is retracted or a draft, and for a longer range than a query
        may read.
        """
        is_too_long = end_ms - start_ms > limits.QUERY_DAYS_MAX * DAY_HOURS * HOUR_MS
        if self._asof_ms is not None or self._knowledge or self._sees_retracted or self._draft or is_too_long:
            return None

        def take(view: View) -> SampleFingerprint:
            common = view.placement, tuple(view.retractions.values()), self._state.quarantine.count
            return SampleFingerprint.of(common, view.manifests, view.tail)

        return self.with_view(start_ms, end_ms, take)

    def with_view(self, start_ms: int, end_ms: int, answer: Callable[[View], T]) -> T:
        """The result of ``answer`` on one consistent view of this time range."""
        return self._answer(self._request(start_ms, end_ms), answer)

    def _request(
        self,
        start_ms: int,
        end_ms: int,
        matchers: Sequence[Matcher] = (),
        check_deadline: DeadlineCheck = no_deadline,
    ) -> ReadRequest:
        return ReadRequest(
            start_ms,
            end_ms,
            matchers,
            self._asof_ms,
            check_deadline,
            self._sees_retracted,
            self._knowledge,
            self._draft,
            self._in_memory,
        )

    def _request_of_names(self, check_deadline: DeadlineCheck = no_deadline) -> ReadRequest:
        """A request of the present that is about series of any time."""
        now = self._state.clock.now_ms()
        request = self._request(now - HOUR_MS, now, check_deadline=check_deadline)
        request.names_all_series = True
        return request

    def _answer(self, request: ReadRequest, answer: Callable[[View], T]) -> T:
        """Answer from a consistent view; start again with a new view when a run has published (PROTOCOL 10)."""
        for attempt in range(limits.RESTARTS_MAX):
            try:
                with self._state.view(request, force=attempt > 0) as view:
                    return answer(view)
            except OutdatedView:
                continue
        raise IntegrityError(f"runs have published {limits.RESTARTS_MAX} times during one query")

    def _from_dictionary(self, answer: Callable[[], T], check_deadline: DeadlineCheck = no_deadline) -> T:
        """Answer from the dictionary alone: names have no times, and remain as long as the app."""

        def locked(_: View) -> T:
            with self._state.lock:
                return answer()

        return self._answer(self._request_of_names(check_deadline), locked)

    def _matching_any(
        self, matcher_sets: Sequence[Sequence[Matcher]], check_deadline: DeadlineCheck = no_deadline
    ) -> I64:
        if not matcher_sets:
            return np.arange(len(self._state.index))
        matching = [self._state.index.select(matchers, check_deadline) for matchers in matcher_sets]
        return np.unique(np.concatenate(matching))

    def _labels_of(self, selection: SeriesSelection, rows: I64) -> LabelTable:
        if len(rows) == len(selection):
            return selection.labels(self._labels)
        return self._labels(selection.index[rows])

    def _labels(self, rows: I64) -> LabelTable:
        return self._state.index.table(rows)

    def _selection(self, matchers: Sequence[Matcher], check_deadline: DeadlineCheck = no_deadline) -> SeriesSelection:
        """The series that match; raises ``QueryTooLarge``."""
        return self._state.select(matchers, check_deadline, in_memory=self._in_memory)


@lru_cache(maxsize=_NOTES_CACHED)
def _as_of(as_of_ms: int) -> str:
    return f"un-compacted data as of {np.datetime64(as_of_ms, 'ms')}Z"


_NO_COLUMN = np.empty((0, 0))  # in place of a column that the query does not need
NO_SKETCHES = np.empty(0, np.int64), np.empty(0, np.int64), Sketches.empty()


def _whole_hours(segments: Segments) -> I64:
    """The hours that lie within needed segments, ascending."""
    firsts, ends = -(-segments.borders[:-1] // HOUR_MS), segments.borders[1:] // HOUR_MS
    parts = [np.arange(a, b) for a, b in zip(firsts[segments.needed], ends[segments.needed], strict=True)]
    return np.concatenate([np.empty(0, np.int64), *parts])
