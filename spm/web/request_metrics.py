"""Middleware that counts and times every request by the name of its view.

It stands first, so that the time includes all other middleware. Names come from the site's own list of addresses. A
request that matches none of them is counted as ``none``, so that strangers cannot invent label values.
"""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from spm import telemetry
from spm.clock import SystemClock

_clock = SystemClock()


class RequestMetrics:
    """The middleware: times a request and counts its answer."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        begun = _clock.monotonic()
        response = self._get_response(request)
        telemetry.count_request(_view(request), request.method or "", response.status_code, begun)
        return response


def _view(request: HttpRequest) -> str:
    """Returns the view's name. The admin counts as one view, however many models it has."""
    match = request.resolver_match
    if match is None:
        return "none"
    return "admin" if match.app_name == "admin" else match.view_name or "none"
