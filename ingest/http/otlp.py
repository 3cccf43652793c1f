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
from ingest.protocols.otlp import reader as otlp_reader
from ingest.protocols.otlp.reader import Exported
from spm.errors import Explained
from spm.wire import Parsed

_KINDS = ("application/x-protobuf", "application/json")
_CODES = {400: 3, 401: 16, 405: 12, 413: 8, 415: 3, 429: 8, 503: 14}
"""gRPC's: 3 invalid, 8 exhausted, 12 unimplemented, 14 unavailable, 16 unauthenticated."""


def _as_status(request: HttpRequest, status: int, error: Explained) -> HttpResponse:
    kind = _kind(request) or "application/json"
    return HttpResponse(otlp_reader.status(_CODES[status], str(error), kind), status=status, content_type=kind)


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
    seen: list[Exported] = []

    def parse(body: Body) -> Parsed:
        cache = {"cache": otlp_reader.CROWD} if body.crowded else {}
        seen.append(otlp_reader.parse(body.raw, kind, now_ms=body.now_ms, **cache))
        return seen[0].parsed

    taken = take(request, parse, "otlp", unit="ns")
    exported = seen[0]
    lost = taken.parsed.rejected - exported.parsed.rejected
    if lost:  # by a quota, behind the parser
        more = otlp_reader.told(taken.parsed.rejections[len(exported.parsed.rejections) :])
        message = "; ".join(filter(None, (exported.message, more)))
        exported = Exported(taken.parsed, exported.rejected_points + lost, message)
    headers = {"X-Message-Id": taken.message_id.hex()}
    return HttpResponse(otlp_reader.answer(exported, kind), content_type=kind, headers=headers)
