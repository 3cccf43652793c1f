"""The endpoints of Prometheus: remote write 1.0 and 2.0, its text form, and Pushgateway's paths.

    POST [/prometheus]/api/v1/write, /api/v1/push remote write → 204 with X-Prometheus-Remote-Write-*-Written
    POST|PUT /api/v1/import/prometheus            text or OpenMetrics → 204
    POST|PUT|DELETE /metrics/job/JOB/LABEL/VALUE  as Pushgateway → 200; a delete → 202

A body with rejected samples gets a 400 with the reasons; its other samples are stored, and the headers of remote write
count them. PUT and POST are one here: samples are points in time, there is no group to replace, and so a DELETE has
nothing to delete. Both are answered as Pushgateway does, so that its clients go on.
"""

import base64
import binascii
from email.message import Message

from ingest.http.answers import UnsupportedContentType, headline, report
from ingest.http.endpoints.base import AcceptedMessage, Body, Plan, PushEndpoint
from ingest.http.exchange import PushAnswer, PushRequest, json_answer
from ingest.protocols.grouping_labels import add_labels, read_extra_labels
from ingest.protocols.prometheus import remote_write
from ingest.protocols.prometheus import text as prometheus_text
from spm.errors import BadMessage
from spm.wire import Parsed

PUSHGATEWAY_PREFIX = "/metrics/"
_PROTO_V1, _PROTO_V2 = "prometheus.writerequest", "io.prometheus.write.v2.request"
_BASE64 = "@base64"


def remote_write_endpoint(name: str) -> PushEndpoint:
    """Return the endpoint of remote write, of the version its content type names.

    A rate that is exceeded is a 503 here: Prometheus, by default, drops what was answered with 429.
    """
    return PushEndpoint(name, _remote_write_plan, _respond_remote_write, too_fast=503)


def text_endpoint(name: str) -> PushEndpoint:
    """Return the endpoint of text; ``?extra_label=name=value`` adds labels to every series."""
    return PushEndpoint(name, _text_plan, _Stored(204), ("POST", "PUT"))


def pushgateway_endpoint(name: str) -> PushEndpoint:
    """Return the endpoint of ``/metrics/job/…``: text; the group's labels are added to every series."""
    return PushEndpoint(name, _group_plan, _Stored(200), ("POST", "PUT", "DELETE"))


def _remote_write_plan(request: PushRequest) -> Plan:
    read = remote_write.parse_v2 if _version(request) == 2 else remote_write.parse
    return Plan("remote_write", lambda body: read(body.raw, now_ms=body.now_ms, over_quota=body.over_quota))


def _respond_remote_write(_request: PushRequest, accepted: AcceptedMessage) -> PushAnswer:
    parsed = accepted.parsed
    headers = {
        "X-Message-Id": accepted.message_id.hex(),
        "X-Prometheus-Remote-Write-Samples-Written": str(max(len(parsed.ts) - parsed.histogram_samples, 0)),
        "X-Prometheus-Remote-Write-Histograms-Written": str(parsed.histograms if len(parsed.ts) else 0),
        "X-Prometheus-Remote-Write-Exemplars-Written": str(len(parsed.exemplars)),
    }
    if parsed.rejected:
        return PushAnswer(400, f"{headline(parsed, 'series')}\n".encode(), "text/plain", headers)
    return PushAnswer(204, headers=headers)


def _text_plan(request: PushRequest) -> Plan:
    return _plan_of_text(request, read_extra_labels(request.parameters("extra_label")))


def _group_plan(request: PushRequest) -> Plan | PushAnswer:
    labels = group_labels(request.path.removeprefix(PUSHGATEWAY_PREFIX))
    if request.method == "DELETE":
        return PushAnswer(202)
    return _plan_of_text(request, labels, source=labels["job"])


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


def _plan_of_text(request: PushRequest, labels: dict[str, str], source: str = "") -> Plan:
    seconds = prometheus_text.is_open_metrics(request.header("content-type"))

    def parse(body: Body) -> Parsed:
        parsed = prometheus_text.parse(body.raw, now_ms=body.now_ms, seconds=seconds, over_quota=body.over_quota)
        return add_labels(parsed, labels) if labels else parsed

    return Plan("prometheus_text", parse, unit="s" if seconds else "ms", source=source)


class _Stored:
    """Answers with the status alone when nothing was rejected: a body without samples is fine, too."""

    def __init__(self, status: int) -> None:
        self._status = status

    def __call__(self, _request: PushRequest, accepted: AcceptedMessage) -> PushAnswer:
        if not accepted.parsed.rejected:
            return PushAnswer(self._status, headers={"X-Message-Id": accepted.message_id.hex()})
        return json_answer(report(accepted.parsed, accepted.message_id), 400)


def _version(request: PushRequest) -> int:
    """Return 1 or 2, by the content type's parameter ``proto``; senders fall back to 1.0 on a 415."""
    content_type = request.header("content-type")
    if content_type == "application/x-protobuf":
        return 1
    headers = Message()
    headers["Content-Type"] = content_type
    kind, proto = headers.get_content_type(), str(headers.get_param("proto", _PROTO_V1)).lower()
    if kind == "application/x-protobuf" and proto in (_PROTO_V1, _PROTO_V2):
        return 2 if proto == _PROTO_V2 else 1
    raise UnsupportedContentType(
        "not a content type of remote write",
        got=content_type[:120],
        wanted="application/x-protobuf, with proto=prometheus.WriteRequest or io.prometheus.write.v2.Request",
    )
