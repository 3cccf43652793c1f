"""The data of one app, for the evaluator: ``AppStorage`` implements ``select.Storage`` over the tables.

What a process keeps of the app is ``held.Held``; each question gets a fresh ``Scan`` from it and is answered from that
alone. ``asof`` gives a storage that answers as accepted by a time. Aggregates come from the highest level that is
exact (``levels``), and every batch says what it rests on (``basis``).
"""

import copy
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

import numpy as np

from spm import limits
from spm.arrays import I64
from spm.clock import Clock
from spm.errors import IntegrityError, QueryTooLarge
from spm.limits import DAY_HOURS, HOUR_MS
from spm.query.request.batches import HourBatch, Matcher, Segments, SeriesBatch, SketchBatch, Tick, nothing
from spm.query.rolled import retraction_effects
from spm.query.rolled.grids import KINDS, Tables, cells_of, segments_of, tables_of
from spm.query.rolled.resolutions import Chosen, Levels
from spm.query.rolled.sketches import COLUMNS as SKETCHED
from spm.query.rolled.sketches import gathered
from spm.query.samples.page_selection import Woven
from spm.query.samples.sample_runs import Strips, Weaver
from spm.query.series.cardinality import Cardinality, counted
from spm.query.series.label_table import LabelTable
from spm.query.view.app_state import Held, Question
from spm.query.view.fingerprint import Standing
from spm.query.view.hour_reader import Loom
from spm.query.view.page_cache import PageCache
from spm.query.view.view import Moved, Scan
from spm.store.backends.base import Backend
from spm.store.keys import Distribution
from spm.store.rollup.sketch import Sketches

T = TypeVar("T")


