"""Answers queries with a token without Django's request, response, signals and middleware.

A dashboard sends dozens of small queries at once, and Django's work around a view costs as much as answering one. This
is a WSGI application in front of Django's. It takes the plain calls: GET, or POST with a form, of an address that
answers with JSON, with a token, for an allowed host. All other calls go to Django. Both paths call the same views, so
permissions, limits, errors and explanations are equal. The protective headers are equal too, as for pushes
(``spm.web.protective_headers``): no sniffing, framing, scripts or caching, and HSTS where the site has it. Enter by
`FastPath`.
"""

import logging
from collections.abc import Callable, Iterable
from functools import lru_cache
from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.core.handlers.wsgi import WSGIRequest
from django.db import close_old_connections
from django.http.request import split_domain_port, validate_host
from django.urls import Resolver404, URLPattern

from frontend.prometheus import access, endpoint, urls
from frontend.prometheus.bodies import check_length
from frontend.prometheus.parameters import FORM, MULTIPART, Parameters, fields
from spm.accounts import tokens
from spm.clock import SystemClock
from spm.errors import BadQuery
from spm.query.formats import prometheus
from spm.telemetry import count_request
from spm.web.protective_headers import protective_headers

PREFIX = "/prometheus/"
# These have bodies of their own kinds, and few callers: Django answers them.
_OTHER_BODIES = frozenset({"api/v1/read", "federate"})
_HOSTS_MAX, _STATUS_LINES_MAX = 64, 64  # cached
_clock, _log = SystemClock(), logging.getLogger("django.request")

Environ = dict[str, Any]
Start = Callable[..., Any]
Application = Callable[[Environ, Start], Iterable[bytes]]
_Route = tuple[str, endpoint.Handler, dict[str, str]]  # the name of a view, its handler, and the parameters in the path


class FastPath:
    """A WSGI application that answers plain queries and passes all other requests to Django's."""

    def __init__(self, django: Application) -> None:
        self._django, self._routes = django, _Routes()
        self._headers = [("Content-Type", "application/json"), ("Vary", endpoint.VARY), *protective_headers().items()]

    def __call__(self, environ: Environ, start_response: Start) -> Iterable[bytes]:
        """Answer one request, or pass it to Django."""
        if not _is_plain(environ):
            return self._django(environ, start_response)
        path: str = environ["PATH_INFO"]
        secret, route = tokens.from_header(environ["HTTP_AUTHORIZATION"]), self._routes.find(path.removeprefix(PREFIX))
        if secret is None or route is None:
            return self._django(environ, start_response)
        started_s, (name, handler, path_parameters) = _clock.monotonic(), route
        close_old_connections()  # the only one of Django's signal handlers that matters here
        status, body, headers = _respond(environ, secret, handler, path_parameters)
        if endpoint.is_worth_gzip(body, environ):
            body = endpoint.gzip_body(body)
            headers["Content-Encoding"] = "gzip"
        if settings.SECURE_HSTS_SECONDS and WSGIRequest(environ).is_secure():
            headers["Strict-Transport-Security"] = f"max-age={settings.SECURE_HSTS_SECONDS}"
        if status >= HTTPStatus.BAD_REQUEST:
            level = logging.ERROR if status >= HTTPStatus.INTERNAL_SERVER_ERROR else logging.WARNING
            _log.log(level, "%s: %s", _status_line(status), _escaped_path(path))
        start_response(_status_line(status), [*self._headers, *headers.items(), ("Content-Length", str(len(body)))])
        count_request(name, environ["REQUEST_METHOD"], status, started_s)
        return (body,)


def _respond(
    environ: Environ, secret: str, handler: endpoint.Handler, path_parameters: dict[str, str]
) -> tuple[int, bytes, dict[str, str]]:
    """Return (status, body, headers) of a call."""
    try:
        parameters = Parameters(
            fields(_read_form(environ)), fields(environ["QUERY_STRING"].encode("latin-1", "replace"))
        )
        body = handler(endpoint.call_of(access.caller_of_token(secret), parameters, environ), path_parameters)
        assert isinstance(body, bytes), "BUG: an endpoint of the fast path that does not answer with JSON"
    except endpoint.HANDLED_ERRORS as error:
        return endpoint.error_parts(error)
    except Exception:
        _log.exception("a query failed unexpectedly: %s", _escaped_path(environ["PATH_INFO"]))
        return HTTPStatus.INTERNAL_SERVER_ERROR, prometheus.failure("internal", "something went wrong here"), {}
    return HTTPStatus.OK, body, {}


def _escaped_path(path: str) -> str:
    """Escape a path, so that it is one line in a log."""
    return path.encode("unicode_escape").decode()


def _is_plain(environ: Environ) -> bool:
    """Whether the fast path answers a call, by its headers and method."""
    if "HTTP_AUTHORIZATION" not in environ or "HTTP_X_FORWARDED_HOST" in environ or environ.get("SCRIPT_NAME"):
        return False
    if not environ["PATH_INFO"].startswith(PREFIX) or not environ["PATH_INFO"].isascii():
        return False
    if not _is_allowed_host(environ.get("HTTP_HOST", ""), tuple(settings.ALLOWED_HOSTS)):
        return False
    method: str = environ["REQUEST_METHOD"]
    kind: str = environ.get("CONTENT_TYPE", "")
    if method == "GET":
        return MULTIPART not in kind.lower()  # Django reads such a form with any method
    return method == "POST" and kind == FORM and environ.get("CONTENT_LENGTH", "").isdecimal()


@lru_cache(maxsize=_HOSTS_MAX)
def _is_allowed_host(host: str, allowed: tuple[str, ...]) -> bool:
    name, _ = split_domain_port(host)
    return bool(name) and validate_host(name, allowed)


def _read_form(environ: Environ) -> bytes:
    if environ["REQUEST_METHOD"] != "POST":
        return b""
    check_length(environ)
    length = int(environ["CONTENT_LENGTH"])
    try:
        body: bytes = environ["wsgi.input"].read(length)
    except OSError as error:
        raise BadQuery("the form cannot be read") from error
    if len(body) < length:
        raise BadQuery(f"the form cannot be read: {len(body)} of its {length} bytes came; send it again")
    return body


@lru_cache(maxsize=_STATUS_LINES_MAX)
def _status_line(status: int) -> str:
    try:
        return f"{int(status)} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} Unknown Status Code"


class _Routes:
    """The routes of the fast path, built at the first query, so that a server without queries starts without them."""

    def __init__(self) -> None:
        self._plain: dict[str, _Route] = {}
        self._patterns: list[URLPattern] = []  # those with a label name in the path

    def find(self, route: str) -> _Route | None:
        """Return the route of an address; ``None`` if the fast path has none."""
        if not self._plain:
            self._build()
        return self._plain.get(route) or next(filter(None, (_resolve(each, route) for each in self._patterns)), None)

    def _build(self) -> None:
        self._patterns = [each for each in urls.urlpatterns if "<" in str(each.pattern)]
        for pattern in urls.urlpatterns:
            route = str(pattern.pattern)
            if pattern not in self._patterns and route not in _OTHER_BODIES:
                resolved = _resolve(pattern, route)
                assert resolved is not None, "BUG: a pattern that does not match itself"
                self._plain[route] = resolved


def _resolve(pattern: URLPattern, route: str) -> _Route | None:
    try:
        match = pattern.resolve(route)
    except Resolver404:
        return None
    return None if match is None else (match.view_name or "none", endpoint.handler_of(match.func), match.kwargs)
