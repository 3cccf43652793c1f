"""Aggregates from the coarsest resolution that is exact: days, else hours, else samples (PROTOCOL 11).

A stored hour or day is used when no pending record names its hours, it was made of what is in force now, and it leaves
out just those retractions that count for the requested metrics. As of a time it must also be made of nothing newer.
Sealed hours have only hour aggregates, expired ones only day aggregates: these answer whatever they were made of. Each
resolution gives ``AggregatePart``s; the caller puts them into tables. Enter by ``RollupReader``.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import Any

import numpy as np
from numba import njit

from spm.arrays import BOOL, I64, U64
from spm.errors import CorruptBlock, IntegrityError
from spm.fast_dataclass import dataclass
from spm.limits import DAY_HOURS
from spm.query.request.provenance import DAYS, HOURS
from spm.query.series.index import SeriesByMetric, SeriesSelection
from spm.query.view.view import ReadPlan, View
from spm.store import keys, manifest
from spm.store.manifest import EXPIRED, SEALED, Generation, first_day_of
from spm.store.rollup import aggregates
from spm.store.rollup.aggregates import Aggregates
from spm.store.rollup.rows import SKETCH, StepColumns
from spm.store.versions import retractions
from spm.store.versions.generations import HourShard, Inputs, PageRequest
from spm.store.versions.merge import Winners
from spm.wire import metric_id


@dataclass(frozen=True, slots=True)
class AggregatePart:
    """The entries ``at`` of a table of aggregates, each with the row of its series in the selection.

    They are not copied: a caller takes the one or two columns it needs from the table.
    """

    rows: I64
    at: I64
    table: StepColumns

    @property
    def steps(self) -> I64:
        """The hour (or day) of each entry."""
        return self.table.step[self.at]

    @property
    def values(self) -> Aggregates:
        """All columns of these entries."""
        return self.table.rows.take(self.at)


@dataclass(slots=True)
class _Pack:
    """A generation of hours or days, and which of its steps to use."""

    table: str
    shard: int
    period: int  # day of hours, month of days
    generation: Generation
    first_hour: int
    request: PageRequest
    steps: set[int] = field(default_factory=set)

    def key(self, metric: int, page: int, app: int) -> bytes:
        layout = keys.hours if self.table == "hours" else keys.days
        return layout(self.shard, app, metric, self.period, self.generation.number, page)


_Packs = dict[tuple[int, int, bool], _Pack]  # by shard, day, and whether its hours are sealed
_PackRows = list[tuple[_Pack, list[tuple[StepColumns, int]]]]  # packs, each with its rows and their metrics


@dataclass(frozen=True, slots=True)
class RollupReader:
    """Reads aggregates of selected series from one view, and only these columns."""

    view: View
    selection: SeriesSelection
    plan: ReadPlan
    columns: Sequence[str]  # of Aggregates, and perhaps SKETCH
    by_metric: SeriesByMetric

    @classmethod
    def of(cls, view: View, selection: SeriesSelection, columns: Sequence[str]) -> "RollupReader":
        """Plan the read of a selection."""
        by_metric = selection.by_metric()
        return cls(view, selection, view.plan(by_metric), sorted(columns), by_metric)

    # --- days

    def read_days(self, days: Iterable[int]) -> tuple[list[AggregatePart], list[int]]:
        """Parts by day number, and the days that finer resolutions must answer."""
        requested = sorted(days)
        if not requested:
            return [], []
        packs: dict[tuple[int, int], _Pack] = {}
        shards_of: dict[int, set[int]] = {}
        ends = requested[0] * DAY_HOURS, (requested[-1] + 1) * DAY_HOURS - 1
        for hour, shards in self.view.stored_hours(*ends, sealed=True):
            shards_of.setdefault(hour // DAY_HOURS, set()).update(shards)
        remaining = {day for day in requested if not self._take_day(day, shards_of.get(day, set()), packs)}
        pack_rows, failed = self._read(packs.values())
        remaining |= {step for pack in failed for step in pack.steps if not self._is_expired(step)}
        parts = [part for pack, rows in pack_rows for part in self._cut(rows, pack.steps - remaining)]
        for day in {step for pack, _ in pack_rows for step in pack.steps - remaining}:
            self.view.provenance.use(DAYS, day * DAY_HOURS)
        return parts, sorted(remaining)

    def _take_day(self, day: int, shards: set[int], packs: dict[tuple[int, int], _Pack]) -> bool:
        """Add the packs that answer a day; false if there are none. ``shards``: those with samples of that day."""
        month, month_manifest = self.view.months.of(day)
        requests = self._day_requests(day, shards, month_manifest)
        if requests is None:
            return False
        first_hour = first_day_of(month) * DAY_HOURS
        for shard, request in requests:
            generation = month_manifest.days[shard].generation
            pack = packs.setdefault((shard, month), _Pack("days", shard, month, generation, first_hour, request))
            pack.steps.add(day)
        return True

    def _day_requests(
        self, day: int, shards: set[int], month_manifest: manifest.Month
    ) -> list[tuple[int, PageRequest]] | None:
        """The shards that answer a day together, and what to read in each; ``None`` if no day aggregates answer it.

        Rows of sealed hours may lie where a former placement put them: then every shard is read for all series.
        """
        sealed = self.view.sealed_hours(day * DAY_HOURS, (day + 1) * DAY_HOURS - 1)
        if sealed and self.view.visibility.is_past:
            return None
        if self._is_expired(day):
            stored = [shard for shard, pack in month_manifest.days.items() if day in pack.days]
            exact = [s for s in stored if self._day_is_made_of(s, day, month_manifest, self._hours_of(s, day))]
            return [(shard, self.plan.everything) for shard in exact or stored] or None
        candidates = [(s, self.plan.everything if sealed else self.plan.in_shard(s)) for s in sorted(shards)]
        requests = [(shard, request) for shard, request in candidates if request is not None]
        if len(requests) > 1 and (sealed or not self.plan.disjoint):
            return None  # a metric may lie in two of them
        return requests if all(self._day_is_exact(shard, day, month_manifest) for shard, _ in requests) else None

    def _is_expired(self, day: int) -> bool:
        of_day = self.view.manifests.get(day)
        return of_day is not None and EXPIRED in of_day.seals.values()

    def _day_is_made_of(
        self, shard: int, day: int, month_manifest: manifest.Month, hours: Sequence[tuple[int, bytes]]
    ) -> bool:
        """Whether a stored day was made of these hours, and of nothing accepted after the as-of time."""
        pack = month_manifest.days.get(shard)
        inputs = pack.days.get(day) if pack else None
        if inputs is None or not self._shows_all_to(inputs.stamp_max_ms):
            return False
        return inputs.inputs == manifest.day_fingerprint(hours)

    def _hours_of(self, shard: int, day: int) -> list[tuple[int, bytes]]:
        of_day = self.view.manifests.get(day)
        return manifest.hours_of(of_day, shard) if of_day else []

    def _day_is_exact(self, shard: int, day: int, month_manifest: manifest.Month) -> bool:
        hours = self._hours_of(shard, day)
        if not hours or not self._day_is_made_of(shard, day, month_manifest, hours):
            return False
        tail = self.view.tail.hour_shards()
        if tail and any((shard, hour) in tail for hour in self._open_hours(day)):
            return False
        of_day, in_force = self.view.manifests[day], self.view.in_force
        pack = of_day.hours.get(shard)
        stored = {hour: pack.hours[hour].retractions for hour, _ in hours if pack and hour in pack.hours}
        open_hours = [hour for hour, _ in hours if of_day.seal(hour) < SEALED]
        now: dict[int, bytes] = {}
        for hour in open_hours if in_force else ():
            now[hour] = retractions.ids(retractions.touching(in_force, of_day.entry(shard, hour), hour))
        inputs, none = month_manifest.days[shard].days[day], dict.fromkeys(open_hours, b"")
        if inputs.retractions == retractions.day_fingerprint({**stored, **none, **now}.items()):
            return True
        # A day is as exact as the hours it was made of.
        return inputs.retractions == retractions.day_fingerprint(stored.items()) and all(
            self._hour_is_exact(shard, hour) for hour in open_hours
        )

    def _open_hours(self, day: int) -> list[int]:
        return [hour for hour in range(day * DAY_HOURS, (day + 1) * DAY_HOURS) if self.view.seal(hour) < SEALED]

    # --- hours and samples

    def read_hours(self, hours: Iterable[int]) -> Iterator[AggregatePart]:
        """Parts by hour: from hour aggregates where exact, else from samples."""
        requested = sorted(hours)
        if not requested:
            return
        packs: _Packs = {}
        raw = self._take_hours(set(requested), packs)
        pack_rows, failed = self._read(packs.values())
        for pack in failed:
            unsealed = {hour for hour in pack.steps if self.view.seal(hour) < SEALED}
            pack.steps -= unsealed
            for hour in unsealed:
                raw.setdefault(hour, []).append(pack.shard)
        for hour in {hour for pack, _ in pack_rows for hour in pack.steps}:
            self.view.provenance.use(HOURS, hour)
        for pack, rows in pack_rows:
            yield from self._cut(rows, pack.steps)
        for hour, shards in sorted(raw.items()):
            for winners in self.view.winners(hour, sorted(shards), self.plan):
                yield self._aggregate(winners, hour)

    def _take_hours(self, requested: set[int], packs: _Packs) -> dict[int, list[int]]:
        """Add the packs that answer these hours; returns hour -> shards for those that come from samples."""
        raw: dict[int, list[int]] = {}
        for hour, shards in self.view.stored_hours(min(requested), max(requested)):
            if hour not in requested:
                continue
            planned = [shard for shard in shards if self.plan.in_shard(shard) is not None]
            disjoint = self.plan.disjoint or len(planned) == 1
            exact = [shard for shard in planned if disjoint and self._hour_is_exact(shard, hour)]
            for shard in exact:
                self._take_hour(packs, shard, hour, self.plan.in_shard(shard) or self.plan.everything)
            if len(exact) < len(planned):
                raw[hour] = [shard for shard in planned if shard not in exact]
        for hour, seal in self.view.sealed_hours(min(requested), max(requested)).items():
            if hour in requested:
                self._take_sealed(hour, seal, packs)
        return raw

    def _take_sealed(self, hour: int, seal: int, packs: _Packs) -> None:
        """Add the packs that answer a sealed hour, in every shard; note what has expired if no hour aggregates may.

        Aggregates of another state than the one sealed remain from a move that was rolled back: they do not count.
        """
        if seal == EXPIRED or self.view.visibility.is_past:
            self.view.provenance.add_expired(hour, hours=seal == EXPIRED)
            return
        of_day = self.view.manifests[hour // DAY_HOURS]
        for shard in of_day.hours:  # also where only a former placement puts anything
            if of_day.valid_inputs(shard, hour):
                self._take_hour(packs, shard, hour, self.plan.everything)

    def _take_hour(self, packs: _Packs, shard: int, hour: int, request: PageRequest) -> None:
        day = hour // DAY_HOURS
        sealed = self.view.seal(hour) >= SEALED
        if (shard, day, sealed) not in packs:
            generation = self.view.manifests[day].hours[shard].generation
            packs[shard, day, sealed] = _Pack("hours", shard, day, generation, day * DAY_HOURS, request)
        packs[shard, day, sealed].steps.add(hour)

    def _hour_is_exact(self, shard: int, hour: int) -> bool:
        of_day = self.view.manifests.get(hour // DAY_HOURS)
        if of_day is None or (shard, hour) in self.view.tail.by_shard_hour:
            return False
        inputs, entry = of_day.valid_inputs(shard, hour), of_day.entry(shard, hour)
        if inputs is None or not self._shows_all_to(inputs.stamp_max_ms):
            return False
        now = retractions.touching(self.view.in_force, entry, hour) if self.view.in_force else ()
        return inputs.retractions == retractions.ids(now) or self._differ_elsewhere(inputs.retractions, now)

    def _differ_elsewhere(self, stored: bytes, now: Sequence[retractions.Retraction]) -> bool:
        """Whether all retractions by which these differ are about metrics that are not requested."""
        numbers = retractions.numbers(stored) ^ {r.number for r in now}
        differing = [self.view.retractions.get(number) for number in numbers]
        return all(
            r is not None and r.metric is not None and metric_id(r.metric.encode()) not in self.by_metric
            for r in differing
        )

    def _shows_all_to(self, stamp_max_ms: int) -> bool:
        return self.view.visibility.shows_all_to(stamp_max_ms)

    # --- rows

    def _read(self, packs: Iterable[_Pack]) -> tuple[_PackRows, list[_Pack]]:
        """(packs with their rows, packs that cannot be read), with one call of the store."""
        requests = [
            (pack, metric, page, pack.key(metric, page, self.view.app))
            for pack in packs
            for metric in pack.request.series
            for page in self._pages(pack.generation, metric)
        ]
        if not requests:
            return [], []
        table = requests[0][0].table
        self.view.check_deadline()
        row_keys = [row_key for _, _, _, row_key in requests]
        rows = self.view.rows.aggregates(self.view.reader, table, row_keys, self.columns)
        pack_rows: dict[int, tuple[_Pack, list[tuple[StepColumns, int]]]] = {}
        failed: list[_Pack] = []
        for (pack, metric, page, _), row in zip(requests, rows, strict=True):
            if isinstance(row, StepColumns) and self._has_sketches(row, metric):
                pack_rows.setdefault(id(pack), (pack, []))[1].append((row, metric))
            elif row is not None or not self._is_empty(pack, metric, page):
                failed.append(pack)
        return list(pack_rows.values()), [pack for i, pack in enumerate(failed) if pack not in failed[:i]]

    def _hour_without_fallback(self, pack: _Pack) -> int | None:
        """An hour of the pack's that no finer resolution can answer; ``None`` if there is none."""
        if pack.table == "days":
            return next((day * DAY_HOURS for day in pack.steps if self._is_expired(day)), None)
        return next((hour for hour in pack.steps if self.view.seal(hour) >= SEALED), None)

    def _pages(self, generation: Generation, metric: int) -> list[int]:
        if not generation.page_bits:
            return [0]
        shift = np.uint64(64 - generation.page_bits)
        return [int(page) for page in np.unique(self.by_metric[metric][0] >> shift)]

    def _is_empty(self, pack: _Pack, metric: int, page: int) -> bool:
        """Whether a row is absent because it would be empty, by its generation's directory.

        Raises ``IntegrityError`` if it is missing and no finer resolution can answer.
        """
        hour_shard = HourShard(pack.shard, self.view.app, pack.first_hour)
        inputs = self.view.directory(hour_shard, pack.generation)
        if isinstance(inputs, Inputs) and page not in inputs.pages.get(metric, ()):
            return True
        hour = None if isinstance(inputs, CorruptBlock) else self._hour_without_fallback(pack)
        if hour is not None:
            self.view.raise_if_outdated(hour)
            raise IntegrityError(f"a row of {pack.table} of {hour_shard} is missing, and no finer data exists")
        return False

    def _has_sketches(self, row: StepColumns, metric: int) -> bool:
        if SKETCH not in self.columns:
            return True
        ids = self.by_metric[metric][0]
        selected = np.isin(row.rows.series, ids)
        return bool(row.rows.has_sketch[selected].all())

    def _cut(self, rows: Iterable[tuple[StepColumns, int]], steps: set[int]) -> Iterator[AggregatePart]:
        """The requested entries of a pack's rows."""
        if not steps:
            return
        first = min(steps)
        used = np.zeros(max(steps) - first + 1, np.bool_)
        used[[step - first for step in steps]] = True
        for row, metric in rows:
            numbers, at = _entries(row.rows.series, row.step, *self.by_metric[metric], first, used)
            if len(at):
                yield AggregatePart(numbers, at, row)

    def _aggregate(self, winners: Winners, hour: int) -> AggregatePart:
        rows = self.selection.rows(winners.series, winners.metrics).astype(np.int64)
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(winners.counts, dtype=np.int64)])
        sketches = SKETCH in self.columns
        values = aggregates.aggregate_all(rows.astype(np.uint64), starts, winners.ts, winners.values, sketches=sketches)
        counted = np.flatnonzero(values.count > 0)
        return AggregatePart(rows[counted], counted, StepColumns(np.full(len(values), hour, np.int64), values))


@njit(cache=True, nogil=True)
def _entries(series: U64, step: I64, ids: U64, numbers: I64, first: int, used: BOOL) -> Any:
    """(numbers of their series, places) of a row's entries of these ids at the steps in use. Both ascend by id."""
    rows, at = np.empty(len(series), np.int64), np.empty(len(series), np.int64)
    size, place = 0, 0
    for i in range(len(ids)):
        end = len(series)  # the first entry of this id or a later one lies in place:end
        while place < end and series[place] < ids[i]:
            middle = (place + end) // 2
            if series[middle] < ids[i]:
                place = middle + 1
            else:
                end = middle
        place = min(place, len(series))
        while place < len(series) and series[place] == ids[i]:
            offset = step[place] - first
            if 0 <= offset < len(used) and used[offset]:
                rows[size], at[size] = numbers[i], place
                size += 1
            place += 1
    return rows[:size], at[:size]
