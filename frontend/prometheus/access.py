"""Whose data a call may read: that of its token's app, or of the session's person.

A token alone names its app; `app=` is looked at only with a session. The views are exempt from Django's CSRF check,
because programs send forms without cookies; so a form that comes with a session instead of a token is checked here.
"""

from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import CsrfViewMiddleware

from frontend.prometheus.parameters import Asked
from spm.accounts import access, tokens
from spm.errors import SpmError
from spm.fast_dataclass import dataclass


class NotSignedIn(SpmError):
    """The call shows neither a usable token nor a session that may do this."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose data is read, and who pays for it."""

    app_id: int
    organisation_id: int


class _Check(CsrfViewMiddleware):
    def _reject(self, request: HttpRequest, reason: str) -> HttpResponse:
        raise NotSignedIn(f"CSRF check failed: {reason}")


def caller_of(request: HttpRequest, asked: Asked) -> Caller:
    """The app the call reads, with its organisation; `NotSignedIn`, or 404 for an app of others."""
    secret = tokens.from_request(request)
    if secret is not None:
        return caller_by(secret)
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        raise NotSignedIn("send a token: Authorization: Bearer spm_…, or Basic with it as the password")
    _check_form(request)
    app = access.app_of_person(user, asked.whole_number("app"))
    return Caller(app.pk, app.organisation_id)


def caller_by(secret: str) -> Caller:
    """The app a token names, with its organisation; `NotSignedIn`."""
    principal = tokens.authenticate(secret, "read")
    if principal is None:
        raise NotSignedIn("the token is unknown, revoked, or lacks the scope read")
    return Caller(principal.app_id, principal.organisation_id)


def _check_form(request: HttpRequest) -> None:
    check = _Check(lambda _: HttpResponse())
    check.process_request(request)
    check.process_view(request, lambda _: HttpResponse(), (), {})
