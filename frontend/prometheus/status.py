"""The endpoints `status/…`, `metadata` and the lists that are always empty: Grafana and scripts read them.

Prometheus reports on its own process; these endpoints report on the caller's app only, and on the limits that hold for
all. The type of a metric comes from senders of Prometheus' and OpenTelemetry's protocols; without it, it is derived
from OpenMetrics' rules for names.
"""

from typing import Any

from frontend.prometheus.endpoint import Call, json_endpoint
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
from spm.query.promql.planning.signatures import NATIVE, SIGNATURES
from spm.query.promql.syntax.grammar import AGGREGATIONS
from spm.query.request.batches import METRIC_NAME
from spm.query.request.lookback import LOOKBACK_MS, SUBQUERY_STEP_MS

API_VERSION = "3.0.0"  # the version whose semantics the API follows; Grafana selects its calls by it
_clock = SystemClock()
_STARTED_MS = _clock.now_ms()
_CONFIG = "# Nothing is scraped here: data is pushed. Limits are in status/flags.\nglobal: {}\n"
_UNITS = ("seconds", "bytes", "ratio", "celsius", "meters", "volts", "amperes", "joules", "grams")
_OPERATORS = (
    *("+", "-", "*", "/", "%", "^", "==", "!=", "<", "<=", ">", ">=", "=~", "!~"),
    *("and", "or", "unless", "atan2"),
)
_FEATURES: dict[str, dict[str, bool]] = {
    "api": {
        **dict.fromkeys(("exclude_alerts", "label_values_match", "query_stats", "query_warnings"), True),
        **dict.fromkeys(("otlp_write_receiver", "remote_write_receiver"), True),
        **dict.fromkeys(("admin", "lifecycle", "time_range_labels", "time_range_series"), False),
    },
    "otlp_receiver": {"delta_conversion": False, "native_delta_ingestion": True},
    "prometheus": {"agent_mode": False, "auto_reload_config": False},
    "promql": {
        **dict.fromkeys(("anchored", "smoothed", "at_modifier", "negative_offset", "subqueries"), True),
        **dict.fromkeys(("bool", "by", "without", "group_left", "group_right", "ignoring", "on", "offset"), True),
        "per_query_lookback_delta": True,
        "per_step_stats": False,
    },
    "promql_functions": {name: name not in NATIVE for name in sorted(SIGNATURES)},
    "promql_operators": dict.fromkeys(sorted({*_OPERATORS, *AGGREGATIONS}), True),
    "rules": {"keep_firing_for": True},
    "tsdb": {"exemplar_storage": True, "native_histograms": False},
}
_ENDINGS = {"_total": "counter", "_bucket": "histogram"}
_COMPOSED, _PARTS = ("histogram", "summary"), ("_bucket", "_sum", "_count")


@json_endpoint
def buildinfo(call: Call) -> bytes:
    """`status/buildinfo`: without `features`, which would make Grafana expect Mimir."""
    return prometheus.success(
        {"version": API_VERSION, "revision": "", "branch": "", "buildUser": "", "buildDate": "", "goVersion": ""}
    )


@json_endpoint
def features(call: Call) -> bytes:
    """`features`: what the server can do, under Prometheus' names; those it does not name are not there."""
    return prometheus.success(_FEATURES)


@json_endpoint
def runtimeinfo(call: Call) -> bytes:
    """`status/runtimeinfo`: start time, and the app's damaged rows and retention."""
    app = App.objects.get(pk=call.caller.app_id)
    return prometheus.success(
        {
            "startTime": _moment(_STARTED_MS),
            "serverTime": _moment(call.now_ms),
            "reloadConfigSuccess": True,
            "lastConfigTime": _moment(_STARTED_MS),
            "corruptionCount": call.storage().damaged_count(),
            "storageRetention": f"{app.raw_days}d" if app.raw_days else "for ever",
        }
    )


@json_endpoint
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


@json_endpoint
def config(call: Call) -> bytes:
    """`status/config`: a configuration file without entries."""
    return prometheus.success({"yaml": _CONFIG})


@json_endpoint
def tsdb(call: Call) -> bytes:
    """`status/tsdb`: numbers of series, by metric and label."""
    limit = call.parameters.whole_number("limit") or 10
    if limit > READ_TOP_MAX:
        raise BadQuery(f'invalid parameter "limit": at most {READ_TOP_MAX}')
    cardinality = call.storage().cardinality(limit)
    return prometheus.success(
        {
            "headStats": {"numSeries": cardinality.series, "numLabelPairs": cardinality.pairs},
            "seriesCountByMetricName": _ranking(cardinality.by_metric),
            "labelValueCountByLabelName": _ranking(cardinality.values_by_label),
            "memoryInBytesByLabelName": _ranking(cardinality.bytes_by_label),
            "seriesCountByLabelValuePair": _ranking(cardinality.by_pair),
        }
    )


@json_endpoint
def metadata(call: Call) -> bytes:
    """`metadata`: type, help and unit of metrics, from their senders or else derived from their names."""
    limit, metric = call.parameters.limit(signed=True), call.parameters.text("metric")
    names = call.storage().label_values(METRIC_NAME, [], 0, call.now_ms + FUTURE_MS)
    described = descriptions.of_app(call.caller.app_id, metric)
    entries: dict[str, list[dict[str, str]]] = {
        name: [{"type": each.type, "help": each.help, "unit": each.unit}]
        for name, each in list(described.items())[:limit]
    }
    parts = {f"{name}{ending}" for name in entries for ending in _PARTS if entries[name][0]["type"] in _COMPOSED}
    for name in names:
        if name in parts:
            continue
        family, kind = _family(name)
        if metric in (None, family) and len(entries) < limit:
            entries.setdefault(family, [{"type": kind, "help": "", "unit": _unit(family)}])
    return prometheus.success(entries)


@json_endpoint
def targets(call: Call) -> bytes:
    """`targets`: always empty, as nothing is scraped."""
    return prometheus.success({"activeTargets": [], "droppedTargets": [], "droppedTargetCounts": {}})


@json_endpoint
def alertmanagers(call: Call) -> bytes:
    """`alertmanagers`: always empty, as the product sends its messages itself."""
    return prometheus.success({"activeAlertmanagers": [], "droppedAlertmanagers": []})


@json_endpoint
def empty_list(call: Call) -> bytes:
    """`targets/metadata` and `notifications`: always empty."""
    return prometheus.success([])


def _family(name: str) -> tuple[str, str]:
    """Return the metric family of a name, and its type: a histogram's name is that of its buckets without `_bucket`."""
    kind = next((kind for ending, kind in _ENDINGS.items() if name.endswith(ending)), "unknown")
    return (name.removesuffix("_bucket"), kind) if kind == "histogram" else (name, kind)


def _unit(name: str) -> str:
    bare = name.removesuffix("_total")
    return next((unit for unit in _UNITS if bare.endswith(f"_{unit}")), "")


def _ranking(counts: list[tuple[str, int]]) -> list[dict[str, Any]]:
    return [{"name": name, "value": count} for name, count in counts]


def _moment(ms: int) -> str:
    return prometheus.rfc3339(ms)
