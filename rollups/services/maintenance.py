"""Deletions and checks with their database records: expire, purge, erase, delete apps, check; and ``maintain``.

``maintain``, which beat starts, deletes the apps that were given up; once a day it also widens placements, expires what
is over, purges superseded rows, and folds ledgers. Other rooms prune their own database rows in their own tasks.
Commands, pages, the REST interface and beat call these functions on a ``Site``; each takes the lease of runs, or raises
``Refused`` if a run is in progress. All of them may be killed and repeated.
"""

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from django.db import transaction

from rollups import crash_points
from rollups.check import comparison, fsck
from rollups.check.findings import Report
from rollups.check.unreachable import report_unreachable
from rollups.crash_points import Hook
from rollups.delete import delete_app, purge, tombstones
from rollups.delete import erase_retracted as erasure
from rollups.delete import expire as expiry
from rollups.delete.delete_app import DeletedRows
from rollups.delete.erase_retracted import ErasureResult
from rollups.delete.expire import ExpiryResult, RetentionPeriods
from rollups.delete.listing import Listing
from rollups.delete.purge import PurgeResult
from rollups.limits import TOMBSTONE_KEPT_MS
from rollups.models import RetractionRecord, Run, RunDay, RunKind, RunState, date_of
from rollups.run import last_times
from rollups.run.driver import Driver
from rollups.run.lease import hold_lease, is_free
from rollups.services import placement
from rollups.services.retractions import Actor
from rollups.services.runs import Site, executor_of, record_run, start_process
from rollups.services.troubles import Troubles
from rollups.spark.executors import compare_hours, list_superseded
from spm import limits
from spm.accounts import audit
from spm.accounts.models import App, Organisation
from spm.accounts.services import Retention
from spm.errors import Refused
from spm.limits import DAY_HOURS
from spm.store.backends.base import SalvageableBackend
from spm.store.ledger import folding
from spm.store.ledger.folding import FoldResult

Watch = Callable[[App, int, int], None]  # an app, days done, days in all


def purge_superseded(
    site: Site,
    *,
    apps: Sequence[int],
    keep: int = limits.PURGE_HISTORY,
    dry_run: bool = False,
    spark: bool = False,
    wait_s: float = 0.0,
    watch: Watch = lambda *_: None,
) -> PurgeResult:
    """Deletes superseded rows; returns what was (or would be) deleted, and why. ``spark``: a Spark job lists the rows.

    Raises ``Refused`` if a run is in progress for longer than ``wait_s``, or if Spark is required but missing.
    """
    total = PurgeResult()
    with _exclusively(site, wait_s) as at:
        named = {app.pk: app for app in App.objects.filter(pk__in=apps)}
        lists: Iterable[tuple[int, Mapping[int, Listing] | None]] = ((app, None) for app in named)
        if spark:
            lists = list_superseded(site.store, site.url, site.master, site.folder, list(named), keep=keep)
        noted = Troubles("purge", site.now())
        for app, listings in lists:
            with noted.isolated(app):
                report = partial(watch, named[app])
                result = purge.purge(
                    site.store, app, keep=keep, dry_run=dry_run, listings=listings, at=at, watch=report
                )
                for (table, reason), tally in result.tallies.items():
                    total.add(table, reason, tally.rows, tally.size_bytes)
                total.busy, total.damaged = total.busy + result.busy, total.damaged + result.damaged
    return total


@contextmanager
def _exclusively(site: Site, wait_s: float) -> Iterator[Hook]:
    """Takes the lease for the body; yields crash points that check it."""
    with hold_lease(site.store, site.folder, site.clock, wait_s=wait_s) as lease:
        yield lease.checked(crash_points.from_environment(os.environ))


