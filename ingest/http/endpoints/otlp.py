"""The endpoint of OpenTelemetry: metrics over OTLP/HTTP, as protobuf or as JSON.

    POST /v1/metrics, /otlp/v1/metrics, [/prometheus]/api/v1/otlp/v1/metrics

Answers come in the request's encoding: 200 with ``partial_success`` where points were rejected, since exporters drop a
batch on any 4xx; errors are a google.rpc.Status. Exporters retry 429 and 503, after their Retry-After. Enter by
``otlp_endpoint``.
"""

from ingest.http.answers import UnsupportedContentType
from ingest.http.endpoints.base import AcceptedMessage, Plan, PushEndpoint
from ingest.http.exchange import PushAnswer, PushRequest
from ingest.protocols.otlp import answers
from ingest.protocols.otlp import reader as otlp_reader
from spm.errors import Explained

_KINDS = ("application/x-protobuf", "application/json")
_CODES = {400: 3, 401: 16, 405: 12, 413: 8, 415: 3, 429: 8, 503: 14}
"""gRPC's: 3 invalid, 8 exhausted, 12 unimplemented, 14 unavailable, 16 unauthenticated."""


def otlp_endpoint(name: str) -> PushEndpoint:
    """Return the endpoint of an OTLP request."""
    return PushEndpoint(name, _plan, _respond, error_format=_as_status)


def _as_status(request: PushRequest, status: int, error: Explained) -> PushAnswer:
    kind = _kind(request) or "application/json"
    return PushAnswer(status, answers.encode_error(_CODES[status], str(error), kind), kind)


def _kind(request: PushRequest) -> str:
    content_type = request.header("content-type").partition(";")[0].strip().lower()
    return content_type if content_type in _KINDS else ""


def _plan(request: PushRequest) -> Plan:
    kind = _kind(request)
    if not kind:
        got = request.header("content-type")[:120]
        raise UnsupportedContentType("not a content type of OTLP", got=got, wanted=" or ".join(_KINDS))
    return Plan(
        "otlp",
        lambda body: otlp_reader.parse(body.raw, kind, now_ms=body.now_ms, over_quota=body.over_quota),
        unit="ns",
    )


def _respond(request: PushRequest, accepted: AcceptedMessage) -> PushAnswer:
    kind, by_parser = _kind(request), accepted.read
    message, rejections = answers.message_of(by_parser.rejections), accepted.parsed.rejections
    if accepted.parsed.rejected > by_parser.rejected:  # a quota rejected more, after the parser
        by_quota = answers.message_of(rejections[len(by_parser.rejections) :])
        message = "; ".join(filter(None, (message, by_quota)))
    headers = {"X-Message-Id": accepted.message_id.hex()}
    return PushAnswer(200, answers.encode_answer(accepted.parsed.rejected, message, kind), kind, headers)
