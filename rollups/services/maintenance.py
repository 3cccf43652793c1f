"""What goes for good, with its record: superseded rows, expired tiers, a retraction's samples, apps that were deleted.

Commands, pages, the REST interface and beat call these on a ``Site``; each takes the lock that runs take, or says that
one is at work. ``daily`` is beat's: it does what is a day old. Everything here may be killed and repeated.
"""

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

from django.db import transaction

from rollups import crash_points
from rollups.check import comparison, fsck
from rollups.check.findings import Report
from rollups.crash_points import Hook
from rollups.delete import delete_app, erase_retracted, purge, seal
from rollups.delete.delete_app import Erased
from rollups.delete.erase_retracted import Shredded
from rollups.delete.listing import Listing
from rollups.delete.purge import Purged
from rollups.delete.seal import Keep, Retained
from rollups.models import Kind, RetractionRecord, Run, RunDay, State
from rollups.run.driver import Driver
from rollups.run.lock import alone
from rollups.services import placement
from rollups.services.retractions import Actor
from rollups.services.runs import Site, date_of, launched, opened, working
from rollups.spark.executors import compare, purge_lists
from spm import limits
from spm.accounts import audit
from spm.accounts.models import App, Organisation
from spm.accounts.services import Retention
from spm.errors import Refused
from spm.limits import DAY_HOURS

Watch = Callable[[App, int, int], None]  # an app, days done, days in all


def clean(
    site: Site,
    *,
    apps: Sequence[int],
    keep: int = limits.PURGE_HISTORY,
    dry_run: bool = False,
    spark: bool = False,
    wait_s: float = 0.0,
    watch: Watch = lambda *_: None,
) -> Purged:
    """Purge what is superseded; what went (or would go), and why. ``spark``: a job of Spark lists what there is.

    ``Refused`` if a run works that long, or without a Spark that was asked for.
    """
    total = Purged()
    with _alone(site, wait_s):
        named = {app.pk: app for app in App.objects.filter(pk__in=apps)}
        lists: Iterable[tuple[int, Mapping[int, Listing] | None]] = ((app, None) for app in named)
        if spark:
            lists = purge_lists(site.store, site.url, site.master, site.folder, list(named), keep=keep)
        for app, found in lists:
            told = partial(watch, named[app])
            gone = purge.purge(site.store, app, keep=keep, dry_run=dry_run, found=found, at=_at(), watch=told)
            for (table, reason), tally in gone.tallies.items():
                total.add(table, reason, tally.rows, tally.size_bytes)
            total.busy, total.damaged = total.busy + gone.busy, total.damaged + gone.damaged
    return total


@contextmanager
def _alone(site: Site, wait_s: float) -> Iterator[None]:
    with alone(site.folder, site.clock, wait_s=wait_s) as free:
        if not free:
            raise Refused("a run is at work", remedy="Wait for it to end.")
        yield


def _at() -> Hook:
    return crash_points.from_environment(os.environ)


def check(
    site: Site,
    *,
    apps: Sequence[int],
    hours: Collection[int] | None = None,
    repair: bool = False,
    wait_s: float = 0.0,
    watch: Watch = lambda *_: None,
) -> dict[App, Report]:
    """Verify rows and recount hours and days of these apps; ``repair`` what is safe. Reading alone waits for nobody."""
    now_ms = site.clock.now_ms()
    with _alone(site, wait_s) if repair else nullcontext():
        return {
            app: fsck.fsck(site.store, app.pk, now_ms=now_ms, hours=hours, repair=repair, watch=partial(watch, app))
            for app in App.objects.filter(pk__in=apps)
        }


def check_on_spark(
    site: Site, *, apps: Sequence[int], hours: Collection[int] | None = None, wait_s: float = 0.0
) -> dict[App, Report]:
    """Recount hours of these apps on Spark. No run works meanwhile, so that nothing moves between the two readings."""
    found = {}
    with _alone(site, wait_s):
        for app in App.objects.filter(pk__in=apps):
            report = Report()
            question = comparison.asked(site.store, app.pk, hours, report)
            differing = compare(site.url, site.master, site.folder, question)
            comparison.told(app.pk, question, differing, report)
            found[app] = report
    return found


