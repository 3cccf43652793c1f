"""Runs with their record in the database: what the commands, the beat task and the admin call.

``roll`` does one run and updates its row; ``roll_back`` rolls one back and records who did it; ``consider`` measures
the backlog and starts the run that is due. All of them act on a ``Site``, made from the settings. Deletions are in
``maintenance``, retractions in ``retractions``.
"""

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from threading import Thread

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction

from rollups import crash_points, limits
from rollups import models as records
from rollups.crash_points import Hook
from rollups.decide.plan import PlanContext, Thresholds
from rollups.decide.start import Backlog, PendingColumns, RunStart, decide_start, measure_backlog
from rollups.manifest import cells
from rollups.models import Run, RunDay, RunKind, RunState, date_of
from rollups.run import agenda, last_times, rollback, survey
from rollups.run.driver import Driver, HourCorrection, Progress, RunReport
from rollups.run.idle_apps import apps_to_measure
from rollups.run.lease import hold_lease, is_free
from rollups.run.local import Executor
from rollups.run.pending import PendingReader
from rollups.run.rollback import DayRollback
from rollups.services import troubles
from rollups.services.troubles import Troubles
from rollups.spark.executors import open_executor
from spm.accounts import audit
from spm.accounts.access import require_app_number
from spm.accounts.models import App, Organisation
from spm.clock import Clock, SystemClock, moment
from spm.limits import DAY_HOURS, HOUR_MS
from spm.store import epochs
from spm.store.backends import open_backend
from spm.store.backends.base import Backend
from spm.store.manifest import Manifest

_LOG = logging.getLogger(__name__)
_ROOT = Path(__file__).resolve().parents[2]
_PENDING = PendingReader()  # of this process
_RECORD_EVERY_S = 1.0  # how often a running run's row is written


@dataclass(frozen=True, slots=True)
class Site:
    """Where runs work: the store, Spark's master, the data folder, the clock."""

    store: Backend
    url: str
    master: str
    data: Path
    clock: Clock

    @property
    def folder(self) -> Path:
        """The folder of this machine's lock and of Spark's scratch files."""
        return self.data / "spark"

    def shards(self, app: int) -> list[int]:
        """The shards in which an app's data may lie."""
        return list(epochs.read(self.store, app).all_shards(app))

    def now(self) -> datetime:
        """The present time as the database stores it."""
        return moment(self.clock.now_ms())


def site() -> Site:
    """Builds the site from the settings."""
    return Site(
        store=open_backend(settings.SPM_STORE_URL),
        url=settings.SPM_STORE_URL,
        master=settings.SPM_SPARK_MASTER,
        data=Path(settings.SPM_DATA),
        clock=SystemClock(),
    )


def all_apps() -> list[int]:
    """The ids of all apps but those that are being deleted."""
    return list(App.objects.filter(going=None).order_by("id").values_list("id", flat=True))


def find_apps(numbers: Sequence[int] | None) -> list[int]:
    """The ids of these apps, or of all; raises ``Refused`` if one does not exist, so that a typo is not ignored."""
    return [require_app_number(number).pk for number in numbers] if numbers else all_apps()


# --- one run ----------------------------------------------------------------------------------------------------------


def roll(
    site: Site,
    *,
    apps: Sequence[int],
    kind: RunKind,
    executor: str,
    sweep: bool = False,
    now_ms: int | None = None,
    watch: Callable[[Progress], None] = lambda _: None,
    wait_s: float = 0.0,
) -> Run | None:
    """Does one run over these apps; returns ``None`` if there was nothing to do.

    Raises ``Refused`` if another run is in progress for longer than ``wait_s``.
    """
    with record_run(site, kind=kind, executor=executor, apps=apps, watch=watch, wait_s=wait_s) as work:
        driver = Driver(site.store, site.clock, at=work.at, watch=work.watch)
        with executor_of(site, executor, work.at) as runner:
            report = driver.roll(
                runner,
                apps,
                minor=kind == RunKind.MINOR,
                upgrade=kind == RunKind.UPGRADE,
                sweep=sweep,
                now_ms=now_ms,
                run=work.row.number,
            )
        troubles.note_run(report, apps, site.now())
        return record_report(work.row, report, site.now(), note=runner.note)


def executor_of(site: Site, executor: str, at: Hook) -> AbstractContextManager[Executor]:
    """Opens the executor of tasks at this site."""
    return open_executor(executor, site.store, url=site.url, master=site.master, folder=site.folder, at=at)


@dataclass(frozen=True, slots=True)
class RunEstimate:
    """How much work a run over some apps would have."""

    days: int
    hour_shards: int
    samples: int  # pending ones


def preview_roll(
    site: Site, *, apps: Sequence[int], kind: RunKind, now_ms: int | None = None, sweep: bool = False
) -> RunEstimate:
    """Plans such a run without doing it; months are not counted."""
    now = site.clock.now_ms() if now_ms is None else now_ms
    order = PlanContext(now, minor=kind == RunKind.MINOR, upgrade=kind == RunKind.UPGRADE)
    driver = Driver(site.store, site.clock)
    plans = [day for app in apps for day in driver.plan_app(app, order, sweep=sweep).plans]
    return RunEstimate(len(plans), sum(len(day.hour_shards) for day in plans), sum(day.samples for day in plans))


