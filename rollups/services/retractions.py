"""Retracts and undoes, and records who did it, from where, and what it hid, in one transaction with the audit log.

Pages, the REST interface, commands and the admin call it. ``retract`` counts what it hides and puts it in force;
``undo`` ends it; ``list_retractions`` joins the store's rows with the records. The store alone says what is in force: a
crash between its row and the record leaves a retraction without counts, never a record without a retraction.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction

from rollups import retraction as retracting
from rollups.models import RetractionRecord
from rollups.retraction import Draft, Preview, RetractionResult
from rollups.services.runs import Site
from spm.accounts import audit
from spm.accounts.models import App
from spm.clock import moment
from spm.errors import Refused
from spm.store.ledger import stamp_floor, watermarks
from spm.store.matchers import METRIC_NAME, Matcher
from spm.store.versions import retractions
from spm.store.versions.retractions import Retraction

_PLAIN = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")  # a name that may stand before the braces


@dataclass(frozen=True, slots=True)
class Actor:
    """A person, or a program by its token's name, and where the request came from."""

    name: str
    origin: str
    person: User | None = None


@dataclass(frozen=True, slots=True)
class RecordedRetraction:
    """A retraction with its database record, which is missing after a crash between the two writes."""

    retraction: Retraction
    record: RetractionRecord | None

    @property
    def state(self) -> str:
        """``in force``, ``undone`` or ``purged``."""
        if self.retraction.erased_ms:
            return "purged"
        return "undone" if self.retraction.end_ms else "in force"

    @property
    def started(self) -> datetime:
        """When it was added."""
        return moment(self.retraction.start_ms)

    @property
    def ended(self) -> datetime | None:
        """When it was undone."""
        return moment(self.retraction.end_ms) if self.retraction.end_ms else None

    @property
    def selector(self) -> str:
        """Its matchers as a PromQL selector."""
        return selector_text(self.retraction)


def selector_text(retraction: Retraction) -> str:
    """The matchers as a PromQL selector; ``""`` if there are none."""
    return write_selector(retraction.matchers)


def write_selector(matchers: Sequence[Matcher]) -> str:
    """Matchers as a PromQL selector; ``""`` if there are none."""
    if not matchers:
        return ""
    name = next((m.value for m in matchers if m.name == METRIC_NAME and m.op == "="), "")
    name = name if _PLAIN.fullmatch(name) else ""
    rest = [m for m in matchers if not (name and m.name == METRIC_NAME and m.op == "=")]
    inside = ",".join(f'{m.name}{m.op}"{_escaped(m.value)}"' for m in rest)
    return f"{name}{{{inside}}}" if inside or not name else name


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def confirmation_phrase(number: int) -> str:
    """The text that a person types before retracted samples are deleted for good."""
    return f"purge {number}"


def planned(site: Site, app: App, draft: Draft) -> Retraction:
    """Returns the retraction that the draft would make, for answers as if it were in force. Raises ``Refused``."""
    return _validate(site, app, draft)


def preview(site: Site, app: App, draft: Draft) -> Preview:
    """Counts what the draft would hide now. Raises ``Refused`` for an invalid draft."""
    return retracting.preview(site.store, app.pk, _validate(site, app, draft))


def retract(
    site: Site, app: App, draft: Draft, by: Actor, *, alerts_of: Callable[[Preview], int] = lambda _: 0
) -> tuple[RetractionResult, Preview, int]:
    """Counts what the draft hides (with past alerts, by ``alerts_of``), retracts it, and records both."""
    retraction = _validate(site, app, draft)
    counts = retracting.preview(site.store, app.pk, retraction)
    alerts = alerts_of(counts)
    if draft.write_to_ms is None and retraction.write_to_ms > retraction.start_ms:
        stamp_floor.lift(site.store, retraction.write_to_ms + 1)  # so that what is sent anew is not covered, too
    done = retracting.retract(site.store, app.pk, retraction)
    number = done.retraction.number
    with transaction.atomic():
        RetractionRecord.objects.create(
            app=app,
            number=number,
            samples=counts.samples,
            restored=counts.restored,
            series=counts.series,
            hours=counts.hours,
            alerts=alerts,
            sealed=len(done.sealed_hours),
            at_least=counts.at_least,
        )
        detail = {"samples": counts.samples, "series": counts.series, "hours": counts.hours, "alerts": alerts}
        _note("retract", app, done.retraction, by, {"before": "counted", "after": "left out", **detail})
    return done, counts, alerts


def _validate(site: Site, app: App, draft: Draft) -> Retraction:
    newest_ms = watermarks.newest_stamp_ms(site.store, app.pk)
    return retracting.validate_draft(draft, site.clock.now_ms(), newest_stamp_ms=newest_ms)


def undo(site: Site, app: App, number: int, by: Actor) -> RetractionResult:
    """Undoes a retraction. Raises ``Refused`` if it is undone or erased already, or does not exist."""
    if find_retraction(site, app, number) is None:  # also for numbers longer than any key
        raise Refused(f"there is no retraction {number} in {app}")
    done = retracting.undo(site.store, app.pk, number, site.clock.now_ms())
    with transaction.atomic():
        RetractionRecord.objects.filter(app=app, number=number).update(undone_by=by.name)
        _note("undo", app, done.retraction, by, {"before": "left out", "after": "counted"})
    return done


def list_retractions(site: Site, app: App) -> Sequence[RecordedRetraction]:
    """Lists every retraction of an app, newest first."""
    records = {record.number: record for record in RetractionRecord.objects.filter(app=app)}
    stored = retractions.read(site.store, app.pk)
    return [RecordedRetraction(r, records.get(r.number)) for r in sorted(stored, key=lambda r: -r.number)]


def find_retraction(site: Site, app: App, number: int) -> RecordedRetraction | None:
    """The retraction with this number; ``None`` if there is none."""
    return next((each for each in list_retractions(site, app) if each.retraction.number == number), None)


def describe(site: Site, app: App, number: int) -> str:
    """Describes a retraction in one line. Raises ``Refused`` if there is none."""
    recorded = find_retraction(site, app, number)
    if recorded is None:
        raise Refused(f"there is no retraction {number} in {app}")
    retraction, record = recorded.retraction, recorded.record
    scope = " ".join(filter(None, (retraction.source, recorded.selector))) or "everything in its range"
    samples = f", {record.samples:,} samples" if record else ""
    return f"retraction {number}, {recorded.state}: {scope}{samples}; {retraction.author}: {retraction.reason}"


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
            "series": selector_text(retraction),
            "range": list(_range(retraction)),
            **detail,
        },
    )


def _range(retraction: Retraction) -> tuple[int, int, int, int]:
    return retraction.write_from_ms, retraction.write_to_ms, retraction.data_from_ms, retraction.data_to_ms