# --- retention --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Going:
    """What would go of one tier."""

    tier: str
    rows: int
    size_bytes: int


def would_expire(site: Site, app: int, days: Retention) -> list[Going]:
    """What this retention would delete now, by tier; tiers of which nothing would go are left out."""
    found = seal.would_go(site.store, app, _keep(days), now_ms=site.clock.now_ms())
    names = {"raw": "Samples", "hours": "Hours", "days": "Days"}
    all_of = [(names[tier], sum(gone.rows.values()), gone.size_bytes) for tier, gone in found.items()]
    return [Going(*each) for each in all_of if each[1]]


def would_retain(site: Site, *, apps: Sequence[int]) -> dict[App, list[Going]]:
    """What each app's own retention would delete now."""
    return {app: would_expire(site, app.pk, Retention.of(app)) for app in App.objects.filter(pk__in=apps)}


def retain(
    site: Site, *, apps: Sequence[int], executor: str = "local", wait_s: float = 0.0, watch: Watch = lambda *_: None
) -> dict[App, Retained]:
    """Let go what is older than each app keeps, as one run; apps of which nothing went are left out."""
    done: dict[App, Retained] = {}
    with working(site, kind=Kind.SEAL, executor=executor, apps=apps, wait_s=wait_s) as work:
        driver = Driver(site.store, site.clock, at=work.at, watch=work.watch)
        with opened(site, executor, work.at) as runner:
            for app in App.objects.filter(pk__in=apps):
                now_ms, run = site.clock.now_ms(), work.row.number
                keep = _keep(Retention.of(app))
                found = seal.retain(driver, runner, app.pk, keep, now_ms=now_ms, run=run, watch=partial(watch, app))
                if found.sealed or found.expired or found.dropped or found.troubles or found.gone.tallies:
                    done[app] = found
        _record(site, work.row, done)
    return done


def _keep(days: Retention) -> Keep:
    return Keep(days.raw_days, days.hour_days, days.day_days)


