"""Runs with their record in the database: what the commands, the beat task and the admin call.

``roll`` does one run and keeps its row up to date; ``take_back`` rolls one back and notes who did; ``consider`` looks
at what waits and starts what is due. All of them act on a ``Site``, made from the settings. What goes for good is
``upkeep``'s, what people take out ``corrected``'s.
"""

import itertools
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from functools import partial
from pathlib import Path
from threading import Thread

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q

from rollups import crash_points
from rollups import models as records
from rollups.crash_points import Hook
from rollups.decide import plan
from rollups.decide.plan import Order, Start, Waiting
from rollups.manifest import cells
from rollups.models import Kind, Run, RunDay, State
from rollups.run import agenda, rollback
from rollups.run.driver import Correction, Driver, Progress, RunReport
from rollups.run.local import Executor
from rollups.run.lock import alone
from rollups.run.rollback import RolledBack
from rollups.spark.executors import open_executor
from spm import limits
from spm.accounts import audit
from spm.accounts.access import app_numbered
from spm.accounts.models import App, Organisation
from spm.clock import Clock, SystemClock, moment
from spm.errors import Refused
from spm.limits import DAY_HOURS, HOUR_MS
from spm.store import epochs, manifest
from spm.store.backends import open_backend
from spm.store.backends.base import Backend
from spm.store.ledger import commit_records
from spm.store.manifest import Manifest

_LOG = logging.getLogger(__name__)
_ROOT = Path(__file__).resolve().parents[2]
_EPOCH = date(1970, 1, 1)
_RECORD_EVERY_S = 1.0  # how often a running run's row is written


@dataclass(frozen=True, slots=True)
class Site:
    """Where runs happen."""

    store: Backend
    url: str
    master: str
    data: Path
    clock: Clock

    @property
    def folder(self) -> Path:
        """For the lock and for Spark's scratch files."""
        return self.data / "spark"

    def shards(self, app: int) -> list[int]:
        """Where an app's data may lie."""
        return list(epochs.read(self.store, app).all(app))

    def now(self) -> datetime:
        """The time as the database keeps it."""
        return moment(self.clock.now_ms())


def site() -> Site:
    """The site of the settings."""
    return Site(
        store=open_backend(settings.SPM_STORE_URL),
        url=settings.SPM_STORE_URL,
        master=settings.SPM_SPARK_MASTER,
        data=Path(settings.SPM_DATA),
        clock=SystemClock(),
    )


def every_app() -> list[int]:
    """The ids of all apps but those that are being deleted."""
    return list(App.objects.filter(going=None).order_by("id").values_list("id", flat=True))


def apps_named(numbers: Sequence[int] | None) -> list[int]:
    """These apps, or all; raises ``Refused`` when one is not there, so that a slip is not taken for "nothing to do"."""
    return [app_numbered(number).pk for number in numbers] if numbers else every_app()


def date_of(day: int) -> date:
    """The date of a day counted from 1970-01-01."""
    return _EPOCH + timedelta(days=day)


# --- one run ----------------------------------------------------------------------------------------------------------


def roll(
    site: Site,
    *,
    apps: Sequence[int],
    kind: Kind,
    executor: str,
    sweep: bool = False,
    now_ms: int | None = None,
    watch: Callable[[Progress], None] = lambda _: None,
    wait_s: float = 0.0,
) -> Run | None:
    """One run over these apps; ``None`` when there was nothing to do. ``Refused`` if another one works that long."""
    with working(site, kind=kind, executor=executor, apps=apps, watch=watch, wait_s=wait_s) as work:
        driver = Driver(site.store, site.clock, at=work.at, watch=work.watch)
        with opened(site, executor, work.at) as runner:
            report = driver.roll(
                runner,
                apps,
                minor=kind == Kind.MINOR,
                upgrade=kind == Kind.UPGRADE,
                sweep=sweep,
                now_ms=now_ms,
                run=work.row.number,
            )
        return written_down(work.row, report, site.now())


def opened(site: Site, executor: str, at: Hook) -> AbstractContextManager[Executor]:
    """Who runs tasks at this site."""
    return open_executor(executor, site.store, url=site.url, master=site.master, folder=site.folder, at=at)


