"""Queries with a token, answered past Django: no request and response of its own, no signals, no middleware.

A dashboard sends dozens of small queries at once, and what Django does around a view costs as much as answering one.
This is a WSGI application in front of Django's. It takes the calls that are all alike: by GET, or by POST with a form,
of an address that answers with JSON, with a token, of a host that is ours. Whatever is unusual about any other call is
Django's to judge. The views are the same, so that who may ask, limits, errors and explanations are; and what protects
stays, as for pushes (``ingest.http.fast_path``): nothing is sniffed, framed, run or cached, and HTTPS is remembered
where the site has it.
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
from frontend.prometheus.parameters import FORM, PARTS, Asked, fields
from ingest.http.fast_path import protection
from spm.accounts import tokens
from spm.clock import SystemClock
from spm.errors import BadQuery
from spm.query.formats import prometheus
from spm.web import request_metrics

PREFIX = "/prometheus/"
_LONGER = frozenset({"api/v1/read", "federate"})  # these read and write bodies of their own; speed is not their need
_HOSTS_KEPT = 64
_clock, _log = SystemClock(), logging.getLogger("django.request")

Environ = dict[str, Any]
Start = Callable[..., Any]
Application = Callable[[Environ, Start], Iterable[bytes]]
_Door = tuple[str, endpoint.Run, dict[str, str]]  # the name of a view, what it does, and what its address says


class Lean:
    """See the module."""

    def __init__(self, rest: Application) -> None:
        self._rest, self._doors = rest, _Doors()
        self._headers = [("Content-Type", "application/json"), ("Vary", endpoint.VARY), *protection().items()]

    def __call__(self, environ: Environ, start_response: Start) -> Iterable[bytes]:
        """Answer one request."""
        if not _alike(environ):
            return self._rest(environ, start_response)
        path: str = environ["PATH_INFO"]
        secret, found = tokens.from_header(environ["HTTP_AUTHORIZATION"]), self._doors.find(path.removeprefix(PREFIX))
        if secret is None or found is None:
            return self._rest(environ, start_response)
        begun, (name, run, said) = _clock.monotonic(), found
        close_old_connections()  # what Django's signals do, and all of it that is of use here
        status, body, headers = _answered(environ, secret, run, said)
        if endpoint.worth_gzip(body, environ):
            body = endpoint.gzipped(body)
            headers["Content-Encoding"] = "gzip"
        if settings.SECURE_HSTS_SECONDS and WSGIRequest(environ).is_secure():
            headers["Strict-Transport-Security"] = f"max-age={settings.SECURE_HSTS_SECONDS}"
        if status >= HTTPStatus.BAD_REQUEST:
            level = logging.ERROR if status >= HTTPStatus.INTERNAL_SERVER_ERROR else logging.WARNING
            _log.log(level, "%s: %s", _line(status), _shown(path))
        start_response(_line(status), [*self._headers, *headers.items(), ("Content-Length", str(len(body)))])
        request_metrics.counted(name, environ["REQUEST_METHOD"], status, begun)
        return (body,)


def _answered(
    environ: Environ, secret: str, run: endpoint.Run, said: dict[str, str]
) -> tuple[int, bytes, dict[str, str]]:
    """(status, body, headers) of a call."""
    try:
        asked = Asked(fields(_form(environ)), fields(environ["QUERY_STRING"].encode("latin-1", "replace")))
        body = run(endpoint.call_of(access.caller_by(secret), asked, environ), said)
        assert isinstance(body, bytes), "BUG: a door of this way with an answer of its own kind"
    except endpoint.FAILURES as error:
        return endpoint.refusal(error)
    except Exception:
        _log.exception("a query failed unexpectedly: %s", _shown(environ["PATH_INFO"]))
        return HTTPStatus.INTERNAL_SERVER_ERROR, prometheus.failure("internal", "something went wrong here"), {}
    return HTTPStatus.OK, body, {}


def _shown(path: str) -> str:
    """A path as a log may have it, in one line."""
    return path.encode("unicode_escape").decode()


def _alike(environ: Environ) -> bool:
    """Whether a call is one of those that are all alike."""
    if "HTTP_AUTHORIZATION" not in environ or "HTTP_X_FORWARDED_HOST" in environ or environ.get("SCRIPT_NAME"):
        return False
    if not environ["PATH_INFO"].startswith(PREFIX) or not environ["PATH_INFO"].isascii():
        return False
    if not _ours(environ.get("HTTP_HOST", ""), tuple(settings.ALLOWED_HOSTS)):
        return False
    method: str = environ["REQUEST_METHOD"]
    kind: str = environ.get("CONTENT_TYPE", "")
    if method == "GET":
        return PARTS not in kind.lower()  # such a form is read by any method
    return method == "POST" and kind == FORM and environ.get("CONTENT_LENGTH", "").isdecimal()


@lru_cache(maxsize=_HOSTS_KEPT)
def _ours(host: str, allowed: tuple[str, ...]) -> bool:
    name, _ = split_domain_port(host)
    return bool(name) and validate_host(name, allowed)


def _form(environ: Environ) -> bytes:
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


@lru_cache(maxsize=_HOSTS_KEPT)
def _line(status: int) -> str:
    try:
        return f"{int(status)} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} Unknown Status Code"


class _Doors:
    """Addresses and what answers them, looked up at the first query: a server that is asked none starts without."""

    def __init__(self) -> None:
        self._plain: dict[str, _Door] = {}
        self._named: list[URLPattern] = []  # with a label's name in them

    def find(self, route: str) -> _Door | None:
        """What answers an address, if it is answered here."""
        if not self._plain:
            self._open()
        return self._plain.get(route) or next(filter(None, (_matched(each, route) for each in self._named)), None)

    def _open(self) -> None:
        self._named = [each for each in urls.urlpatterns if "<" in str(each.pattern)]
        for pattern in urls.urlpatterns:
            route = str(pattern.pattern)
            if pattern not in self._named and route not in _LONGER:
                found = _matched(pattern, route)
                assert found is not None, "BUG: a pattern that does not match itself"
                self._plain[route] = found


def _matched(pattern: URLPattern, route: str) -> _Door | None:
    try:
        match = pattern.resolve(route)
    except Resolver404:
        return None
    return None if match is None else (match.view_name or "none", endpoint.run_of(match.func), match.kwargs)