@transaction.atomic
def _record(site: Site, row: Run, done: Mapping[App, Retained]) -> None:
    """The run's row, and one per day whose samples went; a run that found nothing leaves none."""
    if not done:
        row.delete()
        return
    for app, found in done.items():
        hours = Counter(hour // DAY_HOURS for hour in found.sealed)
        RunDay.objects.bulk_create(
            RunDay(run=row, app=app, day=date_of(day), flipped=False, units=units, samples=0, size_bytes=0)
            for day, units in sorted(hours.items())
        )
    row.units = row.units_total = sum(len(found.sealed) for found in done.values())
    row.state, row.finished = State.DONE, site.now()
    row.message = "\n".join(trouble for found in done.values() for trouble in found.troubles)[:10_000]
    row.save()


# --- a retraction's samples -------------------------------------------------------------------------------------------


def check_small(app: App, number: int) -> None:
    """Raises ``Refused`` for a purge that takes longer than somebody waits for an answer over HTTP."""
    record = RetractionRecord.objects.filter(app=app, number=number).first()
    if record is None or record.at_least or record.hours > limits.SHRED_HOURS_WAITED_FOR:
        raise Refused(
            "this purge is too long for a page or a request",
            wanted=f"at most {limits.SHRED_HOURS_WAITED_FOR} hours",
            remedy=f"Run `bin/manage shred {app.pk} {number}`.",
        )


def would_purge(site: Site, app: App, number: int) -> Shredded:
    """What the purge of a retraction would delete for good. Raises ``Refused``."""
    return erase_retracted.preview(site.store, app.pk, number)


def purge_retraction(
    site: Site, app: App, number: int, by: Actor, *, wait_s: float = 0.0, watch: Watch = lambda *_: None
) -> Shredded:
    """Delete for good what a retraction hides, as a run. Raises ``Refused``. Repeat it while it tells of troubles."""
    with working(site, kind=Kind.PURGE, executor="local", apps=[app.pk], wait_s=wait_s) as work:
        found = erase_retracted.shred(
            site.store,
            app.pk,
            number,
            now_ms=site.clock.now_ms(),
            run=work.row.number,
            at=work.at,
            watch=partial(watch, app),
        )
        row = work.row
        row.units = row.units_total = found.units
        row.samples, row.message = found.samples, "\n".join(found.troubles)[:10_000]
        row.state, row.finished = State.DONE, site.now()
        with transaction.atomic():
            row.save()
            RetractionRecord.objects.filter(app=app, number=number).update(purged_by=by.name)
            counts = {"versions": found.versions, "bytes": found.gone.size_bytes, "units": found.units}
            detail = {"app": app.pk, "from": by.origin, "before": "left out", "after": "deleted", **counts}
            audit.record(
                "purge",
                f"retraction {number} of {app}",
                actor=by.person,
                organisation=app.organisation,
                detail=detail,
                name=by.name,
            )
    return found


# --- apps that were deleted -------------------------------------------------------------------------------------------


def going(site: Site) -> list[App]:
    """Deleted apps whose last messages have come in by now."""
    before = site.now() - timedelta(milliseconds=limits.ERASE_AFTER_MS)
    return list(App.objects.filter(going__lte=before).select_related("organisation").order_by("id"))


def erase_gone(
    site: Site, *, dry_run: bool = False, wait_s: float = 0.0, watch: Callable[[App, Erased], None] = lambda *_: None
) -> dict[App, Erased]:
    """Delete the bytes of every deleted app, then its row; an organisation's with its last app's. Repeatable."""
    gone: dict[App, Erased] = {}
    with _alone(site, wait_s):
        for app in going(site):
            gone[app] = delete_app.erase(site.store, app.pk, dry_run=dry_run, at=_at(), watch=partial(watch, app))
            if not dry_run:
                _forget(site, app, gone[app])
        if not dry_run:
            _forget_empty(site)
    return gone


def _forget(site: Site, app: App, erased: Erased) -> None:
    """The row goes when a second look finds nothing: what a sender had under way may have come in between."""
    if delete_app.erase(site.store, app.pk, dry_run=True).row_count:
        return
    with transaction.atomic():
        detail = {"app": app.pk, "rows": erased.row_count, "bytes": erased.byte_count}
        audit.record("app erased", str(app), actor=None, organisation=app.organisation, detail=detail)
        App.objects.filter(pk=app.pk).delete()


def _forget_empty(site: Site) -> None:
    for organisation in Organisation.objects.exclude(going=None).filter(apps=None):
        delete_app.erase_organisation(site.store, organisation.pk, (), at=_at())
        with transaction.atomic():
            audit.record("organisation erased", str(organisation), actor=None, organisation=None)
            organisation.delete()


# --- when beat asks ---------------------------------------------------------------------------------------------------


def tidy(site: Site, *, apps: Sequence[int]) -> bool:
    """Retention, redistribution and purge, when the last time is a day old (whether so); erase whenever it is due."""
    erase_gone(site, wait_s=limits.ROLL_WAIT_S)
    if not _day_old(site):
        return False
    placement.widen(site, apps=apps)
    retain(site, apps=apps, wait_s=limits.ROLL_WAIT_S)
    clean(site, apps=apps, wait_s=limits.ROLL_WAIT_S)
    _mark(site).write_text(str(site.clock.now_ms()))
    return True


def consider(site: Site, launch: Callable[[], None] | None = None) -> bool:
    """Start ``tidy`` in a process of its own if anything of it is due, and nobody is at work. Whether it did."""
    with alone(site.folder, site.clock) as free:
        if not free or not (_day_old(site) or going(site)):
            return False
    (launch or partial(launched, "tidy"))()
    return True


def _mark(site: Site) -> Path:
    return site.folder / "purged"


def _day_old(site: Site) -> bool:
    mark = _mark(site)
    return not mark.exists() or site.clock.now_ms() - int(mark.read_text()) >= limits.PURGE_EVERY_MS
