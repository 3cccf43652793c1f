"""The endpoints of Prometheus: remote write 1.0 and 2.0, its text form, and Pushgateway's paths.

    POST /api/v1/write, /api/v1/push              remote write → 204 with X-Prometheus-Remote-Write-*-Written
    POST|PUT /api/v1/import/prometheus            text or OpenMetrics → 204
    POST|PUT|DELETE /metrics/job/JOB/LABEL/VALUE  as Pushgateway → 200; a delete → 202

A body with rejected samples gets a 400 with the reasons; its other samples are stored, and the headers of remote write
count them. PUT and POST are one here: samples are points in time, there is no group to replace, and so a DELETE has
nothing to delete. Both are answered as Pushgateway does, so that its clients go on.
"""

import base64
import binascii
from email.message import Message
from functools import partial

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_http_methods, require_POST

from ingest.http.answers import UnsupportedContentType, headline, report, with_error_answers
from ingest.http.reception import AcceptedMessage, Body, Parse, accept_request, principal_of
from ingest.protocols.grouping_labels import add_labels
from ingest.protocols.prometheus import remote_write
from ingest.protocols.prometheus import text as prometheus_text
from spm.errors import BadMessage
from spm.wire import Parsed

_PROTO_V1, _PROTO_V2 = "prometheus.writerequest", "io.prometheus.write.v2.request"
_BASE64 = "@base64"


@partial(with_error_answers, too_fast=503)
@require_POST
def receive_remote_write(request: HttpRequest) -> HttpResponse:
    """``POST /api/v1/write``: a request of remote write, of the version its content type names.

    A rate that is exceeded is a 503 here: Prometheus, by default, drops what was answered with 429.
    """
    principal_of(request)  # nobody learns without a token which versions are supported
    read = remote_write.parse_v2 if _version(request) == 2 else remote_write.parse
    accepted = accept_request(
        request, lambda body: read(body.raw, now_ms=body.now_ms, over_quota=body.over_quota), "remote_write"
    )
    headers = {
        "X-Message-Id": accepted.message_id.hex(),
        "X-Prometheus-Remote-Write-Samples-Written": str(len(accepted.parsed.ts)),
        "X-Prometheus-Remote-Write-Histograms-Written": "0",
        "X-Prometheus-Remote-Write-Exemplars-Written": "0",
    }
    if accepted.parsed.rejected:
        return HttpResponse(
            f"{headline(accepted.parsed, 'series')}\n", status=400, content_type="text/plain", headers=headers
        )
    return HttpResponse(status=204, headers=headers)


@with_error_answers
@require_http_methods(["POST", "PUT"])
def text(request: HttpRequest) -> HttpResponse:
    """``POST /api/v1/import/prometheus``: text; ``?extra_label=name=value`` adds labels to every series."""
    pairs = [pair.partition("=") for pair in request.GET.getlist("extra_label")]
    labels = {name: value for name, _, value in pairs}
    return _answer(accept_request(request, _reader(request, labels), "prometheus_text", unit=_unit(request)), 204)


@with_error_answers
@require_http_methods(["POST", "PUT", "DELETE"])
def pushgateway(request: HttpRequest, group: str) -> HttpResponse:
    """``/metrics/job/…``: text as for a Pushgateway; the group's labels are added to every series."""
    labels = group_labels(group)
    if request.method == "DELETE":
        principal_of(request)
        return HttpResponse(status=202)
    reader = _reader(request, labels)
    return _answer(accept_request(request, reader, "prometheus_text", unit=_unit(request), source=labels["job"]), 200)


def group_labels(path: str) -> dict[str, str]:
    """Return the labels of ``job/JOB{/LABEL/VALUE}``; a name that ends in @base64 has its value in URL-safe base64."""
    parts = path.rstrip("/").split("/") if not path.endswith("@base64/") else path.split("/")
    if len(parts) % 2:
        raise BadMessage("a label of the address has no value", got=path[:120], wanted="job/JOB{/LABEL/VALUE}")
    labels: dict[str, str] = {}
    for name, value in zip(parts[::2], parts[1::2], strict=True):
        plain = name.removesuffix(_BASE64)
        if plain in labels:
            raise BadMessage("a label of the address is named twice", got=plain[:80])
        labels[plain] = _decoded(value) if name.endswith(_BASE64) else value
    if not labels["job"]:
        raise BadMessage("the job has no name", got=path[:120], wanted="job/JOB{/LABEL/VALUE}")
    return {name: value for name, value in labels.items() if value}


def _decoded(value: str) -> str:
    try:
        plain = value.rstrip("=")
        return base64.b64decode(plain + "=" * (-len(plain) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise BadMessage("a label of the address is no base64", got=value[:80], wanted="URL-safe base64") from error


def _reader(request: HttpRequest, labels: dict[str, str]) -> Parse:
    seconds = prometheus_text.is_open_metrics(request.META.get("CONTENT_TYPE", ""))

    def parse(body: Body) -> Parsed:
        parsed = prometheus_text.parse(body.raw, now_ms=body.now_ms, seconds=seconds, over_quota=body.over_quota)
        return add_labels(parsed, labels) if labels else parsed

    return parse


def _unit(request: HttpRequest) -> str:
    return "s" if prometheus_text.is_open_metrics(request.META.get("CONTENT_TYPE", "")) else "ms"


def _answer(accepted: AcceptedMessage, status: int) -> HttpResponse:
    """Answer with the status alone when nothing was rejected: a body without samples is fine, too."""
    if not accepted.parsed.rejected:
        return HttpResponse(status=status, headers={"X-Message-Id": accepted.message_id.hex()})
    return JsonResponse(report(accepted.parsed, accepted.message_id), status=400)


def _version(request: HttpRequest) -> int:
    """Return 1 or 2, by the content type's parameter ``proto``; senders fall back to 1.0 on a 415."""
    headers = Message()
    headers["Content-Type"] = request.META.get("CONTENT_TYPE", "")
    kind, proto = headers.get_content_type(), str(headers.get_param("proto", _PROTO_V1)).lower()
    if kind == "application/x-protobuf" and proto in (_PROTO_V1, _PROTO_V2):
        return 2 if proto == _PROTO_V2 else 1
    raise UnsupportedContentType(
        "not a content type of remote write",
        got=request.META.get("CONTENT_TYPE", "")[:120],
        wanted="application/x-protobuf, with proto=prometheus.WriteRequest or io.prometheus.write.v2.Request",
    )
