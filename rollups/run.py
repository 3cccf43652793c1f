"""The driver of a run: pending, then manifests, then a plan; its tasks; one flip per (app, day); the account; the end.

Enter by ``Driver.roll``. In order (rules 9 to 16):
1. take a run number nobody had; list the pending cells, then read the manifests: these are the plan's whole world;
2. per wave: compact the units, pack the hours of the days they belong to;
3. flip each (app, day) by one check-and-put that expects the bytes of step 1, or rebase it, or drop the work;
4. after a flip: write the account of its batches, then remove exactly the pending cells of the plan;
5. build days whose hours are all in force, and flip their months.
Whatever is killed in between leaves rows that nobody names; the next run merges equal versions.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rollups import cells, flip
from rollups import plan as planning
from rollups.cells import COLUMN
from rollups.flip import Change
from rollups.local import Executor
from rollups.outcome import Work, account, days_task, month_after, unit_task
from rollups.plan import DayPlan, Thresholds
from rollups.points import Hook, nowhere
from rollups.work import Packed
from spm import limits
from spm.clock import Clock, random_u64
from spm.errors import CorruptBlock, StoreUnavailable
from spm.store import keys, manifest, pending
from spm.store.backends.base import Backend
from spm.store.manifest import Hours, Manifest
from spm.store.pending import Listed

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is."""

    units: int
    units_total: int
    samples: int
    elapsed_s: float

    @property
    def samples_per_s(self) -> float:
        """Samples compacted per second so far."""
        return self.samples / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def eta_s(self) -> float | None:
        """Seconds to go, if the rest goes like the part done."""
        return self.elapsed_s * (self.units_total - self.units) / self.units if self.units else None


