"""The pages of delivery: the balance of samples, outcomes by hour and source, gaps, rejections, dead letters."""

from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse

from frontend.pages.base import AppPage
from frontend.presenters import delivery
from ingest.accept import rejections
from ingest.accounting import dead_letter_review
from ingest.models import RejectedLine
from rollups.services import runs as services_runs
from spm import limits
from spm.errors import SpmError

LINES_SHOWN = 50


class Delivery(AppPage):
    """The present balance. The outcomes of the last hours are a part of their own, because they may take seconds."""

    template_name = "frontend/delivery.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the balance; if the store is unavailable, only the numbers are missing."""
        context = super().get_context_data(**kwargs)
        context |= {"hours": hours_of(self.request), "spans": delivery.SPANS}
        try:
            balance = delivery.read_balance(context["app"])
        except SpmError as error:
            return {**context, "problem": f"The balance cannot be read now: {error}"}
        return {**context, "balance": balance, "entries": delivery.balance_entries(balance)}


class DeliveryHours(AppPage):
    """The part with outcomes by hour and source, and the gaps."""

    template_name = "frontend/parts/delivery_hours.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the newest hours first, and the sources in trouble first."""
        context = super().get_context_data(**kwargs)
        hours = hours_of(self.request)
        try:
            span = delivery.read_hours(context["app"], hours)
        except SpmError as error:
            return {**context, "problem": f"The hours cannot be read now: {error}"}
        by_source, shown_max = span.by_source(), limits.BALANCE_SOURCES_SHOWN
        losing = [line for line in by_source[:shown_max] if line.lost]
        complete = [line for line in by_source[:shown_max] if not line.lost]
        return {
            **context,
            "hours": hours,
            "spans": delivery.SPANS,
            "span": span,
            "total": span.total(),
            "by_hour": delivery.hour_bars(span),
            "losing": losing,
            "complete": complete,
            "source_tables": [lines for lines in (losing, complete) if lines],
            "more_sources": max(0, len(by_source) - shown_max),
            "gaps": span.gaps[: limits.BALANCE_GAPS_SHOWN],
            "more_gaps": max(0, len(span.gaps) - limits.BALANCE_GAPS_SHOWN),
        }


class Download(AppPage):
    """All rows of some hours, as CSV or JSON lines."""

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse | StreamingHttpResponse:  # type: ignore[override]
        """Answer with the file; 404 for unknown contents or formats."""
        app, content, form = self.app(), request.GET.get("content", "hours"), request.GET.get("form", "csv")
        if content not in delivery.CONTENTS or form not in delivery.FORMS:
            raise Http404("There is no such download.")
        try:
            return delivery.download_response(app, hours_of(request), content, form)
        except SpmError as error:
            return HttpResponse(f"The balance cannot be read now: {error}\n", status=503, content_type="text/plain")


class RejectedLines(AppPage):
    """The latest rejected lines with their reasons, and the quotas of the app."""

    template_name = "frontend/rejected.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add one page of lines, newest first, of one reason or of all."""
        context = super().get_context_data(**kwargs)
        app, reason = context["app"], self.request.GET.get("reason", "")[:300].replace("\0", "\ufffd")
        before = self.request.GET.get("before", "")
        before = before if before.isdecimal() and len(before) < 19 else ""
        of_reason = {"reason": reason} if reason else {}
        of_page = {"pk__lt": int(before)} if before else {}
        lines = RejectedLine.objects.filter(app=app, **of_reason, **of_page)[: LINES_SHOWN + 1]
        return {
            **context,
            "reason": reason,
            "reasons": rejections.by_reason(app.pk),
            "total": RejectedLine.objects.filter(app=app).count(),
            "lines": lines[:LINES_SHOWN],
            "older": lines[LINES_SHOWN - 1].pk if len(lines) > LINES_SHOWN else None,
            "before": before,
            "query": urlencode({"reason": reason} if reason else {}),
            "lines_max": limits.REJECTIONS_KEPT_MAX,
            "quota": delivery.quota_of(app),
        }


class DeadLetters(AppPage):
    """The dead letters of an app. Staff decide about them in the administration."""

    template_name = "frontend/dead_letters.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add one page of dead letters."""
        context = super().get_context_data(**kwargs)
        before = self.request.GET.get("before", "")
        try:
            dead_letters = dead_letter_review.list_dead_letters(
                services_runs.site().store, context["app"].pk, count=limits.DEAD_LETTERS_PAGE, before=before
            )
        except SpmError as error:
            return {**context, "problem": f"Dead letters cannot be read now: {error}"}
        older = dead_letters[-1].key if len(dead_letters) == limits.DEAD_LETTERS_PAGE else ""
        return {**context, "dead_letters": dead_letters, "older": older}


def hours_of(request: HttpRequest) -> int:
    """Return how many hours the address asks for: one of the offered spans, else a day."""
    text = request.GET.get("hours", "")
    return next((hours for hours, _ in delivery.SPANS if str(hours) == text), 24)
