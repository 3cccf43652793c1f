"""Middleware that counts and times every request by the name of its view.

It stands first, so that the time includes all other middleware. Names come from the site's own list of addresses. A
request that matches none of them is counted as ``none``, so that strangers cannot invent label values.
"""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from spm import telemetry
from spm.clock import SystemClock

_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_clock = SystemClock()


class RequestMetrics:
    """The middleware: times a request and counts its answer."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        begun = _clock.monotonic()
        response = self._get_response(request)
        counted(_view(request), request.method or "", response.status_code, begun)
        return response


def counted(view: str, method: str, status: int, begun: float) -> None:
    """Counts a request that was answered now; ``begun`` is the time of ``monotonic`` when it arrived."""
    telemetry.count_request(view, method if method in _METHODS else "other", status, _clock.monotonic() - begun)


def _view(request: HttpRequest) -> str:
    """Returns the view's name. The admin counts as one view, however many models it has."""
    match = request.resolver_match
    if match is None:
        return "none"
    return "admin" if match.app_name == "admin" else match.view_name or "none"
