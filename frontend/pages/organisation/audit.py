"""The audit log of an organisation: who did what, when and from where, with filters and as CSV."""

import csv
import io
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse
from django.utils.dateparse import parse_date

from frontend.pages.organisation.base import OrganisationPage
from frontend.transfer.cells import guarded
from spm.accounts.models import AuditEntry, Organisation
from spm.accounts.organisations.rights import Right

SHOWN, DOWNLOADED_MAX = 50, 100_000
FIELDS = ("who", "what", "since", "until", "tz", "before")
HEAD = ("time", "who", "action", "subject", "address", "detail")


class Audit(OrganisationPage):
    """One page of entries, newest first; ``?form=csv`` is all of them."""

    template_name = "frontend/organisation/audit.html"
    right = Right.SEE_AUDIT

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:  # type: ignore[override]
        """Answer with the page, or with the file."""
        own = self.membership()
        if request.GET.get("form") != "csv":
            return super().get(request, *args, **kwargs)
        entries = entries_of(own.organisation, request.GET)[:DOWNLOADED_MAX]
        answer = StreamingHttpResponse(csv_lines(entries.iterator()), content_type="text/csv; charset=utf-8")
        answer["Content-Disposition"] = 'attachment; filename="audit.csv"'
        answer["Cache-Control"] = "no-store"
        return answer

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the entries that the filters leave, and the actions there are."""
        context = super().get_context_data(**kwargs)
        given = {name: self.request.GET.get(name, "")[:120] for name in FIELDS}
        entries = list(entries_of(context["organisation"], given)[: SHOWN + 1])
        query = self.request.GET.copy()
        query.pop("before", None)
        return {
            **context,
            "entries": entries[:SHOWN],
            "older": entries[SHOWN - 1].pk if len(entries) > SHOWN else None,
            "given": given,
            "query": query.urlencode(),
            "is_filtered": any(text for name, text in given.items() if name != "tz"),
        }


def entries_of(organisation: Organisation, given: Mapping[str, str]) -> QuerySet[AuditEntry]:
    """The entries of an organisation that match: who and what are parts of words, times are days of the zone ``tz``."""
    rows = AuditEntry.objects.filter(organisation=organisation).order_by("-pk")
    if given.get("who"):
        rows = rows.filter(actor_name__icontains=_plain(given["who"]))
    if given.get("what"):
        what = _plain(given["what"])
        rows = rows.filter(action__icontains=what) | rows.filter(subject__icontains=what)
    zone = _zone(given.get("tz", ""))
    since, until = _midnight(given.get("since", ""), zone), _midnight(given.get("until", ""), zone, days=1)
    rows = rows.filter(at__gte=since) if since else rows
    rows = rows.filter(at__lt=until) if until else rows
    before = given.get("before", "")
    return rows.filter(pk__lt=int(before)) if before.isdecimal() and len(before) < 19 else rows


def csv_lines(entries: Iterator[AuditEntry]) -> Iterator[str]:
    """Write entries as lines of CSV; a text that a spreadsheet would take for a formula gets an apostrophe."""
    yield _line(HEAD)
    for each in entries:
        detail = json.dumps(each.detail, ensure_ascii=False, sort_keys=True)
        texts = (each.actor_name or "system", each.action, each.subject, each.address, detail)
        yield _line((each.at.isoformat(timespec="seconds"), *(guarded(text) for text in texts)))


def _line(cells: tuple[str, ...]) -> str:
    out = io.StringIO()
    csv.writer(out).writerow(cells)
    return out.getvalue()


def _plain(text: str) -> str:
    """The text without NUL, which PostgreSQL takes in no text."""
    return text.replace("\0", "")


def _zone(name: str) -> tzinfo:
    """The zone of a name; UTC for one that does not exist."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


def _midnight(text: str, zone: tzinfo, days: int = 0) -> datetime | None:
    """The begin of a day, or of one some days later; None for a text that is no day."""
    try:
        day = parse_date(text)
        return datetime.combine(day + timedelta(days=days), time(), zone).astimezone(UTC) if day else None
    except (ValueError, OverflowError):
        return None
