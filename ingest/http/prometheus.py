"""Prometheus' ways in: remote write 1.0 and 2.0, its text form, and Pushgateway's paths.

    POST /api/v1/write, /api/v1/push              remote write → 204 with X-Prometheus-Remote-Write-*-Written
    POST|PUT /api/v1/import/prometheus            text or OpenMetrics → 204
    POST|PUT|DELETE /metrics/job/JOB/LABEL/VALUE  as Pushgateway → 200; a delete → 202

Series of which something was refused make a 400 that says what; what was good is kept, and the headers of remote write
count it. PUT and POST are one here: samples are points in time, there is no group to replace, and so a DELETE has
nothing to take away. Both are answered as Pushgateway does, so that its clients go on.
"""

import base64
import binascii
from email.message import Message
from functools import partial

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_http_methods, require_POST

from ingest.http.answers import UnknownForm, answering, headline, report
from ingest.http.reception import Body, Parse, Taken, principal_of, take
from ingest.protocols.labelled import with_labels
from ingest.protocols.prometheus import remote_write
from ingest.protocols.prometheus import text as prometheus_text
from spm.errors import BadMessage
from spm.wire import Parsed

_FIRST, _SECOND = "prometheus.writerequest", "io.prometheus.write.v2.request"
_BASE64 = "@base64"


@partial(answering, too_fast=503)
@require_POST
def remote(request: HttpRequest) -> HttpResponse:
    """``POST /api/v1/write``: a request of remote write, of the version its content type names.

    A rate that is exceeded is a 503 here: Prometheus, by default, drops what was answered with 429.
    """
    principal_of(request)  # nobody learns without a token what is taken here
    read = remote_write.parse_v2 if _version(request) == 2 else remote_write.parse
    taken = take(request, lambda body: read(body.raw, now_ms=body.now_ms, over_quota=body.crowded), "remote_write")
    headers = {
        "X-Message-Id": taken.message_id.hex(),
        "X-Prometheus-Remote-Write-Samples-Written": str(len(taken.parsed.ts)),
        "X-Prometheus-Remote-Write-Histograms-Written": "0",
        "X-Prometheus-Remote-Write-Exemplars-Written": "0",
    }
    if taken.parsed.rejected:
        return HttpResponse(
            f"{headline(taken.parsed, 'series')}\n", status=400, content_type="text/plain", headers=headers
        )
    return HttpResponse(status=204, headers=headers)


@answering
@require_http_methods(["POST", "PUT"])
def text(request: HttpRequest) -> HttpResponse:
    """``POST /api/v1/import/prometheus``: text; ``?extra_label=name=value`` adds labels to every series."""
    pairs = [pair.partition("=") for pair in request.GET.getlist("extra_label")]
    labels = {name: value for name, _, value in pairs}
    return _told(take(request, _reader(request, labels), "prometheus_text", unit=_unit(request)), 204)


@answering
@require_http_methods(["POST", "PUT", "DELETE"])
def pushed(request: HttpRequest, group: str) -> HttpResponse:
    """``/metrics/job/…``: what is pushed to a Pushgateway, with the group's labels."""
    labels = group_of(group)
    if request.method == "DELETE":
        principal_of(request)
        return HttpResponse(status=202)
    reader = _reader(request, labels)
    return _told(take(request, reader, "prometheus_text", unit=_unit(request), source=labels["job"]), 200)


def group_of(path: str) -> dict[str, str]:
    """The labels of ``job/JOB{/LABEL/VALUE}``; a name that ends in @base64 has its value in base64 of addresses."""
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
        raise BadMessage("a label of the address is no base64", got=value[:80], wanted="base64 of addresses") from error


def _reader(request: HttpRequest, labels: dict[str, str]) -> Parse:
    seconds = prometheus_text.is_open_metrics(request.META.get("CONTENT_TYPE", ""))

    def parse(body: Body) -> Parsed:
        parsed = prometheus_text.parse(body.raw, now_ms=body.now_ms, seconds=seconds, over_quota=body.crowded)
        return with_labels(parsed, labels) if labels else parsed

    return parse


def _unit(request: HttpRequest) -> str:
    return "s" if prometheus_text.is_open_metrics(request.META.get("CONTENT_TYPE", "")) else "ms"


def _told(taken: Taken, status: int) -> HttpResponse:
    """Nothing but the status when nothing was refused: a body without samples is fine, too."""
    if not taken.parsed.rejected:
        return HttpResponse(status=status, headers={"X-Message-Id": taken.message_id.hex()})
    return JsonResponse(report(taken.parsed, taken.message_id), status=400)


def _version(request: HttpRequest) -> int:
    """1 or 2, by the content type's parameter ``proto``; senders fall back to 1.0 on a 415."""
    said = Message()
    said["Content-Type"] = request.META.get("CONTENT_TYPE", "")
    kind, proto = said.get_content_type(), str(said.get_param("proto", _FIRST)).lower()
    if kind == "application/x-protobuf" and proto in (_FIRST, _SECOND):
        return 2 if proto == _SECOND else 1
    raise UnknownForm(
        "not a content type of remote write",
        got=request.META.get("CONTENT_TYPE", "")[:120],
        wanted="application/x-protobuf, with proto=prometheus.WriteRequest or io.prometheus.write.v2.Request",
    )
