"""Queries and names, as Grafana and scripts ask for them: plain views past every framework, for speed.

Each view reads its parameters, asks the query room once, and renders; the door around them (`door`) has done the rest.
`explain=1` adds what an answer rests on, `asof=T` answers as accepted by then, `stats` tells what a query has used.
"""

from typing import Any

from frontend.prometheus.door import Call, heavy, light
from frontend.prometheus.explaining import explained
from spm.clock import SystemClock
from spm.errors import BadQuery
from spm.query import prometheus
from spm.query.promql.engine import Engine, Result
from spm.query.storage import AppStorage

_clock = SystemClock()


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
    try:
        found = Engine(storage, budget=call.budget).range(expr, start_ms, end_ms, step_ms)
    except BadQuery as error:
        raise _of_query(error) from error
    return _answer(call, storage, found)


@heavy
def series(call: Call) -> bytes:
    """`series`: label sets of the series that match."""
    asked = call.asked.span(_clock)
    if not asked.matcher_sets:
        raise BadQuery("no match[] parameter provided")
    one_more = asked.limit + 1  # shows that there are more
    found = call.storage().series(asked.matcher_sets, asked.start_ms, asked.end_ms, most=one_more)
    return _limited(found, asked.limit)


@light
def labels(call: Call) -> bytes:
    """`labels`: names of labels."""
    asked = call.asked.span(_clock)
    return _limited(call.storage().label_names(asked.matcher_sets, asked.start_ms, asked.end_ms), asked.limit)


@light
def label_values(call: Call, name: str) -> bytes:
    """`label/NAME/values`: values of one label."""
    asked = call.asked.span(_clock)
    found = call.storage().label_values(
        prometheus.label_name(name), asked.matcher_sets, asked.start_ms, asked.end_ms
    )  # fmt: skip
    return _limited(found, asked.limit)


@light
def query_exemplars(call: Call) -> bytes:
    """`query_exemplars`: there are none."""
    call.asked.required("query")
    return prometheus.success([])


def _answer(call: Call, storage: AppStorage, found: Result) -> bytes:
    call.budget.shown(prometheus.points_of(found))
    call.budget.tick()
    return prometheus.answer(
        found,
        limit=call.asked.whole_number("limit") or 0,
        stats=call.budget if call.asked.text("stats") else None,
        explain=explained(storage, call.caller.app_id, found, call.now_ms) if call.asked.flag("explain") else None,
    )


def _of_query(error: BadQuery) -> BadQuery:
    """An error that names a place in the text is one of the parameter."""
    return BadQuery(f'invalid parameter "query": {error}', error.position) if error.position is not None else error


def _limited(found: list[Any], limit: int) -> bytes:
    cut = found[:limit]
    return prometheus.success(cut, warnings=[prometheus.TRUNCATED] if len(cut) < len(found) else [])
