"""Presents runs to the people of one app: the app's own part of each run, and the progress of a running one.

A run may serve many apps. The numbers are those of the app's own days, which exist once the run has finished. While a
run works for this app alone, its numbers are the progress. If it also works for other apps, only the share done is
shown: the volume of other apps is not this app's business. Error messages stay in the administration, because they may
name data of other apps.
"""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Max, Min, Q, Sum

from rollups.models import Run, RunDay, RunState
from rollups.spark.cluster import WITHOUT_SPARK
from spm.accounts.models import App

SHOWN = 100
UNFINISHED_RUNS_READ = 500  # the latest unfinished runs that are searched for the app


@dataclass(frozen=True, slots=True)
class AppRun:
    """One app's part of a run. While it runs, ``eta_s`` is known; numbers only if it works for no other app."""

    number: int
    kind: str
    executor: str
    state: str
    percent: int
    units: int | None
    units_total: int | None
    samples: int | None
    size_bytes: int
    started: datetime
    finished: datetime | None
    seconds: float
    eta_s: float | None
    first_day: object = None
    last_day: object = None

    @property
    def samples_per_s(self) -> float | None:
        """Samples per second, from start to end or to now."""
        return self.samples / self.seconds if self.samples is not None and self.seconds > 0 else None

    @property
    def is_without_spark(self) -> bool:
        """Whether Spark did not start for it."""
        return self.executor == WITHOUT_SPARK

    @property
    def is_running(self) -> bool:
        """Whether the run is running now."""
        return self.state == RunState.RUNNING

    @property
    def may_roll_back(self) -> bool:
        """Whether the list knows something to roll back; the store decides."""
        return self.state in (RunState.DONE, RunState.LOST, RunState.FAILED) and bool(self.units)


def app_runs(app: App, now: datetime) -> list[AppRun]:
    """List the app's runs, newest first."""
    own = RunDay.objects.filter(app=app).order_by("-run__number").values_list("run__number", flat=True).distinct()
    unfinished = Run.objects.filter(Q(state=RunState.RUNNING) | Q(state=RunState.FAILED) | Q(state=RunState.LOST))
    others = [run.number for run in unfinished.order_by("-number")[:UNFINISHED_RUNS_READ] if app.pk in run.apps]
    numbers = sorted({*own[:SHOWN], *others}, reverse=True)[:SHOWN]
    return [_present(run, app, now) for run in Run.objects.filter(number__in=numbers)]


def app_run(app: App, number: int, now: datetime) -> AppRun | None:
    """Return one run, or None if it had nothing to do with the app."""
    run = Run.objects.filter(number=number).first()
    if run is None or not (run.days.filter(app=app).exists() or (run.state != RunState.DONE and app.pk in run.apps)):
        return None
    return _present(run, app, now)


def _present(run: Run, app: App, now: datetime) -> AppRun:
    own = run.days.filter(app=app)
    sums = own.aggregate(
        units=Sum("units"), samples=Sum("samples"), size=Sum("size_bytes"), first=Min("day"), last=Max("day")
    )
    running, alone = run.state == RunState.RUNNING, run.apps == [app.pk]
    units, total, samples = (run.units, run.units_total, run.samples) if alone else (None, None, None)
    if not running:
        units = total = sums["units"] or 0
        samples = sums["samples"] or 0
    seconds = ((run.finished or now) - run.started).total_seconds()
    published = own.filter(published=True)
    back = published.exists() and not published.filter(rolled_back=False).exists()
    return AppRun(
        number=run.number,
        kind=run.kind,
        executor=run.executor,
        state=RunState.ROLLED_BACK if back else run.state,
        percent=100 if not running else 100 * run.units // run.units_total if run.units_total else 0,
        units=units,
        units_total=total,
        samples=samples,
        size_bytes=sums["size"] or 0,
        started=run.started,
        finished=run.finished,
        seconds=seconds,
        eta_s=run.eta_s(now),
        first_day=sums["first"],
        last_day=sums["last"],
    )
