"""The steps from a request to an accepted message: token, rate, place, body, parser, acceptance. Used by all protocols.

Enter by ``accept_request``. The app comes from the token alone. ``?token=`` and, for old Influx clients, ``?p=`` beside
``?u=`` are accepted, although URLs end up in logs: senders that cannot do better must still be able to send. Headers
are read where the server put them: Django's own mapping of them is built anew for each request, from all there are.
"""

from collections.abc import Callable
from dataclasses import dataclass

from django.http import HttpRequest

from ingest.accept.activity import record_rejected_body
from ingest.accept.arrivals import way_of
from ingest.accept.identity import Sender, message_id_of, period_of, source_of
from ingest.accept.process_acceptor import process_acceptor
from ingest.http.answers import Unauthorised
from ingest.http.body import Stream, UnknownEncoding, read_body
from spm.accounts import tokens
from spm.accounts.tokens import Principal
from spm.errors import BadMessage, LimitExceeded
from spm.wire import Parsed


@dataclass(frozen=True, slots=True)
class Body:
    """A decoded body with what a parser needs beside it."""

    raw: bytes
    now_ms: int
    over_quota: bool  # its app has more series than its quota: its names must not fill the common cache


@dataclass(frozen=True, slots=True)
class AcceptedMessage:
    """The accepted part of a body, and the message's id."""

    parsed: Parsed
    message_id: bytes


Parse = Callable[[Body], Parsed]


def accept_request(
    request: HttpRequest, parse: Parse, protocol: str, *, unit: str = "ms", source: str = ""
) -> AcceptedMessage:
    """Read, parse and accept the request's body.

    ``unit``: of its times; ``source``: where no header or parameter names one.
    """
    principal = principal_of(request)
    given_source = request.META.get("HTTP_X_SPM_SOURCE") or request.GET.get("source") or source
    sender = sender_of(request, principal, source_of(given_source, principal.token_id), protocol)
    acceptor = process_acceptor()
    try:
        acceptor.check_rate(principal.app_id)
        with acceptor.reserve_body():
            body = body_of(request)
            parsed = parse(Body(body, acceptor.clock.now_ms(), acceptor.is_over_quota(principal.app_id)))
            given_id = request.META.get("HTTP_X_MESSAGE_ID")
            message_id = message_id_of(
                parsed, given=given_id, token_id=principal.token_id, path=request.path, body=body
            )
            accepted = acceptor.accept(parsed, sender=sender, message_id=message_id, unit=unit)
            return AcceptedMessage(accepted, message_id)
    except (BadMessage, LimitExceeded, UnknownEncoding) as error:
        record_rejected_body(error, sender, acceptor.clock.now_ms())
        raise


def sender_of(request: HttpRequest, principal: Principal, source: str, protocol: str) -> Sender:
    """Return the sender: its app, source, way of arrival and period."""
    way = way_of(protocol, request.META.get("HTTP_USER_AGENT", ""))
    return Sender(principal.app_id, source, way, period_of(request.META.get("HTTP_X_SPM_PERIOD")))


def principal_of(request: HttpRequest) -> Principal:
    """Return the principal of the request's token; raise ``Unauthorised``."""
    secret = tokens.from_request(request, query_parameter=True)
    principal = tokens.authenticate(secret, "ingest") if secret else None
    if principal is None:
        raise Unauthorised
    return principal


def body_of(request: HttpRequest) -> bytes:
    """Return the decoded body."""
    return read_body(_stream(request), encoding=request.META.get("HTTP_CONTENT_ENCODING", ""), length=_length(request))


def _length(request: HttpRequest) -> int | None:
    length = request.META.get("CONTENT_LENGTH") or ""
    return int(length) if length.isdecimal() else None


def _stream(request: HttpRequest) -> Stream:
    """Return the body; without a length (chunked) the server's own stream, where it promises to end it."""
    if _length(request) is None and request.META.get("wsgi.input_terminated"):
        stream: Stream = request.META["wsgi.input"]
        return stream
    return request
