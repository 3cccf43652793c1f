"""What goes for good, with its record: superseded rows, expired tiers, a retraction's samples, apps that were deleted.

Commands, pages, the REST interface and beat call these on a ``Site``; each takes the lock that runs take, or says that
one is at work. ``daily`` is beat's: it does what is a day old. Everything here may be killed and repeated.
"""

import os
from collections.abc import Callable, Sequence
from datetime import timedelta

from django.db import transaction

from rollups import erase, points, purge
from rollups.conduct import Site
from rollups.erase import Erased
from rollups.lock import alone
from spm import limits
from spm.accounts import audit
from spm.accounts.models import App, Organisation
from spm.errors import Refused


def clean(site: Site, *, apps: Sequence[int], keep: int, dry_run: bool, wait_s: float = 0.0) -> dict[str, int]:
    """Purge what is superseded; rows that went (or would go) by table. ``Refused`` if a run works that long."""
    total: dict[str, int] = {}
    with alone(site.folder, site.clock, wait_s=wait_s) as free:
        if not free:
            raise Refused("a run is at work", remedy="Wait for it to end.")
        at = points.from_environment(os.environ)
        for app in apps:
            gone = purge.purge(site.store, app, site.buckets(app), keep=keep, dry_run=dry_run, at=at)
            for table, rows in gone.rows.items():
                total[table] = total.get(table, 0) + rows
    return total


def tidy(site: Site, *, apps: Sequence[int]) -> bool:
    """Purge when the last purge of this kind is a day old, with the usual history kept; whether it did."""
    mark, now = site.folder / "purged", site.clock.now_ms()
    if mark.exists() and now - int(mark.read_text()) < limits.PURGE_EVERY_MS:
        return False
    clean(site, apps=apps, keep=limits.PURGE_HISTORY, dry_run=False)
    mark.write_text(str(now))
    return True


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
    with alone(site.folder, site.clock, wait_s=wait_s) as free:
        if not free:
            raise Refused("a run is at work", remedy="Wait for it to end.")
        for app in going(site):
            number = app.pk
            gone[app] = erase.erase(site.store, number, dry_run=dry_run, at=_at(), watch=_told(watch, app))
            if not dry_run:
                _forget(site, app, gone[app])
        if not dry_run:
            _forget_empty(site)
    return gone


def _told(watch: Callable[[App, Erased], None], app: App) -> Callable[[Erased], None]:
    return lambda erased: watch(app, erased)


def _at() -> points.Hook:
    return points.from_environment(os.environ)


def _forget(site: Site, app: App, erased: Erased) -> None:
    """The row goes when a second look finds nothing: what a sender had under way may have come in between."""
    if erase.erase(site.store, app.pk, dry_run=True).row_count:
        return
    with transaction.atomic():
        detail = {"app": app.pk, "rows": erased.row_count, "bytes": erased.byte_count}
        audit.record("app erased", str(app), actor=None, organisation=app.organisation, detail=detail)
        App.objects.filter(pk=app.pk).delete()


def _forget_empty(site: Site) -> None:
    for organisation in Organisation.objects.exclude(going=None).filter(apps=None):
        erase.erase_organisation(site.store, organisation.pk, (), at=_at())
        with transaction.atomic():
            audit.record("organisation erased", str(organisation), actor=None, organisation=None)
            organisation.delete()
