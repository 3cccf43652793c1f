"""The endpoints of queries and names that Grafana and scripts call: plain views without a framework, for speed.

Each view reads its parameters, calls the query engine or the storage once, and writes the answer; the decorators of
`endpoint` do the rest. `explain=1` adds the provenance of an answer, `asof=T` answers with the data as accepted by T,
`stats` adds what the query has used. Names come from the dictionary, which has no times. With `asof` they come from
samples: such a call needs query admission, and the limits of queries hold for it.
"""

from collections.abc import Callable
from typing import Any

from frontend.prometheus.endpoint import Call, json_endpoint, query_endpoint
from frontend.prometheus.explanations import explanation_with_corrections
from frontend.prometheus.parameters import NamesQuery
from ingest.exemplars.selection import ExemplarQuery, SeriesExemplars, select
from spm import telemetry
from spm.clock import SystemClock
from spm.errors import BadQuery
from spm.limits import FUTURE_MS
from spm.query import result_cache_of, streaming
from spm.query.formats import prometheus
from spm.query.promql.engine import Engine, Result
from spm.query.promql.planning.planner import parse, selectors_of
from spm.query.reader import AppStorage
from spm.query.request.provenance import Provenance

_clock = SystemClock()
_CACHED, _COMPUTED = telemetry.QUERY_STEPS.labels("kept"), telemetry.QUERY_STEPS.labels("computed")


@query_endpoint
def instant_query(call: Call) -> bytes:
    """`query`: evaluates an expression at one time."""
    at_ms = call.parameters.instant("time", call.now_ms)
    expr, storage = call.parameters.required("query"), call.storage()
    try:
        result = Engine(storage, budget=call.budget).instant(expr, at_ms)
    except BadQuery as error:
        raise _with_parameter(error) from error
    return _query_response(call, storage, result)


@query_endpoint
def range_query(call: Call) -> bytes:
    """`query_range`: evaluates an expression at steps from start to end."""
    start_ms, end_ms = call.parameters.required_instant("start"), call.parameters.required_instant("end")
    step_ms, expr, storage = call.parameters.step_ms(), call.parameters.required("query"), call.storage()
    app_cache = result_cache_of(storage)
    try:
        result = Engine(storage, budget=call.budget, cache=app_cache).range(expr, start_ms, end_ms, step_ms)
    except BadQuery as error:
        raise _with_parameter(error) from error
    _CACHED.inc(result.cached_steps)
    _COMPUTED.inc(len(result.times) - result.cached_steps)
    telemetry.QUERY_CACHE_BYTES.set(app_cache.cache.size)
    return _query_response(call, storage, result)


@query_endpoint
def series(call: Call) -> bytes:
    """`series`: lists the label sets of the matching series."""
    names_query, storage = call.parameters.names_query(_clock), call.storage()
    if not names_query.matcher_sets:
        raise BadQuery("no match[] parameter provided")
    if call.asof_ms is not None:
        names = _names_as_of(call, storage, names_query)
        return _limited_response(call, storage, names.labels, names_query.limit, names.provenance)
    most = names_query.limit + 1  # one more than the limit, to detect that there are more
    label_sets = storage.series(
        names_query.matcher_sets,
        names_query.start_ms,
        names_query.end_ms,
        most=most,
        check_deadline=call.budget.check_deadline,
    )
    return _limited_response(call, storage, label_sets, names_query.limit)


@json_endpoint
def labels(call: Call) -> bytes:
    """`labels`: lists label names."""
    return _names_response(
        call,
        lambda storage, query: storage.label_names(
            query.matcher_sets, query.start_ms, query.end_ms, check_deadline=call.budget.check_deadline
        ),
        lambda series_labels: list(series_labels),
    )


@json_endpoint
def label_values(call: Call, name: str) -> bytes:
    """`label/NAME/values`: lists the values of one label."""
    label = prometheus.label_name(name)
    return _names_response(
        call,
        lambda storage, query: storage.label_values(
            label, query.matcher_sets, query.start_ms, query.end_ms, check_deadline=call.budget.check_deadline
        ),
        lambda series_labels: [series_labels[label]] if label in series_labels else [],
    )


@query_endpoint
def query_exemplars(call: Call) -> bytes:
    """`query_exemplars`: lists the newest exemplars of the series that an expression selects."""
    start_ms, end_ms = call.parameters.instant("start", 0), call.parameters.instant("end", call.now_ms + FUTURE_MS)
    if end_ms < start_ms:
        raise BadQuery('invalid parameter "end": end timestamp must not be before start time')
    try:
        selectors = selectors_of(parse(call.parameters.required("query")))
    except BadQuery as error:
        raise _with_parameter(error) from error
    if not selectors:
        return prometheus.success([])
    in_force = call.storage().retractions(start_ms - 1, end_ms)
    query = ExemplarQuery(call.caller.app_id, selectors, start_ms, end_ms, in_force, call.asof_ms)
    series, is_cut = select(query, call.budget.check_deadline)
    return prometheus.success([_exemplars_json(one) for one in series], warnings=[prometheus.TRUNCATED] * is_cut)


def _exemplars_json(series: SeriesExemplars) -> dict[str, Any]:
    return {
        "seriesLabels": series.labels,
        "exemplars": [
            {"labels": labels, "value": prometheus.number(value), "timestamp": ms / 1000}
            for ms, value, labels in series.exemplars
        ],
    }


def _query_response(call: Call, storage: AppStorage, result: Result) -> bytes:
    call.budget.check_points(prometheus.points_of(result))
    call.budget.check_deadline()
    return prometheus.query_body(
        result,
        limit=call.parameters.whole_number("limit") or 0,
        stats=call.budget if call.parameters.text("stats") else None,
        explain=_explanation(call, storage, result.provenance),
    )


def _with_parameter(error: BadQuery) -> BadQuery:
    """Return the error of a query; if it has a position in the text, it names the parameter `query`."""
    return BadQuery(f'invalid parameter "query": {error}', error.position) if error.position is not None else error


def _names_response(
    call: Call,
    list_names: Callable[[AppStorage, NamesQuery], list[str]],
    of_series: Callable[[dict[str, str]], list[str]],
) -> bytes:
    """List the names in the dictionary, or with `asof` those of the series that had samples as of that time."""
    names_query, storage = call.parameters.names_query(_clock), call.storage()
    if call.asof_ms is None:
        return _limited_response(call, storage, list_names(storage, names_query), names_query.limit)
    with call.admit():
        names = _names_as_of(call, storage, names_query)
    texts = sorted({name for one in names.labels for name in of_series(one)})
    return _limited_response(call, storage, texts, names_query.limit, names.provenance)


def _names_as_of(call: Call, storage: AppStorage, names_query: NamesQuery) -> streaming.SeriesAsOf:
    return streaming.series_as_of(
        storage, names_query.matcher_sets, names_query.start_ms, names_query.end_ms, call.budget
    )


_NO_SAMPLES = Provenance()  # the provenance of names from the dictionary


def _limited_response(
    call: Call, storage: AppStorage, entries: list[Any], limit: int, provenance: Provenance = _NO_SAMPLES
) -> bytes:
    truncated = [prometheus.TRUNCATED] if limit < len(entries) else []
    return prometheus.success(
        entries[:limit],
        warnings=[*truncated, *provenance.warnings()],
        infos=provenance.infos(),
        explain=_explanation(call, storage, provenance),
    )


def _explanation(call: Call, storage: AppStorage, provenance: Provenance) -> dict[str, Any] | None:
    if not call.parameters.flag("explain"):
        return None
    return explanation_with_corrections(storage, call.caller.app_id, provenance, call.now_ms)
