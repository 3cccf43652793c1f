"""Pushes over the event loop: an ASGI application for the endpoints of ingest. Enter by ``PushApplication``.

It takes a request's steps up to its body (method, token, rate), reads the body under a bound on the bytes of all bodies
in flight, has it accepted by the ``PushBatcher``, and sends the answer. What may block (a token that is not cached, a
rate that the store must be asked for) runs in a thread. Every answer has the protective headers.
"""

import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes

from django.db import close_old_connections
from django.utils.encoding import repercent_broken_unicode

from ingest.accept.acceptor import Acceptor
from ingest.accept.activity import record_rejected_body
from ingest.accept.identity import Sender
from ingest.http.answers import ANSWERED, Unauthorised, error_answer
from ingest.http.body import too_large_body
from ingest.http.endpoints.base import AcceptedMessage, Endpoint, Plan, Probe, PushEndpoint
from ingest.http.exchange import PushAnswer, PushRequest
from ingest.http.push_batcher import PushBatcher
from ingest.http.reception import (
    REJECTED_BODY,
    check_method,
    form_of,
    formats_of,
    secret_of,
    sender_of,
)
from spm import limits
from spm.accounts import tokens
from spm.accounts.tokens import Principal
from spm.bounded import LruCache
from spm.clock import Clock
from spm.errors import QueueUnavailable
from spm.telemetry import count_request
from spm.web.byte_budget import ByteBudget
from spm.web.fair_pool import FairPool, PoolClosed, PoolFull, WaitedTooLong
from spm.web.http_protocol import Reply, WholeAnswer, header_line
from spm.web.protective_headers import protective_headers, transport_security

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
T = TypeVar("T")
_KNOWN_LINES_MAX, _KNOWN_BYTES_MAX = 16, 1_024  # of a head that is remembered
_LOG = logging.getLogger("django.request")  # where Django logs the same answers


class _ClientGone(Exception):
    """The client closed its connection within its body: nobody reads an answer."""


