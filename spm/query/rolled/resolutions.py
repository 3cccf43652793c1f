"""Aggregates of slots and days from the highest level that is exact: days, else hours, else samples (rule 11).

A stored hour or day is used when nothing pending names its slots, it was made of what is in force now, and it leaves
out just those retractions that count for the metrics asked for. As of a time it must also be made of nothing newer. Of
sealed slots there are only hours, of expired ones only days: these answer whatever they were made of. Each level gives
``Part``s; the caller puts them where they belong. Enter by ``Levels``.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from itertools import pairwise
from typing import Any

import numpy as np
from numba import njit

from spm.errors import CorruptBlock, IntegrityError
from spm.fast_dataclass import dataclass
from spm.limits import DAY_SLOTS
from spm.query.request.provenance import DAYS, HOURS
from spm.query.samples.page_selection import ByMetric
from spm.query.view.view import Asked, Scan
from spm.store import keys, manifest
from spm.store.encoding.arrow import Bool
from spm.store.manifest import EXPIRED, SEALED, Generation, first_day_of
from spm.store.rollup import aggregates
from spm.store.rollup.aggregates import Aggregates
from spm.store.rollup.rows import SKETCH, Steps
from spm.store.versions import retractions
from spm.store.versions.generations import Inputs, Unit, Wanted
from spm.store.versions.merge import Picked
from spm.wire import I32, I64, U64, metric_id


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
    table: Steps

    @property
    def steps(self) -> I64:
        """The slot (or day) of each."""
        return self.table.step[self.at]

    @property
    def values(self) -> Aggregates:
        """All columns of these alone."""
        return self.table.rows.take(self.at)


@dataclass(slots=True)
class _Pack:
    """A generation of hours or days, and which of its steps are to be used."""

    table: str
    bucket: int
    period: int  # day of hours, month of days
    generation: Generation
    first_slot: int
    wanted: Wanted
    steps: set[int] = field(default_factory=set)

    def key(self, metric: int, page: int, app: int) -> bytes:
        layout = keys.hours if self.table == "hours" else keys.days
        return layout(self.bucket, app, metric, self.period, self.generation.number, page)


_Packs = dict[tuple[int, int, bool], _Pack]  # by bucket, day, and whether samples of its slots are gone
_Found = list[tuple[_Pack, list[tuple[Steps, int]]]]  # packs, each with rows and their metrics


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
        ends = wanted[0] * DAY_SLOTS, (wanted[-1] + 1) * DAY_SLOTS - 1
        for slot, buckets in self.scan.units(*ends, sealed=True):
            held.setdefault(slot // DAY_SLOTS, set()).update(buckets)
        left = {day for day in wanted if not self._take_day(day, held.get(day, set()), packs)}
        found, failed = self._read(packs.values())
        left |= {step for pack in failed for step in pack.steps if not self._expired(step)}
        parts = [part for pack, rows in found for part in self._cut(rows, pack.steps - left)]
        for day in {step for pack, _ in found for step in pack.steps - left}:
            self.scan.ground.use(DAYS, day * DAY_SLOTS)
        return parts, sorted(left)

    def _take_day(self, day: int, held: set[int], packs: dict[tuple[int, int], _Pack]) -> bool:
        """Add the packs that answer a day; whether there are such. ``held``: buckets with samples of that day."""
        month, in_force = self.scan.months.of(day)
        buckets = self._day_buckets(day, held, in_force)
        if buckets is None:
            return False
        first = first_day_of(month) * DAY_SLOTS
        for bucket, wanted in buckets:
            made = in_force.days[bucket].generation
            packs.setdefault((bucket, month), _Pack("days", bucket, month, made, first, wanted)).steps.add(day)
        return True

    def _day_buckets(self, day: int, held: set[int], in_force: manifest.Month) -> list[tuple[int, Wanted]] | None:
        """The buckets that answer a day together, and what to read in each; ``None``: they do not.

        What was sealed may lie where a former distribution put it: every bucket is asked for everything then.
        """
        sealed = self.scan.sealed(day * DAY_SLOTS, (day + 1) * DAY_SLOTS - 1)
        if sealed and self.scan.lens.asof_ms is not None:
            return None
        if self._expired(day):
            there = [b for b, pack in in_force.days.items() if day in pack.days]
            exact = [b for b in there if self._day_is_of(b, day, in_force, self._slots_of(b, day))]
            return [(b, self.asked.every) for b in exact or there] or None
        mine = [(b, self.asked.every if sealed else self.asked.of(b)) for b in sorted(held)]
        wanted = [(b, part) for b, part in mine if part is not None]
        if len(wanted) > 1 and (sealed or not self.asked.apart):
            return None  # a metric may lie in two of them
        return wanted if all(self._day_is_exact(b, day, in_force) for b, _ in wanted) else None

    def _expired(self, day: int) -> bool:
        found = self.scan.manifests.get(day)
        return found is not None and EXPIRED in found.seals.values()

    def _day_is_of(self, bucket: int, day: int, in_force: manifest.Month, slots: Sequence[tuple[int, bytes]]) -> bool:
        """Whether a stored day was made of these slots in force, and known by the time asked for."""
        pack = in_force.days.get(bucket)
        made = pack.days.get(day) if pack else None
        if made is None or not self._known_by_then(made.stamp_max_ms):
            return False
        return made.inputs == manifest.day_fingerprint(slots)

    def _slots_of(self, bucket: int, day: int) -> list[tuple[int, bytes]]:
        of_day = self.scan.manifests.get(day)
        return manifest.slots_of(of_day, bucket) if of_day else []

    def _day_is_exact(self, bucket: int, day: int, in_force: manifest.Month) -> bool:
        slots = self._slots_of(bucket, day)
        if not slots or not self._day_is_of(bucket, day, in_force, slots):
            return False
        tail = self.scan.tail.units()
        if tail and any((bucket, slot) in tail for slot in self._open_slots(day)):
            return False
        of_day, active = self.scan.manifests[day], self.scan.active
        hours = of_day.hours.get(bucket)
        stored = {s: hours.slots[s].retractions for s, _ in slots if hours and s in hours.slots}
        open_ones = [s for s, _ in slots if of_day.seal(s) < SEALED]
        now = {
            s: retractions.ids(retractions.touching(active, of_day.entry(bucket, s), s)) for s in open_ones if active
        }
        made, bare = in_force.days[bucket].days[day], dict.fromkeys(open_ones, b"")
        if made.retractions == retractions.of_day({**stored, **bare, **now}.items()):
            return True
        # A day is as good as the hours it was made of.
        return made.retractions == retractions.of_day(stored.items()) and all(
            self._hour_is_exact(bucket, slot) for slot in open_ones
        )

    def _open_slots(self, day: int) -> list[int]:
        return [s for s in range(day * DAY_SLOTS, (day + 1) * DAY_SLOTS) if self.scan.seal(s) < SEALED]

    # --- hours and samples

    def slots(self, slots: Iterable[int]) -> Iterator[Part]:
        """Parts by slot: from hours where exact, else from samples."""
        wanted = sorted(slots)
        if not wanted:
            return
        packs: _Packs = {}
        raw = self._plan(set(wanted), packs)
        found, failed = self._read(packs.values())
        for pack in failed:
            lower = {slot for slot in pack.steps if self.scan.seal(slot) < SEALED}
            pack.steps -= lower
            for slot in lower:
                raw.setdefault(slot, []).append(pack.bucket)
        for slot in {slot for pack, _ in found for slot in pack.steps}:
            self.scan.ground.use(HOURS, slot)
        for pack, rows in found:
            yield from self._cut(rows, pack.steps)
        for slot, buckets in sorted(raw.items()):
            for picked in self.scan.slot(slot, sorted(buckets), self.asked):
                yield self._aggregated(picked, slot)

    def _plan(self, wanted: set[int], packs: _Packs) -> dict[int, list[int]]:
        """Which slots come from which packs; returns the (slot, buckets) that come from samples."""
        raw: dict[int, list[int]] = {}
        for slot, buckets in self.scan.units(min(wanted), max(wanted)):
            if slot not in wanted:
                continue
            mine = [bucket for bucket in buckets if self.asked.of(bucket) is not None]
            apart = self.asked.apart or len(mine) == 1
            exact = [bucket for bucket in mine if apart and self._hour_is_exact(bucket, slot)]
            for bucket in exact:
                self._pack(packs, bucket, slot, self.asked.of(bucket) or self.asked.every)
            if len(exact) < len(mine):
                raw[slot] = [bucket for bucket in mine if bucket not in exact]
        for slot, state in self.scan.sealed(min(wanted), max(wanted)).items():
            if slot in wanted:
                self._take_sealed(slot, state, packs)
        return raw

    def _take_sealed(self, slot: int, state: int, packs: _Packs) -> None:
        """Hours answer for sealed slots, in every bucket; nothing does below days for expired ones.

        Those of another state than the one sealed were left behind by a move that was rolled back.
        """
        if state == EXPIRED or self.scan.lens.asof_ms is not None:
            self.scan.ground.expired(slot, hours=state == EXPIRED)
            return
        of_day = self.scan.manifests[slot // DAY_SLOTS]
        for bucket in of_day.hours:  # also where only a former distribution puts anything
            if of_day.counted(bucket, slot):
                self._pack(packs, bucket, slot, self.asked.every)

    def _pack(self, packs: _Packs, bucket: int, slot: int, wanted: Wanted) -> None:
        day = slot // DAY_SLOTS
        sealed = self.scan.seal(slot) >= SEALED
        if (bucket, day, sealed) not in packs:
            made = self.scan.manifests[day].hours[bucket].generation
            packs[bucket, day, sealed] = _Pack("hours", bucket, day, made, day * DAY_SLOTS, wanted)
        packs[bucket, day, sealed].steps.add(slot)

    def _hour_is_exact(self, bucket: int, slot: int) -> bool:
        of_day = self.scan.manifests.get(slot // DAY_SLOTS)
        if of_day is None or (bucket, slot) in self.scan.tail.held:
            return False
        made, entry = of_day.counted(bucket, slot), of_day.entry(bucket, slot)
        if made is None or not self._known_by_then(made.stamp_max_ms):
            return False
        now = retractions.touching(self.scan.active, entry, slot) if self.scan.active else ()
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
        found: dict[int, tuple[_Pack, list[tuple[Steps, int]]]] = {}
        failed: list[_Pack] = []
        for (pack, metric, page, _), row in zip(listing, rows, strict=True):
            if isinstance(row, Steps) and self._has_sketches(row, metric):
                found.setdefault(id(pack), (pack, []))[1].append((row, metric))
            elif row is not None or not self._is_empty(pack, metric, page):
                failed.append(pack)
        return list(found.values()), [pack for i, pack in enumerate(failed) if pack not in failed[:i]]

    def _last_resort(self, pack: _Pack) -> int | None:
        """A slot of the pack's that has no lower level to turn to, if there is one."""
        if pack.table == "days":
            return next((day * DAY_SLOTS for day in pack.steps if self._expired(day)), None)
        return next((slot for slot in pack.steps if self.scan.seal(slot) >= SEALED), None)

    def _pages(self, generation: Generation, metric: int) -> list[int]:
        if not generation.page_bits:
            return [0]
        shift = np.uint64(64 - generation.page_bits)
        return [int(page) for page in np.unique(self.by_metric[metric][0] >> shift)]

    def _is_empty(self, pack: _Pack, metric: int, page: int) -> bool:
        """Whether an absent row is absent because there is nothing in it, by its generation's directory."""
        unit = Unit(pack.bucket, self.scan.app, pack.first_slot)
        made = self.scan.directory(unit, pack.generation)
        if isinstance(made, Inputs) and page not in made.pages.get(metric, ()):
            return True
        alone = None if isinstance(made, CorruptBlock) else self._last_resort(pack)
        if alone is not None:
            self.scan.moved_or_lost(alone)
            raise IntegrityError(f"a row of {pack.table} of {unit} is missing, and nothing below it is left")
        return False

    def _has_sketches(self, row: Steps, metric: int) -> bool:
        if SKETCH not in self.columns:
            return True
        ids = self.by_metric[metric][0]
        mine = np.isin(row.rows.series, ids)
        return bool(row.rows.sketched[mine].all())

    def _cut(self, rows: Iterable[tuple[Steps, int]], steps: set[int]) -> Iterator[Part]:
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

    def _aggregated(self, picked: Picked, slot: int) -> Part:
        rows = self.chosen.rows(picked.series, picked.metrics).astype(np.int64)
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(picked.counts, dtype=np.int64)])
        wanted = SKETCH in self.columns
        made = aggregates.every(rows.astype(np.uint64), starts, picked.ts, picked.values, sketches=wanted)
        counted = np.flatnonzero(made.count > 0)
        return Part(rows[counted], counted, Steps(np.full(len(made), slot, np.int64), made))


@njit(cache=True, nogil=True)
def _entries(series: U64, step: I64, ids: U64, numbers: I64, first: int, used: Bool) -> Any:
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
