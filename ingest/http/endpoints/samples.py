"""The endpoints of JSON, Influx line protocol and collectd's JSON; they answer only when samples are durable.

    POST /api/v1/metrics                          JSON  → 202 {"accepted", "rejected", "errors", "message_id"}
    POST /write, /api/v2/write, /api/v3/write_lp  lines → 204, as Influx clients want exactly that
    POST /api/v1/collectd                         lists of collectd's write_http → 200
    GET|HEAD /ping, /health, /ready, /query       what Influx clients ask before they write

When some lines are rejected, the others are stored: JSON reports them in its 202; line protocol answers 400 "partial
write", which Influx clients take as final and log. When all are rejected, the answer is 400. The endpoints of
Prometheus are in ``prometheus``, OpenTelemetry's in ``otlp``.
"""

from ingest.http.answers import report
from ingest.http.endpoints.base import AcceptedMessage, Plan, Probe, PushEndpoint
from ingest.http.exchange import PushAnswer, PushRequest, json_answer
from ingest.protocols.influx import reader as influx_reader
from ingest.protocols.json import samples as json_samples
from ingest.protocols.registry import Protocol
from spm.errors import BadMessage

_VERSION = "1.8-spm"
_VERSION_HEADERS = {"X-Influxdb-Version": _VERSION, "X-Influxdb-Build": "OSS"}
_DATABASES = {"name": "databases", "columns": ["name"], "values": [["metrics"]]}
_JSON_PLAN = Plan("json", lambda body: json_samples.parse(body.raw, now_ms=body.now_ms, over_quota=body.over_quota))


def _respond_json(_request: PushRequest, accepted: AcceptedMessage) -> PushAnswer:
    return json_answer(report(accepted.parsed, accepted.message_id), 202 if len(accepted.parsed.ts) else 400)


def _influx_plan(request: PushRequest) -> Plan:
    """``db``, ``bucket``, ``org`` and ``rp`` are ignored; the token names the app."""
    precision = request.parameter("precision")
    return Plan(
        "influx",
        lambda body: influx_reader.parse(body.raw, now_ms=body.now_ms, precision=precision, over_quota=body.over_quota),
        unit=influx_reader.time_unit(precision),
        precision=precision,
    )


def respond_plainly(status: int, *, takes_nothing: bool = False) -> "_PlainResponse":
    """Return a ``respond`` that answers with the status alone when all samples were accepted, else with the report.

    With ``takes_nothing`` a body without a sample is accepted, too: clients of Influx send one to see whether they may.
    """
    return _PlainResponse(status, takes_nothing=takes_nothing)


class _PlainResponse:
    def __init__(self, status: int, *, takes_nothing: bool) -> None:
        self._status, self._takes_nothing = status, takes_nothing

    def __call__(self, _request: PushRequest, accepted: AcceptedMessage) -> PushAnswer:
        if (len(accepted.parsed.ts) or self._takes_nothing) and not accepted.parsed.rejected:
            return PushAnswer(self._status, headers={"X-Message-Id": accepted.message_id.hex()})
        fields = report(accepted.parsed, accepted.message_id)
        return json_answer({**fields, "code": "invalid", "message": fields["error"]}, 400)


def common_endpoint(name: str, protocol: Protocol) -> PushEndpoint:
    """Return the endpoint of a protocol without answers of its own: 200, or 400 with a report if samples were rejected.

    collectd has it: ``POST /api/v1/collectd`` takes what its plug-in ``write_http`` sends with ``Format "JSON"``.
    """
    plan = Plan(
        protocol.name,
        lambda body: protocol.parse(body.raw, now_ms=body.now_ms, over_quota=body.over_quota),
        unit=protocol.unit,
    )
    return PushEndpoint(name, lambda _request: plan, respond_plainly(200))


def json_endpoint(name: str) -> PushEndpoint:
    """Return the endpoint of samples as JSON."""
    return PushEndpoint(name, lambda _request: _JSON_PLAN, _respond_json)


def influx_endpoint(name: str) -> PushEndpoint:
    """Return the endpoint of line protocol."""
    return PushEndpoint(name, _influx_plan, respond_plainly(204, takes_nothing=True))


def _ping(request: PushRequest, _form: dict[str, list[str]]) -> PushAnswer:
    if request.parameter("verbose") not in ("", "0", "false"):
        return json_answer({"version": _VERSION}, headers=dict(_VERSION_HEADERS))
    return PushAnswer(204, headers=dict(_VERSION_HEADERS))


def _health(_request: PushRequest, _form: dict[str, list[str]]) -> PushAnswer:
    fields = {"name": "influxdb", "message": "ready for writes", "status": "pass", "checks": [], "version": _VERSION}
    return json_answer(fields)


def _query(request: PushRequest, form: dict[str, list[str]]) -> PushAnswer:
    """Answer the two statements Influx clients send before they write; the database always exists."""
    statement = (request.parameter("q") or (form.get("q") or [""])[-1]).strip().upper()
    if statement.startswith("CREATE DATABASE"):
        return json_answer({"results": [{"statement_id": 0}]})
    if statement.startswith("SHOW DATABASES"):
        return json_answer({"results": [{"statement_id": 0, "series": [_DATABASES]}]})
    raise BadMessage(
        "this statement is not supported",
        got=statement[:80],
        wanted="SHOW DATABASES or CREATE DATABASE",
        remedy="Queries go to /prometheus/api/v1/query.",
    )


PROBES = (  # what Influx clients ask before they write
    Probe("ping", _ping),
    Probe("health", _health),
    Probe("ready", _health),
    Probe("query", _query, ("GET", "POST"), needs_token=True),
)
