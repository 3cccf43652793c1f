"""The admin's site. Its login, logout and password page are those of everybody, so there is one way to each.

Enter by ``AdminSite``, which ``spm.apps`` names.
"""

from collections.abc import Callable
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from unfold.sites import UnfoldAdminSite

from frontend import site_metrics
from frontend.pages.account.views import Logout
from frontend.presenters.console import tiles_of
from frontend.refusals import answers_refusals
from spm.clock import SystemClock
from spm.errors import SpmError

_clock = SystemClock()


class AdminSite(UnfoldAdminSite):  # type: ignore[misc]  # unfold is untyped
    """Unfold's site without pages of its own for passwords; its first page is the console of the whole site."""

    index_template = "frontend/console.html"

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponseBase:
        """Show what waits, failed or is late, above the list of models; without the store, the list alone."""
        try:
            tiles = tiles_of(site_metrics.recent_figures(), _clock.now_ms())
        except SpmError as error:
            return super().index(request, {"problem": str(error), **(extra_context or {})})  # type: ignore[no-any-return]
        return super().index(request, {"tiles": tiles, **(extra_context or {})})  # type: ignore[no-any-return]

    def register(self, model_or_iterable: Any, admin_class: Any = None, **options: Any) -> None:
        """Register a model; the pages of a library's own, which our accounts have better, are left out."""
        if admin_class is None or not admin_class.__module__.startswith("allauth."):
            super().register(model_or_iterable, admin_class, **options)

    def admin_view(
        self, view: Callable[..., HttpResponseBase], cacheable: bool = False
    ) -> Callable[..., HttpResponseBase]:
        """Check the person; a password that cannot be hashed at this moment is answered with 429."""
        checked: Callable[..., HttpResponseBase] = super().admin_view(answers_refusals(view), cacheable)
        return checked

    @method_decorator([never_cache, login_not_required])
    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponseBase:
        """Lead to the login page, and from there back; who is logged in already and may not enter gets 403."""
        if self.has_permission(request):
            return redirect("admin:index")
        if request.user.is_authenticated:
            raise PermissionDenied("The admin is for staff.")
        return redirect_to_login(request.GET.get("next", "/admin/"))

    def logout(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponseBase:
        """Log the person out."""
        return Logout.as_view()(request)

    def password_change(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponseBase:
        """Lead to the page that changes the password."""
        return redirect("frontend:password")
