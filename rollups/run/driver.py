"""Drives a run: reads pending records and manifests, plans, runs the tasks, publishes each (app, day), settles it.

Enter by ``Driver.roll``. In order (PROTOCOL 9–17):
1. take an unused run number; read the placement, the retractions, the pending records, then the manifests of their
   days and of the days on the agenda: the plan is made of these alone;
2. per wave: compact the hour shards, pack the hours of their days;
3. publish each (app, day) by one check-and-put that expects the bytes of step 1, or rebase it, or drop the work;
4. after publishing: mark the days that stay due, write the ledger rows of the batches, then remove exactly the pending
   records of the plan;
5. build days whose hours are all in force, publish their months; note in the agenda what was done.
A run that is killed in between leaves rows that no manifest names; the next run merges equal versions. ``finish_hour``
does all this for one hour that is being sealed, with one publication that is never rebased.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from rollups.crash_points import Hook, ignore_point
from rollups.decide import plan as planning
from rollups.decide import publication
from rollups.decide.day_result import DayResult, HourCorrection, hour_shard_task
from rollups.decide.plan import DayPlan, PlanContext, Thresholds
from rollups.decide.work import PackResult
from rollups.manifest import cells, publish
from rollups.run import agenda, months, survey
from rollups.run.local import Executor
from rollups.run.progress import DayReport, Progress, ProgressCounter, RunReport, summarise_day
from rollups.run.survey import Survey
from spm.clock import Clock, random_u64
from spm.errors import ONE_APP_ERRORS, SpmError
from spm.limits import DAY_HOURS
from spm.store import keys, manifest
from spm.store.backends.base import Backend
from spm.store.manifest import HourPack, Manifest

Item = TypeVar("Item")
Result = TypeVar("Result")
_LOG = logging.getLogger(__name__)
__all__ = ["DayReport", "Driver", "HourCorrection", "Progress", "RunReport"]


@dataclass(frozen=True, slots=True)
class AppPlan:
    """What a run does to one app, and the days that its plan considered."""

    survey: Survey
    context: PlanContext
    all_days: bool  # whether these are all days of the app
    days: tuple[int, ...]
    plans: list[DayPlan]


@dataclass(frozen=True, slots=True)
class Driver:
    """Does runs on a store; its fields are what a run needs."""

    store: Backend
    clock: Clock
    thresholds: Thresholds = planning.DEFAULTS
    at: Hook = ignore_point
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
        """Does one run over these apps; ``minor`` leaves closed hours, days and unchanged hour shards to a full run.

        ``upgrade`` rewrites rows of older forms; ``sweep`` looks at every day, which a full run does once a day anyway.
        ``run`` is a number taken for this run and no other; without it one is taken.
        """
        run = cells.take_run(self.store) if run is None else run
        now = self.clock.now_ms() if now_ms is None else now_ms
        context = PlanContext(now, minor, upgrade, thresholds=self.thresholds)
        errors: dict[int, str] = {}  # what fails for one app leaves it out, and never ends the run of the others
        app_plans = list(_each(apps, lambda app: app, partial(self.plan_app, context=context, sweep=sweep), errors))
        self.at("planned")
        late = sum(_each(app_plans, _app_of, self._settle_late, errors))
        plans = [day for app in app_plans if _app_of(app) not in errors for day in app.plans]
        progress = ProgressCounter(self.clock, sum(len(day.hour_shards) for day in plans), self.watch)
        reports: list[DayReport] = []
        try:
            for wave in planning.cut_into_waves(plans):
                reports += self._wave(executor, run, wave, progress)
                executor.forget()
            at_end = [] if minor else [app for app in app_plans if _app_of(app) not in errors]
            ends = list(_each(at_end, _app_of, partial(self._end, executor, run), errors))
        finally:
            executor.forget()
        months_published, remaining = sum(end[0] for end in ends), sum(end[1] for end in ends)
        return RunReport(run, executor.name, minor, tuple(reports), months_published, late, remaining, errors)

    def _settle_late(self, app_plan: AppPlan) -> int:
        return sum(publish.settle_late(self.store, day, self.at) for day in app_plan.plans)

    def plan_app(self, app: int, context: PlanContext, *, sweep: bool = False) -> AppPlan:
        """Plans the work of an app. Manifests are read after everything they are compared with (PROTOCOL 9)."""
        survey_result = survey.read_survey(self.store, app)
        context = replace(context, retractions=survey_result.active, placement=survey_result.placement)
        every = not context.minor and (
            sweep or context.upgrade or agenda.is_sweep_due(survey_result.agenda, context.now_ms)
        )
        day_cells = survey.read_days(
            self.store,
            survey_result,
            now_ms=context.now_ms,
            thresholds=self.thresholds,
            minor=context.minor,
            every=every,
        )
        values = survey.decode_manifests(app, day_cells)
        plans = [
            planning.plan_day(
                app,
                day,
                cell=day_cells[day],
                manifest=value,
                pending=survey_result.pending.get(day, ()),
                context=context,
            )
            for day, value in values.items()
        ]
        return AppPlan(
            survey_result, context, every, tuple(values), [day for day in plans if day.hour_shards or day.late_pending]
        )

    # --- one wave -----------------------------------------------------------------------------------------------------

    def _wave(
        self, executor: Executor, run: int, wave: Sequence[DayPlan], progress: ProgressCounter
    ) -> list[DayReport]:
        results, packs = self.compact(executor, run, wave, progress)
        return [self._finish(result, run, packs.get((result.plan.app, result.plan.day), [])) for result in results]

    def compact(
        self, executor: Executor, run: int, wave: Sequence[DayPlan], progress: ProgressCounter
    ) -> tuple[list[DayResult], dict[tuple[int, int], list[PackResult]]]:
        """Runs the tasks of these days; returns (their results, their packs of hours by (app, day))."""
        tasks = [hour_shard_task(day, hour_shard) for day in wave for hour_shard in day.hour_shards]
        compacted = {(r.app, r.shard, r.hour): r for r in executor.compact(run, tasks, progress.add)} if tasks else {}
        self.at("compacted")
        results = [DayResult.of(day, compacted, run) for day in wave]
        packs: dict[tuple[int, int], list[PackResult]] = {}
        for pack in executor.pack(run, [task for result in results for task in result.packs]):
            packs.setdefault((pack.app, pack.period), []).append(pack)
        return results, packs

    def _finish(self, result: DayResult, run: int, packs: Sequence[PackResult]) -> DayReport:
        """Publishes one (app, day) and settles its batches."""
        hours = {p.shard: result.hours(p.shard, p) for p in packs if p.generation is not None}
        errors = [*result.errors, *(p.reason for p in packs if p.reason)]
        value: Manifest | None = None
        try:
            if result.changes or hours:
                value = publish.publish_day(self.store, result, hours, run=run, at=self.at)
            if value is not None:
                self.at("published")
                self._mark_if_behind(result, value, hours)
                publish.settle(self.store, result.plan.app, result.pending_of_changes(), self.at)
        except SpmError as error:  # also a manifest that nobody could read: the day's work is dropped, others go on
            errors.append(f"{type(error).__name__}: {error}")
        return _report(result, packs, value, hours, errors)

    def _mark_if_behind(self, result: DayResult, value: Manifest, hours: Mapping[int, HourPack]) -> None:
        """Marks the day as due if it has closed hours that this run changed but did not aggregate."""
        horizon = agenda.read(self.store, result.plan.app).horizon_ms(result.plan.context.now_ms)
        aggregated = {(b, hour) for b, pack in hours.items() if value.hours.get(b) == pack for hour in pack.hours}
        behind = [c for c in result.changes if planning.is_closed(c.hour, horizon, self.thresholds)]
        if any((c.shard, c.hour) not in aggregated for c in behind):
            agenda.mark_due(self.store, result.plan.app, [result.plan.day], result.plan.context.now_ms)
            self.at("agenda marked")

    # --- the end of a full run ----------------------------------------------------------------------------------------

    def _end(self, executor: Executor, run: int, app_plan: AppPlan) -> tuple[int, int]:
        """Builds days and updates the agenda; returns (months published, hour shards that an upgrade did not reach)."""
        app, context = app_plan.survey.app, app_plan.context
        if app_plan.all_days:
            day_cells = cells.scan_cells(self.store, app)
        else:
            day_cells = cells.read_cells(self.store, app, app_plan.days)
        values = survey.decode_manifests(app, day_cells)
        later = replace(context, now_ms=app_plan.survey.agenda.horizon_ms(context.now_ms))
        results = [
            months.publish_month(self.store, executor, run, app, month, days, context=context, later=later, at=self.at)
            for month, days in months.by_month(values).items()
        ]
        remaining = {day for result in results for day in result.remaining}
        for day, value in values.items():
            if planning.plan_day(app, day, cell=None, manifest=value, pending=(), context=later).hour_shards:
                remaining.add(day)
        agenda.finish(
            self.store,
            app,
            app_plan.survey.agenda,
            now_ms=context.now_ms,
            swept=app_plan.all_days,
            known=app_plan.survey.retractions,
            remaining=remaining,
        )
        self.at("agenda written")
        outdated = sum(planning.count_outdated(value) for value in values.values()) if context.upgrade else 0
        return sum(result.published for result in results), outdated

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
        """Merges and aggregates an hour in all its shards, and publishes it with ``change``, or not at all.

        The hour may be sealing: data that was acked before this call is in. The publication is never rebased; the
        report says whether it went in.
        """
        day = hour // DAY_HOURS
        survey_result = survey.read_survey(self.store, app)
        context = PlanContext(now_ms, False, False, survey_result.active, survey_result.placement, self.thresholds)
        cell = cells.read_cell(self.store, "manifest", keys.manifest(app, day))
        waiting = survey_result.pending.get(day, ())
        plan = planning.plan_hour(
            app, hour, cell=cell, manifest=manifest.decode(cell), pending=waiting, context=context
        )
        if plan is None:
            error = f"hour {hour} of app {app} lies in two places until its data has been moved"
            return summarise_day(app, day, published=False, sizes=(), errors=(error,))
        try:
            [result], packs = self.compact(
                executor, run, [plan], ProgressCounter(self.clock, len(plan.hour_shards), self.watch)
            )
        finally:
            executor.forget()
        return self._finish_exactly(result, run, packs.get((app, day), []), change)

    def _finish_exactly(
        self, result: DayResult, run: int, packs: Sequence[PackResult], change: Callable[[Manifest], Manifest]
    ) -> DayReport:
        hours = {p.shard: result.hours(p.shard, p) for p in packs if p.generation is not None}
        errors = [*result.errors, *(p.reason for p in packs if p.reason)]
        if errors or len(hours) != len(result.packs):
            return _report(result, packs, None, hours, errors)
        nonce = random_u64()
        value = change(publication.apply_changes(result.plan.manifest, result.changes, hours, run=run, nonce=nonce))
        assert value.nonce == nonce, "BUG: the caller's change must leave the nonce alone"
        if not publish.publish_exactly(self.store, result.plan, value, result.changes, self.at):
            return _report(result, packs, None, hours, ["others changed the day meanwhile: try again"])
        self.at("published")
        publish.settle(self.store, result.plan.app, result.pending_of_changes(), self.at)
        return _report(result, packs, value, hours, [])


def _app_of(app_plan: AppPlan) -> int:
    return app_plan.survey.app


def _each(
    items: Iterable[Item], app_of: Callable[[Item], int], act: Callable[[Item], Result], errors: dict[int, str]
) -> Iterator[Result]:
    """Yields what ``act`` returns for each item; an error of one app alone goes to ``errors``."""
    for item in items:
        try:
            yield act(item)
        except ONE_APP_ERRORS as error:
            _LOG.error("app %s is left out of the run: %s", app_of(item), error)
            errors[app_of(item)] = f"{type(error).__name__}: {error}"


def _report(
    result: DayResult,
    packs: Sequence[PackResult],
    value: Manifest | None,
    hours: Mapping[int, HourPack],
    errors: Sequence[str],
) -> DayReport:
    sizes = [(r.samples, r.size_bytes) for r in result.results if not r.reason]
    published = {shard for shard, pack in hours.items() if value is not None and value.hours.get(shard) == pack}
    report = summarise_day(
        result.plan.app,
        result.plan.day,
        published=value is not None,
        sizes=sizes,
        errors=errors,
        corrections=result.corrections(published),
    )
    return replace(report, size_bytes=report.size_bytes + sum(p.size_bytes for p in packs))
