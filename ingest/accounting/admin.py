"""Accounts of all apps in the admin: who waits, who lost something, whose account does not add up.

The list rests on marks alone, a few rows per app; the page of one app reads what lies above them and shows each
accepting process.
"""

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
from ingest.models import AccountBook
from spm import limits
from spm.clock import SystemClock, moment
from spm.errors import SpmError
from spm.store.backends import open_backend
from spm.store.ledger.balance import BalanceSummary, ProcessBalance, SampleCounts

_clock = SystemClock()
_LINK = '<a href="{}" class="text-primary-600 underline dark:text-primary-500">{}</a>'


HEADS = (
    "ProcessBalance",
    "Accepted",
    "Stored",
    "Queued",
    "In flight",
    "Unconfirmed",
    "Refused lines",
    "Dead",
    "Too late",
    "Last stamp (UTC)",
    "Mark (UTC)",
)


class AccountView(UnfoldModelAdminViewMixin, TemplateView):  # type: ignore[misc]  # unfold is untyped
    """The account of one app, process by process."""

    title = "Account"
    permission_required = "ingest.view_accountbook"
    template_name = "ingest/account.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """With every process that is not long gone and settled."""
        app = get_object_or_404(AccountBook, pk=self.kwargs["app_id"])
        try:
            found = balance.now(open_backend(settings.SPM_STORE_URL), app.pk, _clock.now_ms())
        except SpmError as error:
            return super().get_context_data(app=app, problem=str(error), **kwargs)
        shown = balance.of_interest(found)
        rows = [_cells("all", found.samples), *(_cells(_named(p), p.samples, p) for p in shown)]
        quiet, lag_s = len(found.processes) - len(shown), found.lag_ms // 1000
        return super().get_context_data(
            app=app, account=found, heads=HEADS, rows=rows, quiet=quiet, lag_s=lag_s, **kwargs
        )


@admin.register(AccountBook)
class AccountBookAdmin(ModelAdmin):  # type: ignore[misc]
    """Apps, with where their samples are."""

    list_display: ClassVar = ["name", "organisation", "accepted", "stored", "unsettled", "dead", "late", "lag"]
    list_display_links: ClassVar = None
    search_fields: ClassVar = ["name", "organisation__name", "=id"]
    list_select_related: ClassVar = ["organisation"]
    list_per_page = 50  # each is read from the store

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody adds."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody changes."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody deletes."""
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[AccountBook]:
        """Apps that are there."""
        found: QuerySet[AccountBook] = super().get_queryset(request).filter(going=None)
        return found

    def get_urls(self) -> list[URLPattern]:
        """The page of one app beside those of the model."""
        page = self.admin_site.admin_view(AccountView.as_view(model_admin=self))
        return [path("<int:app_id>/account/", page, name="ingest_account"), *super().get_urls()]

    @admin.display(description="samples accepted")
    def accepted(self, app: AccountBook) -> str:
        """With the way to the account."""
        place = reverse("admin:ingest_account", args=[app.pk])
        return format_html(_LINK, place, _told(_glance(app), lambda found: found.samples.accepted))

    @admin.display(description="stored")
    def stored(self, app: AccountBook) -> str:
        """In the store."""
        return _told(_glance(app), lambda found: found.samples.stored)

    @admin.display(description="unsettled")
    def unsettled(self, app: AccountBook) -> str:
        """Above every mark."""
        return _told(_glance(app), lambda found: found.samples.queued)

    @admin.display(description="dead letters")
    def dead(self, app: AccountBook) -> str:
        """Letters that wait, with the way to them."""
        store, most = open_backend(settings.SPM_STORE_URL), limits.STANDING_LETTERS_MAX
        shown = dead_letter_review.waiting_told(store, app.pk, at_most=most)
        return format_html(_LINK, reverse("admin:ingest_letters", args=[app.pk]), shown)

    @admin.display(description="too late")
    def late(self, app: AccountBook) -> str:
        """Past their retention."""
        return _told(_glance(app), lambda found: found.samples.late)

    @admin.display(description="lag")
    def lag(self, app: AccountBook) -> str:
        """Of the oldest mark of a living process."""
        return _told(_glance(app), lambda found: found.lag_ms // 1000) + " s"


def _named(process: ProcessBalance) -> str:
    return f"{process.number}{', gone' if process.gone else ''}"


def _cells(name: str, at: SampleCounts, process: ProcessBalance | None = None) -> list[str]:
    """One row of the page; the row of all has no times."""
    numbers = (at.accepted, at.stored, at.queued, at.in_flight, at.unconfirmed, at.rejected, at.dead, at.late)
    times = ["", ""] if process is None else [_moment(process.last_ms), _moment(process.mark_ms)]
    return [name, *(f"{number:,}" for number in numbers), *times]


def _moment(ms: int) -> str:
    return f"{moment(ms):%Y-%m-%d %H:%M:%S}" if ms else "none yet"


def _glance(app: AccountBook) -> BalanceSummary | None:
    """Read once per row of the list; ``None`` when the store cannot tell."""
    held = vars(app)
    if "glance" not in held:
        held["glance"] = balance.glimpse(open_backend(settings.SPM_STORE_URL), app.pk, _clock.now_ms())
    found: BalanceSummary | None = held["glance"]
    return found


def _told(found: BalanceSummary | None, number: Any) -> str:
    return "?" if found is None else f"{number(found):,}"
