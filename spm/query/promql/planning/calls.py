"""Plans the calls of functions: checks the number and types of the arguments by `signatures`, then builds a plan node.

Each family of functions has a node of its own in `plan`; `_SPECIAL` maps functions to them. Functions of data that is
not stored (native histograms, start times of counters) are refused by name and position. Enter by `CallPlanner`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from spm.errors import BadQuery
from spm.query.promql.planning import plan
from spm.query.promql.planning.plan import Context
from spm.query.promql.planning.signatures import CALENDAR, CONTEXT, NATIVE, SIGNATURES, Signature
from spm.query.promql.syntax import tree as syntax_tree
from spm.query.request.batches import Matcher
from spm.query.series.label_table import METADATA

TRAPEZOIDS = 2  # the default rule of integral()
_IN_ANY_CASE = CONTEXT | {"min_of", "max_of"}
_FORMER_NAMES = {"holt_winters": "double_exponential_smoothing"}


def kind(node: plan.Plan) -> str:
    """Return Prometheus' name of the type of a node's value."""
    if isinstance(node, plan.SCALARS):
        return "scalar"
    if isinstance(node, plan.VECTORS):
        return "instant vector"
    return "range vector" if isinstance(node, plan.WINDOWS) else "string"


def absent_labels(node: plan.Plan) -> tuple[tuple[str, str], ...]:
    """Return the labels that a selector fixes by `=`: the labels of an absent series."""
    selector = node.selector if isinstance(node, plan.Window) else node
    if not isinstance(selector, plan.Selector):
        return ()
    labels: dict[str, str] = {}
    fixed_names: set[str] = set()
    for matcher in selector.matchers:
        if matcher.name in METADATA:
            continue
        if matcher.op == "=" and matcher.name not in fixed_names:
            labels[matcher.name] = matcher.value
            fixed_names.add(matcher.name)
        else:
            labels.pop(matcher.name, None)
    return tuple((name, value) for name, value in labels.items() if value)


class PlanBuilder(Protocol):
    """The part of the planner that calls need: type-checked plans of arguments, and errors with positions."""

    context: Context

    def any(self, node: syntax_tree.Node, depth: int) -> plan.Plan:
        """Returns the plan of any expression."""

    def vector(self, node: syntax_tree.Node, depth: int, context: str) -> plan.VectorNode:
        """Returns the plan of an instant vector; raises ``BadQuery`` for another type."""

    def scalar(self, node: syntax_tree.Node, depth: int, context: str) -> plan.ScalarNode:
        """Returns the plan of a scalar; raises ``BadQuery`` for another type."""

    def text(self, node: syntax_tree.Node, depth: int, context: str) -> str:
        """Returns a string literal; raises ``BadQuery`` for another type."""

    def matchers(self, node: syntax_tree.SelectorExpression) -> tuple[Matcher, ...]:
        """Returns the matchers of a selector, the metric's name first."""

    def type_error(self, position: int, expected: str, context: str, got: plan.Plan) -> BadQuery:
        """Returns the error of an expression whose type is not the expected one."""

    def refuse(self, position: int, message: str) -> BadQuery:
        """Returns the error that points at a position of the text."""