def check(
    site: Site,
    *,
    apps: Sequence[int],
    hours: Collection[int] | None = None,
    repair: bool = False,
    rebuild: bool = False,
    wait_s: float = 0.0,
    watch: Watch = lambda *_: None,
) -> dict[App, Report]:
    """Verifies rows and recounts hours and days of these apps; only ``repair`` and ``rebuild`` take the lease.

    ``rebuild`` rebuilds manifests that cannot be read, and repairs the rest. What cannot be reached in the store's own
    file is passed by and named; then nothing is repaired, since what is there may only seem to be missing.
    """
    now_ms = site.clock.now_ms()
    unreachable = site.store.pass_by_damage() if isinstance(site.store, SalvageableBackend) else ()
    if unreachable:
        repair = rebuild = False
    with _exclusively(site, wait_s) if repair or rebuild else nullcontext():
        reports = {
            app: fsck.fsck(
                site.store,
                app.pk,
                now_ms=now_ms,
                hours=hours,
                repair=repair or rebuild,
                rebuild_manifests=rebuild,
                watch=partial(watch, app),
            )
            for app in App.objects.filter(pk__in=apps)
        }
    for app, report in reports.items():
        report_unreachable(app.pk, unreachable, report)
    return reports


def check_on_spark(
    site: Site, *, apps: Sequence[int], hours: Collection[int] | None = None, wait_s: float = 0.0
) -> dict[App, Report]:
    """Recounts hours of these apps on Spark, with the lease, so that nothing moves between the two readings."""
    reports = {}
    with _exclusively(site, wait_s):
        for app in App.objects.filter(pk__in=apps):
            report = Report()
            question = comparison.plan_recount(site.store, app.pk, hours, report)
            differing = compare_hours(site.url, site.master, site.folder, question)
            comparison.report_differences(app.pk, question, differing, report)
            reports[app] = report
    return reports


# --- retention --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ExpiryPreview:
    """What would be deleted of one resolution."""

    resolution: str
    rows: int
    size_bytes: int


def preview_expiry(site: Site, app: int, days: Retention) -> list[ExpiryPreview]:
    """What this retention would delete now, by resolution; resolutions without rows to delete are left out."""
    names = {"raw": "Samples", "hours": "Hours", "days": "Days"}
    deletions = expiry.preview(site.store, app, _periods(days), now_ms=site.clock.now_ms())
    previews = (ExpiryPreview(names[of], sum(d.rows.values()), d.size_bytes) for of, d in deletions.items())
    return [preview for preview in previews if preview.rows]


def preview_expiry_of_apps(site: Site, *, apps: Sequence[int]) -> dict[App, list[ExpiryPreview]]:
    """What each app's own retention would delete now."""
    return {app: preview_expiry(site, app.pk, Retention.of(app)) for app in App.objects.filter(pk__in=apps)}


def expire(
    site: Site, *, apps: Sequence[int], executor: str = "local", wait_s: float = 0.0, watch: Watch = lambda *_: None
) -> dict[App, ExpiryResult]:
    """Expires what is older than the retention of each app, as one run; apps without changes are left out."""
    results: dict[App, ExpiryResult] = {}
    with record_run(site, kind=RunKind.SEAL, executor=executor, apps=apps, wait_s=wait_s) as work:
        driver = Driver(site.store, site.clock, at=work.at, watch=work.watch)
        with executor_of(site, executor, work.at) as runner:
            noted = Troubles("expire", site.now())
            for app in App.objects.filter(pk__in=apps):
                now_ms, run = site.clock.now_ms(), work.row.number
                keep = _periods(Retention.of(app))
                with noted.isolated(app.pk):
                    report = partial(watch, app)
                    result = expiry.expire(driver, runner, app.pk, keep, now_ms=now_ms, run=run, watch=report)
                    if _has_changes(result):
                        results[app] = result
        _record(site, work.row, results)
    return results


def _has_changes(result: ExpiryResult) -> bool:
    hours_or_days = result.sealed_hours or result.expired_days or result.dropped_days
    return bool(hours_or_days or result.errors or result.deletions.tallies)


def _periods(days: Retention) -> RetentionPeriods:
    return RetentionPeriods(days.raw_days, days.hour_days, days.day_days)


