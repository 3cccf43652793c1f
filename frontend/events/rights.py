"""Who may listen to an app: a token with the scope ``read`` to its own, a person's session to those of the person.

The check reads the database, so it runs in a thread; it is the same when a listener comes and each time again. Enter by
``credential_of`` and ``grant_of``.
"""

from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user
from django.http import Http404, HttpRequest

from spm.accounts import access, tokens
from spm.errors import BadQuery, SpmError


class NotSignedIn(SpmError):
    """There is neither a valid token nor a session."""


class NoSuchApp(SpmError):
    """The app does not exist, or belongs to others."""


@dataclass(frozen=True, slots=True)
class Credential:
    """What a listener shows: the text of a token, else the key of a session; and the app that it asks for."""

    token: str
    session: str
    app: int | None


@dataclass(frozen=True, slots=True)
class Grant:
    """The app that a listener may listen to, and the organisation whose bounds hold for it."""

    app_id: int
    organisation_id: int


def credential_of(authorization: str, cookies: str, app: int | None) -> Credential:
    """Return what a request shows; raises ``NotSignedIn`` where that is nothing. A token goes before a session."""
    token = tokens.from_header(authorization)
    session = "" if token else _session_key(cookies)
    if not token and not session:
        raise NotSignedIn("send a token: Authorization: Bearer spm_…, or log in")
    return Credential(token or "", session, app)


def grant_of(credential: Credential) -> Grant:
    """Check a credential; raises ``NotSignedIn`` or ``NoSuchApp``. Called in a thread."""
    try:
        return _of_token(credential) if credential.token else _of_session(credential)
    except Http404 as error:
        raise NoSuchApp(str(error)) from error


def _of_token(credential: Credential) -> Grant:
    principal = tokens.authenticate(credential.token, "read")
    if principal is None:
        raise NotSignedIn("the token is unknown, revoked, or lacks the scope read")
    app = access.app_of_token(principal, credential.app)
    return Grant(app.pk, app.organisation_id)


def _of_session(credential: Credential) -> Grant:
    request: Any = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(credential.session)
    user = get_user(request)  # also compares the session with the person's present password
    if not user.is_authenticated:
        raise NotSignedIn("the session has ended: log in again")
    app = access.app_of_person(user, credential.app)
    return Grant(app.pk, app.organisation_id)


def _session_key(cookies: str) -> str:
    if not cookies:
        return ""
    try:
        morsel = SimpleCookie(cookies).get(settings.SESSION_COOKIE_NAME)
    except CookieError:
        return ""
    return morsel.value if morsel is not None else ""


def app_number(text: str | None) -> int | None:
    """Return the number of an app that a request names, ``None`` where it names none. Raises ``BadQuery``."""
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise BadQuery(f"app={text[:20]!r} is no app's number")
    return int(text)
