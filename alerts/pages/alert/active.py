"""The page of active alerts: what fires now and is about to, who was told, and who has taken it.

One click takes an alert; several that are chosen are taken, snoozed or silenced together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from alerts.judging.automaton import Phase
from alerts.models import Aspect, Episode, EpisodeStatus, Instance, Severity
from alerts.notify.registry import shown
from alerts.open_alerts import AlertFilter, OpenAlert, open_alerts
from alerts.pages.alert.matchers import matchers_of
from alerts.pages.presenters import condition_text
from alerts.pages.scope import app_of, person_of, whole_number
from alerts.pages.views import page
from alerts.telling import actions, limits
from alerts.telling.alert_facts import matched_labels
from alerts.telling.decide.episodes import Level
from spm.accounts.models import App
from spm.accounts.organisations.rights import Right
from spm.clock import SystemClock
from spm.errors import SpmError

_clock = SystemClock()
SHOWN = 100
_STATES = {Aspect.VALUE: "firing", Aspect.MISSING: "no data", Aspect.ERROR: "error"}
_SEVERITIES = [value for value, _ in Severity.choices]


@dataclass(frozen=True, slots=True)
class ActiveRow:
    """An open alert as the table draws it: its state in a word, whom it was told, or why it was told nobody."""

    alert: OpenAlert
    state: str
    condition: str
    notified: Sequence[str]
    reason: str


@login_required
@require_http_methods(["GET", "POST"])
def active_list(request: HttpRequest) -> HttpResponse:
    """Show the open alerts of an app, or take, snooze and silence some of them."""
    if request.method == "POST":
        return _act(request)
    app, given = app_of(request), request.GET
    chosen = {name: text for name in ("severity", "taken", "matchers") if (text := given.get(name, "").strip())}
    if chosen.get("severity") not in _SEVERITIES:
        chosen.pop("severity", None)
    context = _listed(app, chosen, given.get("cursor", ""))
    response = page(
        request,
        "active",
        app,
        chosen=chosen,
        severities=_SEVERITIES,
        query=urlencode({"app": app.pk, **chosen}),
        pending=_pending(app)[:SHOWN],
        **context,
    )
    response["Cache-Control"] = "no-store"  # who was told, and by what address
    return response


def _listed(app: App, chosen: dict[str, str], cursor: str) -> dict[str, Any]:
    taken = {"yes": True, "no": False}.get(chosen.get("taken", ""))
    by = AlertFilter(
        app=app.pk, severity=chosen.get("severity"), acknowledged=taken, matchers=chosen.get("matchers", "")
    )
    before = whole_number(cursor)
    try:
        alerts, following = open_alerts(
            app.organisation_id, by, cursor=before if before >= 0 else None, limit=SHOWN, now_ms=_clock.now_ms()
        )
    except SpmError as error:
        return {"rows": [], "error": str(error)}
    return {"rows": [_row(each) for each in alerts], "following": following}


def _row(alert: OpenAlert) -> ActiveRow:
    notified = [shown(word.receiver.kind, word.receiver.target) for word in alert.words if word.level == Level.OPEN]
    reason = next((word.reason for word in alert.words if word.level == Level.NOTHING and word.reason), "")
    return ActiveRow(alert, _STATES[Aspect(alert.episode.aspect)], condition_text(alert.episode.rule), notified, reason)


def _pending(app: App) -> QuerySet[Instance]:
    """Select the series that will fire if their condition holds on."""
    rules = {"rule__app": app, "rule__enabled": True, "rule__deleted_ms": None}
    waiting = Instance.objects.filter(**rules, phase=Phase.PENDING).exclude(aspect=Aspect.ERROR)
    return waiting.select_related("rule").order_by("since_ms", "pk")


def _act(request: HttpRequest) -> HttpResponse:
    is_silence = "silence" in request.POST
    app = app_of(request, Right.SILENCE if is_silence else Right.ACKNOWLEDGE)
    texts = request.POST.getlist("alert") if "take" not in request.POST else [request.POST["take"]]
    numbers = [number for text in texts[:SHOWN] if (number := whole_number(text)) >= 0]
    own = Episode.objects.filter(rule__app__organisation=app.organisation_id, status=EpisodeStatus.OPEN)
    episodes = list(own.filter(pk__in=numbers).select_related("rule__app__organisation", "rule__group"))
    if not episodes:
        messages.error(request, "Choose alerts that go on." if not numbers else "These alerts are over.")
        return redirect(request.get_full_path())
    try:
        with transaction.atomic():
            (_silence if is_silence else _take)(request, app, episodes)
    except SpmError as refusal:
        messages.error(request, str(refusal))
    return redirect(request.get_full_path())


def _take(request: HttpRequest, app: App, episodes: Sequence[Episode]) -> None:
    for_ms = limits.SNOOZE_MS if "snooze" in request.POST else limits.ACKNOWLEDGE_MS
    for each in episodes:
        actions.acknowledge_episode(each, by=person_of(request), for_ms=for_ms, now_ms=_clock.now_ms())


def _silence(request: HttpRequest, app: App, episodes: Sequence[Episode]) -> None:
    now_ms = _clock.now_ms()
    for matchers in {", ".join(matchers_of(matched_labels(each))) for each in episodes}:
        actions.add_silence(
            app.organisation,
            matchers,
            from_ms=now_ms,
            to_ms=now_ms + limits.SNOOZE_MS,
            comment="active alerts",
            by=person_of(request),
            now_ms=now_ms,
        )