@transaction.atomic
def _record(site: Site, row: Run, results: Mapping[App, ExpiryResult]) -> None:
    """Saves the run's row, and one per sealed day; deletes the row of a run that did nothing."""
    if not results:
        row.delete()
        return
    for app, result in results.items():
        hours = Counter(hour // DAY_HOURS for hour in result.sealed_hours)
        RunDay.objects.bulk_create(
            RunDay(run=row, app=app, day=date_of(day), published=False, units=hour_shards, samples=0, size_bytes=0)
            for day, hour_shards in sorted(hours.items())
        )
    row.units = row.units_total = sum(len(result.sealed_hours) for result in results.values())
    row.state, row.finished = RunState.DONE, site.now()
    row.message = "\n".join(error for result in results.values() for error in result.errors)[:10_000]
    row.save()


# --- retracted samples ------------------------------------------------------------------------------------------------


def check_small(app: App, number: int) -> None:
    """Raises ``Refused`` for an erasure that takes too long for an HTTP request."""
    record = RetractionRecord.objects.filter(app=app, number=number).first()
    if record is None or record.at_least or record.hours > limits.ERASE_HOURS_IN_REQUEST_MAX:
        raise Refused(
            "this takes too long for a page or a request",
            wanted=f"at most {limits.ERASE_HOURS_IN_REQUEST_MAX} hours",
            remedy=f"Run `bin/manage erase_retracted {app.pk} {number}`.",
        )


def preview_erasure(site: Site, app: App, number: int) -> ErasureResult:
    """What the erasure of a retraction would delete for good. Raises ``Refused``."""
    return erasure.preview(site.store, app.pk, number)


def erase_retracted(
    site: Site, app: App, number: int, by: Actor, *, wait_s: float = 0.0, watch: Watch = lambda *_: None
) -> ErasureResult:
    """Deletes for good what a retraction hides, as a run. Raises ``Refused``. Repeat it while it reports errors."""
    with record_run(site, kind=RunKind.PURGE, executor="local", apps=[app.pk], wait_s=wait_s) as work:
        result = erasure.erase_retracted(
            site.store,
            app.pk,
            number,
            now_ms=site.clock.now_ms(),
            run=work.row.number,
            at=work.at,
            watch=partial(watch, app),
        )
        row = work.row
        row.units = row.units_total = result.hour_shards
        row.samples, row.message = result.samples, "\n".join(result.errors)[:10_000]
        row.state, row.finished = RunState.DONE, site.now()
        with transaction.atomic():
            row.save()
            RetractionRecord.objects.filter(app=app, number=number).update(purged_by=by.name)
            counts = {"versions": result.versions, "bytes": result.deletions.size_bytes, "units": result.hour_shards}
            detail = {"app": app.pk, "from": by.origin, "before": "left out", "after": "deleted", **counts}
            audit.record(
                "purge",
                f"retraction {number} of {app}",
                actor=by.person,
                organisation=app.organisation,
                detail=detail,
                name=by.name,
            )
    return result


# --- deleted apps -----------------------------------------------------------------------------------------------------


def deleted_apps(site: Site) -> list[App]:
    """The deleted apps whose last messages must have come in by now."""
    before = site.now() - timedelta(milliseconds=limits.ERASE_AFTER_MS)
    return list(App.objects.filter(going__lte=before).select_related("organisation").order_by("id"))


def delete_apps(
    site: Site,
    *,
    dry_run: bool = False,
    wait_s: float = 0.0,
    watch: Callable[[App, DeletedRows], None] = lambda *_: None,
) -> dict[App, DeletedRows]:
    """Deletes the rows of every deleted app in the store, then its database row, then organisations without apps."""
    deletions: dict[App, DeletedRows] = {}
    with _exclusively(site, wait_s) as at:
        noted = Troubles("delete", site.now())
        for app in deleted_apps(site):
            with noted.isolated(app.pk):
                rows = delete_app.delete_app(site.store, app.pk, dry_run=dry_run, at=at, watch=partial(watch, app))
                deletions[app] = rows
                if not dry_run:
                    _delete_record(site, app, rows)
        if not dry_run:
            _delete_empty_organisations()
    return deletions


def _delete_record(site: Site, app: App, deleted: DeletedRows) -> None:
    """Deletes the database row if a second scan finds no rows: messages in progress may have come in between."""
    if delete_app.delete_app(site.store, app.pk, dry_run=True).row_count:
        return
    tombstones.put(site.store, app.pk, site.clock.now_ms())
    with transaction.atomic():
        detail = {"app": app.pk, "rows": deleted.row_count, "bytes": deleted.byte_count}
        audit.record("app erased", str(app), actor=None, organisation=app.organisation, detail=detail)
        App.objects.filter(pk=app.pk).delete()


def delete_stragglers(site: Site, *, wait_s: float = 0.0) -> dict[int, DeletedRows]:
    """Deletes what has come in of deleted apps since, by number; forgets apps of which nothing can come any more."""
    deletions: dict[int, DeletedRows] = {}
    with _exclusively(site, wait_s) as at:
        recorded = set(App.objects.values_list("id", flat=True))  # numbers that another database gives again
        for app, since_ms in tombstones.read(site.store).items():
            if app in recorded:
                continue
            rows = delete_app.delete_app(site.store, app, at=at)
            if rows.row_count:
                deletions[app] = rows
            elif site.clock.now_ms() - since_ms > TOMBSTONE_KEPT_MS:
                tombstones.drop(site.store, app)
    return deletions


def unlisted_apps(site: Site) -> list[int]:
    """The numbers of apps that have rows in the store although the database has neither them nor their deletion."""
    return tombstones.unlisted_apps(site.store, set(App.objects.values_list("id", flat=True)))


def _delete_empty_organisations() -> None:
    for organisation in Organisation.objects.exclude(going=None).filter(apps=None):
        with transaction.atomic():
            audit.record("organisation erased", str(organisation), actor=None, organisation=None)
            organisation.delete()


# --- daily ------------------------------------------------------------------------------------------------------------


def maintain(site: Site, *, apps: Sequence[int]) -> bool:
    """Deletes apps that are due; once a day also does all that is daily, and then returns ``True``.

    It widens placements, expires, purges, and then folds ledgers: rows whose blocks were purged can go.
    """
    delete_apps(site, wait_s=limits.ROLL_WAIT_S)
    if not _is_day_old(site):
        return False
    delete_stragglers(site, wait_s=limits.ROLL_WAIT_S)
    placement.widen(site, apps=apps)
    expire(site, apps=apps, wait_s=limits.ROLL_WAIT_S)
    purge_superseded(site, apps=apps, wait_s=limits.ROLL_WAIT_S)
    last_times.write(site.store, last_times.MAINTAINED, site.clock.now_ms())
    fold_ledgers(site, apps=apps, wait_s=limits.ROLL_WAIT_S)
    return True


def fold_ledgers(site: Site, *, apps: Sequence[int], wait_s: float = 0.0) -> FoldResult:
    """Folds the ledger rows of these apps that are old enough to hourly sums; returns what was done.

    Each app takes the lease of runs for itself, so that runs come in between.
    """
    total, noted = FoldResult(), Troubles("fold", site.now())
    for app in App.objects.filter(pk__in=apps):
        with _exclusively(site, wait_s), noted.isolated(app.pk):
            result = folding.fold(site.store, app.pk, site.clock.now_ms())
            total = FoldResult(total.hours + result.hours, total.rows + result.rows)
    return total


def consider(site: Site, launch: Callable[[], None] | None = None) -> bool:
    """Starts ``maintain`` in a process of its own if it is due and no run is in progress; returns whether it did."""
    if not is_free(site.store, site.folder, site.clock) or not (_is_day_old(site) or deleted_apps(site)):
        return False
    (launch or partial(start_process, "maintain"))()
    return True


def _is_day_old(site: Site) -> bool:
    last_ms = last_times.read(site.store, last_times.MAINTAINED)
    return last_ms is None or site.clock.now_ms() - last_ms >= limits.PURGE_EVERY_MS
