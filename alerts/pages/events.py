"""The page of events: what happened in an app, newest first, from deploys and notes to alerts and changed rules.

People write events of their own here; programs do it by ``POST /api/v1/events``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from alerts.pages.forms import EventForm
from alerts.pages.scope import app_of, person_of, whole_number
from alerts.pages.views import page
from spm.accounts.models import App
from spm.accounts.organisations.rights import Right
from spm.clock import SystemClock
from spm.errors import SpmError
from spm.events import outbox, relay
from spm.events.models import Event
from spm.events.outbox import Place

_clock = SystemClock()
SHOWN = 100
_KINDS = ("alert", "deploy", "config", "note", "rule", "retraction", "rollback", "settings")
_CHARS_MAX = 100


@dataclass(frozen=True, slots=True)
class EventRow:
    """An event, the number of the alert that it is about, and the labels of that; 0 and none if it is about another."""

    event: Event
    alert: int
    labels: Mapping[str, str]


@login_required
@require_http_methods(["GET", "POST"])
def event_list(request: HttpRequest) -> HttpResponse:
    """Show the events of an app, or write one."""
    app = app_of(request, Right.POST_EVENT if request.method == "POST" else Right.SEE_APP)
    form = EventForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid() and _is_written(request, app, form):
        return redirect(f"/alerts/events?app={app.pk}")
    kind = request.GET.get("kind", "").strip()[:_CHARS_MAX].replace("\0", "")
    rows = _events(app, kind, request.GET.get("cursor", ""))
    shown = list(rows[: SHOWN + 1])
    last = shown[SHOWN - 1] if len(shown) > SHOWN else None
    return page(
        request,
        "events",
        app,
        form=form,
        kind=kind,
        kinds=_KINDS,
        rows=[_row(event) for event in shown[:SHOWN]],
        following=f"{last.at_ms}.{last.pk}" if last else "",
        query=urlencode({"app": app.pk, **({"kind": kind} if kind else {})}),
    )


def _events(app: App, kind: str, cursor: str) -> QuerySet[Event]:
    """Select events of the app, newest first, that are older than the one whose time and number are the cursor."""
    rows = Event.objects.filter(app=app).order_by("-at_ms", "-pk")
    if kind:
        rows = rows.filter(kind=kind)
    time, _, number = cursor.partition(".")
    at_ms, pk = whole_number(time), whole_number(number)
    if at_ms < 0 or pk < 0:
        return rows
    return rows.filter(Q(at_ms__lt=at_ms) | Q(at_ms=at_ms, pk__lt=pk))


def _row(event: Event) -> EventRow:
    """Present an event. What its writer put into the body may be anything."""
    alert = event.body.get("episode")
    is_number = isinstance(alert, int) and 0 < alert < 2**62
    labels = event.body.get("labels") if event.kind == "alert" and not event.is_posted else None
    return EventRow(event, alert if is_number else 0, labels or {})


def _is_written(request: HttpRequest, app: App, form: EventForm) -> bool:
    now_ms, begun_s = _clock.now_ms(), _clock.monotonic()
    place = Place(app.organisation_id, app.pk)
    try:
        outbox.post(place, form.draft(author=person_of(request).get_username(), now_ms=now_ms), _clock, begun_s)
    except SpmError as refusal:
        messages.error(request, str(refusal))
        return False
    relay.advance(app.organisation_id)
    messages.success(request, "It is written, and charts show it.")
    return True
