"""Where an app's samples went: the account, by hour and source, with gaps; refused lines; dead letters."""

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse

from frontend.pages.base import AppPage
from frontend.presenters import delivery
from ingest.accept import rejections
from ingest.accounting import dead_letter_review
from ingest.models import RejectedLine
from rollups.services import runs as services_runs
from spm import limits
from spm.errors import SpmError


class Delivery(AppPage):
    """The account of now. What became of the last hours comes in a part of its own, since it may take seconds."""

    template_name = "frontend/delivery.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """With every place; a store that is away costs the numbers, not the page."""
        context = super().get_context_data(**kwargs)
        context |= {"hours": hours_of(self.request), "spans": delivery.SPANS}
        try:
            found = delivery.now(context["app"])
        except SpmError as error:
            return {**context, "problem": f"The account cannot be read now: {error}"}
        return {**context, "account": found, "places": delivery.places(found)}


class DeliveryHours(AppPage):
    """The part by hour and source, with the gaps."""

    template_name = "frontend/parts/delivery_hours.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """With the newest hours first, and the sources in trouble first."""
        context = super().get_context_data(**kwargs)
        hours = hours_of(self.request)
        try:
            found = delivery.span(context["app"], hours)
        except SpmError as error:
            return {**context, "problem": f"The hours cannot be read now: {error}"}
        by_source, most = found.by_source(), limits.ACCOUNT_SOURCES_SHOWN
        return {
            **context,
            "hours": hours,
            "spans": delivery.SPANS,
            "span": found,
            "sum": found.whole(),
            "by_hour": delivery.told_hours(found),
            "by_source": by_source[:most],
            "more_sources": max(0, len(by_source) - most),
            "gaps": found.gaps[: limits.ACCOUNT_GAPS_SHOWN],
            "more_gaps": max(0, len(found.gaps) - limits.ACCOUNT_GAPS_SHOWN),
        }


class Download(AppPage):
    """All rows of some hours, as CSV or JSON lines."""

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse | StreamingHttpResponse:  # type: ignore[override]
        """The file; 404 for contents or a form that there is not."""
        app, content, form = self.app(), request.GET.get("content", "hours"), request.GET.get("form", "csv")
        if content not in delivery.CONTENTS or form not in delivery.FORMS:
            raise Http404("There is no such download.")
        try:
            return delivery.file(app, hours_of(request), content, form)
        except SpmError as error:
            return HttpResponse(f"The account cannot be read now: {error}\n", status=503, content_type="text/plain")


class Refused(AppPage):
    """What was refused last, why, and how near the app is to its quotas."""

    template_name = "frontend/refused.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """The newest first, of one reason or all; a store that is away costs the number of series, not the page."""
        context = super().get_context_data(**kwargs)
        app, reason = context["app"], self.request.GET.get("reason", "")[:300]
        found = RejectedLine.objects.filter(app=app, **({"reason": reason} if reason else {}))
        return {
            **context,
            "reason": reason,
            "reasons": rejections.by_reason(app.pk),
            "total": RejectedLine.objects.filter(app=app).count(),
            "lines": found[: limits.REJECTIONS_KEPT_MAX],
            "kept": limits.REJECTIONS_KEPT_MAX,
            "quota": delivery.quota_of(app),
        }


class Letters(AppPage):
    """The dead letters, to look at; staff settle them."""

    template_name = "frontend/letters.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """One page of them."""
        context = super().get_context_data(**kwargs)
        before = self.request.GET.get("before", "")
        try:
            found = dead_letter_review.listed(
                services_runs.site().store, context["app"].pk, count=limits.LETTERS_PAGE, before=before
            )
        except SpmError as error:
            return {**context, "problem": f"Dead letters cannot be read now: {error}"}
        older = found[-1].key if len(found) == limits.LETTERS_PAGE else ""
        return {**context, "letters": found, "older": older}


def hours_of(request: HttpRequest) -> int:
    """How many hours the address asks for: one of those that are offered, a day if it is none."""
    asked = request.GET.get("hours", "")
    return next((hours for hours, _ in delivery.SPANS if str(hours) == asked), 24)
