"""Plans the tree of a text: checks types, and resolves durations.

A plan may depend on the query's start, end and step (`Context`) if its text uses them. The error of an invalid text
names the position and what was expected; the error of an unsupported feature names the feature. Enter by `plan_text`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spm.errors import BadQuery
from spm.limits import QUERY_PLAN_DEPTH_MAX
from spm.query.promql.planning import plan
from spm.query.promql.planning.calls import CallPlanner, kind
from spm.query.promql.planning.plan import Context
from spm.query.promql.syntax import durations, grammar, lexer
from spm.query.promql.syntax import tree as syntax_tree
from spm.query.promql.syntax.patterns import cuts_characters
from spm.query.request.batches import METRIC_NAME, Matcher
from spm.store.matchers import matches_empty

_PARAMETERS = {"topk": "scalar", "bottomk": "scalar", "limitk": "scalar", "limit_ratio": "scalar", "quantile": "scalar"}


def plan_text(text: str, context: Context) -> plan.Plan:
    """Returns the plan of a text; raises `BadQuery` if it is too large, malformed, or uses an unsupported feature."""
    return Planner(text, context).any(grammar.parse_tree(text), 0)


class Planner:
    """Plans the tree of one text; errors carry the position in the text."""

    def __init__(self, text: str, context: Context) -> None:
        self.context, self._text = context, text

    def any(self, node: syntax_tree.Node, depth: int) -> plan.Plan:
        """Returns the plan of any expression."""
        if depth > QUERY_PLAN_DEPTH_MAX:
            raise self.refuse(node.position, f"expression nested deeper than {QUERY_PLAN_DEPTH_MAX}")
        return _PLANNERS[type(node)](self, node, depth + 1)

    def vector(self, node: syntax_tree.Node, depth: int, context: str) -> plan.VectorNode:
        """Returns the plan of an instant vector; raises ``BadQuery`` for another type."""
        node_plan = self.any(node, depth)
        if not isinstance(node_plan, plan.VECTORS):
            raise self.type_error(node.position, "instant vector", context, node_plan)
        return node_plan

    def scalar(self, node: syntax_tree.Node, depth: int, context: str) -> plan.ScalarNode:
        """Returns the plan of a scalar; raises ``BadQuery`` for another type."""
        node_plan = self.any(node, depth)
        if not isinstance(node_plan, plan.SCALARS):
            raise self.type_error(node.position, "scalar", context, node_plan)
        return node_plan

    def text(self, node: syntax_tree.Node, depth: int, context: str) -> str:
        """Returns a string literal; raises ``BadQuery`` for another type."""
        node_plan = self.any(node, depth)
        if not isinstance(node_plan, plan.Text):
            raise self.type_error(node.position, "string", context, node_plan)
        return node_plan.value

    def type_error(self, position: int, expected: str, context: str, got: plan.Plan) -> BadQuery:
        """Returns the error of an expression whose type is not the expected one."""
        return self.refuse(position, f"expected type {expected} in {context}, got {kind(got)}")

    def refuse(self, position: int, message: str) -> BadQuery:
        """Returns the error that points at a position of the text."""
        return lexer.refuse(self._text, position, message)

    def matchers(self, node: syntax_tree.SelectorExpression) -> tuple[Matcher, ...]:
        """Returns the matchers of a selector, the metric's name first; raises `BadQuery` for invalid ones."""
        named = [] if node.name is None else [Matcher(METRIC_NAME, "=", node.name)]
        for matcher in node.matchers:
            if node.name is not None and matcher.name == METRIC_NAME:
                message = f"metric name must not be set twice: {node.name!r} or {matcher.value!r}"
                raise self.refuse(node.position, message)
            if matcher.op in ("=~", "!~") and cuts_characters(matcher.value):
                message = f"regular expression of {matcher.name}{matcher.op} is not valid: {matcher.value}"
                raise self.refuse(node.position, message)
            try:
                matches_empty(matcher)
            except BadQuery as error:
                raise self.refuse(node.position, str(error)) from error
        return (*named, *node.matchers)

    # --- selectors ---

    def _series(self, node: syntax_tree.SelectorExpression) -> plan.Plan:
        matchers = self.matchers(node)
        if all(map(matches_empty, matchers)):
            raise self.refuse(node.position, "vector selector must contain at least one non-empty matcher")
        offset, at = self._time_modifiers(node.time)
        selector = plan.Selector(matchers, offset, at, node.mode, node.position)
        return selector if node.range is None else plan.Window(selector, self._ms(node.range))

    def _subquery(self, node: syntax_tree.Subquery, depth: int) -> plan.Plan:
        inner = self.any(node.inner, depth)
        if not isinstance(inner, plan.VECTORS):
            raise self.refuse(node.position, f"subquery is only allowed on instant vector, got {kind(inner)} instead")
        step = None if node.step is None else self._ms(node.step)
        return plan.Subquery(inner, self._ms(node.range), step, *self._time_modifiers(node.time), node.position)

    def _time_modifiers(self, time: syntax_tree.TimeModifiers) -> tuple[int, int | str | None]:
        offset = 0 if time.offset is None else self._ms(time.offset, signed=True)
        return offset, round(time.at * 1000) if isinstance(time.at, float) else time.at

    def _ms(self, duration: syntax_tree.DurationExpression, *, signed: bool = False) -> int:
        query = self.context
        return durations.evaluate(
            self._text, duration, step_ms=query.step_ms, range_ms=query.end_ms - query.start_ms, signed=signed
        )

    # --- operators ---

    def _unary(self, node: syntax_tree.UnaryExpression, depth: int) -> plan.Plan:
        inner = self.any(node.inner, depth)
        if isinstance(inner, plan.SCALARS):
            return plan.ScalarBinary("*", inner, plan.Number(-1.0)) if node.op == "-" else inner
        if isinstance(inner, plan.VECTORS):
            return plan.VectorScalar("*", inner, plan.Number(-1.0)) if node.op == "-" else inner
        message = "unary expression only allowed on expressions of type scalar or instant vector"
        raise self.refuse(node.position, f"{message}, got {kind(inner)}")

    def _binary(self, node: syntax_tree.BinaryExpression, depth: int) -> plan.Plan:
        if node.op in ("</", ">/"):
            raise self.refuse(node.at, f"native histograms are not supported, and {node.op} is for these only")
        left, right = self.any(node.left, depth), self.any(node.right, depth)
        for side, operand in ((node.left, left), (node.right, right)):
            if not isinstance(operand, plan.SCALARS + plan.VECTORS):
                message = "binary expression must contain only scalar and instant vector types"
                raise self.refuse(side.position, f"{message}, got {kind(operand)}")
        self._check_operator(node, left, right)
        as_bool = node.modifiers.as_bool
        if isinstance(left, plan.SCALARS):
            if isinstance(right, plan.SCALARS):
                return plan.ScalarBinary(node.op, left, right)
            assert isinstance(right, plan.VECTORS), "BUG: a side that is neither scalar nor vector"
            return plan.VectorScalar(node.op, right, left, swapped=True, as_bool=as_bool)
        assert isinstance(left, plan.VECTORS), "BUG: a side that is neither scalar nor vector"
        if isinstance(right, plan.SCALARS):
            return plan.VectorScalar(node.op, left, right, as_bool=as_bool)
        assert isinstance(right, plan.VECTORS), "BUG: a side that is neither scalar nor vector"
        matching = self._matching(node)
        if node.op in plan.SET_OPERATORS:
            return plan.SetOperation(node.op, left, right, matching)
        return plan.VectorVector(node.op, left, right, matching, as_bool)

    def _check_operator(self, node: syntax_tree.BinaryExpression, left: plan.Plan, right: plan.Plan) -> None:
        modifiers, compares = node.modifiers, node.op in plan.COMPARISONS
        if modifiers.as_bool and not compares:
            raise self.refuse(node.at, "bool modifier can only be used on comparison operators")
        scalars = [isinstance(side, plan.SCALARS) for side in (left, right)]
        if all(scalars) and compares and not modifiers.as_bool:
            raise self.refuse(node.at, "comparisons between scalars must use BOOL modifier")
        filled = modifiers.fill_left is not None or modifiers.fill_right is not None
        if any(scalars):
            if node.op in plan.SET_OPERATORS:
                raise self.refuse(node.at, f"set operator {node.op!r} not allowed in binary scalar expression")
            if modifiers.matching or filled:
                what = "filling in missing series" if filled else "vector matching"
                raise self.refuse(node.at, f"{what} only allowed between instant vectors")
        elif node.op in plan.SET_OPERATORS:
            if modifiers.many:
                raise self.refuse(node.at, f"no grouping allowed for {node.op!r} operation")
            if filled:
                raise self.refuse(node.at, "filling in missing series not allowed for set operators")

    def _matching(self, node: syntax_tree.BinaryExpression) -> plan.Matching:
        modifiers = node.modifiers
        on = modifiers.matching == "on"
        ambiguous = set(modifiers.labels) & set(modifiers.include) if on else set()
        if ambiguous:
            message = f"label {sorted(ambiguous)[0]!r} must not occur in ON and GROUP clause at once"
            raise self.refuse(node.at, message)
        return plan.Matching(
            modifiers.labels, on, modifiers.many, modifiers.include, modifiers.fill_left, modifiers.fill_right
        )

    # --- aggregations ---

    def _aggregation(self, node: syntax_tree.AggregateExpression, depth: int) -> plan.Plan:
        expected = 2 if node.op in _PARAMETERS or node.op == "count_values" else 1
        context = "aggregation expression"
        if len(node.arguments) != expected:
            message = f"wrong number of arguments for {context} {node.op!r}, expected {expected}, got"
            raise self.refuse(node.position, f"{message} {len(node.arguments)}")
        vector = self.vector(node.arguments[-1], depth, context)
        first = node.arguments[0]
        text = self.text(first, depth, "aggregation parameter") if node.op == "count_values" else ""
        if node.op == "count_values" and not text:
            raise self.refuse(first.position, "invalid label name ''")
        has_number = node.op in _PARAMETERS
        parameter = self.scalar(first, depth, "aggregation parameter") if has_number else None
        without = node.grouping == "without"
        return plan.Aggregation(node.op, vector, node.labels, without, parameter, text, first.position)


_PLANNERS: dict[type[Any], Callable[[Planner, Any, int], plan.Plan]] = {
    syntax_tree.NumberLiteral: lambda planner, node, depth: plan.Number(node.value),
    syntax_tree.StringLiteral: lambda planner, node, depth: plan.Text(node.value),
    syntax_tree.SelectorExpression: lambda planner, node, depth: planner._series(node),
    syntax_tree.Subquery: Planner._subquery,
    syntax_tree.Parenthesis: lambda planner, node, depth: planner.any(node.inner, depth),
    syntax_tree.UnaryExpression: Planner._unary,
    syntax_tree.BinaryExpression: Planner._binary,
    syntax_tree.AggregateExpression: Planner._aggregation,
    syntax_tree.Call: lambda planner, node, depth: CallPlanner(planner).plan_call(node, depth),
}
