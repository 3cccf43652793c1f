"""The endpoints `format_query` and `parse_query`: they return an expression as formatted text, and as a tree."""

from collections.abc import Callable

from frontend.prometheus.endpoint import Call, json_endpoint
from spm.errors import BadQuery
from spm.query.formats import prometheus, promql_format


@json_endpoint
def format_query(call: Call) -> bytes:
    """`format_query`: formats the expression, with line breaks between its parts."""
    return prometheus.success(_convert_query(call, promql_format.format_expression))


@json_endpoint
def parse_query(call: Call) -> bytes:
    """`parse_query`: returns the tree of the expression."""
    return prometheus.success(_convert_query(call, promql_format.tree_json))


def _convert_query(call: Call, convert: Callable[[str], object]) -> object:
    try:
        return convert(call.parameters.required("query"))
    except BadQuery as error:
        raise error if error.position is None else BadQuery(f'invalid parameter "query": {error}') from error
    except RecursionError as error:
        raise BadQuery('invalid parameter "query": expression nested too deeply') from error
