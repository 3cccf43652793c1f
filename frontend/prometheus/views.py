"""Queries and names, as Grafana and scripts ask for them: plain views past every framework, for speed.

Each view reads its parameters, asks the query room once, and renders; the door around them (`door`) has done the rest.
`explain=1` adds what an answer rests on, `asof=T` answers as accepted by then, `stats` tells what a query has used.
Names come from the dictionary, which knows no times; as of a time they are those of the samples known then, which takes
a turn and the limits of a query.
"""

from collections.abc import Callable
from typing import Any

from frontend.prometheus.endpoint import Call, heavy, light
from frontend.prometheus.explaining import explained
from frontend.prometheus.parameters import Span
from spm import telemetry
from spm.clock import SystemClock
from spm.errors import BadQuery
from spm.query import kept, streaming
from spm.query.formats import prometheus
from spm.query.promql.engine import Engine, Result
from spm.query.promql.planning.planner import parse
from spm.query.reader import AppStorage
from spm.query.request.provenance import Basis

_clock = SystemClock()
_KEPT, _COMPUTED = telemetry.QUERY_STEPS.labels("kept"), telemetry.QUERY_STEPS.labels("computed")


@heavy
def instant_query(call: Call) -> bytes:
    """`query`: an expression at one time."""
    at_ms = call.asked.instant("time", call.now_ms)
    expr, storage = call.asked.required("query"), call.storage()
    try:
        found = Engine(storage, budget=call.budget).instant(expr, at_ms)
    except BadQuery as error:
        raise _of_query(error) from error
    return _answer(call, storage, found)


@heavy
def range_query(call: Call) -> bytes:
    """`query_range`: an expression at steps from start to end."""
    start_ms, end_ms = call.asked.required_instant("start"), call.asked.required_instant("end")
    step_ms, expr, storage = call.asked.step_ms(), call.asked.required("query"), call.storage()
    known = kept(storage)
    try:
        found = Engine(storage, budget=call.budget, kept=known).range(expr, start_ms, end_ms, step_ms)
    except BadQuery as error:
        raise _of_query(error) from error
    _KEPT.inc(found.kept)
    _COMPUTED.inc(len(found.times) - found.kept)
    telemetry.QUERY_KEPT.set(known.results.size)
    return _answer(call, storage, found)


@heavy
def series(call: Call) -> bytes:
    """`series`: label sets of the series that match."""
    asked, storage = call.asked.span(_clock), call.storage()
    if not asked.matcher_sets:
        raise BadQuery("no match[] parameter provided")
    if call.asof_ms is not None:
        then = _known_then(call, storage, asked)
        return _limited(call, storage, then.labels, asked.limit, then.basis)
    one_more = asked.limit + 1  # shows that there are more
    found = storage.series(asked.matcher_sets, asked.start_ms, asked.end_ms, most=one_more)
    return _limited(call, storage, found, asked.limit)


@light
def labels(call: Call) -> bytes:
    """`labels`: names of labels."""
    return _names(
        call,
        lambda storage, asked: storage.label_names(asked.matcher_sets, asked.start_ms, asked.end_ms),
        lambda one: list(one),
    )


@light
def label_values(call: Call, name: str) -> bytes:
    """`label/NAME/values`: values of one label."""
    wanted = prometheus.label_name(name)
    return _names(
        call,
        lambda storage, asked: storage.label_values(wanted, asked.matcher_sets, asked.start_ms, asked.end_ms),
        lambda one: [one[wanted]] if wanted in one else [],
    )


@light
def query_exemplars(call: Call) -> bytes:
    """`query_exemplars`: there are none."""
    try:
        parse(call.asked.required("query"))
    except BadQuery as error:
        raise _of_query(error) from error
    return prometheus.success([])


def _answer(call: Call, storage: AppStorage, found: Result) -> bytes:
    call.budget.shown(prometheus.points_of(found))
    call.budget.tick()
    return prometheus.answer(
        found,
        limit=call.asked.whole_number("limit") or 0,
        stats=call.budget if call.asked.text("stats") else None,
        explain=_explained(call, storage, found.basis),
    )


def _of_query(error: BadQuery) -> BadQuery:
    """An error that names a place in the text is one of the parameter."""
    return BadQuery(f'invalid parameter "query": {error}', error.position) if error.position is not None else error


def _names(
    call: Call,
    known: Callable[[AppStorage, Span], list[str]],
    of_series: Callable[[dict[str, str]], list[str]],
) -> bytes:
    """Names as they are known now, or those of the series that were known at a time."""
    asked, storage = call.asked.span(_clock), call.storage()
    if call.asof_ms is None:
        return _limited(call, storage, known(storage, asked), asked.limit)
    with call.turn():
        then = _known_then(call, storage, asked)
    found = sorted({name for one in then.labels for name in of_series(one)})
    return _limited(call, storage, found, asked.limit, then.basis)


def _known_then(call: Call, storage: AppStorage, asked: Span) -> streaming.Names:
    return streaming.known_then(storage, asked.matcher_sets, asked.start_ms, asked.end_ms, call.budget)


_NO_SAMPLES = Basis()  # of what the dictionary says


def _limited(call: Call, storage: AppStorage, found: list[Any], limit: int, basis: Basis = _NO_SAMPLES) -> bytes:
    cut = found[:limit]
    more = [prometheus.TRUNCATED] if len(cut) < len(found) else []
    return prometheus.success(
        cut, warnings=[*more, *basis.warnings()], infos=basis.infos(), explain=_explained(call, storage, basis)
    )


def _explained(call: Call, storage: AppStorage, basis: Basis) -> dict[str, Any] | None:
    if not call.asked.flag("explain"):
        return None
    return explained(storage, call.caller.app_id, basis, call.now_ms)
