"""Retractions with their record: who made or ended one, from where, and what it hid, in one transaction with the log.

What pages, the REST interface, commands and the admin call. ``retract`` counts what goes just before it goes; ``undo``
puts it back; ``listed`` joins the store's rows with the records. The store alone says what is in force: a crash between
its row and the record leaves a retraction without numbers, never one that is only said to be there.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction

from rollups import retraction as retracting
from rollups.models import RetractionRecord
from rollups.retraction import Done, Draft, Preview
from rollups.services.runs import Site
from spm.accounts import audit
from spm.accounts.models import App
from spm.clock import moment
from spm.errors import Refused
from spm.store.versions import retractions
from spm.store.versions.retractions import Retraction

_PLAIN = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")  # a name that may stand before the braces


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts: a person, or a program by its token's name; and from where."""

    name: str
    origin: str
    person: User | None = None


@dataclass(frozen=True, slots=True)
class Listed:
    """A retraction, and what is known of its making; ``record`` is absent after a crash at the wrong moment."""

    retraction: Retraction
    record: RetractionRecord | None

    @property
    def state(self) -> str:
        """``in force``, ``undone`` or ``purged``."""
        if self.retraction.purged_ms:
            return "purged"
        return "undone" if self.retraction.end_ms else "in force"

    @property
    def started(self) -> datetime:
        """When it was made."""
        return moment(self.retraction.start_ms)

    @property
    def ended(self) -> datetime | None:
        """When it was undone."""
        return moment(self.retraction.end_ms) if self.retraction.end_ms else None

    @property
    def selector(self) -> str:
        """Its conditions on series, as PromQL writes them."""
        return worded(self.retraction)


def worded(retraction: Retraction) -> str:
    """The matchers as a selector; ``""`` where there are none."""
    if not retraction.matchers:
        return ""
    name = retraction.metric or ""
    name = name if _PLAIN.fullmatch(name) else ""
    rest = [m for m in retraction.matchers if not (name and m.name == "__name__" and m.op == "=")]
    inside = ",".join(f'{m.name}{m.op}"{_escaped(m.value)}"' for m in rest)
    return f"{name}{{{inside}}}" if inside or not name else name


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def confirmation(number: int) -> str:
    """What a person types before a retraction's samples are deleted for good."""
    return f"purge {number}"


def preview(site: Site, app: App, draft: Draft) -> Preview:
    """What the draft would hide now. Raises ``Refused`` for one that cannot be."""
    return retracting.preview(site.store, app.pk, retracting.drafted(draft, site.clock.now_ms()))


def retract(
    site: Site, app: App, draft: Draft, by: Actor, *, alerts_of: Callable[[Preview], int] = lambda _: 0
) -> tuple[Done, Preview, int]:
    """Count (past alerts too, by who knows them), put it in force, write both down."""
    made = retracting.drafted(draft, site.clock.now_ms())
    found = retracting.preview(site.store, app.pk, made)
    alerts = alerts_of(found)
    done = retracting.retract(site.store, app.pk, made)
    number = done.retraction.number
    with transaction.atomic():
        RetractionRecord.objects.create(
            app=app,
            number=number,
            samples=found.samples,
            restored=found.restored,
            series=found.series,
            hours=found.hours,
            alerts=alerts,
            sealed=len(done.sealed),
            at_least=found.at_least,
        )
        detail = {"samples": found.samples, "series": found.series, "hours": found.hours, "alerts": alerts}
        _note("retract", app, done.retraction, by, {"before": "counted", "after": "left out", **detail})
    return done, found, alerts


def undo(site: Site, app: App, number: int, by: Actor) -> Done:
    """What it hid counts again. Raises ``Refused`` when it is undone already, purged, or not there."""
    if one(site, app, number) is None:  # also for numbers longer than any key
        raise Refused(f"there is no retraction {number} in {app}")
    done = retracting.undo(site.store, app.pk, number, site.clock.now_ms())
    with transaction.atomic():
        RetractionRecord.objects.filter(app=app, number=number).update(undone_by=by.name)
        _note("undo", app, done.retraction, by, {"before": "left out", "after": "counted"})
    return done


def listed(site: Site, app: App) -> Sequence[Listed]:
    """Every retraction of an app, newest first."""
    records = {record.number: record for record in RetractionRecord.objects.filter(app=app)}
    found = retractions.read(site.store, app.pk)
    return [Listed(r, records.get(r.number)) for r in sorted(found, key=lambda r: -r.number)]


def one(site: Site, app: App, number: int) -> Listed | None:
    """One of them."""
    return next((each for each in listed(site, app) if each.retraction.number == number), None)


def described(site: Site, app: App, number: int) -> str:
    """One in words. Raises ``Refused`` where there is none."""
    found = one(site, app, number)
    if found is None:
        raise Refused(f"there is no retraction {number} in {app}")
    what = " ".join(part for part in (found.retraction.source, found.selector) if part) or "everything in its range"
    numbers = f", {found.record.samples:,} samples" if found.record else ""
    return f"retraction {number}, {found.state}: {what}{numbers}; {found.retraction.author}: {found.retraction.reason}"


def _note(action: str, app: App, retraction: Retraction, by: Actor, detail: dict[str, object]) -> None:
    audit.record(
        action,
        f"retraction {retraction.number} of {app}",
        actor=by.person,
        organisation=app.organisation,
        name=by.name,
        detail={
            "app": app.pk,
            "from": by.origin,
            "reason": retraction.reason,
            "source": retraction.source,
            "series": worded(retraction),
            "range": list(_range(retraction)),
            **detail,
        },
    )


def _range(retraction: Retraction) -> tuple[int, int, int, int]:
    return retraction.write_from_ms, retraction.write_to_ms, retraction.data_from_ms, retraction.data_to_ms
