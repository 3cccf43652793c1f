"""The driver of a run: what waits, then manifests, then a plan; its tasks; one flip per (app, day); the account.

Enter by ``Driver.roll``. In order (rules 9 to 17):
1. take a run number nobody had; read the distribution, the retractions, the pending cells, then the manifests of the
   days they belong to and of those the agenda names: these are the plan's whole world;
2. per wave: compact the units, pack the hours of the days they belong to;
3. flip each (app, day) by one check-and-put that expects the bytes of step 1, or rebase it, or drop the work;
4. after a flip: note what is left due, write the account of its batches, then remove exactly the cells of the plan;
5. build days whose hours are all in force, and flip their months; note in the agenda what was done.
Whatever is killed in between leaves rows that nobody names; the next run merges equal versions. ``finish_hour`` is the
same for one hour that is being sealed, with one flip that is never rebased.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rollups.crash_points import Hook, nowhere
from rollups.decide import plan as planning
from rollups.decide import publication
from rollups.decide.outcome import Correction, Work, unit_task
from rollups.decide.plan import DayPlan, Order, Thresholds
from rollups.decide.work import Packed
from rollups.manifest import cells, publish
from rollups.run import agenda, months, survey
from rollups.run.local import Executor
from rollups.run.progress import DayReport, Progress, RequestMetrics, RunReport, report_of
from rollups.run.survey import Survey
from spm.clock import Clock, random_u64
from spm.errors import StoreUnavailable
from spm.limits import DAY_HOURS
from spm.store import keys, manifest
from spm.store.backends.base import Backend
from spm.store.manifest import Hours, Manifest

__all__ = ["Correction", "DayReport", "Driver", "Progress", "RunReport"]


@dataclass(frozen=True, slots=True)
class Looked:
    """One app as a run found it: what is to do, and which days were looked at."""

    survey: Survey
    order: Order
    every: bool  # whether that was all of its days
    days: tuple[int, ...]
    plans: list[DayPlan]


@dataclass(frozen=True, slots=True)
class Driver:
    """What a run needs of the world."""

    store: Backend
    clock: Clock
    thresholds: Thresholds = planning.DEFAULTS
    at: Hook = nowhere
    watch: Callable[[Progress], None] = field(default=lambda _: None)

    def roll(
        self,
        executor: Executor,
        apps: Sequence[int],
        *,
        minor: bool = False,
        upgrade: bool = False,
        sweep: bool = False,
        now_ms: int | None = None,
        run: int | None = None,
    ) -> RunReport:
        """One run over these apps; ``minor`` leaves closed hours, days and untouched units to a full one.

        ``upgrade`` rewrites rows of older forms; ``sweep`` looks at every day there is, which a full run does once a
        day anyway. ``run`` is a number taken for this run and no other; without it one is taken.
        """
        run = cells.take_run(self.store) if run is None else run
        now = self.clock.now_ms() if now_ms is None else now_ms
        order = Order(now, minor, upgrade, thresholds=self.thresholds)
        looked = [self.look(app, order, sweep=sweep) for app in apps]
        plans = [day for app in looked for day in app.plans]
        self.at("planned")
        late = sum(publish.settle_late(self.store, day, self.at) for day in plans)
        meter = RequestMetrics(self.clock, sum(len(day.units) for day in plans), self.watch)
        reports: list[DayReport] = []
        try:
            for wave in planning.waves(plans):
                reports += self._wave(executor, run, wave, meter)
                executor.forget()
            ends = [] if minor else [self._end(executor, run, app) for app in looked]
        finally:
            executor.forget()
        flipped, left = sum(end[0] for end in ends), sum(end[1] for end in ends)
        return RunReport(run, executor.name, minor, tuple(reports), flipped, late, left)

    def look(self, app: int, order: Order, *, sweep: bool = False) -> Looked:
        """What an app has to do. Manifests are read after all that they are compared with (rule 9)."""
        found = survey.survey(self.store, app)
        order = replace(order, retractions=found.active, distribution=found.distribution)
        every = not order.minor and (sweep or order.upgrade or agenda.sweep_due(found.agenda, order.now_ms))
        read = survey.days(
            self.store, found, now_ms=order.now_ms, thresholds=self.thresholds, minor=order.minor, every=every
        )
        values = survey.decoded(app, read)
        plans = [
            planning.plan_day(app, day, cell=read[day], manifest=value, waiting=found.waiting.get(day, ()), order=order)
            for day, value in values.items()
        ]
        return Looked(found, order, every, tuple(values), [day for day in plans if day.units or day.late])

    # --- one wave -----------------------------------------------------------------------------------------------------

    def _wave(self, executor: Executor, run: int, wave: Sequence[DayPlan], meter: RequestMetrics) -> list[DayReport]:
        works, packed = self.compact(executor, run, wave, meter)
        return [self._finish(work, run, packed.get((work.plan.app, work.plan.day), [])) for work in works]

    def compact(
        self, executor: Executor, run: int, wave: Sequence[DayPlan], meter: RequestMetrics
    ) -> tuple[list[Work], dict[tuple[int, int], list[Packed]]]:
        """Run the tasks of these days; (their outcomes, their packs of hours by (app, day))."""
        tasks = [unit_task(day, unit) for day in wave for unit in day.units]
        results = {(r.app, r.shard, r.hour): r for r in executor.compact(run, tasks, meter.add)} if tasks else {}
        self.at("compacted")
        works = [Work.of(day, results, run) for day in wave]
        packed: dict[tuple[int, int], list[Packed]] = {}
        for pack in executor.pack(run, [task for work in works for task in work.packs]):
            packed.setdefault((pack.app, pack.period), []).append(pack)
        return works, packed

    def _finish(self, work: Work, run: int, packed: Sequence[Packed]) -> DayReport:
        """Flip one (app, day) and settle its batches."""
        hours = {p.shard: work.hours(p.shard, p) for p in packed if p.made is not None}
        troubles = [*work.troubles, *(p.reason for p in packed if p.reason)]
        value: Manifest | None = None
        try:
            if work.changes or hours:
                value = publish.flip_day(self.store, work, hours, run=run, at=self.at)
            if value is not None:
                self.at("flipped")
                self._note(work, value, hours)
                publish.settle(self.store, work.plan.app, work.settled(), self.at)
        except StoreUnavailable as trouble:
            troubles.append(f"StoreUnavailable: {trouble}")
        return _report(work, packed, value, hours, troubles)

    def _note(self, work: Work, value: Manifest, hours: Mapping[int, Hours]) -> None:
        """Hours that a full run has looked at already, or that this one could not make, are somebody's to make."""
        noted = agenda.read(self.store, work.plan.app)
        horizon = noted.horizon(work.plan.order.now_ms)
        made = {(b, hour) for b, pack in hours.items() if value.hours.get(b) == pack for hour in pack.hours}
        behind = [c for c in work.changes if planning.closed(c.hour, horizon, self.thresholds)]
        if any((c.shard, c.hour) not in made for c in behind):
            agenda.mark(self.store, work.plan.app, [work.plan.day], work.plan.order.now_ms)
            self.at("agenda marked")

    # --- the end of a full run ----------------------------------------------------------------------------------------

    def _end(self, executor: Executor, run: int, looked: Looked) -> tuple[int, int]:
        """Days from hours, and the agenda; (months flipped, units that an upgrade has left)."""
        app, order = looked.survey.app, looked.order
        read = cells.scan_cells(self.store, app) if looked.every else cells.read_cells(self.store, app, looked.days)
        values = survey.decoded(app, read)
        later = replace(order, now_ms=looked.survey.agenda.horizon(order.now_ms))
        built = [
            months.build(self.store, executor, run, app, month, days, order=order, later=later, at=self.at)
            for month, days in months.by_month(values).items()
        ]
        left = {day for part in built for day in part.left}
        for day, value in values.items():
            if planning.plan_day(app, day, cell=None, manifest=value, waiting=(), order=later).units:
                left.add(day)
        agenda.finish(
            self.store,
            app,
            looked.survey.agenda,
            now_ms=order.now_ms,
            swept=looked.every,
            found=looked.survey.retractions,
            left=left,
        )
        self.at("agenda written")
        outdated = sum(planning.outdated(value) for value in values.values()) if order.upgrade else 0
        return sum(part.flipped for part in built), outdated

    # --- one hour -----------------------------------------------------------------------------------------------------

    def finish_hour(
        self,
        executor: Executor,
        run: int,
        app: int,
        hour: int,
        *,
        now_ms: int,
        change: Callable[[Manifest], Manifest],
    ) -> DayReport:
        """Merge and aggregate an hour in all its shards, in force with a change of the manifest, or not at all.

        The hour may be sealing: what is acked before this looks is in. Never rebased; ``flipped`` says if it is in.
        """
        day = hour // DAY_HOURS
        found = survey.survey(self.store, app)
        order = Order(now_ms, False, False, found.active, found.distribution, self.thresholds)
        cell = cells.read_cell(self.store, "manifest", keys.manifest(app, day))
        waiting = found.waiting.get(day, ())
        plan = planning.plan_hour(app, hour, cell=cell, manifest=manifest.decode(cell), waiting=waiting, order=order)
        if plan is None:
            trouble = f"hour {hour} of app {app} lies in two places until its data has been moved"
            return report_of(app, day, flipped=False, done=(), troubles=(trouble,))
        try:
            [work], packed = self.compact(
                executor, run, [plan], RequestMetrics(self.clock, len(plan.units), self.watch)
            )
        finally:
            executor.forget()
        return self._finish_exactly(work, run, packed.get((app, day), []), change)

    def _finish_exactly(
        self, work: Work, run: int, packed: Sequence[Packed], change: Callable[[Manifest], Manifest]
    ) -> DayReport:
        hours = {p.shard: work.hours(p.shard, p) for p in packed if p.made is not None}
        troubles = [*work.troubles, *(p.reason for p in packed if p.reason)]
        if troubles or len(hours) != len(work.packs):
            return _report(work, packed, None, hours, troubles)
        nonce = random_u64()
        value = change(publication.apply(work.plan.manifest, work.changes, hours, run=run, nonce=nonce))
        assert value.nonce == nonce, "BUG: the caller's change must leave the nonce alone"
        if not publish.flip_exactly(self.store, work.plan, value, work.changes, self.at):
            return _report(work, packed, None, hours, ["others changed the day meanwhile: try again"])
        self.at("flipped")
        publish.settle(self.store, work.plan.app, work.settled(), self.at)
        return _report(work, packed, value, hours, [])


def _report(
    work: Work, packed: Sequence[Packed], value: Manifest | None, hours: Mapping[int, Hours], troubles: Sequence[str]
) -> DayReport:
    done = [(r.samples, r.size_bytes) for r in work.results if not r.reason]
    made = {shard for shard, pack in hours.items() if value is not None and value.hours.get(shard) == pack}
    report = report_of(
        work.plan.app,
        work.plan.day,
        flipped=value is not None,
        done=done,
        troubles=troubles,
        corrections=work.corrections(made),
    )
    return replace(report, size_bytes=report.size_bytes + sum(p.size_bytes for p in packed))
