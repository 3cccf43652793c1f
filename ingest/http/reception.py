"""From a request to what came in: token, pace, place, body, parser, push. The same for all protocols over HTTP.

Enter by ``take``. The tenant comes from the token alone. ``?token=`` and, for old Influx clients, ``?p=`` beside
``?u=`` count here, though addresses end up in logs: senders that cannot do better must still be able to send. Headers
are read where the server put them: Django's own view of them is made anew for each request, of all there are.
"""

from collections.abc import Callable
from dataclasses import dataclass

from django.http import HttpRequest

from ingest.accept.acceptor import Sender, front_door, message_id_of, note_refused, period_of, source_of
from ingest.accept.arrivals import way_of
from ingest.http.answers import Unauthorised
from ingest.http.body import Stream, UnknownEncoding, read_body
from spm.accounts import tokens
from spm.accounts.tokens import Principal
from spm.errors import BadMessage, LimitExceeded
from spm.wire import Parsed


@dataclass(frozen=True, slots=True)
class Body:
    """A body, and what a parser may want to know beside it."""

    raw: bytes
    now_ms: int
    crowded: bool  # its app has more series than it may: see ``protocols.crowd``


@dataclass(frozen=True, slots=True)
class Taken:
    """What came in of a body, and the message's id."""

    parsed: Parsed
    message_id: bytes


Parse = Callable[[Body], Parsed]


def take(request: HttpRequest, parse: Parse, protocol: str, *, unit: str = "ms", source: str = "") -> Taken:
    """Read, parse and push the request's body. ``unit``: that of its times; ``source``: where no header names one."""
    principal = principal_of(request)
    named = request.META.get("HTTP_X_SPM_SOURCE") or request.GET.get("source") or source
    sender = sender_of(request, principal, source_of(named, principal.token_id), protocol)
    door = front_door()
    try:
        door.pace(principal.app_id)
        with door.place():
            body = body_of(request)
            parsed = parse(Body(body, door.clock.now_ms(), door.crowded(principal.app_id)))
            given = request.META.get("HTTP_X_MESSAGE_ID")
            message_id = message_id_of(parsed, given=given, token_id=principal.token_id, path=request.path, body=body)
            return Taken(door.push(parsed, sender=sender, message_id=message_id, unit=unit), message_id)
    except (BadMessage, LimitExceeded, UnknownEncoding) as error:
        note_refused(error, sender, door.clock.now_ms())
        raise


def sender_of(request: HttpRequest, principal: Principal, source: str, protocol: str) -> Sender:
    """Who sends, by what way, how often."""
    way = way_of(protocol, request.META.get("HTTP_USER_AGENT", ""))
    return Sender(principal.app_id, source, way, period_of(request.META.get("HTTP_X_SPM_PERIOD")))


def principal_of(request: HttpRequest) -> Principal:
    """Whom the request's token speaks for; raises ``Unauthorised``."""
    secret = tokens.from_request(request, query_parameter=True)
    principal = tokens.authenticate(secret, "ingest") if secret else None
    if principal is None:
        raise Unauthorised
    return principal


def body_of(request: HttpRequest) -> bytes:
    """The decoded body."""
    return read_body(_stream(request), encoding=request.META.get("HTTP_CONTENT_ENCODING", ""), length=_length(request))


def _length(request: HttpRequest) -> int | None:
    length = request.META.get("CONTENT_LENGTH") or ""
    return int(length) if length.isdecimal() else None


def _stream(request: HttpRequest) -> Stream:
    """The body; without a length (chunked) the server's own stream, where it promises to end it."""
    if _length(request) is None and request.META.get("wsgi.input_terminated"):
        stream: Stream = request.META["wsgi.input"]
        return stream
    return request
