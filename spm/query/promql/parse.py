"""Text to plan: the only module that knows the parser.

The text passes the guard, the parser checks grammar and types, and its tree is copied into the nodes of `plan`. What
the evaluator cannot do yet is refused here by name and position, never half done. Plans are remembered by their text.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import promql_parser as pp

from spm.errors import BadQuery
from spm.limits import QUERY_PLAN_DEPTH_MAX, QUERY_PLANS_KEPT
from spm.query.promql import guard, plan
from spm.query.promql.functions import ELEMENTWISE
from spm.query.promql.windows import FUNCTIONS as RANGE_FUNCTIONS
from spm.query.select import METRIC_NAME, Matcher

_MILLISECOND = datetime.timedelta(milliseconds=1)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MATCH_OPS = {"MatchOp.Equal": "=", "MatchOp.NotEqual": "!=", "MatchOp.Re": "=~", "MatchOp.NotRe": "!~"}
_AGGREGATIONS = frozenset({"sum", "avg", "min", "max", "count", "group", "stddev", "stdvar"})
_PARAMETER_AGGREGATIONS = frozenset({"topk", "bottomk", "quantile"})
_MANY = {"ManyToOne": "left", "OneToMany": "right"}


@lru_cache(maxsize=QUERY_PLANS_KEPT)
def parse(text: str) -> plan.Plan:
    """The plan of a text; `BadQuery` if it is too large, malformed, or asks for what is not supported."""
    guard.check(text)
    try:
        tree = pp.parse(text)
    except ValueError as error:
        raise BadQuery(str(error)) from error
    return _Copier(text).any(tree, 0)


@lru_cache(maxsize=QUERY_PLANS_KEPT)
def parse_selector(text: str) -> tuple[Matcher, ...]:
    """The matchers of a text that is a selector and nothing else, as `match[]` wants it."""
    node = parse(text)
    if not isinstance(node, plan.Selector):
        raise BadQuery(f"not a selector of series: {text}")
    return node.matchers


class _Copier:
    """Copies one tree; keeps the text, to say where something stands."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._by_type: dict[type[Any], Callable[[Any, int], plan.Plan]] = {
            pp.NumberLiteral: lambda node, depth: plan.Number(node.val),
            pp.StringLiteral: lambda node, depth: plan.Text(node.val),
            pp.VectorSelector: lambda node, depth: self._selector(node),
            pp.MatrixSelector: lambda node, depth: self._window(node),
            pp.ParenExpr: lambda node, depth: self.any(node.expr, depth),
            pp.UnaryExpr: self._negation,
            pp.BinaryExpr: self._binary,
            pp.AggregateExpr: self._aggregation,
            pp.Call: self._call,
            pp.SubqueryExpr: lambda node, depth: self._refuse("[", "subqueries are"),
        }

    def any(self, node: Any, depth: int) -> plan.Plan:
        """Copy whatever stands here."""
        if depth > QUERY_PLAN_DEPTH_MAX:
            raise BadQuery(f"expression nested deeper than {QUERY_PLAN_DEPTH_MAX}")
        return self._by_type[type(node)](node, depth + 1)

    def _vector(self, node: Any, depth: int) -> plan.VectorNode:
        copied = self.any(node, depth)
        if not isinstance(copied, plan.VECTORS):
            raise BadQuery(f"expected an instant vector, got {_kind(copied)}")
        return copied

    def _scalar(self, node: Any, depth: int) -> plan.ScalarNode:
        copied = self.any(node, depth)
        if not isinstance(copied, plan.SCALARS):
            raise BadQuery(f"expected a scalar, got {_kind(copied)}")
        return copied

    def _refuse(self, word: str, what: str) -> plan.Plan:
        position = guard.position_of(self._text, word)
        where = "" if position is None else f" at position {position}"
        raise BadQuery(f"{what} not supported{where}", position)

    def _selector(self, node: pp.VectorSelector) -> plan.Selector:
        if node.matchers.or_matchers:
            self._refuse("or", "'or' between matchers is")
        named = [] if node.name is None else [Matcher(METRIC_NAME, "=", node.name)]
        matchers = [Matcher(found.name, _MATCH_OPS[str(found.op)], found.value) for found in node.matchers.matchers]
        offset = 0 if node.offset is None else node.offset // _MILLISECOND
        return plan.Selector(tuple(named + matchers), offset, None if node.at is None else _instant(node.at))

    def _window(self, node: pp.MatrixSelector) -> plan.Window:
        return plan.Window(self._selector(node.vector_selector), node.range // _MILLISECOND)

    def _negation(self, node: pp.UnaryExpr, depth: int) -> plan.Plan:
        inner = self.any(node.expr, depth)
        if isinstance(inner, plan.SCALARS):
            return plan.ScalarBinary("*", inner, plan.Number(-1.0))
        if isinstance(inner, plan.VECTORS):
            return plan.VectorScalar("*", inner, plan.Number(-1.0))
        raise BadQuery(f"a sign needs a scalar or an instant vector, got {_kind(inner)}")

    def _binary(self, node: pp.BinaryExpr, depth: int) -> plan.Plan:
        op = str(node.op)
        left, right = self.any(node.lhs, depth), self.any(node.rhs, depth)
        as_bool = node.modifier is not None and bool(node.modifier.return_bool)
        if isinstance(left, plan.SCALARS):
            if isinstance(right, plan.SCALARS):
                return plan.ScalarBinary(op, left, right)
            if isinstance(right, plan.VECTORS):
                return plan.VectorScalar(op, right, left, swapped=True, as_bool=as_bool)
        elif isinstance(left, plan.VECTORS):
            if isinstance(right, plan.SCALARS):
                return plan.VectorScalar(op, left, right, as_bool=as_bool)
            if isinstance(right, plan.VECTORS):
                matching = self._matching(node)
                if op in plan.SET_OPERATORS:
                    return plan.SetOperation(op, left, right, matching)
                return plan.VectorVector(op, left, right, matching, as_bool)
        raise BadQuery(f"operator {op} between {_kind(left)} and {_kind(right)}")

    def _matching(self, node: pp.BinaryExpr) -> plan.Matching:
        modifier = node.modifier
        if modifier is None:
            return plan.Matching()
        if modifier.fill_values is not None and (modifier.fill_values.lhs, modifier.fill_values.rhs) != (None, None):
            self._refuse("fill", "'fill' is")
        many = _MANY.get(str(modifier.card).rpartition(".")[2], "")
        if modifier.matching is None:
            return plan.Matching(many=many, include=tuple(modifier.group_labels or ()))
        on = modifier.matching.type == pp.LabelModifierType.Include
        return plan.Matching(tuple(modifier.matching.labels), on, many, tuple(modifier.group_labels or ()))

    def _aggregation(self, node: pp.AggregateExpr, depth: int) -> plan.Plan:
        op = str(node.op)
        if op not in _AGGREGATIONS | _PARAMETER_AGGREGATIONS:
            return self._refuse(op, f"the aggregation {op} is")
        labels = () if node.modifier is None else tuple(node.modifier.labels)
        without = node.modifier is not None and node.modifier.type == pp.AggModifierType.Without
        parameter = None if node.param is None else self._scalar(node.param, depth)
        return plan.Aggregation(op, self._vector(node.expr, depth), labels, without, parameter)

    def _call(self, node: pp.Call, depth: int) -> plan.Plan:
        name = node.func.name
        if name in RANGE_FUNCTIONS:
            return self._range_call(name, node.args, depth)
        if name in ELEMENTWISE:
            parameters = tuple(self._scalar(argument, depth) for argument in node.args[1:])
            return plan.Elementwise(name, self._vector(node.args[0], depth), parameters)
        if name == "time":
            return plan.Time()
        if name == "pi":
            return plan.Number(3.141592653589793)
        if name == "scalar":
            return plan.ScalarOf(self._vector(node.args[0], depth))
        if name == "vector":
            return plan.VectorOf(self._scalar(node.args[0], depth))
        return self._refuse(name, f"the function {name}() is")

    def _range_call(self, name: str, arguments: list[Any], depth: int) -> plan.Plan:
        window = self.any(arguments[-1], depth)
        if not isinstance(window, plan.Window):
            raise BadQuery(f"{name}() needs a range of samples, got {_kind(window)}")
        parameter = self._scalar(arguments[0], depth) if len(arguments) > 1 else None
        return plan.RangeCall(name, window, parameter)


def _instant(at: pp.AtModifier) -> int | str:
    if at.at is None:
        return str(at.type).rpartition(".")[2].lower()
    return (at.at - _EPOCH) // _MILLISECOND


def _kind(node: plan.Plan) -> str:
    if isinstance(node, plan.SCALARS):
        return "a scalar"
    if isinstance(node, plan.VECTORS):
        return "an instant vector"
    return "a range of samples" if isinstance(node, plan.Window) else "a string"
