"""The front door in the admin: recent rejections, for reading, and dead letters, which can be accepted anew."""

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

from ingest.accept.acceptor import accept_anew
from ingest.accounting import admin as accounting_admin
from ingest.accounting import dead_letter_review
from ingest.accounting.dead_letter_review import Outcome
from ingest.models import LetterBox, RejectedLine
from spm import limits
from spm.accounts import audit
from spm.errors import SpmError
from spm.store.backends import open_backend
from spm.store.ledger.dead_letters import NOBODY

__all__ = ["LetterBoxAdmin", "RejectedLineAdmin", "accounting_admin"]  # Django looks into this module alone


class _LookOnly(ModelAdmin):  # type: ignore[misc]  # unfold is untyped
    """Rows the system writes; people only look."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nobody adds."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody changes."""
        return False


@admin.register(RejectedLine)
class RejectedLineAdmin(_LookOnly):
    """What senders sent that was not taken, newest first."""

    list_display: ClassVar = ["app", "source", "line", "reason", "example"]
    list_filter: ClassVar = ["app"]
    search_fields: ClassVar = ["source", "reason", "example"]
    list_select_related: ClassVar = ["app"]


class LettersView(UnfoldModelAdminViewMixin, TemplateView):  # type: ignore[misc]
    """The dead letters of one app, with the two things that can be done about them."""

    title = "Dead letters"
    permission_required = "ingest.view_letterbox"
    template_name = "ingest/letters.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """One page of letters."""
        app = _box(self.kwargs["app_id"])
        store, before = open_backend(settings.SPM_STORE_URL), self.request.GET.get("before", "")
        try:
            found = dead_letter_review.listed(store, app.pk, count=limits.LETTERS_PAGE, before=before)
        except SpmError as error:
            return super().get_context_data(app=app, problem=str(error), **kwargs)
        older = found[-1].key if len(found) == limits.LETTERS_PAGE else ""
        may = self.request.user.has_perm("ingest.change_letterbox")
        nobodys = "" if app.pk == NOBODY else reverse("admin:ingest_letters", args=[NOBODY])
        return super().get_context_data(app=app, letters=found, older=older, may_settle=may, nobodys=nobodys, **kwargs)

    def post(self, request: HttpRequest, app_id: int) -> HttpResponse:
        """Replay or dismiss the chosen letters."""
        if not request.user.has_perm("ingest.change_letterbox"):
            return cast(HttpResponse, self.handle_no_permission())
        app = _box(app_id)
        store, keys = open_backend(settings.SPM_STORE_URL), request.POST.getlist("key")
        act = "replay" if request.POST.get("act") == "replay" else "dismiss"
        try:
            done = dead_letter_review.settle(store, app.pk, keys, act, accept_anew)
        except SpmError as error:
            done = Outcome(0, (f"Nothing was done: {error}",))
        _tell(request, done, {"replay": "accepted anew", "dismiss": "dismissed"}[act])
        audit.record(
            f"{act} dead letters",
            str(app),
            actor=cast(User, request.user),
            organisation=None if app.pk == NOBODY else app.organisation,
            detail={"keys": keys, "done": done.done},
        )
        return HttpResponseRedirect(reverse("admin:ingest_letters", args=[app.pk]))


def _box(app_id: int) -> LetterBox:
    """The letters of an app, or of nobody."""
    if app_id == NOBODY:
        return LetterBox(pk=NOBODY, name="nobody's app")
    found: LetterBox = get_object_or_404(LetterBox, pk=app_id)
    return found


def _tell(request: HttpRequest, outcome: Outcome, done: str) -> None:
    if outcome.done:
        messages.success(request, f"{outcome.done} {done}.")
    for reason in outcome.refused:
        messages.error(request, reason)


@admin.register(LetterBox)
class LetterBoxAdmin(_LookOnly):
    """Apps, with the way to their dead letters."""

    list_display: ClassVar = ["name", "organisation", "waiting"]
    list_display_links: ClassVar = None
    search_fields: ClassVar = ["name", "organisation__name"]
    list_select_related: ClassVar = ["organisation"]
    list_per_page = 50  # each is counted in the store

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Letters stay, for the account."""
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[LetterBox]:
        """Apps that are there."""
        found: QuerySet[LetterBox] = super().get_queryset(request).filter(going=None)
        return found

    def get_urls(self) -> list[URLPattern]:
        """The page of one app's letters beside those of the model."""
        page = self.admin_site.admin_view(LettersView.as_view(model_admin=self))
        return [path("<int:app_id>/letters/", page, name="ingest_letters"), *super().get_urls()]

    @admin.display(description="waiting")
    def waiting(self, app: LetterBox) -> str:
        """How many letters wait, and the way to them."""
        store, most = open_backend(settings.SPM_STORE_URL), limits.LETTERS_COUNTED_MAX
        shown = dead_letter_review.waiting_told(store, app.pk, at_most=most)
        place = reverse("admin:ingest_letters", args=[app.pk])
        return format_html('<a href="{}" class="text-primary-600 underline dark:text-primary-500">{}</a>', place, shown)