class AppStorage:
    """Reads one app. Thread-safe."""

    def __init__(
        self, backend: Backend, app: int, *, distribution: Distribution, clock: Clock, cache: PageCache
    ) -> None:
        """``distribution`` holds until the store names one."""
        self._held = Held(backend, app, distribution, clock, cache)
        self._asof_ms: int | None = None

    def asof(self, asof_ms: int) -> "AppStorage":
        """The same app as accepted by a time: later stamps and retractions are not known yet."""
        then = copy.copy(self)
        then._asof_ms = asof_ms
        return then

    # --- samples

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int, *, tick: Tick = nothing) -> SeriesBatch:
        """Samples with start_ms < ts ≤ end_ms of the series that match, winners only, ascending per series."""
        return self.select_strips(matchers, start_ms, end_ms, tick=tick).batch()

    def select_strips(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int, *, tick: Tick = nothing) -> Strips:
        """The same, each sample where it lies."""
        question = self._question(start_ms, end_ms, matchers, tick)
        return self._view(question, lambda scan: self._select(scan, self._chosen(matchers, tick), start_ms, end_ms))

    def portions(self, matchers: Sequence[Matcher], most: int) -> list[Chosen]:
        """The series that match, in portions of so many that lie together: for reads larger than memory."""

        def cut(_: Scan) -> list[Chosen]:
            whole = self._chosen(matchers)
            parts = [slice(at, at + most) for at in range(0, len(whole), most)]
            return [Chosen(whole.index[part], whole.series[part], whole.metrics[part]) for part in parts]

        now = self._held.clock.now_ms()
        return self._view(self._question(now - HOUR_MS, now), cut)

    def without(self, portion: Chosen, matcher_sets: Sequence[Sequence[Matcher]]) -> Chosen:
        """Those of a portion that match none of the sets."""
        with self._held.lock:
            kept = ~np.isin(portion.index, self._any(matcher_sets)) if matcher_sets else slice(None)
        return Chosen(portion.index[kept], portion.series[kept], portion.metrics[kept])

    def labels_of(self, portion: Chosen) -> Sequence[dict[str, str]]:
        """The labels of a portion's series, in its order."""
        with self._held.lock:
            return self._labels(portion.index)

    def hours_held(self, start_ms: int, end_ms: int) -> list[int]:
        """The hours of this stretch of time that hold samples."""
        first, last = max(start_ms, 0) // HOUR_MS, max(end_ms - 1, 0) // HOUR_MS
        return self.viewed(start_ms, end_ms, lambda scan: [hour for hour, _ in scan.units(first, last)])

    def select_portion(self, portion: Chosen, start_ms: int, end_ms: int, *, tick: Tick = nothing) -> SeriesBatch:
        """The samples of such a portion."""
        question = self._question(start_ms, end_ms, tick=tick)
        return self._view(question, lambda scan: self._select(scan, portion, start_ms, end_ms)).batch()

    def _select(self, scan: Scan, chosen: Chosen, start_ms: int, end_ms: int) -> Strips:
        by_metric = chosen.by_metric()
        woven = Woven(by_metric, Weaver(start_ms, end_ms))
        if len(chosen) and end_ms > start_ms:
            first, last = start_ms // HOUR_MS, (end_ms - 1) // HOUR_MS
            asked = scan.asked(by_metric)
            for hour in scan.sealed(first, last):
                scan.ground.expired(hour, hours=False)
            Loom(scan, asked, woven).weave(scan.units(first, last))
        return woven.strips(lambda held: self._labels(chosen.index[held]), scan.ground.basis())

    # --- aggregates

    def select_hours(self, matchers: Sequence[Matcher], first_hour: int, last_hour: int) -> HourBatch:
        """Aggregates of whole hours, both ends included: all columns, from `hours` where exact, else from raw."""
        return self.select_cells(matchers, np.arange(first_hour, last_hour + 2), list(KINDS))

    def select_cells(
        self, matchers: Sequence[Matcher], borders: I64, names: Collection[str], *, tick: Tick = nothing
    ) -> HourBatch:
        """Aggregates of cells, hours or whole days, between borders (hour numbers): only the columns named."""
        question = self._question(int(borders[0]) * HOUR_MS, int(borders[-1]) * HOUR_MS, matchers, tick)

        def made(levels: Levels) -> Tables:
            return cells_of(levels, borders, {"count", *names})

        hours = np.arange(borders[0], borders[-1])
        return self._view(question, lambda scan: self._tables(scan, matchers, borders[:-1], hours, names, made))

    def select_segments(
        self, matchers: Sequence[Matcher], cuts: Segments, names: Collection[str], *, tick: Tick = nothing
    ) -> HourBatch:
        """The same of segments: whole hours and days from their levels where exact, all others made from samples."""
        question = self._question(int(cuts.borders[0]), int(cuts.borders[-1]), matchers, tick)

        def made(levels: Levels) -> Tables:
            return segments_of(levels, cuts, {"count", *names})

        firsts, hours = cuts.borders[:-1] // HOUR_MS, _whole_hours(cuts)
        return self._view(question, lambda scan: self._tables(scan, matchers, firsts, hours, names, made))

    def _tables(
        self,
        scan: Scan,
        matchers: Sequence[Matcher],
        firsts: I64,
        hours: I64,
        names: Collection[str],
        made: Callable[[Levels], Tables],
    ) -> HourBatch:
        """A batch of cells that begin at ``firsts``; ``hours`` are those that are asked for as a whole."""
        chosen, asked = self._chosen(matchers, scan.tick), {"count", *names}
        levels = Levels.of(scan, chosen, list(asked))
        tables = made(levels) if len(chosen) else tables_of(0, 0, asked)
        retraction_effects.note(levels, hours)
        if not tables["count"].all():  # else no series is without data
            held = np.flatnonzero(tables["count"].any(axis=1))
            chosen, tables = chosen.take(held), {name: table.take(held, axis=0) for name, table in tables.items()}
        columns: dict[str, Any] = {name: tables.get(name, _NOT_ASKED) for name in KINDS}
        labels = self._labels(chosen.index)
        return HourBatch(labels=labels, hours=firsts, basis=scan.ground.basis(), **columns)

    def select_sketches(self, matchers: Sequence[Matcher], cuts: Segments, *, tick: Tick = nothing) -> SketchBatch:
        """Sketches of whole hours and days from their levels where exact, all others made from samples."""
        question = self._question(int(cuts.borders[0]), int(cuts.borders[-1]), matchers, tick)
        return self._view(question, lambda scan: self._sketches(scan, matchers, cuts))

    def _sketches(self, scan: Scan, matchers: Sequence[Matcher], cuts: Segments) -> SketchBatch:
        chosen = self._chosen(matchers, scan.tick)
        levels = Levels.of(scan, chosen, SKETCHED)
        rows, segment, found = gathered(levels, cuts) if len(chosen) else NO_SKETCHES
        retraction_effects.note(levels, _whole_hours(cuts))
        held, row = np.unique(rows, return_inverse=True)
        scan.ground.sketched = True
        return SketchBatch(self._labels(chosen.index[held]), row, segment, found, scan.ground.basis())

    # --- names

    def series(
        self, matcher_sets: Sequence[Sequence[Matcher]], start_ms: int, end_ms: int, *, most: int | None = None
    ) -> list[dict[str, str]]:
        """Labels of the series that match any of the sets, at most so many: no others are made."""
        return self._named(lambda: self._held.index.labels(self._any(matcher_sets)[:most].tolist()))

    def label_names(self, matcher_sets: Sequence[Sequence[Matcher]], start_ms: int, end_ms: int) -> list[str]:
        """Sorted names of the labels of those series."""
        return self._named(lambda: self._held.index.names(self._any(matcher_sets)))

    def label_values(
        self, name: str, matcher_sets: Sequence[Sequence[Matcher]], start_ms: int, end_ms: int
    ) -> list[str]:
        """Sorted values of one label of those series."""
        return self._named(lambda: self._held.index.values(name, self._any(matcher_sets)))

    def damaged(self) -> int:
        """How many damaged rows this process has set aside."""
        return self._held.quarantine.count

    def cardinality(self, most: int) -> Cardinality:
        """How many series there are, and of what."""
        return self._named(lambda: counted(self._held.index, most))

    def notes(self) -> list[str]:
        """What answers rest on: the age of the un-compacted tail, and quarantined rows."""
        seen = self._held.tail.as_of_ms
        tail = [f"un-compacted data as of {np.datetime64(seen, 'ms')}Z"] if seen else []
        return tail + self._held.quarantine.notes()

    # --- views

    @property
    def app(self) -> int:
        """Whose data this is."""
        return self._held.app

    def standing(self, start_ms: int, end_ms: int) -> Standing | None:
        """What samples of this time rest on; ``None`` for as-of answers, and for more time than a query looks back."""
        if self._asof_ms is not None or end_ms - start_ms > limits.QUERY_DAYS_MAX * DAY_HOURS * HOUR_MS:
            return None

        def told(scan: Scan) -> Standing:
            common = scan.distribution, tuple(scan.known.values()), self._held.quarantine.count
            return Standing.of(common, scan.manifests, scan.tail)

        return self.viewed(start_ms, end_ms, told)

    def viewed(self, start_ms: int, end_ms: int, answer: Callable[[Scan], T]) -> T:
        """Whatever ``answer`` makes of one consistent view of this stretch of time."""
        return self._view(self._question(start_ms, end_ms), answer)

    def _question(self, start_ms: int, end_ms: int, matchers: Sequence[Matcher] = (), tick: Tick = nothing) -> Question:
        return Question(start_ms, end_ms, matchers, self._asof_ms, tick)

    def _view(self, question: Question, answer: Callable[[Scan], T]) -> T:
        """Answer from a consistent view; start again when a run has moved on meanwhile (rule 10)."""
        for attempt in range(limits.RESTARTS_MAX):
            try:
                with self._held.scan(question, force=attempt > 0) as scan:
                    return answer(scan)
            except Moved:
                continue
        raise IntegrityError(f"runs moved on {limits.RESTARTS_MAX} times during one query")

    def _named(self, answer: Callable[[], T]) -> T:
        """Answer from the dictionary alone: names do not depend on the time range (they live as long as the app)."""
        now = self._held.clock.now_ms()

        def locked(_: Scan) -> T:
            with self._held.lock:
                return answer()

        return self._view(self._question(now - HOUR_MS, now), locked)

    def _any(self, matcher_sets: Sequence[Sequence[Matcher]]) -> I64:
        if not matcher_sets:
            return np.arange(len(self._held.index))
        return np.unique(np.concatenate([self._held.index.select(m) for m in matcher_sets]))

    def _labels(self, rows: I64) -> LabelTable:
        return self._held.index.table(rows)

    def _chosen(self, matchers: Sequence[Matcher], tick: Tick = nothing) -> Chosen:
        """The series that match, in the order of their keys: however they came to be known, and wherever they lie."""
        with self._held.lock:
            rows = self._held.index.select(matchers, tick)
            ids, metrics = self._held.index.columns()
        rows = rows[np.lexsort((ids[rows], metrics[rows]))]
        if len(rows) > limits.QUERY_SERIES_MAX:
            raise QueryTooLarge(f"{len(rows)} series match; at most {limits.QUERY_SERIES_MAX}: narrow the selector")
        return Chosen(rows, ids[rows], metrics[rows])


_NOT_ASKED = np.empty((0, 0))
NO_SKETCHES = np.empty(0, np.int64), np.empty(0, np.int64), Sketches.empty()


def _whole_hours(cuts: Segments) -> I64:
    """The hours that lie within segments that are needed, ascending."""
    firsts, ends = -(-cuts.borders[:-1] // HOUR_MS), cuts.borders[1:] // HOUR_MS
    parts = [np.arange(a, b) for a, b in zip(firsts[cuts.needed], ends[cuts.needed], strict=True)]
    return np.concatenate([np.empty(0, np.int64), *parts])
