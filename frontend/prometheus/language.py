"""`format_query` and `parse_query`: an expression written out in one form, and as a tree."""

from collections.abc import Callable

from frontend.prometheus.endpoint import Call, light
from spm.errors import BadQuery
from spm.query.formats import prometheus, promql_format


@light
def format_query(call: Call) -> bytes:
    """`format_query`: the expression, its lines broken at its parts."""
    return prometheus.success(_made(call, promql_format.formatted))


@light
def parse_query(call: Call) -> bytes:
    """`parse_query`: its tree."""
    return prometheus.success(_made(call, promql_format.as_json))


def _made(call: Call, make: Callable[[str], object]) -> object:
    try:
        return make(call.asked.required("query"))
    except BadQuery as error:
        raise error if error.position is None else BadQuery(f'invalid parameter "query": {error}') from error
    except RecursionError as error:
        raise BadQuery('invalid parameter "query": expression nested too deeply') from error
