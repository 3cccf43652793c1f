"""Counts past alerts that depend on given samples, and which a retraction may therefore question. Reads only.

An alert counts if it began to fire while its rule read one of the metrics in the given time. The rule's widest window,
its offsets and the time it waited before firing are added to that time. Whether the alert would have fired without
these samples is not decided here. Enter by ``count_fired``.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields, is_dataclass

from alerts.models import Aspect, Episode, EpisodeStatus, Rule
from spm.errors import BadQuery
from spm.query.promql.engine import LOOKBACK_MS
from spm.query.promql.planning.plan import Selector, Subquery, Window
from spm.query.promql.planning.planner import parse
from spm.query.request.batches import METRIC_NAME, Matcher
from spm.store.matchers import mask

_NOT_REAL = (EpisodeStatus.VOID, EpisodeStatus.MERGED)


@dataclass(frozen=True, slots=True)
class ReadRange:
    """The series that one selector of an expression reads, and how far back from the evaluation time."""

    matchers: tuple[Matcher, ...]
    reach_ms: int


def count_fired(app_id: int, metrics: Collection[str], first_ms: int, last_ms: int) -> int:
    """Count the alerts of the app that began to fire because of samples of these metrics between these times."""
    count = 0
    for rule in Rule.objects.filter(app_id=app_id):
        reach = reach_ms(rule.expr, metrics)
        if reach is not None:
            until = last_ms + reach + rule.for_ms
            real = Episode.objects.filter(rule=rule, aspect=Aspect.VALUE).exclude(status__in=_NOT_REAL)
            count += real.filter(start_ms__gte=first_ms, start_ms__lte=until).count()
    return count


def reach_ms(expr: str, metrics: Collection[str]) -> int | None:
    """Return how far back an expression reads these metrics; None if it reads none of them or does not parse."""
    try:
        ranges = list(_read_ranges(parse(expr), LOOKBACK_MS))
    except BadQuery:
        return None  # no evaluation of this rule ever succeeded
    return max((each.reach_ms for each in ranges if _concerns(each.matchers, metrics)), default=None)


def _concerns(matchers: tuple[Matcher, ...], metrics: Collection[str]) -> bool:
    names = list(metrics)
    masks = [mask(names, matcher) for matcher in matchers if matcher.name == METRIC_NAME]
    return any(all(one) for one in zip(*masks, strict=True)) if masks else bool(names)


def _read_ranges(node: object, range_ms: int) -> Iterator[ReadRange]:
    if isinstance(node, Selector):
        yield ReadRange(node.matchers, range_ms + max(node.offset_ms, 0))
    elif isinstance(node, Window):
        yield from _read_ranges(node.selector, range_ms - LOOKBACK_MS + node.range_ms)
    elif isinstance(node, Subquery):
        yield from _read_ranges(node.vector, range_ms + node.range_ms + max(node.offset_ms, 0))
    elif is_dataclass(node):
        for each in fields(node):
            yield from _read_ranges(getattr(node, each.name), range_ms)
