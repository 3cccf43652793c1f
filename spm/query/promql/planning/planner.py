"""Text to plan: the tree of the grammar, checked for types, with everything known that a query tells.

`Context` is what a plan may depend on beside its text: the query's own start, end and step. It matters only to texts
that ask for it (`step()`, `range()`, and `start()` and `end()` as numbers). What cannot mean anything is refused with
its position and what was wanted; what is not supported, by its name. Trees and plans are remembered, and
plans by the shape of their texts (`shapes`). Enter by `parse`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from spm.errors import BadQuery
from spm.limits import QUERY_PLAN_DEPTH_MAX, QUERY_PLANS_KEPT
from spm.query.promql.planning import plan, plan_cache
from spm.query.promql.planning.calls import Calls, kind
from spm.query.promql.planning.plan import Context
from spm.query.promql.syntax import durations, grammar, lexer
from spm.query.promql.syntax import tree as syntax_tree
from spm.query.promql.syntax.patterns import cuts_characters
from spm.query.request.batches import METRIC_NAME, Matcher
from spm.query.series.literals import matches_empty

_CONTEXT_WORDS = ("start", "end", "step", "range")
# A comment may part a name from its bracket, so that one behind a name counts as much. What is taken for a question by
# this, in a string for one, is only remembered less well.
_CONTEXT = re.compile(rf"\b(?:{'|'.join(_CONTEXT_WORDS)})\s*[(#]", re.IGNORECASE)
_PARAMETERS = {"topk": "scalar", "bottomk": "scalar", "limitk": "scalar", "limit_ratio": "scalar", "quantile": "scalar"}


def parse(text: str, context: Context | None = None) -> plan.Plan:
    """The plan of a text; `BadQuery` if it is too large, malformed, or asks for what is not supported."""
    return _planned(text, (context or Context()) if depends_on_query(text) else Context())


@lru_cache(maxsize=QUERY_PLANS_KEPT)
def depends_on_query(text: str) -> bool:
    """Whether a text may ask for the start, end, step or range of its query."""
    lowered = text.lower()
    return any(word in lowered for word in _CONTEXT_WORDS) and _CONTEXT.search(text) is not None


@lru_cache(maxsize=QUERY_PLANS_KEPT)
def parse_selector(text: str) -> tuple[Matcher, ...]:
    """The matchers of a text that is a selector and nothing else, as `match[]` wants it."""
    alone, found = grammar.tree(text), parse(text)
    plain = isinstance(alone, syntax_tree.Series) and alone.when == syntax_tree.When() and not alone.mode
    if not plain or not isinstance(found, plan.Selector):
        raise BadQuery(
            f'not a selector of series: {text[:100]}; a name or labels alone are wanted, as in up{{job="a"}}'
        )
    return found.matchers


@lru_cache(maxsize=QUERY_PLANS_KEPT)
def _planned(text: str, context: Context) -> plan.Plan:
    found = plan_cache.planned(text, lambda shape: planned_alone(shape, context), context)
    return planned_alone(text, context) if found is None else found


def planned_alone(text: str, context: Context) -> plan.Plan:
    """The plan of a text, whatever is known of texts like it."""
    return Planner(text, context).any(grammar.tree(text), 0)


class Planner:
    """Makes the plan of one tree; keeps the text, to say where something stands."""

    def __init__(self, text: str, context: Context) -> None:
        self.context, self._text = context, text

    def any(self, node: syntax_tree.Node, depth: int) -> plan.Plan:
        """The plan of whatever stands here."""
        if depth > QUERY_PLAN_DEPTH_MAX:
            raise self.refuse(node.position, f"expression nested deeper than {QUERY_PLAN_DEPTH_MAX}")
        return _PLANNED[type(node)](self, node, depth + 1)

    def vector(self, node: syntax_tree.Node, depth: int, context: str) -> plan.VectorNode:
        """The plan of what must be an instant vector."""
        found = self.any(node, depth)
        if not isinstance(found, plan.VECTORS):
            raise self.mistyped(node.position, "instant vector", context, found)
        return found

    def scalar(self, node: syntax_tree.Node, depth: int, context: str) -> plan.ScalarNode:
        """The plan of what must be a scalar."""
        found = self.any(node, depth)
        if not isinstance(found, plan.SCALARS):
            raise self.mistyped(node.position, "scalar", context, found)
        return found

    def text(self, node: syntax_tree.Node, depth: int, context: str) -> str:
        """What must be a string."""
        found = self.any(node, depth)
        if not isinstance(found, plan.Text):
            raise self.mistyped(node.position, "string", context, found)
        return found.value

    def mistyped(self, position: int, wanted: str, context: str, found: plan.Plan) -> BadQuery:
        """The error of something of another kind than is wanted."""
        return self.refuse(position, f"expected type {wanted} in {context}, got {kind(found)}")

    def refuse(self, position: int, message: str) -> BadQuery:
        """The error of a position."""
        return lexer.refuse(self._text, position, message)

    def matchers(self, node: syntax_tree.Series) -> tuple[Matcher, ...]:
        """A selector's matchers, the metric's name first; what they hold is theirs to judge."""
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

    def _series(self, node: syntax_tree.Series) -> plan.Plan:
        matchers = self.matchers(node)
        if all(map(matches_empty, matchers)):
            raise self.refuse(node.position, "vector selector must contain at least one non-empty matcher")
        offset, at = self._when(node.when)
        if node.mode == "anchored" and node.range is None:
            raise self.refuse(node.position, "anchored modifier is only for range vectors")
        selector = plan.Selector(matchers, offset, at, node.mode, node.position)
        return selector if node.range is None else plan.Window(selector, self._ms(node.range))

    def _subquery(self, node: syntax_tree.Subquery, depth: int) -> plan.Plan:
        inner = self.any(node.inner, depth)
        if not isinstance(inner, plan.VECTORS):
            raise self.refuse(node.position, f"subquery is only allowed on instant vector, got {kind(inner)} instead")
        step = None if node.step is None else self._ms(node.step)
        return plan.Subquery(inner, self._ms(node.range), step, *self._when(node.when), node.position)

    def _when(self, when: syntax_tree.When) -> tuple[int, int | str | None]:
        offset = 0 if when.offset is None else self._ms(when.offset, signed=True)
        return offset, round(when.at * 1000) if isinstance(when.at, float) else when.at

    def _ms(self, span: syntax_tree.Span, *, signed: bool = False) -> int:
        query = self.context
        return durations.evaluated(
            self._text, span, step_ms=query.step_ms, range_ms=query.end_ms - query.start_ms, signed=signed
        )

    # --- operators ---

    def _signed(self, node: syntax_tree.Signed, depth: int) -> plan.Plan:
        inner = self.any(node.inner, depth)
        if isinstance(inner, plan.SCALARS):
            return plan.ScalarBinary("*", inner, plan.Number(-1.0)) if node.op == "-" else inner
        if isinstance(inner, plan.VECTORS):
            return plan.VectorScalar("*", inner, plan.Number(-1.0)) if node.op == "-" else inner
        message = "unary expression only allowed on expressions of type scalar or instant vector"
        raise self.refuse(node.position, f"{message}, got {kind(inner)}")

    def _operation(self, node: syntax_tree.Operation, depth: int) -> plan.Plan:
        if node.op in ("</", ">/"):
            raise self.refuse(node.at, f"native histograms are not supported, and {node.op} is for these only")
        left, right = self.any(node.left, depth), self.any(node.right, depth)
        for side, found in ((node.left, left), (node.right, right)):
            if not isinstance(found, plan.SCALARS + plan.VECTORS):
                message = "binary expression must contain only scalar and instant vector types"
                raise self.refuse(side.position, f"{message}, got {kind(found)}")
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

    def _check_operator(self, node: syntax_tree.Operation, left: plan.Plan, right: plan.Plan) -> None:
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

    def _matching(self, node: syntax_tree.Operation) -> plan.Matching:
        modifiers = node.modifiers
        on = modifiers.matching == "on"
        twice = set(modifiers.labels) & set(modifiers.include) if on else set()
        if twice:
            message = f"label {sorted(twice)[0]!r} must not occur in ON and GROUP clause at once"
            raise self.refuse(node.at, message)
        return plan.Matching(
            modifiers.labels, on, modifiers.many, modifiers.include, modifiers.fill_left, modifiers.fill_right
        )

    # --- aggregations ---

    def _grouped(self, node: syntax_tree.Grouped, depth: int) -> plan.Plan:
        wanted = 2 if node.op in _PARAMETERS or node.op == "count_values" else 1
        context = "aggregation expression"
        if len(node.arguments) != wanted:
            message = f"wrong number of arguments for {context} {node.op!r}, expected {wanted}, got"
            raise self.refuse(node.position, f"{message} {len(node.arguments)}")
        vector = self.vector(node.arguments[-1], depth, context)
        first = node.arguments[0]
        text = self.text(first, depth, "aggregation parameter") if node.op == "count_values" else ""
        if node.op == "count_values" and not text:
            raise self.refuse(first.position, "invalid label name ''")
        numbered = node.op in _PARAMETERS
        parameter = self.scalar(first, depth, "aggregation parameter") if numbered else None
        without = node.grouping == "without"
        return plan.Aggregation(node.op, vector, node.labels, without, parameter, text, first.position)


_PLANNED: dict[type[Any], Callable[[Planner, Any, int], plan.Plan]] = {
    syntax_tree.Literal: lambda planner, node, depth: plan.Number(node.value),
    syntax_tree.Quoted: lambda planner, node, depth: plan.Text(node.value),
    syntax_tree.Series: lambda planner, node, depth: planner._series(node),
    syntax_tree.Subquery: Planner._subquery,
    syntax_tree.Parenthesis: lambda planner, node, depth: planner.any(node.inner, depth),
    syntax_tree.Signed: Planner._signed,
    syntax_tree.Operation: Planner._operation,
    syntax_tree.Grouped: Planner._grouped,
    syntax_tree.Call: lambda planner, node, depth: Calls(planner).planned(node, depth),
}
