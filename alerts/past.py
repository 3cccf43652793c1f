"""Alerts of the past that rest on given samples: what a retraction may call into question. Reads only.

An alert counts when it began to fire while its rule looked at one of the metrics within the touched time: the rule's
widest window, its offsets and the time it waited before firing are added. Whether it would have fired without these
samples is not judged here. Enter by ``fired``.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields, is_dataclass

from alerts.models import AlertEvent, Rule
from alerts.rules import State
from spm.errors import BadQuery
from spm.query.promql.engine import LOOKBACK_MS
from spm.query.promql.planning.plan import Selector, Subquery, Window
from spm.query.promql.planning.planner import parse
from spm.query.request.batches import METRIC_NAME, Matcher
from spm.store.matchers import mask


@dataclass(frozen=True, slots=True)
class Reads:
    """One thing an expression reads: which series, and how far back from its own time."""

    matchers: tuple[Matcher, ...]
    reach_ms: int


def fired(app_id: int, metrics: Collection[str], first_ms: int, last_ms: int) -> int:
    """How many alerts of the app began to fire from samples of these metrics between these times."""
    count = 0
    for rule in Rule.objects.filter(app_id=app_id):
        reach = reach_ms(rule.expr, metrics)
        if reach is not None:
            until = last_ms + reach + rule.for_ms
            events = AlertEvent.objects.filter(rule=rule, state=State.FIRING, at_ms__gte=first_ms, at_ms__lte=until)
            count += events.count()
    return count


def reach_ms(expr: str, metrics: Collection[str]) -> int | None:
    """How far back an expression looks at these metrics; ``None`` when it reads none of them, or means nothing."""
    try:
        found = list(_reads(parse(expr), LOOKBACK_MS))
    except BadQuery:
        return None  # of a rule that never could be judged
    return max((each.reach_ms for each in found if _concerns(each.matchers, metrics)), default=None)


def _concerns(matchers: tuple[Matcher, ...], metrics: Collection[str]) -> bool:
    names = list(metrics)
    named = [mask(names, matcher) for matcher in matchers if matcher.name == METRIC_NAME]
    return any(all(one) for one in zip(*named, strict=True)) if named else bool(names)


def _reads(node: object, range_ms: int) -> Iterator[Reads]:
    if isinstance(node, Selector):
        yield Reads(node.matchers, range_ms + max(node.offset_ms, 0))
    elif isinstance(node, Window):
        yield from _reads(node.selector, range_ms - LOOKBACK_MS + node.range_ms)
    elif isinstance(node, Subquery):
        yield from _reads(node.vector, range_ms + node.range_ms + max(node.offset_ms, 0))
    elif is_dataclass(node):
        for each in fields(node):
            yield from _reads(getattr(node, each.name), range_ms)
