"""Whose data a call may read: that of its token's app, or of the session's person.

A token alone names its app; `app=` is looked at only with a session. The views are exempt from Django's CSRF check,
because programs send forms without cookies; so a form that comes with a session instead of a token is checked here.
"""

from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import CsrfViewMiddleware

from frontend.prometheus.parameters import whole_number
from spm.accounts import access, tokens
from spm.errors import SpmError


class NotSignedIn(SpmError):
    """The call shows neither a usable token nor a session that may do this."""


class _Check(CsrfViewMiddleware):
    def _reject(self, request: HttpRequest, reason: str) -> HttpResponse:
        raise NotSignedIn(f"CSRF check failed: {reason}")


def app_of(request: HttpRequest) -> int:
    """The store's number of the app the call reads; `NotSignedIn`, or 404 for an app of others."""
    secret = tokens.from_request(request)
    if secret is not None:
        principal = tokens.authenticate(secret, "read")
        if principal is None:
            raise NotSignedIn("the token is unknown, revoked, or lacks the scope read")
        return principal.app_id
    if not request.user.is_authenticated:
        raise NotSignedIn("send a token: Authorization: Bearer spm_…, or Basic with it as the password")
    _check_form(request)
    return access.app_of_person(request.user, whole_number(request, "app")).pk


def _check_form(request: HttpRequest) -> None:
    check = _Check(lambda _: HttpResponse())
    check.process_request(request)
    check.process_view(request, lambda _: HttpResponse(), (), {})
