"""Computes the read range of a plan: the time around a step that the plan's value at that step depends on.

Some plans have no bounded read range: those with a fixed time (``@``), those that depend on the query's start, end,
step or range, and those that join info series. Enter by ``read_range``.
"""

from __future__ import annotations

from spm.fast_dataclass import dataclass
from spm.query.promql.kernels import extended_ranges
from spm.query.promql.planning import plan
from spm.query.promql.planning.planner import depends_on_query


@dataclass(frozen=True, slots=True)
class ReadRange:
    """A step at time t reads the samples with t - before < ts <= t + after; either may be negative."""

    before_ms: int
    after_ms: int

    def shift(self, offset_ms: int) -> ReadRange:
        """Return the range of an expression that is evaluated earlier by the offset."""
        return ReadRange(self.before_ms + offset_ms, self.after_ms - offset_ms)

    def widen(self, before_ms: int, after_ms: int = 0) -> ReadRange:
        """Return the range, extended on both sides."""
        return ReadRange(self.before_ms + before_ms, self.after_ms + after_ms)

    def cover(self, other: ReadRange) -> ReadRange:
        """Return the range that covers both."""
        return ReadRange(max(self.before_ms, other.before_ms), max(self.after_ms, other.after_ms))


_ATOMS = (str, int, float, type(None))  # types of fields that are not nodes


class _UnboundedRange(Exception):
    """The value of the plan depends on more than the samples around a step."""


def read_range(text: str, expression: plan.Plan, lookback_ms: int) -> ReadRange | None:
    """Return the read range of a text's plan; ``None`` if it is not bounded, or the plan reads nothing."""
    if depends_on_query(text):
        return None
    try:
        return _node_range(expression, lookback_ms)
    except _UnboundedRange:
        return None


def _node_range(node: object, lookback_ms: int) -> ReadRange | None:
    if isinstance(node, plan.InfoJoin):
        raise _UnboundedRange
    if isinstance(node, plan.Selector):
        return _selector_range(node, lookback_ms, 0)
    if isinstance(node, plan.Window):
        return _selector_range(node.selector, lookback_ms, node.range_ms)
    if isinstance(node, plan.Subquery):
        _check_relative(node)
        inner = _node_range(node.vector, lookback_ms)
        return None if inner is None else inner.widen(node.range_ms).shift(node.offset_ms)
    if isinstance(node, tuple):
        return _cover_all([_node_range(each, lookback_ms) for each in node])
    names = getattr(node, "__dataclass_fields__", ())  # `dataclasses.fields` reads this too, at ten times the cost
    parts = (getattr(node, name) for name in names)
    return _cover_all([_node_range(part, lookback_ms) for part in parts if not isinstance(part, _ATOMS)])


def _selector_range(node: plan.Selector, lookback_ms: int, range_ms: int) -> ReadRange:
    _check_relative(node)
    before, after = extended_ranges.margins(node.mode, lookback_ms)
    return ReadRange(max(range_ms, 0), 0).widen(lookback_ms, max(before, after)).widen(before).shift(node.offset_ms)


def _check_relative(node: plan.Selector | plan.Subquery) -> None:
    if node.at is not None:
        raise _UnboundedRange


def _cover_all(parts: list[ReadRange | None]) -> ReadRange | None:
    total: ReadRange | None = None
    for part in parts:
        if part is not None:
            total = part if total is None else total.cover(part)
    return total
