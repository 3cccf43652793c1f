"""`status/…`, `metadata` and the lists that are empty here: what Grafana and scripts look at beside the data.

Prometheus tells about its own process; what is told here is about the caller's app alone, and about the limits that
hold for everybody. What kind of metric a name is, senders of Prometheus' and OpenTelemetry's protocols say; else it
follows from OpenMetrics' rules for names.
"""

from typing import Any

from frontend.prometheus.endpoint import Call, light
from ingest.accept import descriptions
from spm.accounts.models import App
from spm.clock import SystemClock
from spm.errors import BadQuery
from spm.limits import (
    FUTURE_MS,
    QUERY_PARALLEL_MAX,
    QUERY_SAMPLES_MAX,
    QUERY_TIMEOUT_S,
    READ_TOP_MAX,
    RULE_PERIOD_MS,
)
from spm.query.formats import prometheus
from spm.query.request.batches import METRIC_NAME
from spm.query.request.lookback import LOOKBACK_MS, SUBQUERY_STEP_MS

API_VERSION = "3.0.0"  # whose semantics are kept; Grafana chooses by it which calls to make
_clock = SystemClock()
_STARTED_MS = _clock.now_ms()
_CONFIG = "# Nothing is scraped here: data is pushed. Limits are in status/flags.\nglobal: {}\n"
_UNITS = ("seconds", "bytes", "ratio", "celsius", "meters", "volts", "amperes", "joules", "grams")
_ENDINGS = {"_total": "counter", "_bucket": "histogram"}
_COMPOSED, _PARTS = ("histogram", "summary"), ("_bucket", "_sum", "_count")


@light
def buildinfo(call: Call) -> bytes:
    """`status/buildinfo`: no `features` in it, or Grafana takes us for Mimir."""
    return prometheus.success(
        {"version": API_VERSION, "revision": "", "branch": "", "buildUser": "", "buildDate": "", "goVersion": ""}
    )


@light
def runtimeinfo(call: Call) -> bytes:
    """`status/runtimeinfo`: times, damaged rows of the app, and how long its samples are kept."""
    app = App.objects.get(pk=call.caller.app_id)
    return prometheus.success(
        {
            "startTime": _moment(_STARTED_MS),
            "serverTime": _moment(call.now_ms),
            "reloadConfigSuccess": True,
            "lastConfigTime": _moment(_STARTED_MS),
            "corruptionCount": call.storage().damaged(),
            "storageRetention": f"{app.raw_days}d" if app.raw_days else "for ever",
        }
    )


@light
def flags(call: Call) -> bytes:
    """`status/flags`: the limits of queries, under Prometheus' names."""
    return prometheus.success(
        {
            "query.lookback-delta": prometheus.duration(LOOKBACK_MS),
            "query.max-concurrency": str(QUERY_PARALLEL_MAX),
            "query.max-samples": str(QUERY_SAMPLES_MAX),
            "query.timeout": prometheus.duration(round(QUERY_TIMEOUT_S * 1000)),
            "query.default-evaluation-interval": prometheus.duration(SUBQUERY_STEP_MS),
            "rules.evaluation-interval": prometheus.duration(RULE_PERIOD_MS),
            "storage.remote.read-sample-limit": str(QUERY_SAMPLES_MAX),
        }
    )


@light
def config(call: Call) -> bytes:
    """`status/config`: nothing is configured by a file."""
    return prometheus.success({"yaml": _CONFIG})


@light
def tsdb(call: Call) -> bytes:
    """`status/tsdb`: how many series there are, and of what."""
    most = call.asked.whole_number("limit") or 10
    if most > READ_TOP_MAX:
        raise BadQuery(f'invalid parameter "limit": at most {READ_TOP_MAX}')
    found = call.storage().cardinality(most)
    return prometheus.success(
        {
            "headStats": {"numSeries": found.series, "numLabelPairs": found.pairs},
            "seriesCountByMetricName": _ranked(found.by_metric),
            "labelValueCountByLabelName": _ranked(found.values_by_label),
            "memoryInBytesByLabelName": _ranked(found.bytes_by_label),
            "seriesCountByLabelValuePair": _ranked(found.by_pair),
        }
    )


@light
def metadata(call: Call) -> bytes:
    """`metadata`: kind, help and unit of metrics: what senders said of them, else what their names tell."""
    limit, metric = call.asked.limit(signed=True), call.asked.text("metric")
    names = call.storage().label_values(METRIC_NAME, [], 0, call.now_ms + FUTURE_MS)
    described = descriptions.of_app(call.caller.app_id, metric)
    told: dict[str, list[dict[str, str]]] = {
        name: [{"type": one.type, "help": one.help, "unit": one.unit}] for name, one in list(described.items())[:limit]
    }
    ours = {f"{name}{ending}" for name in told for ending in _PARTS if told[name][0]["type"] in _COMPOSED}
    for name in names:
        if name in ours:
            continue
        known, kind = _family(name)
        if metric in (None, known) and len(told) < limit:
            told.setdefault(known, [{"type": kind, "help": "", "unit": _unit(known)}])
    return prometheus.success(told)


@light
def targets(call: Call) -> bytes:
    """`targets`: nothing is scraped."""
    return prometheus.success({"activeTargets": [], "droppedTargets": [], "droppedTargetCounts": {}})


@light
def alertmanagers(call: Call) -> bytes:
    """`alertmanagers`: messages are sent from here."""
    return prometheus.success({"activeAlertmanagers": [], "droppedAlertmanagers": []})


@light
def nothing_listed(call: Call) -> bytes:
    """`targets/metadata` and `notifications`: empty lists."""
    return prometheus.success([])


def _family(name: str) -> tuple[str, str]:
    """The metric that metadata is about, and its kind: a histogram's is that of its buckets without their ending."""
    kind = next((kind for ending, kind in _ENDINGS.items() if name.endswith(ending)), "unknown")
    return (name.removesuffix("_bucket"), kind) if kind == "histogram" else (name, kind)


def _unit(name: str) -> str:
    bare = name.removesuffix("_total")
    return next((unit for unit in _UNITS if bare.endswith(f"_{unit}")), "")


def _ranked(found: list[tuple[str, int]]) -> list[dict[str, Any]]:
    return [{"name": name, "value": count} for name, count in found]


def _moment(ms: int) -> str:
    return prometheus.rfc3339(ms)
