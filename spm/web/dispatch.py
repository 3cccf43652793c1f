"""The ASGI application of a web process: hands each request to the part of the site that answers it.

1. Addresses of ingest are answered on the event loop, by the push application.
2. So are addresses whose answers wait for long (events), by ASGI applications of their own.
3. Everything else is WSGI, in one of five pools of threads, so that no class of work takes the threads of another:
   logins, queries, names, transfers (exports, imports, remote reads), and pages with all the rest. Within a pool the
   requests take turns by key: the token's organisation, else the session, else the client's address. An application
   with ``at_once`` may answer a light query on the event loop, where its key has room in the pool; so may
   ``refuse_login`` refuse a login.

Enter by ``Dispatcher``.
"""

import asyncio
import hashlib
import logging
import re
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from http.cookies import CookieError, SimpleCookie
from typing import Any, Protocol

from django.conf import settings
from django.http.request import split_domain_port, validate_host

from spm import limits
from spm.accounts import tokens
from spm.bounded import LruCache
from spm.clock import Clock
from spm.web.error_status import HOST_REFUSED
from spm.web.fair_pool import FairPool
from spm.web.http_protocol import Connections
from spm.web.wsgi_bridge import (
    LightApplication,
    Work,
    WsgiApplication,
    WsgiBridge,
    json_refusal,
    plain_refusal,
    prometheus_refusal,
    send_refusal,
)

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
_LOG = logging.getLogger("django.security.DisallowedHost")
_PROMETHEUS, _API = "/prometheus/", "/api/"
_LOGIN = "/login"
_LOGINS = (_LOGIN, "/signup", "/account/", "/admin/login/")
_TRANSFERS = (
    *("/api/v1/export", "/api/v1/import"),
    *("/prometheus/api/v1/read", "/prometheus/federate", "/prometheus/api/v1/export"),
)
_LONG_BODIES = ("/api/v1/import",)
_QUERIES = (
    *("/api/v1/charts", "/api/v1/percentiles"),
    *("/prometheus/api/v1/query", "/prometheus/api/v1/query_range", "/prometheus/api/v1/query_exemplars"),
)
_TIMEOUT = re.compile(rb"(?:^|&)timeout=([0-9]{1,4}(?:\.[0-9]{1,3})?)s?(?:&|$)")
_HOSTS_CACHED = 256
_TOKEN_ID_CHARS = 12  # ``spm_`` and the token's public id