@dataclass(frozen=True, slots=True)
class Waits:
    """What a run over some apps would find to do."""

    days: int
    units: int
    samples: int  # pending ones


def would_roll(site: Site, *, apps: Sequence[int], kind: Kind, now_ms: int | None = None, sweep: bool = False) -> Waits:
    """The plan of such a run, without doing it; months are not counted."""
    now = site.clock.now_ms() if now_ms is None else now_ms
    order = Order(now, minor=kind == Kind.MINOR, upgrade=kind == Kind.UPGRADE)
    driver = Driver(site.store, site.clock)
    plans = [day for app in apps for day in driver.look(app, order, sweep=sweep).plans]
    return Waits(len(plans), sum(len(day.units) for day in plans), sum(day.samples for day in plans))


def would_take_back(site: Site, number: int, *, apps: Sequence[int] | None = None) -> list[RolledBack]:
    """What the roll back of a run would return to its former state. Raises ``Refused``."""
    return rollback.roll_back(site.store, number, every_app() if apps is None else apps, dry_run=True)


@dataclass(frozen=True, slots=True)
class Work:
    """A run under way: its row, where it may be killed, and whom to tell how far it is."""

    row: Run
    at: Hook
    watch: Callable[[Progress], None]


@contextmanager
def working(
    site: Site,
    *,
    kind: Kind,
    executor: str,
    apps: Sequence[int],
    watch: Callable[[Progress], None] = lambda _: None,
    wait_s: float = 0.0,
) -> Iterator[Work]:
    """The lock, a run number and a row for as long as the body works; the row says so when it fails."""
    with alone(site.folder, site.clock, wait_s=wait_s) as free:
        if not free:
            raise Refused("another run is at work", remedy="Wait for it to end.")
        Run.objects.filter(state=State.RUNNING).update(state=State.LOST, finished=site.now())
        number = cells.take_run(site.store)
        Run.objects.filter(number=number).delete()  # of a store that was here before this one
        row = Run.objects.create(number=number, kind=kind, executor=executor, started=site.now(), apps=list(apps))
        try:
            yield Work(row, crash_points.from_environment(os.environ), _recorder(row, site.clock, watch))
        except Exception as error:
            _ended(row, State.FAILED, site.now(), f"{type(error).__name__}: {error}")
            raise


def _recorder(row: Run, clock: Clock, watch: Callable[[Progress], None]) -> Callable[[Progress], None]:
    """Writes progress to the run's row, at most once a second."""
    last = [clock.monotonic()]

    def record(progress: Progress) -> None:
        watch(progress)
        if clock.monotonic() - last[0] >= _RECORD_EVERY_S:
            last[0] = clock.monotonic()
            row.units, row.units_total, row.samples = progress.units, progress.units_total, progress.samples
            row.save(update_fields=["units", "units_total", "samples"])

    return record


def _ended(row: Run, state: State, now: datetime, message: str) -> None:
    row.state, row.finished, row.message = state, now, message[:10_000]
    row.save()


@transaction.atomic
def written_down(row: Run, report: RunReport, now: datetime) -> Run | None:
    """The run's row as it ended, with a row per day and per corrected hour; a run that found nothing leaves none."""
    if not (report.days or report.months or report.late or report.left):
        row.delete()
        return None
    row.executor = report.executor
    row.units = sum(day.units for day in report.days)
    row.units_total = max(row.units_total, row.units)
    row.samples, row.size_bytes = report.samples, sum(day.size_bytes for day in report.days)
    RunDay.objects.bulk_create(
        RunDay(
            run=row,
            app_id=day.app,
            day=_EPOCH + timedelta(days=day.day),
            flipped=day.flipped,
            units=day.units,
            samples=day.samples,
            size_bytes=day.size_bytes,
        )
        for day in report.days
    )
    _correct(row, [correction for day in report.days for correction in day.corrections], now)
    notes = [f"{report.late:,} samples came after their hour's retention"] if report.late else []
    notes += [f"{report.left:,} units are left: run it again"] if report.left else []
    _ended(row, State.DONE, now, "\n".join([*report.troubles, *notes]))
    Run.objects.filter(number__lte=row.number - limits.ROLL_RUNS_KEPT).delete()
    return row


