"""The data of one app, for the evaluator: ``AppStorage`` implements ``select.Storage`` over the tables.

What a process keeps of the app is ``held.Held``; each question gets a fresh ``Scan`` from it and is answered from that
alone. ``asof`` gives a storage that answers as accepted by a time. Aggregates come from the highest level that is
exact (``levels``), and every batch says what it rests on (``basis``).
"""

import copy
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

import numpy as np
from numba import njit

from spm import limits
from spm.clock import Clock
from spm.errors import IntegrityError, QueryTooLarge
from spm.limits import DAY_SLOTS, HOUR_MS
from spm.query.cache import PageCache
from spm.query.cardinality import Cardinality, counted
from spm.query.held import Held, Question
from spm.query.label_table import LabelTable
from spm.query.levels import Chosen, Levels, Part
from spm.query.loom import Loom
from spm.query.scan import Moved, Scan
from spm.query.select import HourBatch, Matcher, Segments, SeriesBatch, SketchBatch, Tick, nothing
from spm.query.sketches import COLUMNS as SKETCHED
from spm.query.sketches import gathered
from spm.query.standing import Standing
from spm.query.strips import Strips, Weaver
from spm.query.weaving import Woven
from spm.store import aggregates
from spm.store.aggregates import COLUMNS, Aggregates
from spm.store.backends.base import Backend
from spm.store.keys import Distribution
from spm.store.sketch import Sketches
from spm.wire import I64

T = TypeVar("T")
Tables = dict[str, np.ndarray]
_Where = tuple[int, I64]  # the first of some steps (ascending), and the column of each from there on; -1: it has none
_KINDS: dict[str, type[Any]] = dict(COLUMNS)
_EMPTY: dict[type[Any], float] = {np.int64: 0, np.float64: np.nan}


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

    def slots_held(self, start_ms: int, end_ms: int) -> list[int]:
        """The slots of this stretch of time that hold samples."""
        first, last = max(start_ms, 0) // HOUR_MS, max(end_ms - 1, 0) // HOUR_MS
        return self.viewed(start_ms, end_ms, lambda scan: [slot for slot, _ in scan.units(first, last)])

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
            for slot in scan.sealed(first, last):
                scan.ground.expired(slot, hours=False)
            Loom(scan, asked, woven).weave(scan.units(first, last))
        return woven.strips(lambda held: self._labels(chosen.index[held]), scan.ground.basis())

    # --- aggregates

    def select_hours(self, matchers: Sequence[Matcher], first_slot: int, last_slot: int) -> HourBatch:
        """Aggregates of whole slots, both ends included: all columns, from `hours` where exact, else from raw."""
        return self.select_cells(matchers, np.arange(first_slot, last_slot + 2), list(_KINDS))

    def select_cells(
        self, matchers: Sequence[Matcher], borders: I64, names: Collection[str], *, tick: Tick = nothing
    ) -> HourBatch:
        """Aggregates of cells, slots or whole days, between borders (slot numbers): only the columns named."""
        question = self._question(int(borders[0]) * HOUR_MS, int(borders[-1]) * HOUR_MS, matchers, tick)
        return self._view(question, lambda scan: self._cells(scan, matchers, borders, {"count", *names}))

    def _cells(self, scan: Scan, matchers: Sequence[Matcher], borders: I64, names: Collection[str]) -> HourBatch:
        chosen = self._chosen(matchers, scan.tick)
        tables = cells_of(Levels.of(scan, chosen, list(names)), borders, names) if len(chosen) else _tables(0, 0, names)
        if not tables["count"].all():  # else no series is without data
            held = np.flatnonzero(tables["count"].any(axis=1))
            chosen, tables = chosen.take(held), {name: table.take(held, axis=0) for name, table in tables.items()}
        columns: dict[str, Any] = {name: tables.get(name, _NOT_ASKED) for name in _KINDS}
        labels = self._labels(chosen.index)
        return HourBatch(labels=labels, slots=borders[:-1], basis=scan.ground.basis(), **columns)

    def select_sketches(self, matchers: Sequence[Matcher], cuts: Segments, *, tick: Tick = nothing) -> SketchBatch:
        """Sketches of whole hours and days from their levels where exact, all others made from samples."""
        question = self._question(int(cuts.borders[0]), int(cuts.borders[-1]), matchers, tick)
        return self._view(question, lambda scan: self._sketches(scan, matchers, cuts))

    def _sketches(self, scan: Scan, matchers: Sequence[Matcher], cuts: Segments) -> SketchBatch:
        chosen = self._chosen(matchers, scan.tick)
        rows, segment, found = gathered(Levels.of(scan, chosen, SKETCHED), cuts) if len(chosen) else NO_SKETCHES
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
        if self._asof_ms is not None or end_ms - start_ms > limits.QUERY_DAYS_MAX * DAY_SLOTS * HOUR_MS:
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


