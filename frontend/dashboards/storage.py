"""Creates, saves, restores and deletes dashboards. Every save is a version; none is changed afterwards.

A save names the version that it started from. If there is a newer one, the two are merged panel by panel; where both
changed the same thing, ``Conflict`` says what. Enter by ``create`` and ``save``.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F

from frontend.dashboards.document import Document, check, from_dict
from frontend.dashboards.limits import (
    DASHBOARDS_PER_APP_MAX,
    DOCUMENT_BYTES_MAX,
    NOTE_CHARS_MAX,
    VERSIONS_BYTES_MAX,
    VERSIONS_KEPT_MAX,
)
from frontend.dashboards.models import Dashboard, DashboardVersion
from spm.accounts import audit
from spm.accounts.models import App, Organisation
from spm.clock import random_bytes
from spm.errors import LimitExceeded, Refused

_AT_ONCE = 10  # dashboards that an export holds


class Conflict(Refused):
    """Somebody else saved in the meantime, and changed the same. ``places``: what both changed."""

    def __init__(self, author: str, places: Sequence[str]) -> None:
        self.author, self.places = author, places
        super().__init__(
            f"{author} saved this dashboard in the meantime, and changed the same: {', '.join(places)}",
            remedy="Read it again, and make your change there.",
        )


@dataclass(frozen=True, slots=True)
class Author:
    """Who saves, when, and why: a person, or a program called ``name``."""

    person: User | None
    now_ms: int
    note: str = ""
    name: str = ""

    @property
    def shown(self) -> str:
        """What versions say."""
        return self.person.get_username() if self.person else self.name


def create(app: App, document: Document, by: Author) -> Dashboard:
    """Save a new dashboard."""
    with transaction.atomic():
        if App.objects.select_for_update().filter(pk=app.pk, going=None).first() is None:
            raise Refused("the app was deleted in the meantime")
        if Dashboard.objects.filter(app=app).count() >= DASHBOARDS_PER_APP_MAX:
            raise LimitExceeded("the app has too many dashboards", wanted=f"at most {DASHBOARDS_PER_APP_MAX}")
        uid = base64.b32encode(random_bytes(8)).decode().rstrip("=").lower()
        dashboard = Dashboard.objects.create(app=app, uid=uid, title=document.title, version=0, changed_ms=by.now_ms)
        _add_version(dashboard, document, by, "dashboard.created")
    return dashboard


def save(dashboard: Dashboard, document: Document, by: Author, *, base: int, is_strict: bool = False) -> Document:
    """Save a change of version ``base``; returns what is saved, which holds others' changes since then, too.

    ``is_strict``: any change since then is a conflict.
    """
    with transaction.atomic():
        newest = _newest(dashboard)
        saved = document
        if newest.version != base:
            theirs = newest.versions.get(number=newest.version)
            if base > newest.version:
                raise Refused("there is no such version yet", got=base, wanted=f"at most {newest.version}")
            before = newest.versions.filter(number=base).first()
            if before is None or is_strict:
                raise Conflict(theirs.author, ["all of it"])
            saved, places = merge(from_dict(before.document), document, from_dict(theirs.document))
            if places:
                raise Conflict(theirs.author, places)
            saved = check(saved.as_dict())  # two changes may be too much together
        _add_version(newest, saved, by, "dashboard.saved")
    dashboard.refresh_from_db()
    return saved


def restore(dashboard: Dashboard, number: int, by: Author) -> None:
    """Save an older version once more."""
    old = dashboard.versions.filter(number=number).first()
    if old is None:
        raise Refused("there is no such version any more", got=number)
    note = f"version {number} again"
    save(dashboard, from_dict(old.document), replace(by, note=note), base=dashboard.version)


def delete(dashboard: Dashboard, by: Author, *, base: int | None = None) -> None:
    """Delete a dashboard with all its versions; one newer than ``base`` is a conflict."""
    with transaction.atomic():
        newest = _newest(dashboard)
        if base is not None and newest.version != base:
            raise Conflict(newest.versions.get(number=newest.version).author, ["all of it"])
        _note(dashboard, by, "dashboard.deleted")
        dashboard.delete()


def _newest(dashboard: Dashboard) -> Dashboard:
    """Return the dashboard as it is now; nobody else changes it until the transaction ends."""
    newest = Dashboard.objects.select_for_update().filter(pk=dashboard.pk).first()
    if newest is None:
        raise Refused("this dashboard was deleted in the meantime", remedy="Save it under a new title.")
    return newest


def document_of(dashboard: Dashboard) -> Document:
    """Return the document of the newest version."""
    return from_dict(dashboard.versions.get(number=dashboard.version).document)


def exported(organisation: Organisation) -> Iterator[dict[str, Any]]:
    """Yield every dashboard of an organisation's apps, in its newest version; few are held at once."""
    apps = App.objects.filter(organisation=organisation, going=None)
    newest = DashboardVersion.objects.filter(dashboard__app__in=apps, number=F("dashboard__version"))
    names = {"app_id": F("dashboard__app_id"), "uid": F("dashboard__uid")}
    rows = newest.order_by("pk").values("number", "saved_ms", "author", "document", **names)
    yield from map(dict, rows.iterator(chunk_size=_AT_ONCE))


