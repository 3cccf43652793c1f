"""Ingest in the admin: recent rejections, for reading, and dead letters, which can be replayed or dismissed."""

from typing import Any, ClassVar, cast

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.views.generic import TemplateView
from unfold.admin import ModelAdmin
from unfold.views import UnfoldModelAdminViewMixin

from ingest.accept.process_acceptor import accept_again
from ingest.accounting import admin as accounting_admin
from ingest.accounting import dead_letter_review
from ingest.accounting.dead_letter_review import ReviewResult
from ingest.models import AppDeadLetters, RejectedLine
from spm import limits
from spm.accounts import audit
from spm.errors import SpmError
from spm.store.backends import open_backend
from spm.store.ledger.dead_letters import UNKNOWN_APP

__all__ = ["AppDeadLettersAdmin", "RejectedLineAdmin", "accounting_admin"]  # Django loads this module alone


class _ReadOnlyAdmin(ModelAdmin):  # type: ignore[misc]  # unfold is untyped
    """Rows that the system writes and people only read."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(RejectedLine)
class RejectedLineAdmin(_ReadOnlyAdmin):
    """Lists rejected lines, newest first."""

    list_display: ClassVar = ["app", "source", "line", "reason", "example"]
    list_filter: ClassVar = ["app"]
    search_fields: ClassVar = ["source", "reason", "example"]
    list_select_related: ClassVar = ["app"]


class DeadLettersView(UnfoldModelAdminViewMixin, TemplateView):  # type: ignore[misc]
    """The dead letters of one app, to be replayed or dismissed."""

    title = "Dead letters"
    permission_required = "ingest.view_appdeadletters"
    template_name = "ingest/dead_letters.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add one page of dead letters."""
        app = _app(self.kwargs["app_id"])
        store, before = open_backend(settings.SPM_STORE_URL), self.request.GET.get("before", "")
        try:
            rows = dead_letter_review.list_dead_letters(store, app.pk, count=limits.DEAD_LETTERS_PAGE, before=before)
        except SpmError as error:
            return super().get_context_data(app=app, problem=str(error), **kwargs)
        return super().get_context_data(
            app=app,
            dead_letters=rows,
            older=rows[-1].key if len(rows) == limits.DEAD_LETTERS_PAGE else "",
            may_settle=self.request.user.has_perm("ingest.change_appdeadletters"),
            of_unknown_app="" if app.pk == UNKNOWN_APP else reverse("admin:ingest_dead_letters", args=[UNKNOWN_APP]),
            **kwargs,
        )

    def post(self, request: HttpRequest, app_id: int) -> HttpResponse:
        """Replay or dismiss the selected dead letters."""
        if not request.user.has_perm("ingest.change_appdeadletters"):
            return cast(HttpResponse, self.handle_no_permission())
        app = _app(app_id)
        store, keys = open_backend(settings.SPM_STORE_URL), request.POST.getlist("key")
        act = "replay" if request.POST.get("act") == "replay" else "dismiss"
        try:
            result = dead_letter_review.settle(store, app.pk, keys, act, accept_again)
        except SpmError as error:
            result = ReviewResult(0, (f"Nothing was done: {error}",))
        _show_result(request, result, {"replay": "accepted again", "dismiss": "dismissed"}[act])
        audit.record(
            f"{act} dead letters",
            str(app),
            actor=cast(User, request.user),
            organisation=None if app.pk == UNKNOWN_APP else app.organisation,
            detail={"keys": keys, "done": result.done},
        )
        return HttpResponseRedirect(reverse("admin:ingest_dead_letters", args=[app.pk]))


def _app(app_id: int) -> AppDeadLetters:
    if app_id == UNKNOWN_APP:
        return AppDeadLetters(pk=UNKNOWN_APP, name="an unknown app")
    app: AppDeadLetters = get_object_or_404(AppDeadLetters, pk=app_id)
    return app


def _show_result(request: HttpRequest, result: ReviewResult, verb: str) -> None:
    if result.done:
        messages.success(request, f"{result.done} {verb}.")
    for reason in result.refused:
        messages.error(request, reason)


@admin.register(AppDeadLetters)
class AppDeadLettersAdmin(_ReadOnlyAdmin):
    """Lists apps with their dead letters."""

    list_display: ClassVar = ["name", "organisation", "waiting"]
    list_display_links: ClassVar = None
    search_fields: ClassVar = ["name", "organisation__name"]
    list_select_related: ClassVar = ["organisation"]
    list_per_page = 50  # each is counted in the store

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse: dead letters stay, for the balance."""
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[AppDeadLetters]:
        """Return the apps that are not being deleted."""
        rows: QuerySet[AppDeadLetters] = super().get_queryset(request).filter(going=None)
        return rows

    def get_urls(self) -> list[URLPattern]:
        """Add the page of one app's dead letters to those of the model."""
        page = self.admin_site.admin_view(DeadLettersView.as_view(model_admin=self))
        return [path("<int:app_id>/dead_letters/", page, name="ingest_dead_letters"), *super().get_urls()]

    @admin.display(description="waiting")
    def waiting(self, app: AppDeadLetters) -> str:
        """Show the number of waiting dead letters, linked to them."""
        store, most = open_backend(settings.SPM_STORE_URL), limits.DEAD_LETTERS_COUNTED_MAX
        count = dead_letter_review.waiting_text(store, app.pk, at_most=most)
        place = reverse("admin:ingest_dead_letters", args=[app.pk])
        return format_html('<a href="{}" class="text-primary-600 underline dark:text-primary-500">{}</a>', place, count)
