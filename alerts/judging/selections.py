"""What an expression reads: which metrics, and whether it needs all sources. Pure.

Enter by ``traits_of`` and ``selectors_of``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from spm.errors import BadQuery
from spm.query.promql.planning import plan
from spm.query.promql.planning.planner import parse
from spm.store.matchers import METRIC_NAME
from spm.wire import metric_id

_COLLECTIVE = (plan.Aggregation, plan.Absent, plan.AbsentOver, plan.ScalarOf, plan.HistogramQuantiles)


@dataclass(frozen=True, slots=True)
class Traits:
    """The ids of the metrics that an expression reads (None: any), and whether it has no value of its own per source.

    A sum over hosts of which some have not sent yet is a wrong number and not a missing one.
    """

    metrics: frozenset[int] | None
    is_collective: bool

    def reads_any(self, metrics: frozenset[int] | None) -> bool:
        """Whether it reads one of these metrics (None: any)."""
        return metrics is None or self.metrics is None or not self.metrics.isdisjoint(metrics)


@lru_cache(10_000)
def traits_of(expr: str) -> Traits:
    """Return the traits of an expression; one that does not parse reads nothing."""
    try:
        nodes = list(_nodes(parse(expr)))
    except BadQuery:
        return Traits(frozenset(), is_collective=False)
    names = [_metric_of(node) for node in nodes if isinstance(node, plan.Selector)]
    metrics = frozenset(metric_id(name.encode()) for name in names if name is not None)
    return Traits(None if None in names else metrics, any(isinstance(node, _COLLECTIVE) for node in nodes))


@lru_cache(10_000)
def selectors_of(expr: str) -> tuple[plan.Selector, ...]:
    """Return the selectors of an expression; one that does not parse has none."""
    try:
        return tuple(node for node in _nodes(parse(expr)) if isinstance(node, plan.Selector))
    except BadQuery:
        return ()


def _metric_of(selector: plan.Selector) -> str | None:
    return next((each.value for each in selector.matchers if each.name == METRIC_NAME and each.op == "="), None)


def _nodes(node: object) -> Iterator[object]:
    yield node
    if isinstance(node, tuple):
        for each in node:
            yield from _nodes(each)
    for name in getattr(node, "__dataclass_fields__", ()):
        part = getattr(node, name)
        if isinstance(part, tuple) or hasattr(part, "__dataclass_fields__"):
            yield from _nodes(part)
