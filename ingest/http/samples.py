"""The front door over HTTP: JSON, Influx line protocol, collectd's JSON; an answer only when samples are durable.

    POST /api/v1/metrics                          JSON  → 202 {"accepted", "rejected", "errors", "message_id"}
    POST /write, /api/v2/write, /api/v3/write_lp  lines → 204, as Influx clients want exactly that
    POST /api/v1/collectd                         lists of collectd's write_http → 200
    GET|HEAD /ping, /health, /ready, /query       what Influx clients ask before they write

Some lines refused: the others are kept, and JSON says so in its 202; line protocol answers 400 "partial write", which
Influx clients take as final and log. Nothing taken: 400. The views read the request, call ``reception.take``, and word
the answer; they decide nothing else. Prometheus' forms stand in ``http_prometheus``, OpenTelemetry's in ``http_otlp``.
"""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_http_methods, require_POST

from ingest.http.answers import answering, report
from ingest.http.reception import Taken, principal_of, take
from ingest.protocols.influx import reader as influx_reader
from ingest.protocols.json import samples as json_samples
from ingest.protocols.registry import Protocol
from spm.errors import BadMessage

View = Callable[..., HttpResponse]
_VERSION = "1.8-spm"
_DATABASES = {"name": "databases", "columns": ["name"], "values": [["metrics"]]}


@answering
@require_POST
def metrics(request: HttpRequest) -> HttpResponse:
    """``POST /api/v1/metrics``: samples as JSON."""
    taken = take(
        request, lambda body: json_samples.parse(body.raw, now_ms=body.now_ms, over_quota=body.crowded), "json"
    )
    return JsonResponse(report(taken.parsed, taken.message_id), status=202 if len(taken.parsed.ts) else 400)


@answering
@require_POST
def write(request: HttpRequest) -> HttpResponse:
    """Influx line protocol. ``db``, ``bucket``, ``org`` and ``rp`` are passed over: the token names the app."""
    precision = request.GET.get("precision", "")
    taken = take(
        request,
        lambda body: influx_reader.parse(body.raw, now_ms=body.now_ms, precision=precision, over_quota=body.crowded),
        "influx",
        unit=influx_reader.unit_of(precision),
    )
    return _settled(taken, 204)


def common_view(protocol: Protocol) -> View:
    """The view of a protocol without answers of its own: 200, or 400 with a report if something was rejected.

    collectd has it: ``POST /api/v1/collectd`` takes what its plug-in ``write_http`` sends with ``Format "JSON"``.
    """

    @answering
    @require_POST
    def accept(request: HttpRequest) -> HttpResponse:
        taken = take(
            request,
            lambda body: protocol.parse(body.raw, now_ms=body.now_ms, over_quota=body.crowded),
            protocol.name,
            unit=protocol.unit,
        )
        return _settled(taken, 200)

    return accept


@answering
@require_http_methods(["GET", "HEAD"])
def ping(request: HttpRequest) -> HttpResponse:
    """``/ping``: there is somebody here."""
    headers = {"X-Influxdb-Version": _VERSION, "X-Influxdb-Build": "OSS"}
    if request.GET.get("verbose", "") not in ("", "0", "false"):
        return JsonResponse({"version": _VERSION}, headers=headers)
    return HttpResponse(status=204, headers=headers)


@answering
@require_http_methods(["GET", "HEAD"])
def health(request: HttpRequest) -> HttpResponse:
    """``/health`` and ``/ready``: likewise, as clients of Influx 2 ask it."""
    told = {"name": "influxdb", "message": "ready for writes", "status": "pass", "checks": [], "version": _VERSION}
    return JsonResponse(told)


@answering
@require_http_methods(["GET", "POST"])
def query(request: HttpRequest) -> HttpResponse:
    """``/query``: the two statements Influx clients send before they write; the database is always there."""
    principal_of(request)
    statement = (request.GET.get("q") or request.POST.get("q") or "").strip().upper()
    if statement.startswith("CREATE DATABASE"):
        return JsonResponse({"results": [{"statement_id": 0}]})
    if statement.startswith("SHOW DATABASES"):
        return JsonResponse({"results": [{"statement_id": 0, "series": [_DATABASES]}]})
    raise BadMessage(
        "this statement is not answered here",
        got=statement[:80],
        wanted="SHOW DATABASES or CREATE DATABASE",
        remedy="Queries go to /prometheus/api/v1/query.",
    )


def _settled(taken: Taken, status: int) -> HttpResponse:
    """Nothing but the status when all is well, else what is wrong."""
    if len(taken.parsed.ts) and not taken.parsed.rejected:
        return HttpResponse(status=status, headers={"X-Message-Id": taken.message_id.hex()})
    told = report(taken.parsed, taken.message_id)
    return JsonResponse({**told, "code": "invalid", "message": told["error"]}, status=400)