def preview_roll_back(site: Site, number: int, *, apps: Sequence[int] | None = None) -> list[DayRollback]:
    """What rolling a run back would change. Raises ``Refused``."""
    return rollback.roll_back(site.store, number, all_apps() if apps is None else apps, dry_run=True)


@dataclass(frozen=True, slots=True)
class ActiveRun:
    """A run in progress: its database row, its crash points (which check the lease), and what takes its progress."""

    row: Run
    at: Hook
    watch: Callable[[Progress], None]


@contextmanager
def record_run(
    site: Site,
    *,
    kind: RunKind,
    executor: str,
    apps: Sequence[int],
    watch: Callable[[Progress], None] = lambda _: None,
    wait_s: float = 0.0,
) -> Iterator[ActiveRun]:
    """Takes the lease, a run number and a database row for the body; the row records a failure."""
    with hold_lease(site.store, site.folder, site.clock, wait_s=wait_s) as lease:
        Run.objects.filter(state=RunState.RUNNING).update(state=RunState.LOST, finished=site.now())
        number = cells.take_run(site.store)
        Run.objects.filter(number=number).delete()  # of a former store with the same numbers
        row = Run.objects.create(number=number, kind=kind, executor=executor, started=site.now(), apps=list(apps))
        hook = lease.checked(crash_points.from_environment(os.environ))
        try:
            yield ActiveRun(row, hook, _recorder(row, site.clock, watch))
        except Exception as error:
            _ended(row, RunState.FAILED, site.now(), f"{type(error).__name__}: {error}")
            raise


def _recorder(row: Run, clock: Clock, watch: Callable[[Progress], None]) -> Callable[[Progress], None]:
    """Returns a function that saves progress in the run's row, at most once a second."""
    last = [clock.monotonic()]

    def record(progress: Progress) -> None:
        watch(progress)
        if clock.monotonic() - last[0] >= _RECORD_EVERY_S:
            last[0] = clock.monotonic()
            row.units, row.units_total, row.samples = progress.hour_shards, progress.hour_shards_total, progress.samples
            row.save(update_fields=["units", "units_total", "samples"])

    return record


def _ended(row: Run, state: RunState, now: datetime, message: str) -> None:
    row.state, row.finished, row.message = state, now, message[:10_000]
    row.save()


@transaction.atomic
def record_report(row: Run, report: RunReport, now: datetime, *, note: str = "") -> Run | None:
    """Saves the run's row with a row per day and per corrected hour; deletes the row of a run that did nothing."""
    if not (report.days or report.months or report.late or report.remaining or report.app_errors):
        row.delete()
        return None
    row.executor = report.executor
    row.units = sum(day.hour_shards for day in report.days)
    row.units_total = max(row.units_total, row.units)
    row.samples, row.size_bytes = report.samples, sum(day.size_bytes for day in report.days)
    RunDay.objects.bulk_create(
        RunDay(
            run=row,
            app_id=day.app,
            day=date_of(day.day),
            published=day.published,
            units=day.hour_shards,
            samples=day.samples,
            size_bytes=day.size_bytes,
        )
        for day in report.days
    )
    _record_corrections(row, [correction for day in report.days for correction in day.corrections], now)
    notes = [note] if note else []
    notes += [f"{report.late:,} samples came after their hour's retention"] if report.late else []
    notes += [f"{report.remaining:,} hour shards remain: run it again"] if report.remaining else []
    _ended(row, RunState.DONE, now, "\n".join([*report.errors, *notes]))
    Run.objects.filter(number__lte=row.number - limits.ROLL_RUNS_KEPT).delete()
    return row


def _record_corrections(row: Run, corrections: Sequence[HourCorrection], now: datetime) -> None:
    """Records hours that were aggregated again, and deletes the oldest of an app that has too many."""
    records.Correction.objects.bulk_create(
        records.Correction(
            app_id=each.app,
            hour=moment(each.hour * HOUR_MS),
            run=row.number,
            cause=each.cause,
            samples=each.samples,
            sources=list(each.sources[: limits.CORRECTION_SOURCES_MAX]),
            at=now,
        )
        for each in corrections
    )
    for app in {each.app for each in corrections}:
        newest = records.Correction.objects.filter(app_id=app).values_list("pk", flat=True)[: limits.CORRECTIONS_KEPT]
        records.Correction.objects.filter(app_id=app).exclude(pk__in=list(newest)).delete()


# --- rolling back -----------------------------------------------------------------------------------------------------


