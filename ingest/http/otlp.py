"""OpenTelemetry's way in: metrics over OTLP/HTTP, as protobuf or as JSON.

    POST /v1/metrics, /otlp/v1/metrics, /api/v1/otlp/v1/metrics

Answers come in the request's encoding: 200 with ``partial_success`` where points were refused, since exporters drop a
batch on any 4xx; errors are a google.rpc.Status. Retried by exporters: 429 and 503, after their Retry-After.
"""

from functools import partial

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_POST

from ingest.http.answers import UnknownForm, answering
from ingest.http.reception import Body, principal_of, take
from ingest.protocols.otlp import answers
from ingest.protocols.otlp import reader as otlp_reader
from spm.errors import Explained
from spm.wire import Parsed

_KINDS = ("application/x-protobuf", "application/json")
_CODES = {400: 3, 401: 16, 405: 12, 413: 8, 415: 3, 429: 8, 503: 14}
"""gRPC's: 3 invalid, 8 exhausted, 12 unimplemented, 14 unavailable, 16 unauthenticated."""


def _as_status(request: HttpRequest, status: int, error: Explained) -> HttpResponse:
    kind = _kind(request) or "application/json"
    return HttpResponse(answers.status(_CODES[status], str(error), kind), status=status, content_type=kind)


def _kind(request: HttpRequest) -> str:
    said = request.META.get("CONTENT_TYPE", "").partition(";")[0].strip().lower()
    return said if said in _KINDS else ""


@partial(answering, word=_as_status)
@require_POST
def metrics(request: HttpRequest) -> HttpResponse:
    """See the module."""
    principal_of(request)
    kind = _kind(request)
    if not kind:
        got = request.META.get("CONTENT_TYPE", "")[:120]
        raise UnknownForm("not a content type of OTLP", got=got, wanted=" or ".join(_KINDS))
    of_parser: list[Parsed] = []

    def parse(body: Body) -> Parsed:
        of_parser.append(otlp_reader.parse(body.raw, kind, now_ms=body.now_ms, over_quota=body.crowded))
        return of_parser[0]

    taken = take(request, parse, "otlp", unit="ns")
    message, rejections = answers.message_of(of_parser[0].rejections), taken.parsed.rejections
    if taken.parsed.rejected > of_parser[0].rejected:  # a quota rejected more, behind the parser
        by_quota = answers.message_of(rejections[len(of_parser[0].rejections) :])
        message = "; ".join(filter(None, (message, by_quota)))
    headers = {"X-Message-Id": taken.message_id.hex()}
    return HttpResponse(answers.answer(taken.parsed.rejected, message, kind), content_type=kind, headers=headers)
