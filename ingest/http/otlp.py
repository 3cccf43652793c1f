"""The endpoint of OpenTelemetry: metrics over OTLP/HTTP, as protobuf or as JSON.

    POST /v1/metrics, /otlp/v1/metrics, /api/v1/otlp/v1/metrics

Answers come in the request's encoding: 200 with ``partial_success`` where points were rejected, since exporters drop a
batch on any 4xx; errors are a google.rpc.Status. Exporters retry 429 and 503, after their Retry-After. Enter by
``metrics``.
"""

from functools import partial

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_POST

from ingest.http.answers import UnsupportedContentType, with_error_answers
from ingest.http.reception import Body, accept_request, principal_of
from ingest.protocols.otlp import answers
from ingest.protocols.otlp import reader as otlp_reader
from spm.errors import Explained
from spm.wire import Parsed

_KINDS = ("application/x-protobuf", "application/json")
_CODES = {400: 3, 401: 16, 405: 12, 413: 8, 415: 3, 429: 8, 503: 14}
"""gRPC's: 3 invalid, 8 exhausted, 12 unimplemented, 14 unavailable, 16 unauthenticated."""


def _as_status(request: HttpRequest, status: int, error: Explained) -> HttpResponse:
    kind = _kind(request) or "application/json"
    return HttpResponse(answers.encode_error(_CODES[status], str(error), kind), status=status, content_type=kind)


def _kind(request: HttpRequest) -> str:
    content_type = request.META.get("CONTENT_TYPE", "").partition(";")[0].strip().lower()
    return content_type if content_type in _KINDS else ""


@partial(with_error_answers, error_format=_as_status)
@require_POST
def metrics(request: HttpRequest) -> HttpResponse:
    """``POST /v1/metrics``: an OTLP request."""
    principal_of(request)
    kind = _kind(request)
    if not kind:
        got = request.META.get("CONTENT_TYPE", "")[:120]
        raise UnsupportedContentType("not a content type of OTLP", got=got, wanted=" or ".join(_KINDS))
    parser_results: list[Parsed] = []

    def parse(body: Body) -> Parsed:
        parser_results.append(otlp_reader.parse(body.raw, kind, now_ms=body.now_ms, over_quota=body.over_quota))
        return parser_results[0]

    accepted = accept_request(request, parse, "otlp", unit="ns")
    message, rejections = answers.message_of(parser_results[0].rejections), accepted.parsed.rejections
    if accepted.parsed.rejected > parser_results[0].rejected:  # a quota rejected more, after the parser
        by_quota = answers.message_of(rejections[len(parser_results[0].rejections) :])
        message = "; ".join(filter(None, (message, by_quota)))
    headers = {"X-Message-Id": accepted.message_id.hex()}
    return HttpResponse(
        answers.encode_answer(accepted.parsed.rejected, message, kind), content_type=kind, headers=headers
    )