def roll_back(
    site: Site, number: int, actor: User | None, *, apps: Sequence[int] | None = None, name: str = "", origin: str = ""
) -> list[DayRollback]:
    """Rolls a run back in these apps (``None``: all), and records who did it, from where. Raises ``Refused``."""
    hook = crash_points.from_environment(os.environ)
    done = rollback.roll_back(site.store, number, all_apps() if apps is None else apps, hook)
    with transaction.atomic():
        for back in done:
            days = RunDay.objects.filter(run__number=number, app_id=back.app, day=date_of(back.day))
            days.update(rolled_back=True)
        if not RunDay.objects.filter(run__number=number, rolled_back=False, published=True).exists():
            Run.objects.filter(number=number).update(state=RunState.ROLLED_BACK)
        for organisation in Organisation.objects.filter(apps__id__in={b.app for b in done}).distinct():
            mine = set(organisation.apps.values_list("id", flat=True))
            detail = {"apps": sorted({b.app for b in done} & mine), "days": sum(b.app in mine for b in done)}
            note = {**detail, "from": origin, "before": "in force", "after": "rolled back"}
            audit.record("roll back", f"run {number}", actor=actor, organisation=organisation, detail=note, name=name)
    return done


# --- starting runs ----------------------------------------------------------------------------------------------------


def consider(site: Site, launch: Callable[[], None] | None = None) -> RunStart:
    """Starts the run that is due: a minor one here, or a full one on Spark in a process of its own. Returns which."""
    runs = cells.last_run(site.store)  # before the look at the lease: no run of a smaller number settles anything later
    if not is_free(site.store, site.folder, site.clock):
        return RunStart.NOTHING
    apps, now = all_apps(), site.clock.now_ms()
    backlog = _measure_backlog(site, apps, now, runs)
    last_start = last_times.read(site.store, last_times.RUN_STARTED)
    start = decide_start(
        backlog,
        now_ms=now,
        last_spark_ms=last_start,
        last_failure_ms=_last_failure_ms(),
        thresholds=_thresholds(),
        may_merge=now // HOUR_MS % DAY_HOURS in settings.SPM_MERGE_HOURS,
    )
    if start == RunStart.SPARK:
        if not last_times.claim(site.store, last_times.RUN_STARTED, last_start, now):
            return RunStart.NOTHING  # another machine starts it
        (launch or partial(start_process, "roll", "--maintain"))()
    elif start == RunStart.MINOR:
        roll(site, apps=apps, kind=RunKind.MINOR, executor="local")
    return start


def _thresholds() -> Thresholds:
    return Thresholds(
        pending_rows=settings.SPM_RUN_ROWS,
        pending_samples=settings.SPM_RUN_SAMPLES,
        pending_age_ms=settings.SPM_RUN_AGE_S * 1_000,
    )


def _last_failure_ms() -> int | None:
    """When the last run began that failed or was lost. What a run cannot do for one app is that app's trouble."""
    run = Run.objects.filter(state__in=[RunState.FAILED, RunState.LOST]).order_by("-number").first()
    return int(run.started.timestamp() * 1000) if run else None


def _measure_backlog(site: Site, apps: Sequence[int], now_ms: int, runs: int) -> Backlog:
    """Measures what waits for a run, without idle apps, and without what a run has just tried in vain.

    ``runs``: the number of the newest run, as it was before nobody was seen at a run.
    """
    resting, noted = troubles.resting(site.now()), Troubles("consider", site.now())
    waiting, due = list[tuple[PendingColumns, dict[int, Manifest]]](), list[int]()
    today = now_ms // HOUR_MS // DAY_HOURS
    busy = apps_to_measure(site.store, apps, days=(today - 1, today), always=noted.apps())
    for app, names in busy.items():
        if resting.rests_whole(app):
            continue
        with noted.isolated(app):
            pending = _PENDING.read(site.store, app, names, site.shards(app), runs=runs)
            days = sorted({*pending.days(), today, today - 1})
            stored = cells.read_cells(site.store, app, days)
            manifests = survey.decode_manifests(app, {day: stored.get(day) for day in days})
            damaged = set(days) - manifests.keys()
            noted.forget_days(app, damaged)
            for day in damaged:
                noted.note(app, day, "its manifest is damaged: `bin/manage fsck` says more")
            active = {day: value for day, value in manifests.items() if not resting.rests(app, day)}
            waiting.append((pending.of_days(active), active))
            since = agenda.waiting_since(site.store, app) if len(active) == len(days) else None
            due += [] if since is None else [since]
    backlog = measure_backlog(waiting, now_ms)
    overdue = min([*due, *([] if backlog.overdue_ms is None else [backlog.overdue_ms])], default=None)
    return replace(backlog, overdue_ms=overdue)


def start_process(command: str, *options: str) -> None:
    """Starts a command in a process of its own, which ends with this one, so that no JVM stays."""
    arguments = [
        sys.executable,
        "-m",
        "django",
        command,
        "--with-parent",
        *options,
        "--settings",
        settings.SETTINGS_MODULE,
    ]
    process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, cwd=_ROOT)
    Thread(target=process.wait, daemon=True, name=f"reap {command}").start()
    _LOG.info("%s was started as process %s", command, process.pid)
