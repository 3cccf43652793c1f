"""Reads PromQL as what the query builder shows, and writes it back: the newest sample or a function of one metric,
its filters, an aggregation, and a percentile of buckets. Pure.

A text that says more than the builder can show stays a text: ``read_query`` raises ``NotShown`` with the reason, and
never leaves a part out. Whatever ``write_query`` writes is read back as the same query. Enter by these two.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from frontend.presenters.charts import VARIABLES, without_variables
from spm.errors import BadQuery
from spm.query.formats.promql_format import format_label, format_selector
from spm.query.promql.planning.plan import Context
from spm.query.promql.planning.planner import parse
from spm.query.promql.syntax import tree
from spm.query.promql.syntax.grammar import parse_tree
from spm.query.promql.syntax.numerals import short
from spm.query.request.batches import METRIC_NAME, Matcher

FUNCTIONS = (
    *("rate", "increase", "irate", "delta", "idelta", "deriv", "changes", "resets"),
    *(f"{name}_over_time" for name in ("last", "avg", "min", "max", "sum", "count", "stddev", "quantile")),
)
AGGREGATIONS = ("avg", "sum", "min", "max", "count", "stddev", "quantile", "topk", "bottomk")
WITH_NUMBER = frozenset({"quantile_over_time", "quantile", "topk", "bottomk"})  # those with a number before the series
_ANY_QUERY = Context(0, 3_600_000, 60_000)  # for texts that use `step()` or `range()`
_DURATION = re.compile(r"(?:\d+(?:ms|[smhdwy]))+")
_WINDOW = re.compile(rf"{'|'.join(map(re.escape, VARIABLES))}|{_DURATION.pattern}")


class NotShown(Exception):
    """The builder cannot show a text; the message says why, as the end of a sentence."""


@dataclass(frozen=True, slots=True)
class BuilderQuery:
    """A query as the builder shows it. Raises ``BadQuery`` for one that no text says.

    ``function`` is empty for the newest sample; ``number`` belongs to ``quantile_over_time``, ``parameter`` to
    ``quantile``, ``topk`` and ``bottomk``; ``percentile`` (0 to 1) is that of a histogram's buckets.
    """

    metric: str
    filters: Sequence[Matcher] = ()
    function: str = ""
    window: str = ""
    number: float | None = None
    aggregation: str = ""
    parameter: float | None = None
    grouping: str = ""
    labels: Sequence[str] = ()
    percentile: float | None = None

    def __post_init__(self) -> None:
        """Check that the parts belong together."""
        if not self.metric:
            raise BadQuery("the query builder needs the name of a metric")
        if any(each.name in ("", METRIC_NAME) for each in self.filters):
            raise BadQuery("a filter of the query builder needs the name of a label; the metric has a field of its own")
        _check_choice("function", self.function, FUNCTIONS, self.number, "number")
        _check_choice("aggregation", self.aggregation, AGGREGATIONS, self.parameter, "parameter")
        if bool(self.function) != bool(self.window) or (self.window and not _WINDOW.fullmatch(self.window)):
            raise BadQuery(
                f'got the window "{self.window}" for the function "{self.function}"; a function needs a window '
                f"such as 5m or {VARIABLES[0]}, the newest sample has none"
            )
        is_grouped = self.grouping == "without" or (self.grouping == "by" and self.labels)
        if (not is_grouped and (self.grouping or self.labels)) or (is_grouped and not self.aggregation):
            raise BadQuery('grouping is "by" with labels or "without", and needs an aggregation')
        if self.percentile is not None and not isfinite(self.percentile):
            raise BadQuery(f"got the percentile {self.percentile}; give a number from 0 to 1")


def write_query(query: BuilderQuery) -> str:
    """Write the text of a query; raises ``BadQuery`` if PromQL refuses it."""
    text = format_selector(query.metric, query.filters)
    if query.function:
        text = f"{query.function}({_argument(query.number)}{text}[{query.window}])"
    if query.aggregation:
        grouping = f" {query.grouping} ({', '.join(map(format_label, query.labels))}) " if query.grouping else ""
        text = f"{query.aggregation}{grouping}({_argument(query.parameter)}{text})"
    if query.percentile is not None:
        text = f"histogram_quantile({short(query.percentile)}, {text})"
    parse(without_variables(text))
    return text


def read_query(text: str) -> BuilderQuery:
    """Read a text; raises ``BadQuery`` if it is no PromQL, and ``NotShown`` if the builder cannot show it."""
    plain = without_variables(text)
    parse(plain, _ANY_QUERY)
    node = _bare(parse_tree(plain))
    percentile, aggregation, grouping, labels, parameter = None, "", "", tuple[str, ...](), None
    if isinstance(node, tree.Call) and node.name == "histogram_quantile":
        percentile, node = _number(node.arguments[0]), _bare(node.arguments[1])
    if isinstance(node, tree.AggregateExpression):
        if node.op not in AGGREGATIONS:
            raise NotShown(f"it aggregates with {node.op}")
        aggregation, labels = node.op, node.labels
        grouping = node.grouping if labels or node.grouping == "without" else ""
        parameter, node = _take_number(aggregation, node.arguments)
    function, number, window = "", None, ""
    if isinstance(node, tree.Call):
        if node.name not in FUNCTIONS:
            raise NotShown(f"it calls {node.name}() where the builder has no place for it")
        function = node.name
        number, node = _take_number(function, node.arguments)
    if not isinstance(node, tree.SelectorExpression):
        raise NotShown(_reason(node))
    if node.time != tree.TimeModifiers() or node.mode:
        raise NotShown("it reads at another time, or in another way, than the chart")
    if node.range is not None:
        window = _window(text, node.range)
    metric, filters = _selected(node)
    return BuilderQuery(metric, filters, function, window, number, aggregation, parameter, grouping, labels, percentile)


def _check_choice(kind: str, name: str, known: Sequence[str], number: float | None, what: str) -> None:
    if name and name not in known:
        raise BadQuery(f'got the {kind} "{name}"; the query builder knows {", ".join(known)}')
    if (number is not None) != (name in WITH_NUMBER) or (number is not None and not isfinite(number)):
        raise BadQuery(f'{what} {number} does not suit the {kind} "{name}": only quantiles, topk and bottomk have one')


def _argument(number: float | None) -> str:
    return "" if number is None else f"{short(number)}, "


def _bare(node: tree.Node) -> tree.Node:
    while isinstance(node, tree.Parenthesis):
        node = node.inner
    return node


def _number(node: tree.Node) -> float:
    bare = _bare(node)
    if isinstance(bare, tree.NumberLiteral) and isfinite(bare.value):
        return bare.value
    raise NotShown("a number in it is computed")


def _take_number(name: str, arguments: Sequence[tree.Node]) -> tuple[float | None, tree.Node]:
    """Split off the number that some functions and aggregations have before their series."""
    return (_number(arguments[0]) if name in WITH_NUMBER else None), _bare(arguments[-1])


def _reason(node: tree.Node) -> str:
    match node:
        case tree.BinaryExpression():
            return f"it combines values with “{node.op}”, for which there are formulas of several queries"
        case tree.AggregateExpression():
            return "it aggregates twice"
        case tree.Subquery():
            return "it evaluates an expression over a range (a subquery)"
        case tree.Call():
            return f"it calls {node.name}() where the builder has no place for it"
        case _:
            return "it selects no metric"


def _window(text: str, span: tree.DurationExpression) -> str:
    """Return the window as it is written: a variable, or a duration."""
    window = _WINDOW.match(text, span.position)
    if not isinstance(span, tree.NumberLiteral) or not window or text[window.end() :].lstrip()[:1] != "]":
        raise NotShown("its window is computed, or no plain duration such as 5m")
    return window[0]


def _selected(node: tree.SelectorExpression) -> tuple[str, tuple[Matcher, ...]]:
    named = [each for each in node.matchers if each.name == METRIC_NAME]
    if node.name is None and len(named) == 1 and named[0].op == "=":
        return named[0].value, tuple(each for each in node.matchers if each.name != METRIC_NAME)
    if node.name is None or named:
        raise NotShown("it selects no metric by its one name")
    return node.name, node.matchers