def cells_of(levels: Levels, borders: I64, names: Collection[str]) -> Tables:
    """Columns [series, cells]: days from their level where exact, else joined from their slots."""
    widths = np.diff(borders)
    _check_size(len(levels.chosen), len(widths))
    of_days = widths == DAY_SLOTS
    assert bool((of_days | (widths == 1)).all()), "BUG: a cell is a slot or a day"
    tables = _tables(len(levels.chosen), len(widths), names)
    days, single = borders[:-1][of_days] // DAY_SLOTS, borders[:-1][~of_days]
    parts, left = levels.days(days.tolist())
    where = _where(days, np.flatnonzero(of_days))
    for part in parts:
        _put(tables, part, where)
    _check_size(len(levels.chosen), len(left) * DAY_SLOTS)
    inner = (np.array(left, np.int64)[:, None] * DAY_SLOTS + np.arange(DAY_SLOTS)).ravel()
    below = _tables(len(levels.chosen), len(inner), names) if left else {}
    where, inside = _where(single, np.flatnonzero(~of_days)), _where(inner, np.arange(len(inner)))
    for part in levels.slots([*single.tolist(), *inner.tolist()]):
        _put(tables, part, where)
        _put(below, part, inside)
    if left:
        _join_days(tables, below, np.searchsorted(borders, np.array(left, np.int64) * DAY_SLOTS))
    return tables


def _check_size(series: int, cells: int) -> None:
    if series * cells > limits.QUERY_CELLS_MAX:
        raise QueryTooLarge(
            f"{series} series of {cells} hours are more than {limits.QUERY_CELLS_MAX} values: "
            "ask for less time or fewer series"
        )


def _tables(rows: int, columns: int, names: Collection[str]) -> Tables:
    return {name: np.full((rows, columns), _EMPTY[kind], kind) for name, kind in _KINDS.items() if name in names}


def _where(steps: I64, columns: I64) -> _Where:
    if not len(steps):
        return 0, columns
    first = int(steps[0])
    column_of = np.full(int(steps[-1]) - first + 1, -1, np.int64)
    column_of[steps - first] = columns
    return first, column_of


def _put(tables: Tables, part: Part, where: _Where) -> None:
    """Write what a part says of the steps that have a column; what else it says is left out."""
    for name, table in tables.items():
        _write(table, part.rows, part.at, part.table.step, getattr(part.table.rows, name), *where)


@njit(cache=True, nogil=True)
def _write(table: Any, rows: I64, at: I64, step: I64, values: Any, first: int, column_of: I64) -> None:
    for i in range(len(rows)):
        offset = step[at[i]] - first
        if 0 <= offset < len(column_of) and column_of[offset] >= 0:
            table[rows[i], column_of[offset]] = values[at[i]]


def _join_days(tables: Tables, below: Tables, columns: I64) -> None:
    """Slots of days side by side become the days: the same kernel that makes days of hours."""
    rows, places = np.nonzero(below["count"])
    days = places // DAY_SLOTS
    owner = (rows * len(columns) + days).astype(np.uint64)
    flat: dict[str, Any] = {
        name: below[name][rows, places] if name in below else np.zeros(len(rows), kind) for name, kind in COLUMNS
    }
    made = aggregates.merge_rows(Aggregates(series=owner, **flat))
    of_row, of_day = np.divmod(made.series.astype(np.int64), len(columns))
    for name, table in tables.items():
        table[of_row, columns[of_day]] = getattr(made, name)