class PushApplication(Protocol):
    """Answers pushes on the event loop."""

    async def __call__(self, endpoint: Any, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request of an endpoint."""

    def close(self) -> None:
        """Hand over what waits, and take nothing more."""


class Listener(Protocol):
    """Takes pushes by another protocol than HTTP, at a port of its own."""

    async def start(self) -> None:
        """Listen."""

    async def stop(self) -> None:
        """Take nothing more; return when what is at work is answered."""


class AsgiApplication(Protocol):
    """Answers on the event loop."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

    def stop(self) -> None:
        """End answers that wait, each whole, since the process is about to end."""


@dataclass(frozen=True, slots=True)
class Site:
    """The parts that a dispatcher joins: what answers pushes, pages, and queries with a token."""

    endpoint_of: Callable[[str], Any]  # of ingest, by path; ``None`` for all other paths
    open_push_application: Callable[[FairPool], PushApplication]
    pages: WsgiApplication
    queries: Callable[[], WsgiApplication]
    open_streams: Callable[[FairPool], Mapping[str, AsgiApplication]] = lambda _: {}  # by path
    open_listeners: Callable[[Any], Sequence[Listener]] = lambda _: ()  # of its push application
    refuse_login: LightApplication | None = None  # by what is in memory, on the event loop


class Dispatcher:
    """Answers the requests of one event loop."""

    def __init__(self, site: Site, connections: Connections, clock: Clock) -> None:
        self._site, self.connections = site, connections
        self._hosts = tuple(settings.ALLOWED_HOSTS)
        self._bridge = WsgiBridge(clock, self._note_organisation)
        self._organisations: LruCache[str, int] = LruCache(limits.SESSIONS_KNOWN_MAX)  # by session
        self._pages = _pool("pages", limits.PAGE_THREADS)
        self._queries = _pool("queries", limits.QUERY_THREADS)
        self._names = _pool("names", limits.NAME_THREADS)
        self._transfers = _pool("transfers", limits.TRANSFER_THREADS)
        self._logins = _pool("logins", limits.LOGIN_THREADS)
        self._push = site.open_push_application(self._names)
        self._streams = site.open_streams(self._names)
        self._listeners = site.open_listeners(self._push)
        self._stopping: list[asyncio.Task[None]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path: str = scope["path"]
        endpoint = self._site.endpoint_of(path)
        stream = self._streams.get(path) if scope["method"] != "POST" else None  # what is written waits for nothing
        if endpoint is None and stream is None:
            await self._bridge(self._work_of(scope, path), scope, receive, send)
        elif not self._is_for_us(scope):
            _LOG.warning("Invalid HTTP_HOST header: %r", _header(scope, b"host")[:80])
            await send_refusal(send, plain_refusal(400, HOST_REFUSED))
        elif stream is not None:
            await stream(scope, receive, send)
        else:
            await self._push(endpoint, scope, receive, send)

    async def start(self) -> None:
        """Listen at the ports that are not HTTP's."""
        for listener in self._listeners:
            await listener.start()

    def stop(self) -> None:
        """End answers that wait for something to happen, and take no pushes by other ports: no new connections come
        any more.
        """
        for application in self._streams.values():
            application.stop()
        self._stopping = [asyncio.ensure_future(listener.stop()) for listener in self._listeners]

    async def stopped(self) -> None:
        """Return when the pushes by other ports are answered."""
        await asyncio.gather(*self._stopping)

    def close(self) -> None:
        """Hand over the pushes that wait, and start nothing more."""
        self._push.close()
        for pool in (self._pages, self._queries, self._names, self._transfers, self._logins):
            pool.close()

    def _is_for_us(self, scope: Scope) -> bool:
        return _is_allowed_host(_header(scope, b"host"), self._hosts)

    def _work_of(self, scope: Scope, path: str) -> Work:
        authorization = _header(scope, b"authorization")
        key = self._key_of(scope, authorization)
        if path.startswith(_LOGINS) and scope["method"] not in ("GET", "HEAD"):  # their forms are pages as any other
            at_once = self._site.refuse_login if path == _LOGIN and self._is_for_us(scope) else None
            return Work(self._site.pages, self._logins, key, body_max=limits.LOGIN_BODY_BYTES_MAX, at_once=at_once)
        if path.startswith(_PROMETHEUS):
            refusal, application = prometheus_refusal, self._site.queries() if authorization else self._site.pages
        else:
            refusal, application = json_refusal if path.startswith(_API) else plain_refusal, self._site.pages
        if path.startswith(_TRANSFERS):
            streams = path.startswith(_LONG_BODIES)
            return Work(application, self._transfers, key, streams_body=streams, refusal=refusal)
        if path.startswith(_QUERIES):
            wait_s, at_once = _timeout_s(scope["query_string"]), getattr(application, "at_once", None)
            further = getattr(application, "further", None)
            return Work(application, self._queries, key, wait_s, refusal=refusal, at_once=at_once, further=further)
        pool = self._names if path.startswith(_PROMETHEUS) else self._pages
        return Work(application, pool, key, refusal=refusal)

    def _key_of(self, scope: Scope, authorization: str) -> Hashable:
        """Return the key under which a request takes turns; what it claims is checked when it runs."""
        secret = tokens.from_header(authorization) if authorization else None
        if secret:
            principal = tokens.last_principal(secret)
            return ("token", secret[:_TOKEN_ID_CHARS]) if principal is None else principal.organisation_id
        session = _session_of(_header(scope, b"cookie"))
        if session:
            return self._organisations.get(session) or ("session", session)
        client = scope.get("client")
        return ("address", client[0] if client else "")

    def _note_organisation(self, key: Hashable, organisation: int) -> None:
        """Remember whose session asked; called by the request that has checked it, in its thread."""
        if isinstance(key, tuple) and key[0] == "session":
            self._organisations.put(key[1], organisation)


def _pool(name: str, threads: int) -> FairPool:
    return FairPool(
        name,
        threads=threads,
        threads_max=threads + limits.SPARE_THREADS,
        per_key_max=min(limits.KEY_THREADS_MAX, threads),
        waiting_max=limits.PAGE_WAITING_MAX,
        per_key_waiting_max=limits.PAGE_WAITING_KEY_MAX,
        bounds_at="PAGE_WAITING_KEY_MAX and PAGE_WAITING_MAX in spm/limits.py",
    )


def _header(scope: Scope, name: bytes) -> str:
    for each, value in scope["headers"]:
        if each == name:
            return str(value.decode("latin-1"))
    return ""


def _timeout_s(query_string: bytes) -> float:
    """Return how long a query may wait for a thread: its time limit, or the greatest where the URL has none.

    The limit in a form is not read here; when the query runs, it counts from the arrival.
    """
    match = _TIMEOUT.search(query_string)
    return min(float(match[1]), limits.QUERY_TIMEOUT_S) if match else limits.QUERY_TIMEOUT_S


@lru_cache(maxsize=_HOSTS_CACHED)
def _session_of(cookies: str) -> str:
    """Return a short hash of the session's cookie, "" without one."""
    if not cookies:
        return ""
    try:
        morsel = SimpleCookie(cookies).get(settings.SESSION_COOKIE_NAME)
    except CookieError:
        return ""
    return hashlib.blake2b(morsel.value.encode(), digest_size=8).hexdigest() if morsel is not None else ""


@lru_cache(maxsize=_HOSTS_CACHED)
def _is_allowed_host(host: str, allowed: tuple[str, ...]) -> bool:
    name, _ = split_domain_port(host)
    return bool(name) and validate_host(name, allowed)
