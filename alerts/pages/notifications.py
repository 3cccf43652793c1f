"""The pages of notifications: the log of an organisation, one notification, contact points, and silences.

Each view checks what the person may do, makes one call, and renders. What belongs to another organisation answers 404,
as if it did not exist.
"""

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from alerts.models.telling import ContactPoint, Notification, Receiver, Silence
from alerts.pages import notification_rows
from alerts.pages.forms import ContactPointForm, SilenceForm
from alerts.pages.scope import app_of, person_of
from alerts.telling import actions, budgets, limits
from spm.accounts import access
from spm.accounts.models import App
from spm.accounts.organisations.rights import Right
from spm.clock import SystemClock
from spm.errors import SpmError

_clock = SystemClock()


@login_required
@require_GET
def notification_list(request: HttpRequest) -> HttpResponse:
    """Show the notifications of an organisation, newest first, and who receives them."""
    app = app_of(request)
    return render_page(
        request,
        "notifications",
        app,
        budget=budgets.now_of(app.organisation_id, _clock.now_ms()),
        rows=notification_rows.rows_of(app.organisation_id),
        receivers=notification_rows.receivers_of(app.organisation_id),
        points=ContactPoint.objects.filter(organisation=app.organisation_id).prefetch_related("receivers"),
        form=ContactPointForm(),
    )


@login_required
@require_GET
def notification_page(request: HttpRequest, notification_id: int) -> HttpResponse:
    """Show one notification as its receiver sees it, and what became of it."""
    app = app_of(request)
    row = get_object_or_404(_notifications(request), pk=notification_id)
    taken = notification_rows.acknowledged_of(row, _clock.now_ms())
    return render_page(request, "notification", app, row=notification_rows.row_of(row), taken=taken)


@login_required
@require_POST
def notification_retry(request: HttpRequest, notification_id: int) -> HttpResponse:
    """Try a notification again."""
    row = get_object_or_404(_notifications(request), pk=notification_id)
    access.require_organisation(person_of(request), row.organisation_id, Right.RETRY_NOTIFICATION)
    actions.try_again(row, by=person_of(request), now_ms=_clock.now_ms())
    return redirect("alerts:notification", notification_id)


@login_required
@require_POST
def notification_acknowledge(request: HttpRequest, notification_id: int) -> HttpResponse:
    """Take the open alerts of a notification, so that they are not repeated."""
    row = get_object_or_404(_notifications(request), pk=notification_id)
    access.require_organisation(person_of(request), row.organisation_id, Right.ACKNOWLEDGE)
    now_ms = _clock.now_ms()
    count = actions.take(row, by=person_of(request), until_ms=now_ms + limits.ACKNOWLEDGE_MS, now_ms=now_ms)
    messages.success(request, f"Acknowledged for a day: {count}.")
    return redirect("alerts:notification", notification_id)


@login_required
@require_POST
def contact_point_write(request: HttpRequest) -> HttpResponse:
    """Create or replace a contact point."""
    app = app_of(request, Right.MANAGE_CONTACT_POINTS)
    form = ContactPointForm(request.POST)
    if form.is_valid():
        values = form.cleaned_data
        try:
            actions.add_contact_point(
                app.organisation, values["name"], values["receivers"], by=person_of(request), now_ms=_clock.now_ms()
            )
        except SpmError as refusal:
            messages.error(request, str(refusal))
    else:
        messages.error(request, " ".join(str(error) for errors in form.errors.values() for error in errors))
    return redirect(f"/alerts/notifications?app={app.pk}")


@login_required
@require_POST
def contact_point_delete(request: HttpRequest, point_id: int) -> HttpResponse:
    """Delete a contact point."""
    app = app_of(request, Right.MANAGE_CONTACT_POINTS)
    point = get_object_or_404(ContactPoint, pk=point_id, organisation=app.organisation_id)
    actions.remove_contact_point(point, by=person_of(request), now_ms=_clock.now_ms())
    return redirect(f"/alerts/notifications?app={app.pk}")


@login_required
@require_POST
def receiver_test(request: HttpRequest, receiver_id: int) -> HttpResponse:
    """Send a test notification, and show its delivery."""
    app = app_of(request, Right.TEST_RECEIVER)
    receiver = get_object_or_404(Receiver, pk=receiver_id, organisation=app.organisation_id)
    try:
        row = actions.test_fire(receiver, by=person_of(request), now_ms=_clock.now_ms())
    except SpmError as refusal:
        messages.error(request, str(refusal))
        return redirect(f"/alerts/notifications?app={app.pk}")
    return redirect("alerts:notification", row.pk)


@login_required
@require_http_methods(["GET", "POST"])
def silence_list(request: HttpRequest) -> HttpResponse:
    """Show the silences of an organisation, and create one."""
    app = app_of(request, Right.SILENCE if request.method == "POST" else Right.SEE_APP)
    form = SilenceForm(request.POST if request.method == "POST" else None)
    if form.is_bound and form.is_valid():
        now_ms, values = _clock.now_ms(), form.cleaned_data
        try:
            actions.add_silence(
                app.organisation,
                values["matchers"],
                from_ms=now_ms,
                to_ms=now_ms + values["duration_ms"],
                comment=values["comment"],
                by=person_of(request),
                now_ms=now_ms,
            )
        except SpmError as refusal:
            form.add_error(None, str(refusal))
        else:
            return redirect(f"/alerts/silences?app={app.pk}")
    silences = notification_rows.silences_of(app.organisation_id, _clock.now_ms())
    return render_page(request, "silences", app, form=form, silences=silences)


@login_required
@require_GET
def silence_preview(request: HttpRequest) -> HttpResponse:
    """Show which open alerts the matchers being typed select: a part of the page of silences."""
    app = app_of(request)
    preview = notification_rows.preview_of(app.organisation_id, request.GET.get("matchers", ""))
    return render_page(request, "parts/silence_preview", app, preview=preview)


@login_required
@require_POST
def silence_end(request: HttpRequest, silence_id: int) -> HttpResponse:
    """End a silence now."""
    app = app_of(request, Right.SILENCE)
    silence = get_object_or_404(Silence, pk=silence_id, organisation=app.organisation_id)
    actions.end_silence(silence, by=person_of(request), now_ms=_clock.now_ms())
    return redirect(f"/alerts/silences?app={app.pk}")


def _notifications(request: HttpRequest) -> Any:
    """Select the notifications of the person's organisations."""
    organisations = access.apps_of(person_of(request)).values("organisation")
    return Notification.objects.filter(organisation__in=organisations).select_related("receiver", "organisation")


def render_page(request: HttpRequest, name: str, app: App, **context: Any) -> HttpResponse:
    """Render a page of alerting for a person who sees the app."""
    context |= {"app": app, "rights": access.rights_in(person_of(request), app)}
    response = render(request, f"alerts/{name}.html", context)
    response["Cache-Control"] = "no-store"  # who is notified, and by what address
    return response
