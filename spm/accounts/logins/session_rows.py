"""Notes which sessions a person has, and when and from where each was last used, for the page of sessions.

A row is written at a login, and by ``NoteSessions``, a middleware, at most once in ``SESSION_NOTED_EVERY_S``: a page
costs no write.
"""

from collections.abc import Callable

from allauth.usersessions.models import UserSession
from django.http import HttpRequest, HttpResponseBase

from spm.accounts.logins.limits import SESSION_NOTED_EVERY_S, SESSIONS_NOTED_MAX
from spm.bounded import TtlMap
from spm.clock import SystemClock

_clock = SystemClock()
_noted: TtlMap[str, bool] = TtlMap(SESSIONS_NOTED_MAX, SESSION_NOTED_EVERY_S)


class NoteSessions:
    """Notes the session of a request that has used one."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self._get_response(request)
        key = request.session.session_key
        if key and request.session.accessed and request.user.is_authenticated:
            _noted.get_or_load(key, _clock.monotonic(), lambda: _note(request))
        return response


def _note(request: HttpRequest) -> bool:
    UserSession.objects.create_from_request(request)
    return True