class CallPlanner:
    """Plans calls."""

    def __init__(self, planner: PlanBuilder) -> None:
        self._planner = planner

    def plan_call(self, node: syntax_tree.Call, depth: int) -> plan.Plan:
        """Returns the plan of a call; raises `BadQuery` for an unknown function or wrong arguments."""
        name = node.name.lower() if node.name.lower() in _IN_ANY_CASE else node.name
        signature = SIGNATURES.get(name)
        if signature is None:
            raise self._planner.refuse(node.position, f"unknown function with name {node.name!r}")
        if name in NATIVE:
            raise self._planner.refuse(
                node.position, f"native histograms are not supported: {name}() is for these only"
            )
        if name == "start_timestamp":
            raise self._planner.refuse(node.position, "start_timestamp() is not supported: no start times are stored")
        node = syntax_tree.Call(_FORMER_NAMES.get(name, name), node.arguments, node.position)
        self._check_count(node, signature)
        if name in CONTEXT:
            return plan.Number(self._context(name))
        if name in _SPECIAL:
            return _SPECIAL[name](self, node, depth)
        if "range" in signature.kinds:
            return self._range_call(node, signature, depth)
        return self._elementwise(node, depth)

    def _check_count(self, node: syntax_tree.Call, signature: Signature) -> None:
        count = len(node.arguments)
        if signature.least <= count <= signature.most:
            return
        is_exact = signature.least == signature.most
        bound = "" if is_exact else "at least " if count < signature.least else "at most "
        expected = signature.least if count < signature.least else signature.most
        message = f"expected {bound}{expected} argument(s) in call to {node.name!r}, got {count}"
        raise self._planner.refuse(node.position, message)

    def _context(self, name: str) -> float:
        query = self._planner.context
        return {
            "start": query.start_ms,
            "end": query.end_ms,
            "step": query.step_ms,
            "range": query.end_ms - query.start_ms,
        }[name] / 1000

    # --- arguments ---

    def _vector(self, node: syntax_tree.Call, number: int, depth: int) -> plan.VectorNode:
        return self._planner.vector(node.arguments[number], depth, f"call to function {node.name!r}")

    def _scalar(self, node: syntax_tree.Call, number: int, depth: int) -> plan.ScalarNode:
        return self._planner.scalar(node.arguments[number], depth, f"call to function {node.name!r}")

    def _texts(self, node: syntax_tree.Call, first: int, depth: int) -> tuple[str, ...]:
        context = f"call to function {node.name!r}"
        return tuple(self._planner.text(argument, depth, context) for argument in node.arguments[first:])

    def _window(self, node: syntax_tree.Call, number: int, depth: int) -> plan.WindowNode:
        node_plan = self._planner.any(node.arguments[number], depth)
        if not isinstance(node_plan, plan.WINDOWS):
            position = node.arguments[number].position
            raise self._planner.type_error(position, "range vector", f"call to function {node.name!r}", node_plan)
        return node_plan

    # --- families ---

    def _elementwise(self, node: syntax_tree.Call, depth: int) -> plan.Plan:
        if node.name in CALENDAR and not node.arguments:
            return plan.Elementwise(node.name, plan.VectorOf(plan.Time()))
        parameters = tuple(self._scalar(node, number, depth) for number in range(1, len(node.arguments)))
        return plan.Elementwise(node.name, self._vector(node, 0, depth), parameters)

    def _range_call(self, node: syntax_tree.Call, signature: Signature, depth: int) -> plan.Plan:
        place = signature.kinds.index("range")
        window = self._window(node, place, depth)
        others = [number for number in range(len(node.arguments)) if number != place]
        parameters = tuple(self._scalar(node, number, depth) for number in others)
        if node.name == "sketch_quantile_over_time" and isinstance(window, plan.Subquery):
            position = node.arguments[place].position
            raise self._planner.refuse(position, "sketch_quantile_over_time needs stored samples, not a subquery")
        if node.name == "integral":
            parameters = parameters or (plan.Number(float(TRAPEZOIDS)),)
            return plan.RangeCall(node.name, window, parameters, node.arguments[-1].position)
        return plan.RangeCall(node.name, window, parameters, node.arguments[0].position)

    def _absent(self, node: syntax_tree.Call, depth: int) -> plan.Plan:
        vector = self._vector(node, 0, depth)
        return plan.Absent(vector, self._fixed_labels(node, vector))

    def _absent_over_time(self, node: syntax_tree.Call, depth: int) -> plan.Plan:
        window = self._window(node, 0, depth)
        return plan.AbsentOver(window, self._fixed_labels(node, window))

    def _fixed_labels(self, node: syntax_tree.Call, argument: plan.Plan) -> tuple[tuple[str, str], ...]:
        # A selector in parentheses does not count, as in Prometheus.
        return absent_labels(argument) if isinstance(node.arguments[0], syntax_tree.SelectorExpression) else ()

    def _sort(self, node: syntax_tree.Call, depth: int) -> plan.Plan:
        by_label = "by_label" in node.name
        labels = self._texts(node, 1, depth) if by_label else None
        return plan.Sort(self._vector(node, 0, depth), node.name.endswith("desc"), labels, node.position)

    def _relabel(self, node: syntax_tree.Call, depth: int) -> plan.Plan:
        return plan.Relabel(node.name, self._vector(node, 0, depth), self._texts(node, 1, depth), node.position)

    def _quantile(self, node: syntax_tree.Call, depth: int) -> plan.Plan:
        q, vector = node.arguments
        quantile = self._scalar(node, 0, depth)
        positions = (q.position,)
        return plan.HistogramQuantiles(self._vector(node, 1, depth), (quantile,), None, positions, vector.position)

    def _quantiles(self, node: syntax_tree.Call, depth: int) -> plan.Plan:
        label = self._planner.text(node.arguments[1], depth, f"call to function {node.name!r}")
        numbers = range(2, len(node.arguments))
        quantiles = tuple(self._scalar(node, number, depth) for number in numbers)
        positions = tuple(node.arguments[number].position for number in numbers)
        return plan.HistogramQuantiles(
            self._vector(node, 0, depth), quantiles, label, positions, node.arguments[0].position
        )

    def _fraction(self, node: syntax_tree.Call, depth: int) -> plan.Plan:
        lower, upper = self._scalar(node, 0, depth), self._scalar(node, 1, depth)
        return plan.HistogramFraction(lower, upper, self._vector(node, 2, depth), node.arguments[2].position)

    def _info(self, node: syntax_tree.Call, depth: int) -> plan.Plan:
        vector = self._vector(node, 0, depth)
        if len(node.arguments) == 1:
            return plan.InfoJoin(vector)
        selector = node.arguments[1]
        # Its time says nothing, as in Prometheus: info series are looked for at the times of the vector.
        if not isinstance(selector, syntax_tree.SelectorExpression) or selector.range or selector.name:
            raise self._planner.refuse(selector.position, "expected label selectors only, such as {data=~'.+'}")
        return plan.InfoJoin(vector, self._planner.matchers(selector))

    def _extreme(self, node: syntax_tree.Call, depth: int) -> plan.Plan:
        return plan.ScalarBinary(node.name, self._scalar(node, 0, depth), self._scalar(node, 1, depth))


_SPECIAL: dict[str, Callable[[CallPlanner, syntax_tree.Call, int], plan.Plan]] = {
    "time": lambda calls, node, depth: plan.Time(),
    "pi": lambda calls, node, depth: plan.Number(math.pi),
    "scalar": lambda calls, node, depth: plan.ScalarOf(calls._vector(node, 0, depth)),
    "vector": lambda calls, node, depth: plan.VectorOf(calls._scalar(node, 0, depth)),
    "timestamp": lambda calls, node, depth: plan.TimestampOf(calls._vector(node, 0, depth)),
    "absent": CallPlanner._absent,
    "absent_over_time": CallPlanner._absent_over_time,
    "sort": CallPlanner._sort,
    "sort_desc": CallPlanner._sort,
    "sort_by_label": CallPlanner._sort,
    "sort_by_label_desc": CallPlanner._sort,
    "label_replace": CallPlanner._relabel,
    "label_join": CallPlanner._relabel,
    "histogram_quantile": CallPlanner._quantile,
    "histogram_quantiles": CallPlanner._quantiles,
    "histogram_fraction": CallPlanner._fraction,
    "info": CallPlanner._info,
    "min_of": CallPlanner._extreme,
    "max_of": CallPlanner._extreme,
}
