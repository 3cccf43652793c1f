"""Decides whose data a call may read: that of the token's app, or an app of the session's user.

A token alone determines the app; `app=` counts only with a session. The views are exempt from Django's CSRF check,
because programs send forms without cookies; so a form with a session instead of a token is checked here. Enter by
`caller_of`.
"""

from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import CsrfViewMiddleware

from frontend.prometheus.parameters import Parameters
from spm.accounts import access, tokens
from spm.errors import SpmError
from spm.fast_dataclass import dataclass


class NotSignedIn(SpmError):
    """The call has neither a valid token nor a session."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The app whose data a call reads, and the organisation whose limits hold for it."""

    app_id: int
    organisation_id: int


class _CsrfCheck(CsrfViewMiddleware):
    def _reject(self, request: HttpRequest, reason: str) -> HttpResponse:
        raise NotSignedIn(f"CSRF check failed: {reason}")


def caller_of(request: HttpRequest, parameters: Parameters) -> Caller:
    """Return the app that the call reads, with its organisation; raises `NotSignedIn`, or 404 for an app of others."""
    secret = tokens.from_request(request)
    if secret is not None:
        return caller_of_token(secret)
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        raise NotSignedIn("send a token: Authorization: Bearer spm_…, or Basic with it as the password")
    _check_form(request)
    app = access.app_of_person(user, parameters.whole_number("app"))
    return Caller(app.pk, app.organisation_id)


def caller_of_token(secret: str) -> Caller:
    """Return the app of a token, with its organisation; raises `NotSignedIn`."""
    principal = tokens.authenticate(secret, "read")
    if principal is None:
        raise NotSignedIn("the token is unknown, revoked, or lacks the scope read")
    return Caller(principal.app_id, principal.organisation_id)


def caller_in_memory(digest: bytes) -> Caller | None:
    """As ``caller_of_token``, of a token's hash and without a look into the database.

    ``None`` where that is needed, or the token is bad.
    """
    try:
        principal = tokens.principal_from_cache(digest, "read")
    except KeyError:
        return None
    return None if principal is None else Caller(principal.app_id, principal.organisation_id)


def _check_form(request: HttpRequest) -> None:
    check = _CsrfCheck(lambda _: HttpResponse())
    check.process_request(request)
    check.process_view(request, lambda _: HttpResponse(), (), {})
