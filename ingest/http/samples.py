"""The endpoints of JSON, Influx line protocol and collectd's JSON; they answer only when samples are durable.

    POST /api/v1/metrics                          JSON  → 202 {"accepted", "rejected", "errors", "message_id"}
    POST /write, /api/v2/write, /api/v3/write_lp  lines → 204, as Influx clients want exactly that
    POST /api/v1/collectd                         lists of collectd's write_http → 200
    GET|HEAD /ping, /health, /ready, /query       what Influx clients ask before they write

When some lines are rejected, the others are stored: JSON reports them in its 202; line protocol answers 400 "partial
write", which Influx clients take as final and log. When all are rejected, the answer is 400. The views read the
request, call ``reception.accept_request``, and format the answer; they decide nothing else. The endpoints of Prometheus
are in ``prometheus``, OpenTelemetry's in ``otlp``.
"""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_http_methods, require_POST

from ingest.http.answers import report, with_error_answers
from ingest.http.reception import AcceptedMessage, accept_request, principal_of
from ingest.protocols.influx import reader as influx_reader
from ingest.protocols.json import samples as json_samples
from ingest.protocols.registry import Protocol
from spm.errors import BadMessage

View = Callable[..., HttpResponse]
_VERSION = "1.8-spm"
_DATABASES = {"name": "databases", "columns": ["name"], "values": [["metrics"]]}


@with_error_answers
@require_POST
def metrics(request: HttpRequest) -> HttpResponse:
    """``POST /api/v1/metrics``: samples as JSON."""
    accepted = accept_request(
        request, lambda body: json_samples.parse(body.raw, now_ms=body.now_ms, over_quota=body.over_quota), "json"
    )
    return JsonResponse(report(accepted.parsed, accepted.message_id), status=202 if len(accepted.parsed.ts) else 400)


@with_error_answers
@require_POST
def write(request: HttpRequest) -> HttpResponse:
    """``POST /write``: line protocol. ``db``, ``bucket``, ``org`` and ``rp`` are ignored; the token names the app."""
    precision = request.GET.get("precision", "")
    accepted = accept_request(
        request,
        lambda body: influx_reader.parse(body.raw, now_ms=body.now_ms, precision=precision, over_quota=body.over_quota),
        "influx",
        unit=influx_reader.time_unit(precision),
    )
    return _answer(accepted, 204)


def common_view(protocol: Protocol) -> View:
    """Return the view of a protocol without answers of its own: 200, or 400 with a report if samples were rejected.

    collectd has it: ``POST /api/v1/collectd`` takes what its plug-in ``write_http`` sends with ``Format "JSON"``.
    """

    @with_error_answers
    @require_POST
    def accept(request: HttpRequest) -> HttpResponse:
        accepted = accept_request(
            request,
            lambda body: protocol.parse(body.raw, now_ms=body.now_ms, over_quota=body.over_quota),
            protocol.name,
            unit=protocol.unit,
        )
        return _answer(accepted, 200)

    return accept


@with_error_answers
@require_http_methods(["GET", "HEAD"])
def ping(request: HttpRequest) -> HttpResponse:
    """``/ping``: answer that the server is up."""
    headers = {"X-Influxdb-Version": _VERSION, "X-Influxdb-Build": "OSS"}
    if request.GET.get("verbose", "") not in ("", "0", "false"):
        return JsonResponse({"version": _VERSION}, headers=headers)
    return HttpResponse(status=204, headers=headers)


@with_error_answers
@require_http_methods(["GET", "HEAD"])
def health(request: HttpRequest) -> HttpResponse:
    """``/health`` and ``/ready``: answer that to clients of Influx 2."""
    fields = {"name": "influxdb", "message": "ready for writes", "status": "pass", "checks": [], "version": _VERSION}
    return JsonResponse(fields)


@with_error_answers
@require_http_methods(["GET", "POST"])
def query(request: HttpRequest) -> HttpResponse:
    """``/query``: answer the two statements Influx clients send before they write; the database always exists."""
    principal_of(request)
    statement = (request.GET.get("q") or request.POST.get("q") or "").strip().upper()
    if statement.startswith("CREATE DATABASE"):
        return JsonResponse({"results": [{"statement_id": 0}]})
    if statement.startswith("SHOW DATABASES"):
        return JsonResponse({"results": [{"statement_id": 0, "series": [_DATABASES]}]})
    raise BadMessage(
        "this statement is not supported",
        got=statement[:80],
        wanted="SHOW DATABASES or CREATE DATABASE",
        remedy="Queries go to /prometheus/api/v1/query.",
    )


def _answer(accepted: AcceptedMessage, status: int) -> HttpResponse:
    """Answer with the status alone when all samples were accepted, else with the report."""
    if len(accepted.parsed.ts) and not accepted.parsed.rejected:
        return HttpResponse(status=status, headers={"X-Message-Id": accepted.message_id.hex()})
    fields = report(accepted.parsed, accepted.message_id)
    return JsonResponse({**fields, "code": "invalid", "message": fields["error"]}, status=400)
