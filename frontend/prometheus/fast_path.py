"""Answers queries with a token without Django's request, response, signals and middleware.

A dashboard sends dozens of small queries at once, and Django's work around a view costs as much as answering one. This
is a WSGI application in front of Django's. It takes the plain calls: GET, or POST with a form, of an address that
answers with JSON, with a token, for an allowed host. All other calls go to Django. Both paths call the same views, so
permissions, limits, errors and explanations are equal. The protective headers are equal too, as for pushes
(``spm.web.protective_headers``): no sniffing, framing, scripts or caching, and HSTS where the site has it.

Light queries are answered on the event loop, since two changes of thread cost more than they do: those of which the
last one with this text and step, over a range of about this length, took less than ``LIGHT_S``. Each is bounded again
while it runs, by few series, samples and cells, and by its time. It uses only what is in memory; whatever would have to
be read, decoded or waited for makes it a query for a thread, as every error does. Enter by `FastPath`.
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
from spm.bounded import LruCache
from spm.clock import SystemClock, thread_cpu_s
from spm.errors import BadQuery, NotInMemory
from spm.query.formats import prometheus
from spm.query.request.budget import Usage
from spm.query.request.limits import (
    LIGHT_CELLS_MAX,
    LIGHT_KNOWN_MAX,
    LIGHT_S,
    LIGHT_SAMPLES_MAX,
    LIGHT_SERIES_MAX,
    LIGHT_TEXT_CHARS_MAX,
)
from spm.telemetry import count_request
from spm.web.http_protocol import AnswerAtOnce, Reply, header_line
from spm.web.protective_headers import protective_headers, transport_security

PREFIX = "/prometheus/"
# These have bodies of their own kinds, and few callers: Django answers them.
_OTHER_BODIES = frozenset({"api/v1/read", "federate"})
_LIGHT_PATHS = frozenset({f"{PREFIX}api/v1/query", f"{PREFIX}api/v1/query_range"})
_LEFT_TO_THREADS: tuple[type[Exception], ...] = (NotInMemory, *endpoint.HANDLED_ERRORS)
_PARAMETERS, _QUESTION = "spm.parameters", "spm.question"  # of the environment: what the event loop has read already
_FOR_THREADS = ("explain", "asof")  # parameters of calls that look into the database, or into the past
_GZIP_LINE = b"content-encoding: gzip\r\n"
_HOSTS_MAX, _STATUS_LINES_MAX, _LEFT_MAX = 64, 64, 64  # cached, and left to threads
_clock, _log = SystemClock(), logging.getLogger("django.request")

Environ = dict[str, Any]
Start = Callable[..., Any]
Application = Callable[[Environ, Start], Iterable[bytes]]
_Answer = tuple[int, bytes, dict[str, str]]  # status, body, headers
_Question = tuple[object, ...]  # an app, and what it is asked
_Route = tuple[str, endpoint.Handler, dict[str, str]]  # the name of a view, its handler, and the parameters in the path


class FastPath:
    """A WSGI application that answers plain queries and passes all other requests to Django's."""

    def __init__(self, django: Application) -> None:
        self._django, self._routes = django, _Routes()
        self._light: LruCache[_Question, bool] = LruCache(LIGHT_KNOWN_MAX)  # queries that are light
        self._left: set[_Question] = set()  # that a thread is to answer next
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
        status, body, headers = self._respond(environ, secret, handler, path_parameters)
        return _begin(self._headers, name, environ, (status, body, headers), started_s, start_response)

    def at_once(self, environ: Environ, start_response: Start) -> Iterable[bytes] | None:
        """Answer a light query on the event loop; ``None`` for every other request, which a thread must answer."""
        path: str = environ["PATH_INFO"]
        if path not in _LIGHT_PATHS or not _is_plain(environ) or not _is_short(environ):
            return None
        started_s, digest = _clock.monotonic(), _digest_of(environ)
        caller = None if digest is None else access.caller_in_memory(digest)
        if caller is None:
            return None
        try:
            parameters = environ[_PARAMETERS] = _parameters(environ)
            question = environ[_QUESTION] = _question(caller.app_id, path, parameters)
            if question in self._left:
                self._left.discard(question)
                return None
            answer = self._light_answer(caller, question, parameters, environ.get("HTTP_ACCEPT", ""))
        except _LEFT_TO_THREADS:
            return None
        if answer is None:
            return None
        name, body = answer
        return _begin(self._headers, name, environ, (HTTPStatus.OK, body, {}), started_s, start_response)

    def further(self, environ: Environ) -> AnswerAtOnce | None:
        """Return what answers light queries whose head is that of a request but for the target, or the body's length.

        The request is one that ``at_once`` has answered.
        """
        digest, method, accepts = _digest_of(environ), environ["REQUEST_METHOD"], environ.get("HTTP_ACCEPT", "")
        takes_gzip = endpoint.accepts_gzip(environ)
        lines = _lines([*self._headers, *_transport_security(environ)])
        if digest is None:
            return None

        def answer(target: bytes, form: bytes) -> Reply | None:
            started_s, (path, _, text) = _clock.monotonic(), target.decode("ascii").partition("?")
            caller = access.caller_in_memory(digest)
            if caller is None or path not in _LIGHT_PATHS or len(text) + len(form) > LIGHT_TEXT_CHARS_MAX:
                return None
            question: _Question | None = None
            try:
                parameters = Parameters(fields(form), fields(text.encode()))
                question = _question(caller.app_id, path, parameters)
                light = self._light_answer(caller, question, parameters, accepts)
            except _LEFT_TO_THREADS:
                self._leave(question)
                return None
            if light is None:
                return None
            name, body = light
            coding = b""
            if takes_gzip and endpoint.is_large(body):
                body, coding = endpoint.gzip_body(body), _GZIP_LINE
            count_request(name, method, HTTPStatus.OK, started_s)
            return HTTPStatus.OK, b"%b%bcontent-length: %d\r\n" % (lines, coding, len(body)), body

        return answer

    def _light_answer(
        self, caller: access.Caller, question: _Question | None, parameters: Parameters, accepts: str
    ) -> tuple[str, bytes] | None:
        """Return the name of a light query's view and its body; ``None`` for a query that is not known to be light."""
        if question is None or not self._light.get(question):
            return None
        route = self._routes.find(str(question[1]).removeprefix(PREFIX))
        assert route is not None, "BUG: a light path without a view"
        name, handler, path_parameters = route
        body = handler(endpoint.light_call_of(caller, parameters, accepts), path_parameters)
        assert isinstance(body, bytes), "BUG: a query that is not answered with JSON"
        return name, body

    def _leave(self, question: _Question | None) -> None:
        """Let a thread answer a light query that has just failed on the loop: its request is read as any other now."""
        if len(self._left) >= _LEFT_MAX:
            self._left.clear()
        if question is not None:
            self._left.add(question)

    def _respond(
        self, environ: Environ, secret: str, handler: endpoint.Handler, path_parameters: dict[str, str]
    ) -> _Answer:
        """Return the answer to a call, and remember whether it was a light one."""
        begun_s, path = thread_cpu_s(), environ["PATH_INFO"]
        try:
            parameters = environ.get(_PARAMETERS) or _parameters(environ)
            call = endpoint.call_of(access.caller_of_token(secret), parameters, environ)
            body = handler(call, path_parameters)
            assert isinstance(body, bytes), "BUG: an endpoint of the fast path that does not answer with JSON"
        except endpoint.HANDLED_ERRORS as error:
            return endpoint.error_parts(error)
        except Exception:
            _log.exception("a query failed unexpectedly: %s", _escaped_path(path))
            return HTTPStatus.INTERNAL_SERVER_ERROR, prometheus.failure("internal", "something went wrong here"), {}
        question: _Question | None = environ.get(_QUESTION)
        if _QUESTION not in environ and path in _LIGHT_PATHS:
            question = _question(call.caller.app_id, path, parameters)
        if question is not None:
            is_light = thread_cpu_s() - begun_s < LIGHT_S and _is_small(call.budget.usage)
            if is_light or question in self._light:
                self._light.put(question, is_light)
        return HTTPStatus.OK, body, {}


