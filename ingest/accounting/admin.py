"""Balances of all apps in the admin: which apps wait, which lost samples, whose balance does not add up.

The list rests on watermarks alone, a few rows per app. The page of one app reads the rows above them, too, and shows
each accepting process.
"""

from collections.abc import Callable
from typing import Any, ClassVar

from django.conf import settings
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.views.generic import TemplateView
from unfold.admin import ModelAdmin
from unfold.views import UnfoldModelAdminViewMixin

from ingest.accounting import balance, dead_letter_review
from ingest.models import AppBalance
from spm import limits
from spm.clock import SystemClock, moment
from spm.errors import SpmError
from spm.store.backends import open_backend
from spm.store.ledger.balance import BalanceSummary, ProcessBalance, SampleCounts

_clock = SystemClock()
_LINK = '<a href="{}" class="text-primary-600 underline dark:text-primary-500">{}</a>'


HEADS = (
    "Process",
    "Accepted",
    "Stored",
    "Queued",
    "In flight",
    "Unconfirmed",
    "Rejected lines",
    "Dead",
    "Too late",
    "Last stamp (UTC)",
    "Watermark (UTC)",
)


class BalanceView(UnfoldModelAdminViewMixin, TemplateView):  # type: ignore[misc]  # unfold is untyped
    """The balance of one app, process by process."""

    title = "Balance"
    permission_required = "ingest.view_appbalance"
    template_name = "ingest/balance.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the sums and a row for every process that is notable."""
        app = get_object_or_404(AppBalance, pk=self.kwargs["app_id"])
        try:
            app_balance = balance.read_now(open_backend(settings.SPM_STORE_URL), app.pk, _clock.now_ms())
        except SpmError as error:
            return super().get_context_data(app=app, problem=str(error), **kwargs)
        notable = balance.notable_processes(app_balance)
        rows = [_cells("all", app_balance.samples), *(_cells(_process_name(p), p.samples, p) for p in notable)]
        quiet, lag_s = len(app_balance.processes) - len(notable), app_balance.lag_ms // 1000
        return super().get_context_data(
            app=app, balance=app_balance, heads=HEADS, rows=rows, quiet=quiet, lag_s=lag_s, **kwargs
        )


@admin.register(AppBalance)
class AppBalanceAdmin(ModelAdmin):  # type: ignore[misc]
    """Lists apps with their balances."""

    list_display: ClassVar = ["name", "organisation", "accepted", "stored", "unsettled", "dead", "late", "lag"]
    list_display_links: ClassVar = None
    search_fields: ClassVar = ["name", "organisation__name", "=id"]
    list_select_related: ClassVar = ["organisation"]
    list_per_page = 50  # each is read from the store

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[AppBalance]:
        """Return the apps that are not being deleted."""
        rows: QuerySet[AppBalance] = super().get_queryset(request).filter(going=None)
        return rows

    def get_urls(self) -> list[URLPattern]:
        """Add the page of one app to those of the model."""
        page = self.admin_site.admin_view(BalanceView.as_view(model_admin=self))
        return [path("<int:app_id>/balance/", page, name="ingest_balance"), *super().get_urls()]

    @admin.display(description="samples accepted")
    def accepted(self, app: AppBalance) -> str:
        """Show accepted samples, linked to the balance."""
        place = reverse("admin:ingest_balance", args=[app.pk])
        return format_html(_LINK, place, _number(app, lambda summary: summary.samples.accepted))

    @admin.display(description="stored")
    def stored(self, app: AppBalance) -> str:
        """Show stored samples."""
        return _number(app, lambda summary: summary.samples.stored)

    @admin.display(description="unsettled")
    def unsettled(self, app: AppBalance) -> str:
        """Show samples above every watermark."""
        return _number(app, lambda summary: summary.samples.queued)

    @admin.display(description="dead letters")
    def dead(self, app: AppBalance) -> str:
        """Show the number of waiting dead letters, linked to them."""
        store, most = open_backend(settings.SPM_STORE_URL), limits.SITE_METRICS_DEAD_LETTERS_MAX
        count = dead_letter_review.waiting_text(store, app.pk, at_most=most)
        return format_html(_LINK, reverse("admin:ingest_dead_letters", args=[app.pk]), count)

    @admin.display(description="too late")
    def late(self, app: AppBalance) -> str:
        """Show samples that came after the retention of their hour."""
        return _number(app, lambda summary: summary.samples.late)

    @admin.display(description="lag")
    def lag(self, app: AppBalance) -> str:
        """Show the lag of the oldest watermark of a living process."""
        return _number(app, lambda summary: summary.lag_ms // 1000) + " s"


def _process_name(process: ProcessBalance) -> str:
    return f"{process.number}{', gone' if process.gone else ''}"


def _cells(name: str, at: SampleCounts, process: ProcessBalance | None = None) -> list[str]:
    """Return one row of the page; the row of all processes has no times."""
    numbers = (at.accepted, at.stored, at.queued, at.in_flight, at.unconfirmed, at.rejected, at.dead, at.late)
    times = ["", ""] if process is None else [_time(process.last_ms), _time(process.watermark_ms)]
    return [name, *(f"{number:,}" for number in numbers), *times]


def _time(ms: int) -> str:
    return f"{moment(ms):%Y-%m-%d %H:%M:%S}" if ms else "none yet"


def _number(app: AppBalance, number: Callable[[BalanceSummary], int]) -> str:
    """Return a number of the app's summary, "?" when the store does not answer; it is read once per row of the list."""
    attributes = vars(app)
    if "summary" not in attributes:
        attributes["summary"] = balance.read_summary(open_backend(settings.SPM_STORE_URL), app.pk, _clock.now_ms())
    summary: BalanceSummary | None = attributes["summary"]
    return "?" if summary is None else f"{number(summary):,}"