class PushApplication:
    """Answers the requests of ingest's endpoints.

    ``pool`` runs what may block; ``acceptor`` returns the process's; ``check_ready`` raises ``StoreUnavailable`` as
    long as this process can take no samples.
    """

    def __init__(
        self,
        acceptor: Callable[[], Acceptor],
        pool: FairPool,
        clock: Clock,
        *,
        check_ready: Callable[[], None] = lambda: None,
    ) -> None:
        self._acceptor, self._pool, self._clock, self._check_ready = acceptor, pool, clock, check_ready
        self._batcher = PushBatcher(acceptor, clock)
        self._bytes = ByteBudget(
            "bodies that arrive or are at work",
            total_max=limits.BODIES_IN_FLIGHT_BYTES_MAX,
            per_key_max=limits.BODIES_IN_FLIGHT_ORGANISATION_BYTES_MAX,
        )
        self._headers = _encoded(protective_headers())
        self._heads: LruCache[Hashable, _KnownHead] = LruCache(limits.PUSH_HEADS_MAX)
        self._opened = False

    async def __call__(self, endpoint: Endpoint, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        begun = self._clock.monotonic()
        key = _head_key(scope)
        known = self._heads.get(key) if key is not None else None
        request = push_request(scope) if known is None else known.request
        try:
            answer = await self._answer(
                endpoint, request, _Arrival(receive, _length(scope), key, known, scope.get("client"))
            )
        except _ClientGone:
            count_request(f"ingest:{endpoint.name}", request.method, 499, begun)
            return
        _log(request, answer)
        if answer.status < 300 and isinstance(endpoint, Probe):
            self._offer_answers(endpoint, request, scope)
        elif answer.status < 300 and key is not None and isinstance(endpoint, PushEndpoint):
            self._offer_more(endpoint, self._heads.get(key), scope)
        await self._send(request, answer, scope, send)
        count_request(f"ingest:{endpoint.name}", request.method, answer.status, begun)

    async def answer(self, endpoint: PushEndpoint, request: PushRequest, receive: Receive) -> PushAnswer:
        """Return the answer to a push that came by another protocol than HTTP; ``receive`` is called when it is time
        to read its body, and raises what is wrong with it.
        """
        begun = self._clock.monotonic()
        answer = await self._answer(endpoint, request, _Arrival(receive, None, None, None, None))
        _log(request, answer)
        count_request(f"ingest:{endpoint.name}", request.method, answer.status, begun)
        return answer

    def close(self) -> None:
        """Hand over what waits."""
        self._batcher.close()

    def _offer_more(self, endpoint: PushEndpoint, known: "_KnownHead | None", scope: Scope) -> None:
        """Offer to take further requests of the connection with this head without a coroutine."""
        repeat = scope.get("extensions", {}).get("spm.repeat")
        if repeat is not None and known is not None:
            repeat(partial(self._take, endpoint, known, self._fixed_lines(scope), scope["client"]))

    def _offer_answers(self, probe: Probe, request: PushRequest, scope: Scope) -> None:
        """Offer to answer the same GET again where it needs no token."""
        offer, own_target = scope.get("extensions", {}).get("spm.at_once"), _target(scope)
        if offer is None or probe.needs_token or request.method != "GET":
            return
        fixed, view = self._fixed_lines(scope), f"ingest:{probe.name}"

        def answer_again(target: bytes, _body: bytes) -> Reply | None:
            if target != own_target:
                return None
            begun, answer = self._clock.monotonic(), probe.answer(request, {})
            own = b"".join(header_line(*each) for each in _own_headers(answer))
            count_request(view, request.method, answer.status, begun)
            return answer.status, fixed + own, answer.body

        offer(answer_again)

    def _fixed_lines(self, scope: Scope) -> bytes:
        """Return the lines of the headers that every answer has."""
        lines = _encoded(transport_security(scope["scheme"] == "https"))
        return b"".join(header_line(*each) for each in (*self._headers, *lines))

    def _take(
        self,
        endpoint: PushEndpoint,
        known: "_KnownHead",
        fixed: bytes,
        client: Hashable,
        raw: bytes,
        reply: WholeAnswer,
    ) -> bool:
        """Accept a whole body under a known head; return false where that needs a thread or is refused."""
        begun, principal = self._clock.monotonic(), _principal_of(known)
        if principal is None or not self._acceptor().has_allowance(principal.app_id):
            return False
        organisation, request = principal.organisation_id, known.request
        try:
            self._bytes.add(organisation, len(raw))
        except QueueUnavailable:
            return False

        def finish(result: AcceptedMessage | Exception) -> None:
            self._bytes.remove(organisation, len(raw))
            try:
                if isinstance(result, Exception):
                    raise result
                answer = endpoint.respond(request, result)
            except Exception as error:
                answer = _failed(endpoint, request, error)
            _log(request, answer)
            reply.send(answer.status, fixed, _own_headers(answer), answer.body)
            count_request(f"ingest:{endpoint.name}", request.method, answer.status, begun)

        taken = self._batcher.take(request, principal, known.plan, known.sender, raw, finish, client)
        if not taken:
            self._bytes.remove(organisation, len(raw))
        return taken

    async def _answer(self, endpoint: Endpoint, request: PushRequest, arrival: "_Arrival") -> PushAnswer:
        try:
            check_method(endpoint, request)
            if isinstance(endpoint, Probe):
                return await self._answer_probe(endpoint, request, arrival)
            return await self._answer_push(endpoint, request, arrival)
        except _ClientGone:
            raise
        except Exception as error:
            return _failed(endpoint, request, error)

    async def _answer_push(self, endpoint: PushEndpoint, request: PushRequest, arrival: "_Arrival") -> PushAnswer:
        self._check_ready()
        known = arrival.known
        principal = None if known is None else _principal_of(known)
        if known is not None and principal is not None:
            plan, sender = known.plan, known.sender
        else:
            principal = await self._principal(request)
            decision = endpoint.plan(request)
            if isinstance(decision, PushAnswer):
                return decision
            plan, sender = decision, sender_of(request, principal, decision)
            self._remember(arrival, request, plan, sender)
        await self._check_rate(principal)
        body = _ArrivingBody(self._bytes, principal.organisation_id)
        try:
            try:
                raw = await body.read(arrival, limits.BODY_BYTES_MAX)
            except REJECTED_BODY as error:
                record_rejected_body(error, sender, self._clock.now_ms())
                raise
            accepted = await self._batcher.accept(request, principal, plan, sender, raw, arrival.client)
        finally:
            body.release()
        return endpoint.respond(request, accepted)

    async def _answer_probe(self, probe: Probe, request: PushRequest, arrival: "_Arrival") -> PushAnswer:
        organisation = (await self._principal(request)).organisation_id if probe.needs_token else 0
        form: dict[str, list[str]] = {}
        if request.method == "POST":
            body = _ArrivingBody(self._bytes, organisation)
            try:
                form = form_of(request, await body.read(arrival, limits.PUSH_FORM_BYTES_MAX))
            finally:
                body.release()
        return probe.answer(request, form)

    def _remember(self, arrival: "_Arrival", request: PushRequest, plan: Plan, sender: Sender) -> None:
        digest = tokens.digest_of(secret_of(request))
        if arrival.key is not None and digest is not None:
            self._heads.put(arrival.key, _KnownHead(request, plan, sender, digest))

    async def _principal(self, request: PushRequest) -> Principal:
        secret = secret_of(request)
        if not secret:
            raise Unauthorised
        try:
            principal = tokens.authenticate_from_cache(secret, "ingest")
        except KeyError:
            principal = await self._blocking(request.address, lambda: tokens.authenticate(secret, "ingest"))
        if principal is None:
            raise Unauthorised
        return principal

    async def _check_rate(self, principal: Principal) -> None:
        if self._opened and self._acceptor().has_allowance(principal.app_id):
            return
        await self._blocking(principal.organisation_id, lambda: self._acceptor().check_rate(principal.app_id))
        self._opened = True

    async def _blocking(self, key: object, work: Callable[[], T]) -> T:
        def run() -> T:
            close_old_connections()
            try:
                return work()
            finally:
                close_old_connections()

        try:
            return await self._pool.run(key, run, wait_s=limits.PUBLISH_TIMEOUT_S)
        except (PoolFull, WaitedTooLong, PoolClosed) as error:
            raise QueueUnavailable(str(error)) from error

    async def _send(self, request: PushRequest, answer: PushAnswer, scope: Scope, send: Send) -> None:
        headers = [*self._headers, *_own_headers(answer)]
        if scope["scheme"] == "https":
            headers += _encoded(transport_security(True))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if request.method == "HEAD" else answer.body})