def merge(before: Document, mine: Document, theirs: Document) -> tuple[Document, list[str]]:
    """Join two changes of one document; returns it, and what both changed differently. Pure."""
    places: list[str] = []

    def join(place: str, old: Any, own: Any, other: Any) -> Any:
        if own in (old, other):
            return other
        if other != old:
            places.append(place)
        return own

    plain = {
        name: join(f"the {name}", getattr(before, name), getattr(mine, name), getattr(theirs, name))
        for name in ("title", "description", "tags", "variables")
    }
    old, own, other = ({each.number: each for each in document.panels} for document in (before, mine, theirs))
    numbers = [*own, *(number for number in other if number not in own)]
    panels = [
        join(f"panel {_title(number, own, other)}", old.get(number), own.get(number), other.get(number))
        for number in numbers
    ]
    return Document(**plain, panels=[panel for panel in panels if panel is not None]), places


def _title(number: int, *documents: Mapping[int, Any]) -> str:
    titles = [panels[number].title for panels in documents if number in panels]
    return f"“{titles[0]}”" if titles and titles[0] else str(number)


def _add_version(dashboard: Dashboard, document: Document, by: Author, action: str) -> None:
    value = document.as_dict()
    size = len(orjson.dumps(value))
    if size > DOCUMENT_BYTES_MAX:
        raise LimitExceeded("a dashboard is too large", got=f"{size:,} bytes", wanted=f"{DOCUMENT_BYTES_MAX:,}")
    dashboard.version, dashboard.title, dashboard.changed_ms = dashboard.version + 1, document.title, by.now_ms
    dashboard.tags = list(document.tags)
    dashboard.save()
    DashboardVersion.objects.create(
        dashboard=dashboard,
        number=dashboard.version,
        document=value,
        size_bytes=size,
        author=by.shown[:150],
        note=by.note.replace("\0", "")[:NOTE_CHARS_MAX],
        saved_ms=by.now_ms,
    )
    _forget_oldest(dashboard)
    _note(dashboard, by, action)


def _forget_oldest(dashboard: Dashboard) -> None:
    """Delete the versions beyond the bounds of number and bytes; the newest stays in any case."""
    total, oldest = 0, dashboard.version
    for number, size in dashboard.versions.values_list("number", "size_bytes")[:VERSIONS_KEPT_MAX]:
        total += size
        if total > VERSIONS_BYTES_MAX:
            break
        oldest = number
    dashboard.versions.filter(number__lt=oldest).delete()


def _note(dashboard: Dashboard, by: Author, action: str) -> None:
    detail = {"app": dashboard.app_id, "uid": dashboard.uid, "version": dashboard.version}
    organisation = dashboard.app.organisation
    audit.record(action, dashboard.title, actor=by.person, organisation=organisation, detail=detail, name=by.name)
