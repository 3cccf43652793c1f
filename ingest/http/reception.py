"""The steps from a request to an accepted message: token, rate, place, body, parser, acceptance. Used by all drivers.

``receive`` takes all of them in the calling thread. The event loop (``push_batcher``) takes the same steps for many
requests at once. The app comes from the token alone. ``?token=`` and, for old Influx clients, ``?p=`` beside ``?u=``
are accepted, although URLs end up in logs: senders that cannot do better must still be able to send.
"""

from ingest.accept.activity import record_rejected_body
from ingest.accept.identity import Sender, message_id_of, period_of, source_of, way_of
from ingest.accept.process_acceptor import process_acceptor
from ingest.http.answers import ANSWERED, ErrorFormat, Unauthorised, WrongMethod, error_answer, error_as_json
from ingest.http.body import Stream, UnknownEncoding, read_body, too_large_body
from ingest.http.endpoints.base import AcceptedMessage, Body, Endpoint, Plan, Probe, PushEndpoint
from ingest.http.exchange import PushAnswer, PushRequest, read_fields
from spm.accounts import tokens
from spm.accounts.tokens import Principal
from spm.errors import BadMessage, LimitExceeded
from spm.limits import PUSH_FORM_BYTES_MAX

REJECTED_BODY = (BadMessage, LimitExceeded, UnknownEncoding)


def receive(endpoint: Endpoint, request: PushRequest, stream: Stream) -> PushAnswer:
    """Return the answer to a request; errors of ``ANSWERED`` are answers, too."""
    error_format, too_fast = formats_of(endpoint)
    try:
        check_method(endpoint, request)
        if isinstance(endpoint, Probe):
            return _answer_probe(endpoint, request, stream)
        principal = principal_of(request)
        plan = endpoint.plan(request)
        if isinstance(plan, PushAnswer):
            return plan
        return endpoint.respond(request, _accept(plan, request, principal, stream))
    except ANSWERED as error:
        return error_answer(request, error, error_format, too_fast)


def formats_of(endpoint: Endpoint) -> tuple[ErrorFormat, int]:
    """Return the form of an endpoint's errors, and its status over the rate."""
    if isinstance(endpoint, PushEndpoint):
        return endpoint.error_format, endpoint.too_fast
    return error_as_json, 429


def check_method(endpoint: Endpoint, request: PushRequest) -> None:
    """Raise ``WrongMethod`` for a method that the address does not take."""
    if request.method not in endpoint.methods:
        raise WrongMethod(request.method, endpoint.methods)


def principal_of(request: PushRequest) -> Principal:
    """Return the principal of the request's token; raise ``Unauthorised``."""
    secret = secret_of(request)
    principal = tokens.authenticate(secret, "ingest") if secret else None
    if principal is None:
        raise Unauthorised
    return principal


def secret_of(request: PushRequest) -> str:
    """Return the token text of a request, "" if it has none."""
    header = request.header("authorization")
    if tokens.scheme_of(header):
        return tokens.from_header(header) or ""
    return request.parameter("token") or request.parameter("p")


def sender_of(request: PushRequest, principal: Principal, plan: Plan) -> Sender:
    """Return the sender: its app, source, way of arrival and period."""
    given = request.header("x-spm-source") or request.parameter("source") or plan.source
    way = way_of(plan.protocol, request.header("user-agent"))
    source = source_of(given, principal.token_id)
    return Sender(principal.app_id, source, way, period_of(request.header("x-spm-period")))


def length_of(request: PushRequest) -> int | None:
    """Return the body's length by its header; ``None`` for a body in chunks."""
    length = request.header("content-length")
    return int(length) if length.isdecimal() else None


def form_of(request: PushRequest, raw: bytes) -> dict[str, list[str]]:
    """Return the fields of a form, which is never encoded: a short one could become a long one."""
    encoding = request.header("content-encoding").strip().lower()
    if encoding not in ("", "identity"):
        raise UnknownEncoding("a form cannot be encoded", got=encoding[:40], wanted="no Content-Encoding")
    return read_fields(raw.decode("utf-8", "replace"))


def _accept(plan: Plan, request: PushRequest, principal: Principal, stream: Stream) -> AcceptedMessage:
    sender = sender_of(request, principal, plan)
    acceptor = process_acceptor()
    try:
        acceptor.check_rate(principal.app_id)
        with acceptor.reserve_body():
            body = read_body(stream, encoding=request.header("content-encoding"), length=length_of(request))
            parsed = plan.parse(Body(body, acceptor.clock.now_ms(), acceptor.is_over_quota(principal.app_id)))
            given_id = request.header("x-message-id")
            message_id = message_id_of(
                parsed, given=given_id, token_id=principal.token_id, path=request.path, body=body
            )
            accepted = acceptor.accept(parsed, sender=sender, message_id=message_id, unit=plan.unit)
            return AcceptedMessage(accepted, parsed, message_id)
    except REJECTED_BODY as error:
        record_rejected_body(error, sender, acceptor.clock.now_ms())
        raise


def _answer_probe(probe: Probe, request: PushRequest, stream: Stream) -> PushAnswer:
    if probe.needs_token:
        principal_of(request)
    form: dict[str, list[str]] = {}
    if request.method == "POST":
        length = length_of(request)
        if length is not None and length > PUSH_FORM_BYTES_MAX:
            raise too_large_body(length, PUSH_FORM_BYTES_MAX)
        form = form_of(request, read_body(stream, encoding="", length=length))
    return probe.answer(request, form)
