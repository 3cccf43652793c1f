"""What goes for good, with its record: superseded rows, expired tiers, a retraction's samples, apps that were deleted.

Commands, pages, the REST interface and beat call these on a ``Site``; each takes the lock that runs take, or says that
one is at work. ``daily`` is beat's: it does what is a day old. Everything here may be killed and repeated.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial

from django.db import transaction

from rollups import erase, points, purge
from rollups.conduct import Site
from rollups.erase import Erased
from rollups.lock import alone
from rollups.points import Hook
from rollups.purge import Purged
from spm import limits
from spm.accounts import audit
from spm.accounts.models import App, Organisation
from spm.errors import Refused

Watch = Callable[[App, int, int], None]  # an app, days done, days in all


def clean(
    site: Site, *, apps: Sequence[int], keep: int = limits.PURGE_HISTORY, dry_run: bool = False, wait_s: float = 0.0,
    watch: Watch = lambda *_: None,
) -> Purged:  # fmt: skip
    """Purge what is superseded; what went (or would go), and why. ``Refused`` if a run works that long."""
    total = Purged()
    with _alone(site, wait_s):
        for app in App.objects.filter(pk__in=apps):
            told = partial(watch, app)
            gone = purge.purge(site.store, app.pk, keep=keep, dry_run=dry_run, at=_at(), watch=told)
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
    return points.from_environment(os.environ)


def tidy(site: Site, *, apps: Sequence[int]) -> bool:
    """Purge when the last purge of this kind is a day old, with the usual history kept; whether it did."""
    mark, now = site.folder / "purged", site.clock.now_ms()
    if mark.exists() and now - int(mark.read_text()) < limits.PURGE_EVERY_MS:
        return False
    clean(site, apps=apps)
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
    with _alone(site, wait_s):
        for app in going(site):
            gone[app] = erase.erase(site.store, app.pk, dry_run=dry_run, at=_at(), watch=partial(watch, app))
            if not dry_run:
                _forget(site, app, gone[app])
        if not dry_run:
            _forget_empty(site)
    return gone


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
