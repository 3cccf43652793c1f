"""The page of one alert, and what a person does there: acknowledge, snooze, end, note. Silences are elsewhere."""

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_GET, require_POST

from alerts import rulebook
from alerts.history.notes import add_note, notes_of
from alerts.models import AlertEvent, Episode, ManualEnd
from alerts.models.telling import Acknowledgement, LastWord, Notification
from alerts.pages.alert.evidence import evidence_of
from alerts.pages.alert.matchers import matchers_of
from alerts.pages.notification_rows import row_of
from alerts.pages.scope import person_of
from alerts.pages.views import page
from alerts.telling import actions, limits
from alerts.telling.alert_facts import annotations_of, matched_labels
from spm.accounts import access
from spm.accounts.organisations.rights import Right
from spm.clock import SystemClock
from spm.errors import Refused, SpmError

_clock = SystemClock()
_EVENTS_SHOWN = 100
_NOTIFICATIONS_SHOWN = 50
_NOTES_SHOWN = 50
_SPANS = {"acknowledge": limits.ACKNOWLEDGE_MS, "snooze": limits.SNOOZE_MS}


@login_required
@require_GET
def alert_page(request: HttpRequest, episode_id: int) -> HttpResponse:
    """Show one alert with its evidence."""
    episode = _episode(request, episode_id, Right.SEE_APP)
    now_ms = _clock.now_ms()
    labels = matched_labels(episode)
    matchers = matchers_of(labels)
    response = page(
        request,
        "alert",
        episode.rule.app,
        episode=episode,
        evidence=evidence_of(episode, now_ms=now_ms),
        events=_events(episode),
        notifications=[row_of(row) for row in _notifications(episode)],
        words=LastWord.objects.filter(episode=episode).select_related("receiver"),
        taken=Acknowledgement.objects.filter(episode=episode, until_ms__gt=now_ms).first(),
        texts=annotations_of(episode),
        manual_end=_manual_end(episode),
        notes=notes_of(episode.rule.app_id, [episode], most=_NOTES_SHOWN).get(episode.pk, ()),
        matchers=", ".join(matchers),
        is_cut=len(matchers) < len(labels),
    )
    response["Cache-Control"] = "no-store"  # who is notified, and by what address
    return response


@login_required
@require_POST
def alert_take(request: HttpRequest, episode_id: int) -> HttpResponse:
    """Acknowledge an alert for a day, or snooze it for an hour: it is not repeated meanwhile."""
    episode = _episode(request, episode_id, Right.ACKNOWLEDGE)
    for_ms = _SPANS["snooze" if "snooze" in request.POST else "acknowledge"]
    try:
        actions.acknowledge_episode(episode, by=person_of(request), for_ms=for_ms, now_ms=_clock.now_ms())
    except Refused as refusal:
        messages.error(request, str(refusal))
    return redirect("alerts:alert", episode_id)


@login_required
@require_POST
def alert_end(request: HttpRequest, episode_id: int) -> HttpResponse:
    """End an alert at the next step: it fires again only after it was well."""
    episode = _episode(request, episode_id, Right.ACKNOWLEDGE)
    try:
        rulebook.end_alert(episode, by=person_of(request), now_ms=_clock.now_ms())
        messages.success(request, "It ends at the next step, and fires again only after it was well.")
    except Refused as refusal:
        messages.error(request, str(refusal))
    return redirect("alerts:alert", episode_id)


@login_required
@require_POST
def alert_note(request: HttpRequest, episode_id: int) -> HttpResponse:
    """Write a note on an alert."""
    episode = _episode(request, episode_id, Right.POST_EVENT)
    try:
        add_note(episode, request.POST.get("text", ""), by=person_of(request), clock=_clock)
    except SpmError as refusal:
        messages.error(request, str(refusal))
    return redirect("alerts:alert", episode_id)


def _episode(request: HttpRequest, episode_id: int, right: Right) -> Episode:
    rows = Episode.objects.select_related("rule__app__organisation", "rule__app__lane", "rule__group", "merged_into")
    episode = get_object_or_404(rows, pk=episode_id)
    access.require_app(person_of(request), episode.rule.app_id, right)
    return episode


def _events(episode: Episode) -> QuerySet[AlertEvent]:
    """Select what was said of the series during the alert, also what no longer holds."""
    own = AlertEvent.objects.filter(rule=episode.rule_id, fingerprint=episode.fingerprint, aspect=episode.aspect)
    inside = own.filter(at_ms__gte=episode.start_ms - episode.rule.for_ms)
    if episode.end_ms is not None:
        inside = inside.filter(at_ms__lte=episode.end_ms)
    return inside[:_EVENTS_SHOWN]


def _manual_end(episode: Episode) -> ManualEnd | None:
    """Return by whom an alert was ended, or will be at the next step."""
    own = ManualEnd.objects.filter(rule=episode.rule_id, fingerprint=episode.fingerprint, aspect=episode.aspect)
    if episode.end_ms is not None:
        return own.filter(at_ms=episode.end_ms).select_related("by").first()
    return own.filter(at_ms__gt=episode.rule.app.lane.position_ms).select_related("by").first()


def _notifications(episode: Episode) -> QuerySet[Notification]:
    rows = Notification.objects.filter(organisation=episode.rule.app.organisation_id, levels__has_key=str(episode.pk))
    return rows.select_related("receiver")[:_NOTIFICATIONS_SHOWN]
