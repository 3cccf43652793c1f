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

from frontend.pages.account.views import Logout
from frontend.refusals import answers_refusals


class AdminSite(UnfoldAdminSite):  # type: ignore[misc]  # unfold is untyped
    """Unfold's site without pages of its own for passwords."""

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
