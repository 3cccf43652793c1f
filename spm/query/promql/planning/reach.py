"""How far around a step a plan looks: its value at a step depends on nothing else.

Plans whose value depends on more than that have no reach: those that stand still at a time (``@``), ask for the query's
own start, end, step or range, or look for info series. Enter by ``reach``.
"""

from __future__ import annotations

from spm.fast_dataclass import dataclass
from spm.query.promql.kernels import extended_ranges
from spm.query.promql.planning import plan
from spm.query.promql.planning.planner import depends_on_query


@dataclass(frozen=True, slots=True)
class Reach:
    """Samples of t - before < ts <= t + after count for a step at t; either may be negative."""

    before_ms: int
    after_ms: int

    def moved(self, offset_ms: int) -> Reach:
        """Of something that looks from so much earlier."""
        return Reach(self.before_ms + offset_ms, self.after_ms - offset_ms)

    def wider(self, before_ms: int, after_ms: int = 0) -> Reach:
        """With so much more on both sides."""
        return Reach(self.before_ms + before_ms, self.after_ms + after_ms)

    def joined(self, other: Reach) -> Reach:
        """What covers both."""
        return Reach(max(self.before_ms, other.before_ms), max(self.after_ms, other.after_ms))


_ATOMS = (str, int, float, type(None))  # what a node says beside the nodes it is made of


class _Unbounded(Exception):
    """The plan's value depends on more than what lies around a step."""


def reach(text: str, found: plan.Plan, lookback_ms: int) -> Reach | None:
    """The reach of a text's plan; ``None`` where it has none, or reads nothing."""
    if depends_on_query(text):
        return None
    try:
        return _reach(found, lookback_ms)
    except _Unbounded:
        return None


def _reach(node: object, lookback_ms: int) -> Reach | None:
    if isinstance(node, plan.Enriched):
        raise _Unbounded
    if isinstance(node, plan.Selector):
        return _of_selector(node, lookback_ms, 0)
    if isinstance(node, plan.Window):
        return _of_selector(node.selector, lookback_ms, node.range_ms)
    if isinstance(node, plan.Subquery):
        _check_moves(node)
        inner = _reach(node.vector, lookback_ms)
        return None if inner is None else inner.wider(node.range_ms).moved(node.offset_ms)
    if isinstance(node, tuple):
        return _joined([_reach(each, lookback_ms) for each in node])
    names = getattr(node, "__dataclass_fields__", ())  # what `fields` looks at, at a tenth of its cost
    parts = (getattr(node, name) for name in names)
    return _joined([_reach(part, lookback_ms) for part in parts if not isinstance(part, _ATOMS)])


def _of_selector(node: plan.Selector, lookback_ms: int, range_ms: int) -> Reach:
    _check_moves(node)
    before, after = extended_ranges.reach(node.mode, lookback_ms)
    return Reach(max(range_ms, 0), 0).wider(lookback_ms, max(before, after)).wider(before).moved(node.offset_ms)


def _check_moves(node: plan.Selector | plan.Subquery) -> None:
    if node.at is not None:
        raise _Unbounded


def _joined(parts: list[Reach | None]) -> Reach | None:
    found: Reach | None = None
    for part in parts:
        if part is not None:
            found = part if found is None else found.joined(part)
    return found