@dataclass(frozen=True, slots=True)
class DayReport:
    """What a run did to one (app, day)."""

    app: int
    day: int
    flipped: bool
    units: int
    samples: int
    size_bytes: int
    troubles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a run did."""

    run: int
    executor: str
    minor: bool
    days: tuple[DayReport, ...]
    months: int = 0  # (app, month)s whose days were flipped

    @property
    def samples(self) -> int:
        """Samples in the generations that went in."""
        return sum(day.samples for day in self.days if day.flipped)

    @property
    def troubles(self) -> list[str]:
        """Everything that was given up, and why."""
        return [trouble for day in self.days for trouble in day.troubles]


@dataclass(frozen=True, slots=True)
class Driver:
    """What a run needs of the world."""

    store: Backend
    clock: Clock
    buckets: Callable[[int], Sequence[int]]  # of an app: where its data may lie
    thresholds: Thresholds = planning.DEFAULTS
    at: Hook = nowhere
    watch: Callable[[Progress], None] = field(default=lambda _: None)

    def roll(
        self,
        executor: Executor,
        apps: Sequence[int],
        *,
        minor: bool = False,
        now_ms: int | None = None,
        run: int | None = None,
    ) -> RunReport:
        """One run over these apps; ``minor`` leaves closed hours, days and untouched units to a full one.

        ``run`` is a number taken for this run and no other; without it one is taken.
        """
        run = cells.take_run(self.store) if run is None else run
        now = self.clock.now_ms() if now_ms is None else now_ms
        plans = [day for app in apps for day in self.plan(app, minor=minor, now_ms=now)]
        self.at("planned")
        meter = _Meter(self.clock, sum(len(day.units) for day in plans), self.watch)
        reports: list[DayReport] = []
        try:
            for wave in planning.waves(plans):
                reports += self._wave(executor, run, wave, meter)
                executor.forget()
            months = 0 if minor else sum(self._days(executor, run, app, now) for app in apps)
        finally:
            executor.forget()
        return RunReport(run, executor.name, minor, tuple(reports), months)

    def plan(self, app: int, *, minor: bool, now_ms: int) -> list[DayPlan]:
        """The days of an app with work. Pending first, then the manifests (rule 9)."""
        waiting = planning.by_day(self._listed(app))
        found = cells.read_cells(self.store, app, sorted(waiting)) if minor else cells.scan_cells(self.store, app)
        plans = []
        for day in sorted({*waiting, *found}):
            cell = found.get(day)
            try:
                value = manifest.decode(cell)
            except CorruptBlock as error:
                _LOG.error("day %s of app %s is left alone: %s", day, app, error)
                continue
            planned = planning.plan_day(
                app, day, cell=cell, manifest=value, waiting=waiting.get(day, ()),
                now_ms=now_ms, minor=minor, thresholds=self.thresholds,
            )  # fmt: skip
            if planned.units:
                plans.append(planned)
        return plans

    def _listed(self, app: int) -> Iterator[Listed]:
        """The pending cells of an app; of a heap larger than one run takes, the oldest of each bucket."""
        for bucket in self.buckets(app):
            yield from deque(pending.scan(self.store, app, [bucket]), maxlen=limits.ROLL_CELLS_MAX)

    # --- one wave -----------------------------------------------------------------------------------------------------

    def _wave(self, executor: Executor, run: int, wave: Sequence[DayPlan], meter: "_Meter") -> list[DayReport]:
        tasks = [unit_task(day, unit) for day in wave for unit in day.units]
        results = {(r.app, r.bucket, r.slot): r for r in executor.compact(run, tasks, meter.add)}
        self.at("compacted")
        works = [Work.of(day, results, run) for day in wave]
        packed = executor.pack(run, [task for work in works for task in work.packs])
        by_day: dict[tuple[int, int], list[Packed]] = {}
        for pack in packed:
            by_day.setdefault((pack.app, pack.period), []).append(pack)
        return [self._finish(work, run, by_day.get((work.plan.app, work.plan.day), [])) for work in works]

    def _finish(self, work: "Work", run: int, packed: Sequence[Packed]) -> DayReport:
        """Flip one (app, day) and settle its batches."""
        hours = {p.bucket: work.hours(p.bucket, p) for p in packed if p.made is not None}
        troubles = [*work.troubles, *(p.reason for p in packed if p.reason)]
        try:
            flipped = bool(work.changes or hours) and self._flip(work, run, hours)
            if flipped:
                self.at("flipped")
                self._settle(work)
        except StoreUnavailable as trouble:
            flipped = False
            troubles.append(f"StoreUnavailable: {trouble}")
        done = [r for r in work.results if not r.reason]
        size = sum(r.size_bytes for r in done) + sum(p.size_bytes for p in packed)
        samples = sum(r.samples for r in done)
        return DayReport(work.plan.app, work.plan.day, flipped, len(done), samples, size, tuple(troubles))

    def _flip(self, work: "Work", run: int, hours: Mapping[int, Hours]) -> bool:
        """Rule 14: the whole cell by check-and-put; a lost one is rebased or dropped, an unknown one looked up."""
        key = keys.manifest(work.plan.app, work.plan.day)
        expected, now = work.plan.cell, work.plan.manifest
        for _ in range(limits.ROLL_REPLANS_MAX):
            nonce = random_u64()
            value = flip.rebase(
                now, planned=work.plan.manifest, changes=work.changes, hours=hours, run=run, nonce=nonce
            )
            if value is None:
                return False
            landed, expected, final = cells.swap(
                self.store, key, expected, manifest.encode(value), _landed(work.changes, nonce)
            )
            self.at("flip sent")
            if landed or not final:
                return landed  # what is not final may still go in: the next run merges equal versions
            now = manifest.decode(expected)
        return False

    def _settle(self, work: "Work") -> None:
        """Rule 15: the account first, then exactly the pending cells of the plan."""
        settled = work.settled()
        self.store.put([("ledger", [account(work.plan.app, item) for item in settled])])
        self.at("ledger written")
        by_row: dict[bytes, list[bytes]] = {}
        for item in settled:
            by_row.setdefault(item.key.to_bytes(), []).append(keys.slot_column(item.slot))
        self.store.delete("pending", list(by_row.items()))
        self.at("unpended")

    # --- days from hours ----------------------------------------------------------------------------------------------

    def _days(self, executor: Executor, run: int, app: int, now_ms: int) -> int:
        """Build the days of an app that lack their row; returns how many months were flipped."""
        manifests = {day: manifest.decode(cell) for day, cell in cells.scan_cells(self.store, app).items()}
        months: dict[int, dict[int, Manifest]] = {}
        for day, value in manifests.items():
            months.setdefault(planning.month_of(day), {})[day] = value
        return sum(self._month(executor, run, app, month, days, now_ms) for month, days in sorted(months.items()))

    def _month(
        self, executor: Executor, run: int, app: int, month: int, manifests: Mapping[int, Manifest], now_ms: int
    ) -> bool:
        key = keys.manifest_month(app, month)
        cell = cells.read_cell(self.store, "manifest", key)
        in_force = manifest.decode_month(cell)
        stale = planning.stale_days(in_force, manifests, now_ms, self.thresholds)
        if not stale:
            return False
        tasks = [days_task(app, month, bucket, in_force, stale) for bucket in sorted({s.bucket for s in stale})]
        packed = [p for p in executor.build_days(run, tasks) if p.made is not None]
        value = manifest.encode_month(month_after(in_force, packed, stale))
        flipped = bool(packed) and self.store.check_and_put("manifest", key, COLUMN, cell, value)
        self.at("month flipped")
        return flipped


def _landed(changes: Sequence[Change], nonce: int) -> Callable[[bytes | None], bool]:
    return lambda cell: flip.landed(manifest.decode(cell), changes, nonce)


class _Meter:
    """Counts what tasks report and tells the watcher."""

    def __init__(self, clock: Clock, units_total: int, watch: Callable[[Progress], None]) -> None:
        self._clock, self._watch, self._start = clock, watch, clock.monotonic()
        self._seen = Progress(0, units_total, 0, 0.0)

    def add(self, units: int, samples: int) -> None:
        """Units and samples done since the last call."""
        seen, elapsed = self._seen, self._clock.monotonic() - self._start
        self._seen = replace(seen, units=seen.units + units, samples=seen.samples + samples, elapsed_s=elapsed)
        self._watch(self._seen)
