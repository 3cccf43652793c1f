"""The page of noise: which rules notified most, what nobody acted on, what began anew, and what a longer for had saved.

It shows the report of a week, or counts the last seven days, for which nothing is tried. Contact points get it by mail.
"""

from collections.abc import Sequence

from django.contrib.auth.decorators import login_required
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_GET, require_POST

from alerts.models.noise import NoiseReport, NoisyRule
from alerts.models.telling import ContactPoint
from alerts.noise import limits
from alerts.noise.counts import count_last_week
from alerts.pages.notifications import render_page
from alerts.pages.scope import app_of, person_of
from alerts.telling import actions
from spm.accounts.organisations.rights import Right
from spm.clock import SystemClock

_clock = SystemClock()
_ORDERS = {"notifications": "Notified most", "unattended": "Nobody acted on", "flaps": "Began anew"}
_NOW = "now"


@login_required
@require_GET
def noise_report(request: HttpRequest) -> HttpResponse:
    """Show one report of the organisation: that of the last week unless another is asked for."""
    app = app_of(request)
    report, rows = _chosen(request.GET.get("report", ""), app.organisation_id)
    order = request.GET.get("by", "")
    order = order if order in _ORDERS else "notifications"
    return render_page(
        request,
        "noise",
        app,
        report=report,
        rows=sorted((row for row in rows if getattr(row, order)), key=lambda row: -getattr(row, order)),
        order=order,
        orders=_ORDERS,
        reports=_reports(app.organisation_id)[: limits.REPORTS_SHOWN],
        flap_ms=limits.FLAP_MS,
        points=ContactPoint.objects.filter(organisation=app.organisation_id).prefetch_related("receivers"),
    )


@login_required
@require_POST
def report_want(request: HttpRequest, point_id: int) -> HttpResponse:
    """Have the weekly report mailed to the addresses of a contact point, or not any more."""
    app = app_of(request, Right.MANAGE_CONTACT_POINTS)
    point = get_object_or_404(ContactPoint, pk=point_id, organisation=app.organisation_id)
    actions.want_report(point, wants=request.POST.get("wants") == "yes", by=person_of(request))
    return redirect(f"/alerts/noise?app={app.pk}")


def _chosen(name: str, organisation: int) -> tuple[NoiseReport, Sequence[NoisyRule]]:
    """Return the report of this number, or the newest; if there is none, or for ``now``, the last seven days."""
    is_number = name.isascii() and name.isdecimal() and len(name) < 19
    reports = _reports(organisation)
    report = get_object_or_404(reports, pk=int(name)) if is_number else None if name == _NOW else reports.first()
    if report is None:
        return count_last_week(organisation, _clock.now_ms())
    return report, list(report.noisy_rules.select_related("rule__app"))


def _reports(organisation: int) -> QuerySet[NoiseReport]:
    return NoiseReport.objects.filter(organisation=organisation)
