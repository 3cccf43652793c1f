"""Middleware that answers pushes without the rest: no session, no cookies, no static files, no policy for pages.

A push shows a token and gets a status; what Django does for pages costs more than parsing its samples. The URLs are
those of ``FAST_PATH_NAMES``, looked up in a table instead of through every pattern of the site. Protection stays: the
host is checked, nothing is sniffed, framed, run or cached, and HTTPS is remembered where the site has it. Only
middleware that measures is in front of it. Enter by ``FastPath``.
"""

from collections.abc import Callable

from django.conf import settings
from django.core.handlers.exception import convert_exception_to_response
from django.http import HttpRequest, HttpResponse
from django.urls import ResolverMatch, URLPattern

from ingest.http import urls

Handler = Callable[[HttpRequest], HttpResponse]
POLICY = "default-src 'none'; frame-ancestors 'none'"


class FastPath:
    """The middleware."""

    def __init__(self, get_response: Handler) -> None:
        self._rest = get_response
        self._views = _views_by_path()
        self._headers = protective_headers()

    def __call__(self, request: HttpRequest) -> HttpResponse:
        entry = self._views.get(request.path_info)
        if entry is None:
            return self._rest(request)
        match, view = entry
        request.resolver_match = match
        response = view(request)
        for name, value in self._headers.items():
            response.headers[name] = value
        if settings.SECURE_HSTS_SECONDS and request.is_secure():
            response.headers["Strict-Transport-Security"] = f"max-age={settings.SECURE_HSTS_SECONDS}"
        if not response.has_header("Content-Length"):
            response.headers["Content-Length"] = str(len(response.content))
        return response


def protective_headers() -> dict[str, str]:
    """Return the headers that protect an answer which is no page."""
    return {
        "Content-Security-Policy": POLICY,
        "X-Frame-Options": settings.X_FRAME_OPTIONS,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": settings.SECURE_REFERRER_POLICY,
        "Cross-Origin-Opener-Policy": settings.SECURE_CROSS_ORIGIN_OPENER_POLICY,
        "Cache-Control": "no-store",
    }


def _views_by_path() -> dict[str, tuple[ResolverMatch, Handler]]:
    """Return path → its resolver match and view, of all fast URLs that are one path each."""
    views = {}
    for pattern in urls.urlpatterns:
        path = str(pattern.pattern)
        if isinstance(pattern, URLPattern) and pattern.name in urls.FAST_PATH_NAMES:
            names = {"url_name": pattern.name, "app_names": [urls.app_name], "namespaces": [urls.app_name]}
            match = ResolverMatch(pattern.callback, (), {}, **names, route=path)  # type: ignore[arg-type]
            view: Handler = convert_exception_to_response(_with_host_check(pattern.callback))  # type: ignore[assignment]
            views[f"/{path}"] = match, view
    return views


def _with_host_check(view: Handler) -> Handler:
    def checked(request: HttpRequest) -> HttpResponse:
        request.get_host()  # raises for a host that is not ours
        return view(request)

    return checked
