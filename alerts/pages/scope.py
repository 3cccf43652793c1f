"""What a request asks for: the person who is logged in, the app that its address names, and numbers in it."""

from typing import cast

from django.contrib.auth.models import User
from django.http import Http404, HttpRequest

from spm.accounts import access
from spm.accounts.models import App
from spm.accounts.organisations.rights import Right

_APP_CHARS_MAX = 100  # Python reads no number of some thousand digits


def person_of(request: HttpRequest) -> User:
    """Return the person who is logged in."""
    return cast(User, request.user)


def app_of(request: HttpRequest, right: Right = Right.SEE_APP) -> App:
    """Return the app that ``app=`` names, else the person's first one; 404 or 403 without the right."""
    text = request.GET.get("app", "")
    person = person_of(request)
    if len(text) > _APP_CHARS_MAX:
        raise Http404("No app has such a number.")
    app = access.app_of_person(person, int(text) if text.isascii() and text.isdigit() else None)
    return access.require_app(person, app.pk, right)


def whole_number(text: str) -> int:
    """Read a number of an address or a form; -1, which nothing has, for what is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1