def _begin(
    standard: list[tuple[str, str]],
    name: str,
    environ: Environ,
    answer: _Answer,
    started_s: float,
    start_response: Start,
) -> Iterable[bytes]:
    """Begin a response with these headers and those of its answer, and return its body."""
    status, body, headers = answer
    path: str = environ["PATH_INFO"]
    if endpoint.is_worth_gzip(body, environ):
        body = endpoint.gzip_body(body)
        headers["Content-Encoding"] = "gzip"
    headers.update(_transport_security(environ))
    if status >= HTTPStatus.BAD_REQUEST:
        level = logging.ERROR if status >= HTTPStatus.INTERNAL_SERVER_ERROR else logging.WARNING
        _log.log(level, "%s: %s", _status_line(status), _escaped_path(path))
    start_response(_status_line(status), [*standard, *headers.items(), ("Content-Length", str(len(body)))])
    count_request(name, environ["REQUEST_METHOD"], status, started_s)
    return (body,)


def _transport_security(environ: Environ) -> list[tuple[str, str]]:
    if not settings.SECURE_HSTS_SECONDS:
        return []
    return list(transport_security(WSGIRequest(environ).is_secure()).items())


def _lines(headers: Iterable[tuple[str, str]]) -> bytes:
    return b"".join(header_line(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers)


def _digest_of(environ: Environ) -> bytes | None:
    """Return the hash of a request's token."""
    secret = tokens.from_header(environ["HTTP_AUTHORIZATION"])
    return None if secret is None else tokens.digest_of(secret)


def _parameters(environ: Environ) -> Parameters:
    return Parameters(fields(_read_form(environ)), fields(environ["QUERY_STRING"].encode("latin-1", "replace")))


def _question(app_id: int, path: str, parameters: Parameters) -> _Question | None:
    """Return what two calls that cost about as much have in common; ``None`` for calls that only threads answer."""
    text = parameters.text
    if any(map(text, _FOR_THREADS)) or len(text("query") or "") > LIGHT_TEXT_CHARS_MAX:
        return None
    span_ms = 0
    if path.endswith("query_range"):
        span_ms = parameters.required_instant("end") - parameters.required_instant("start")
    return app_id, path, text("query"), text("step"), text("lookback_delta"), span_ms.bit_length()


def _is_small(usage: Usage) -> bool:
    return usage.series <= LIGHT_SERIES_MAX and usage.samples <= LIGHT_SAMPLES_MAX and usage.cells <= LIGHT_CELLS_MAX


def _is_short(environ: Environ) -> bool:
    """Whether the parameters of a call are read in some microseconds."""
    form = int(environ["CONTENT_LENGTH"]) if environ["REQUEST_METHOD"] == "POST" else 0
    return len(environ["QUERY_STRING"]) + form <= LIGHT_TEXT_CHARS_MAX


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