@dataclass(frozen=True, slots=True)
class _KnownHead:
    """What follows from a head that a sender repeats in each request; whether its token still holds is asked anew."""

    request: PushRequest
    plan: Plan
    sender: Sender
    digest: bytes  # of its token


@dataclass(frozen=True, slots=True)
class _Arrival:
    """A body that arrives, its length if its head says it, what is known of its head, and the connection's client."""

    receive: Receive
    length: int | None
    key: Hashable
    known: _KnownHead | None
    client: Hashable


def _head_key(scope: Scope) -> Hashable:
    """Return the key of a head: all of it but the body's length; ``None`` for one that is too long to remember."""
    lines = [line for line in scope["headers"] if line[0] != b"content-length"]
    if len(lines) > _KNOWN_LINES_MAX or sum(len(value) for _, value in lines) > _KNOWN_BYTES_MAX:
        return None
    return scope["method"], scope["path"], scope["raw_path"], scope["query_string"], *lines


def _target(scope: Scope) -> bytes:
    query: bytes = scope["query_string"]
    path: bytes = scope["raw_path"]
    return path + b"?" + query if query else path


def _length(scope: Scope) -> int | None:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() else None
    return None


def _principal_of(known: _KnownHead) -> Principal | None:
    """Return the principal of a known head, ``None`` where its token must be looked up (again)."""
    try:
        return tokens.principal_from_cache(known.digest, "ingest")
    except KeyError:
        return None


def push_request(scope: Scope) -> PushRequest:
    """Return the head of a request; the values of a header that comes twice are one, with a comma between."""
    lines = scope["headers"]
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in lines}
    if len(headers) < len(lines):
        headers = _joined(lines)
    path: str = scope["path"]
    if "\ufffd" in path:  # no UTF-8: as Django reads it
        path = repercent_broken_unicode(unquote_to_bytes(scope["raw_path"])).decode()
    client = scope.get("client")
    query_string: str = scope["query_string"].decode("latin-1")
    return PushRequest(scope["method"], path, query_string, headers, client[0] if client else "")


def _joined(lines: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for raw_name, raw_value in lines:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    return headers


class _ArrivingBody:
    """Reads one body, and counts its bytes while they are held."""

    def __init__(self, in_flight: ByteBudget, organisation: int) -> None:
        self._in_flight, self._organisation, self._size = in_flight, organisation, 0

    async def read(self, arrival: _Arrival, most: int) -> bytes:
        """Return the body as it was sent; raise ``LimitExceeded`` for more than ``most`` bytes."""
        length, receive = arrival.length, arrival.receive
        if length is not None and length > most:
            raise too_large_body(length, most)
        pieces: list[bytes] = []
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise _ClientGone
            piece = message["body"]
            if piece:
                if self._size + len(piece) > most:
                    raise too_large_body(self._size + len(piece), most)
                self._in_flight.add(self._organisation, len(piece))
                self._size += len(piece)
                pieces.append(piece)
            if not message.get("more_body"):
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def release(self) -> None:
        """Take its bytes off the count."""
        self._in_flight.remove(self._organisation, self._size)
        self._size = 0


def _failed(endpoint: Endpoint, request: PushRequest, error: Exception) -> PushAnswer:
    """Return the answer to an error."""
    error_format, too_fast = formats_of(endpoint)
    if isinstance(error, ANSWERED):
        return error_answer(request, error, error_format, too_fast)
    _LOG.error("a push failed unexpectedly", exc_info=error)
    return PushAnswer(500, b'{"error":"something went wrong here"}', "application/json")


def _log(request: PushRequest, answer: PushAnswer) -> None:
    if answer.status >= 400:
        level = logging.ERROR if answer.status >= 500 else logging.WARNING
        _LOG.log(level, "%d: %s", answer.status, request.path.encode("unicode_escape").decode())


def _own_headers(answer: PushAnswer) -> list[tuple[bytes, bytes]]:
    """Return the headers that not every answer has."""
    headers = _encoded(answer.headers)
    if answer.content_type:
        headers.append((b"content-type", answer.content_type.encode("latin-1")))
    if answer.status != 204:
        headers.append((b"content-length", str(len(answer.body)).encode()))
    return headers


def _encoded(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers.items()]