def _correct(row: Run, found: Sequence[Correction], now: datetime) -> None:
    """List hours that were built again, and forget the oldest of an app that has too many."""
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
        for each in found
    )
    for app in {each.app for each in found}:
        kept = records.Correction.objects.filter(app_id=app).values_list("pk", flat=True)[: limits.CORRECTIONS_KEPT]
        records.Correction.objects.filter(app_id=app).exclude(pk__in=list(kept)).delete()


# --- taking back ------------------------------------------------------------------------------------------------------


def take_back(
    site: Site, number: int, actor: User | None, *, apps: Sequence[int] | None = None, name: str = "", origin: str = ""
) -> list[RolledBack]:
    """Roll a run back in these apps (``None``: all), and note who did, from where. Raises ``Refused``."""
    chosen = every_app() if apps is None else apps
    done = rollback.roll_back(site.store, number, chosen, crash_points.from_environment(os.environ))
    with transaction.atomic():
        for back in done:
            days = RunDay.objects.filter(run__number=number, app_id=back.app, day=_EPOCH + timedelta(days=back.day))
            days.update(rolled_back=True)
        if not RunDay.objects.filter(run__number=number, rolled_back=False, flipped=True).exists():
            Run.objects.filter(number=number).update(state=State.ROLLED_BACK)
        for organisation in Organisation.objects.filter(apps__id__in={b.app for b in done}).distinct():
            mine = set(organisation.apps.values_list("id", flat=True))
            detail = {"apps": sorted({b.app for b in done} & mine), "days": sum(b.app in mine for b in done)}
            note = {**detail, "from": origin, "before": "in force", "after": "rolled back"}
            audit.record("roll back", f"run {number}", actor=actor, organisation=organisation, detail=note, name=name)
    return done


# --- when beat asks ---------------------------------------------------------------------------------------------------


def consider(site: Site, launch: Callable[[], None] | None = None) -> Start:
    """Start what is due: a minor run here, or a full one on Spark in a process of its own. Says which."""
    with alone(site.folder, site.clock) as free:
        if not free:
            return Start.NOTHING
    apps, now = every_app(), site.clock.now_ms()
    waits = plan.pressure((_waiting(site, app, now) for app in apps), now)
    due = [since for app in apps if (since := agenda.waiting_since(site.store, app)) is not None]
    overdue = min([*due, *([] if waits.overdue_ms is None else [waits.overdue_ms])], default=None)
    waits = replace(waits, overdue_ms=overdue)
    mark = site.folder / "started"  # beside the lock, since a run that dies early leaves no row
    start = plan.decide(
        waits,
        now_ms=now,
        last_spark_ms=int(mark.read_text()) if mark.exists() else None,
        last_trouble_ms=_last_trouble(),
    )
    if start == Start.SPARK:
        mark.write_text(str(now))
        (launch or partial(launched, "roll", "--tidy"))()
    elif start == Start.MINOR:
        roll(site, apps=apps, kind=Kind.MINOR, executor="local")
    return start


def _last_trouble() -> int | None:
    """When the last run that failed, was lost or gave a unit up began."""
    troubled = Run.objects.filter(~Q(message="") | Q(state__in=[State.FAILED, State.LOST])).order_by("-number").first()
    return int(troubled.started.timestamp() * 1000) if troubled else None


def _waiting(site: Site, app: int, now_ms: int) -> tuple[list[Waiting], dict[int, Manifest]]:
    """The pending cells of an app, and the manifests of their days, of today and of yesterday."""
    days = plan.by_day(commit_records.scan(site.store, app, list(site.shards(app))))
    today = now_ms // HOUR_MS // DAY_HOURS
    recent = cells.read_cells(site.store, app, sorted({*days, today, today - 1}))
    return list(itertools.chain.from_iterable(days.values())), {d: manifest.decode(c) for d, c in recent.items()}


def launched(command: str, *options: str) -> None:
    """A command in a process of its own, which ends with this one; no JVM stays."""
    words = [sys.executable, "-m", "django", command, "--with-parent", *options, "--settings", settings.SETTINGS_MODULE]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, cwd=_ROOT)
    Thread(target=process.wait, daemon=True, name=f"reap {command}").start()
    _LOG.info("%s was started as process %s", command, process.pid)
