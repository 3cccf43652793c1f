"""Middleware that takes pushes past the rest: no session, no cookies, no static files, no pages' policy.

A push shows a token and gets a status; what Django does for pages costs it more than parsing its samples. The addresses
are this room's own, found by one look into a table instead of through every pattern of the site. What protects stays:
the host is checked, nothing is sniffed, framed, run or cached, and HTTPS is remembered where the site has it. It stands
in front of all middleware but that which only measures.
"""

from collections.abc import Callable

from django.conf import settings
from django.core.handlers.exception import convert_exception_to_response
from django.http import HttpRequest, HttpResponse
from django.urls import ResolverMatch, URLPattern

from ingest.http import urls

Answer = Callable[[HttpRequest], HttpResponse]
POLICY = "default-src 'none'; frame-ancestors 'none'"


class Lean:
    """See the module."""

    def __init__(self, get_response: Answer) -> None:
        self._rest = get_response
        self._doors = _doors()
        self._headers = protection()

    def __call__(self, request: HttpRequest) -> HttpResponse:
        door = self._doors.get(request.path_info)
        if door is None:
            return self._rest(request)
        match, view = door
        request.resolver_match = match
        response = view(request)
        for name, value in self._headers.items():
            response.headers[name] = value
        if settings.SECURE_HSTS_SECONDS and request.is_secure():
            response.headers["Strict-Transport-Security"] = f"max-age={settings.SECURE_HSTS_SECONDS}"
        if not response.has_header("Content-Length"):
            response.headers["Content-Length"] = str(len(response.content))
        return response


def protection() -> dict[str, str]:
    """The headers that protect an answer which is no page."""
    return {
        "Content-Security-Policy": POLICY,
        "X-Frame-Options": settings.X_FRAME_OPTIONS,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": settings.SECURE_REFERRER_POLICY,
        "Cross-Origin-Opener-Policy": settings.SECURE_CROSS_ORIGIN_OPENER_POLICY,
        "Cache-Control": "no-store",
    }


def _doors() -> dict[str, tuple[ResolverMatch, Answer]]:
    """Path → how it is known, and its view; of all addresses of this room that are one path each."""
    found = {}
    for pattern in urls.urlpatterns:
        path = str(pattern.pattern)
        if isinstance(pattern, URLPattern) and pattern.name in urls.LEAN:
            names = {"url_name": pattern.name, "app_names": [urls.app_name], "namespaces": [urls.app_name]}
            match = ResolverMatch(pattern.callback, (), {}, **names, route=path)  # type: ignore[arg-type]
            view: Answer = convert_exception_to_response(_checked(pattern.callback))  # type: ignore[assignment]
            found[f"/{path}"] = match, view
    return found


def _checked(view: Answer) -> Answer:
    def answer(request: HttpRequest) -> HttpResponse:
        request.get_host()  # raises for a host that is not ours
        return view(request)

    return answer
