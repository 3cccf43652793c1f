"""Aggregates of hours and days from the highest level that is exact: days, else hours, else samples (rule 11).

A stored hour or day is used when nothing pending names its hours, it was made of what is in force now, and it leaves
out just those retractions that count for the metrics asked for. As of a time it must also be made of nothing newer. Of
sealed hours there are only hours, of expired ones only days: these answer whatever they were made of. Each level gives
``Part``s; the caller puts them where they belong. Enter by ``Levels``.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from itertools import pairwise
from typing import Any

import numpy as np
from numba import njit

from spm.arrays import BOOL, I32, I64, U64
from spm.errors import CorruptBlock, IntegrityError
from spm.fast_dataclass import dataclass
from spm.limits import DAY_HOURS
from spm.query.request.provenance import DAYS, HOURS
from spm.query.samples.page_selection import ByMetric
from spm.query.view.view import Asked, Scan
from spm.store import keys, manifest
from spm.store.manifest import EXPIRED, SEALED, Generation, first_day_of
from spm.store.rollup import aggregates
from spm.store.rollup.aggregates import Aggregates
from spm.store.rollup.rows import SKETCH, StepColumns
from spm.store.versions import retractions
from spm.store.versions.generations import HourShardData, Inputs, PageRequest
from spm.store.versions.merge import Winners
from spm.wire import metric_id


@dataclass(frozen=True, slots=True)
class Chosen:
    """The series of a query: rows of the index, their ids and metric ids. An id names a series within its metric."""

    index: I64
    series: U64
    metrics: U64
    in_order: bool = True  # of (metric, id): their keys'

    def __len__(self) -> int:
        return len(self.index)

    def take(self, rows: I64) -> "Chosen":
        """Those of these numbers, in this order."""
        return Chosen(self.index[rows], self.series[rows], self.metrics[rows], in_order=False)

    def rows(self, series: U64, metrics: U64) -> I32:
        """The number among the chosen of each of these pairs, all of which are among them."""
        ids, names = np.unique(self.series), np.unique(self.metrics)

        def codes(s: U64, m: U64) -> I64:
            return np.searchsorted(names, m) * len(ids) + np.searchsorted(ids, s)

        own = codes(self.series, self.metrics)
        order = np.argsort(own)
        return order[np.searchsorted(own[order], codes(series, metrics))].astype(np.int32)

    def by_metric(self) -> ByMetric:
        """The same in the order of keys."""
        names, series, numbers = self.metrics, self.series, np.arange(len(self), dtype=np.int64)
        if not self.in_order:
            numbers = np.lexsort((series, names))
            names, series = names[numbers], series[numbers]
        cuts = [0, *(np.flatnonzero(names[1:] != names[:-1]) + 1).tolist(), len(names)] if len(names) else [0]
        return ByMetric(series, numbers, dict(zip(names[cuts[:-1]].tolist(), pairwise(cuts), strict=True)))


@dataclass(frozen=True, slots=True)
class Part:
    """Aggregates of ``table``, those numbered ``at``, each with its row among the chosen series.

    They are not copied: who wants a column or two takes them from the table.
    """

    rows: I64
    at: I64
    table: StepColumns

    @property
    def steps(self) -> I64:
        """The hour (or day) of each."""
        return self.table.step[self.at]

    @property
    def values(self) -> Aggregates:
        """All columns of these alone."""
        return self.table.rows.take(self.at)


@dataclass(slots=True)
class _Pack:
    """A generation of hours or days, and which of its steps are to be used."""

    table: str
    shard: int
    period: int  # day of hours, month of days
    generation: Generation
    first_hour: int
    wanted: PageRequest
    steps: set[int] = field(default_factory=set)

    def key(self, metric: int, page: int, app: int) -> bytes:
        layout = keys.hours if self.table == "hours" else keys.days
        return layout(self.shard, app, metric, self.period, self.generation.number, page)


_Packs = dict[tuple[int, int, bool], _Pack]  # by shard, day, and whether samples of its hours are gone
_Found = list[tuple[_Pack, list[tuple[StepColumns, int]]]]  # packs, each with rows and their metrics


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels of one view, for the chosen series and the columns asked for."""

    scan: Scan
    chosen: Chosen
    asked: Asked
    columns: Sequence[str]  # of Aggregates, and perhaps SKETCH
    by_metric: ByMetric

    @classmethod
    def of(cls, scan: Scan, chosen: Chosen, columns: Sequence[str]) -> "Levels":
        """Ready to be asked."""
        by_metric = chosen.by_metric()
        return cls(scan, chosen, scan.asked(by_metric), sorted(columns), by_metric)

    # --- days

    def days(self, days: Iterable[int]) -> tuple[list[Part], list[int]]:
        """Parts by day number, and the days that must be answered from lower levels."""
        wanted = sorted(days)
        if not wanted:
            return [], []
        packs: dict[tuple[int, int], _Pack] = {}
        held: dict[int, set[int]] = {}
        ends = wanted[0] * DAY_HOURS, (wanted[-1] + 1) * DAY_HOURS - 1
        for hour, shards in self.scan.units(*ends, sealed=True):
            held.setdefault(hour // DAY_HOURS, set()).update(shards)
        left = {day for day in wanted if not self._take_day(day, held.get(day, set()), packs)}
        found, failed = self._read(packs.values())
        left |= {step for pack in failed for step in pack.steps if not self._expired(step)}
        parts = [part for pack, rows in found for part in self._cut(rows, pack.steps - left)]
        for day in {step for pack, _ in found for step in pack.steps - left}:
            self.scan.ground.use(DAYS, day * DAY_HOURS)
        return parts, sorted(left)

    def _take_day(self, day: int, held: set[int], packs: dict[tuple[int, int], _Pack]) -> bool:
        """Add the packs that answer a day; whether there are such. ``held``: shards with samples of that day."""
        month, in_force = self.scan.months.of(day)
        shards = self._day_shards(day, held, in_force)
        if shards is None:
            return False
        first = first_day_of(month) * DAY_HOURS
        for shard, wanted in shards:
            made = in_force.days[shard].generation
            packs.setdefault((shard, month), _Pack("days", shard, month, made, first, wanted)).steps.add(day)
        return True

    def _day_shards(self, day: int, held: set[int], in_force: manifest.Month) -> list[tuple[int, PageRequest]] | None:
        """The shards that answer a day together, and what to read in each; ``None``: they do not.

        What was sealed may lie where a former distribution put it: every shard is asked for everything then.
        """
        sealed = self.scan.sealed(day * DAY_HOURS, (day + 1) * DAY_HOURS - 1)
        if sealed and self.scan.lens.asof_ms is not None:
            return None
        if self._expired(day):
            there = [b for b, pack in in_force.days.items() if day in pack.days]
            exact = [b for b in there if self._day_is_of(b, day, in_force, self._hours_of(b, day))]
            return [(b, self.asked.every) for b in exact or there] or None
        mine = [(b, self.asked.every if sealed else self.asked.of(b)) for b in sorted(held)]
        wanted = [(b, part) for b, part in mine if part is not None]
        if len(wanted) > 1 and (sealed or not self.asked.apart):
            return None  # a metric may lie in two of them
        return wanted if all(self._day_is_exact(b, day, in_force) for b, _ in wanted) else None

    def _expired(self, day: int) -> bool:
        found = self.scan.manifests.get(day)
        return found is not None and EXPIRED in found.seals.values()

    def _day_is_of(self, shard: int, day: int, in_force: manifest.Month, hours: Sequence[tuple[int, bytes]]) -> bool:
        """Whether a stored day was made of these hours in force, and known by the time asked for."""
        pack = in_force.days.get(shard)
        made = pack.days.get(day) if pack else None
        if made is None or not self._known_by_then(made.stamp_max_ms):
            return False
        return made.inputs == manifest.day_fingerprint(hours)

    def _hours_of(self, shard: int, day: int) -> list[tuple[int, bytes]]:
        of_day = self.scan.manifests.get(day)
        return manifest.hours_of(of_day, shard) if of_day else []

    def _day_is_exact(self, shard: int, day: int, in_force: manifest.Month) -> bool:
        hours = self._hours_of(shard, day)
        if not hours or not self._day_is_of(shard, day, in_force, hours):
            return False
        tail = self.scan.tail.units()
        if tail and any((shard, hour) in tail for hour in self._open_hours(day)):
            return False
        of_day, active = self.scan.manifests[day], self.scan.active
        hour_rows = of_day.hours.get(shard)
        stored = {s: hour_rows.hours[s].retractions for s, _ in hours if hour_rows and s in hour_rows.hours}
        open_ones = [s for s, _ in hours if of_day.seal(s) < SEALED]
        now = {s: retractions.ids(retractions.touching(active, of_day.entry(shard, s), s)) for s in open_ones if active}
        made, bare = in_force.days[shard].days[day], dict.fromkeys(open_ones, b"")
        if made.retractions == retractions.of_day({**stored, **bare, **now}.items()):
            return True
        # A day is as good as the hours it was made of.
        return made.retractions == retractions.of_day(stored.items()) and all(
            self._hour_is_exact(shard, hour) for hour in open_ones
        )

    def _open_hours(self, day: int) -> list[int]:
        return [s for s in range(day * DAY_HOURS, (day + 1) * DAY_HOURS) if self.scan.seal(s) < SEALED]

    # --- hours and samples

    def hours(self, hours: Iterable[int]) -> Iterator[Part]:
        """Parts by hour: from hours where exact, else from samples."""
        wanted = sorted(hours)
        if not wanted:
            return
        packs: _Packs = {}
        raw = self._plan(set(wanted), packs)
        found, failed = self._read(packs.values())
        for pack in failed:
            lower = {hour for hour in pack.steps if self.scan.seal(hour) < SEALED}
            pack.steps -= lower
            for hour in lower:
                raw.setdefault(hour, []).append(pack.shard)
        for hour in {hour for pack, _ in found for hour in pack.steps}:
            self.scan.ground.use(HOURS, hour)
        for pack, rows in found:
            yield from self._cut(rows, pack.steps)
        for hour, shards in sorted(raw.items()):
            for picked in self.scan.hour(hour, sorted(shards), self.asked):
                yield self._aggregated(picked, hour)

    def _plan(self, wanted: set[int], packs: _Packs) -> dict[int, list[int]]:
        """Which hours come from which packs; returns the (hour, shards) that come from samples."""
        raw: dict[int, list[int]] = {}
        for hour, shards in self.scan.units(min(wanted), max(wanted)):
            if hour not in wanted:
                continue
            mine = [shard for shard in shards if self.asked.of(shard) is not None]
            apart = self.asked.apart or len(mine) == 1
            exact = [shard for shard in mine if apart and self._hour_is_exact(shard, hour)]
            for shard in exact:
                self._pack(packs, shard, hour, self.asked.of(shard) or self.asked.every)
            if len(exact) < len(mine):
                raw[hour] = [shard for shard in mine if shard not in exact]
        for hour, state in self.scan.sealed(min(wanted), max(wanted)).items():
            if hour in wanted:
                self._take_sealed(hour, state, packs)
        return raw

    def _take_sealed(self, hour: int, state: int, packs: _Packs) -> None:
        """Hours answer for sealed hours, in every shard; nothing does below days for expired ones.

        Those of another state than the one sealed were left behind by a move that was rolled back.
        """
        if state == EXPIRED or self.scan.lens.asof_ms is not None:
            self.scan.ground.expired(hour, hours=state == EXPIRED)
            return
        of_day = self.scan.manifests[hour // DAY_HOURS]
        for shard in of_day.hours:  # also where only a former distribution puts anything
            if of_day.counted(shard, hour):
                self._pack(packs, shard, hour, self.asked.every)

    def _pack(self, packs: _Packs, shard: int, hour: int, wanted: PageRequest) -> None:
        day = hour // DAY_HOURS
        sealed = self.scan.seal(hour) >= SEALED
        if (shard, day, sealed) not in packs:
            made = self.scan.manifests[day].hours[shard].generation
            packs[shard, day, sealed] = _Pack("hours", shard, day, made, day * DAY_HOURS, wanted)
        packs[shard, day, sealed].steps.add(hour)

    def _hour_is_exact(self, shard: int, hour: int) -> bool:
        of_day = self.scan.manifests.get(hour // DAY_HOURS)
        if of_day is None or (shard, hour) in self.scan.tail.held:
            return False
        made, entry = of_day.counted(shard, hour), of_day.entry(shard, hour)
        if made is None or not self._known_by_then(made.stamp_max_ms):
            return False
        now = retractions.touching(self.scan.active, entry, hour) if self.scan.active else ()
        return made.retractions == retractions.ids(now) or self._same(made.retractions, now)

    def _same(self, stored: bytes, now: Sequence[retractions.Retraction]) -> bool:
        """Whether what differs is all about metrics that nobody asks for."""
        differing = retractions.numbers(stored) ^ {r.number for r in now}
        found = [self.scan.known.get(number) for number in differing]
        return all(
            r is not None and r.metric is not None and metric_id(r.metric.encode()) not in self.by_metric for r in found
        )

    def _known_by_then(self, stamp_max_ms: int) -> bool:
        return self.scan.lens.asof_ms is None or stamp_max_ms <= self.scan.lens.asof_ms

    # --- rows

    def _read(self, packs: Iterable[_Pack]) -> tuple[_Found, list[_Pack]]:
        """(packs with their rows, packs that cannot be read) of all these packs, in one call of the store."""
        listing = [
            (pack, metric, page, pack.key(metric, page, self.scan.app))
            for pack in packs
            for metric in pack.wanted.series
            for page in self._pages(pack.generation, metric)
        ]
        if not listing:
            return [], []
        table = listing[0][0].table
        self.scan.tick()
        names = [name for _, _, _, name in listing]
        rows = self.scan.rows.aggregates(self.scan.reader, table, names, self.columns)
        found: dict[int, tuple[_Pack, list[tuple[StepColumns, int]]]] = {}
        failed: list[_Pack] = []
        for (pack, metric, page, _), row in zip(listing, rows, strict=True):
            if isinstance(row, StepColumns) and self._has_sketches(row, metric):
                found.setdefault(id(pack), (pack, []))[1].append((row, metric))
            elif row is not None or not self._is_empty(pack, metric, page):
                failed.append(pack)
        return list(found.values()), [pack for i, pack in enumerate(failed) if pack not in failed[:i]]

    def _last_resort(self, pack: _Pack) -> int | None:
        """An hour of the pack's that has no lower level to turn to, if there is one."""
        if pack.table == "days":
            return next((day * DAY_HOURS for day in pack.steps if self._expired(day)), None)
        return next((hour for hour in pack.steps if self.scan.seal(hour) >= SEALED), None)

    def _pages(self, generation: Generation, metric: int) -> list[int]:
        if not generation.page_bits:
            return [0]
        shift = np.uint64(64 - generation.page_bits)
        return [int(page) for page in np.unique(self.by_metric[metric][0] >> shift)]

    def _is_empty(self, pack: _Pack, metric: int, page: int) -> bool:
        """Whether an absent row is absent because there is nothing in it, by its generation's directory."""
        unit = HourShardData(pack.shard, self.scan.app, pack.first_hour)
        made = self.scan.directory(unit, pack.generation)
        if isinstance(made, Inputs) and page not in made.pages.get(metric, ()):
            return True
        alone = None if isinstance(made, CorruptBlock) else self._last_resort(pack)
        if alone is not None:
            self.scan.moved_or_lost(alone)
            raise IntegrityError(f"a row of {pack.table} of {unit} is missing, and nothing below it is left")
        return False

    def _has_sketches(self, row: StepColumns, metric: int) -> bool:
        if SKETCH not in self.columns:
            return True
        ids = self.by_metric[metric][0]
        mine = np.isin(row.rows.series, ids)
        return bool(row.rows.sketched[mine].all())

    def _cut(self, rows: Iterable[tuple[StepColumns, int]], steps: set[int]) -> Iterator[Part]:
        """The entries of a pack's rows that are asked for."""
        if not steps:
            return
        first = min(steps)
        used = np.zeros(max(steps) - first + 1, np.bool_)
        used[[step - first for step in steps]] = True
        for row, metric in rows:
            numbers, at = _entries(row.rows.series, row.step, *self.by_metric[metric], first, used)
            if len(at):
                yield Part(numbers, at, row)

    def _aggregated(self, picked: Winners, hour: int) -> Part:
        rows = self.chosen.rows(picked.series, picked.metrics).astype(np.int64)
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(picked.counts, dtype=np.int64)])
        wanted = SKETCH in self.columns
        made = aggregates.every(rows.astype(np.uint64), starts, picked.ts, picked.values, sketches=wanted)
        counted = np.flatnonzero(made.count > 0)
        return Part(rows[counted], counted, StepColumns(np.full(len(made), hour, np.int64), made))


@njit(cache=True, nogil=True)
def _entries(series: U64, step: I64, ids: U64, numbers: I64, first: int, used: BOOL) -> Any:
    """(numbers of their series, places) of a row's entries of these ids at the steps in use. Both ascend by id."""
    rows, at = np.empty(len(series), np.int64), np.empty(len(series), np.int64)
    found, place = 0, 0
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
                rows[found], at[found] = numbers[i], place
                found += 1
            place += 1
    return rows[:found], at[:found]
