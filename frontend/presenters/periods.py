"""Learns how often the series of an expression have samples, from the times of their newest ones.

Senders need not say how often they send. The period of a series is the median of the gaps between its newest samples,
so that an outage or a late sample does not count. The period of an expression is the one that nine of ten of its series
reach: a chart that suits the slow ones shows the fast ones, too. Enter by ``learn_period``.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from spm.bounded import TtlMap
from spm.clock import Clock, SystemClock
from spm.query.promql.planning import plan
from spm.query.promql.planning.planner import parse
from spm.query.reader import AppStorage
from spm.query.request.batches import Matcher, SeriesBatch
from spm.query.request.budget import Budget

_SPANS_MS = (600_000, 3_600_000, 21_600_000)  # read until the periods show: most senders need only the first
_SAMPLES_MIN = 3  # of a series within a span; of two gaps, one may be an outage
_SERIES_READ = 256  # of a selector; further ones have the same senders
_SELECTORS_READ = 8
_SHARE = 0.9
_KEPT_S = 600.0  # senders change their period seldom
_KEPT_MAX = 10_000  # selectors, each some hundred bytes

_periods: TtlMap[tuple[int, tuple[Matcher, ...]], int] = TtlMap(_KEPT_MAX, _KEPT_S)
_clock = SystemClock()


def learn_period(storage: AppStorage, budget: Budget, expr: str, end_ms: int, *, clock: Clock = _clock) -> int | None:
    """Return the period of the expression's series in ms, from samples up to ``end_ms``; ``None`` without samples.

    Of several selectors the slowest counts. Raises ``BadQuery`` if the expression cannot be parsed.
    """
    periods_ms: list[int | None] = []
    for selector in list(selectors_of(parse(expr)))[:_SELECTORS_READ]:
        until_ms = end_ms - max(selector.offset_ms, 0)

        def read(matchers: tuple[Matcher, ...] = selector.matchers, until_ms: int = until_ms) -> int:
            return _read_period(storage, budget, matchers, until_ms)

        try:
            periods_ms.append(_periods.get_or_load((storage.app, selector.matchers), clock.monotonic(), read))
        except _NotSureError as unsure:
            periods_ms.append(unsure.period_ms)
    return max((period for period in periods_ms if period), default=None)


class _NotSureError(Exception):
    """The period is a guess from few samples, and not remembered; ``None`` without samples."""

    def __init__(self, period_ms: int | None) -> None:
        super().__init__(period_ms)
        self.period_ms = period_ms


def period_of(batch: SeriesBatch, samples_min: int = _SAMPLES_MIN) -> tuple[int | None, bool]:
    """Return the period of nine of ten series, and whether as many have enough samples to tell theirs. Pure."""
    counts = np.diff(batch.offsets)
    gaps = np.diff(batch.ts)
    series = np.repeat(np.arange(len(counts)), counts)
    within = series[1:] == series[:-1]
    series, gaps = series[1:][within], gaps[within]
    telling = np.flatnonzero(counts >= samples_min)
    if not len(telling):
        return None, False
    order = np.lexsort((gaps, series))
    first = np.searchsorted(series[order], telling)
    medians = gaps[order][first + (counts[telling] - 1) // 2]
    period_ms = int(np.quantile(medians, _SHARE, method="inverted_cdf"))
    rounded_ms = round(period_ms, -3) if period_ms >= 1_000 else period_ms  # senders jitter by some ms
    return max(rounded_ms, 1), bool(len(telling) >= _SHARE * np.count_nonzero(counts))


def selectors_of(node: object) -> Iterator[plan.Selector]:
    """Yield the selectors of a plan that read at the query's own times."""
    if isinstance(node, plan.Selector):
        if node.at is None:
            yield node
    elif isinstance(node, tuple):
        for each in node:
            yield from selectors_of(each)
    else:
        for name in getattr(node, "__dataclass_fields__", ()):
            yield from selectors_of(getattr(node, name))


def _read_period(storage: AppStorage, budget: Budget, matchers: Sequence[Matcher], until_ms: int) -> int:
    portion = next(iter(storage.portions(matchers, _SERIES_READ)), None)
    if portion is None:
        raise _NotSureError(None)
    batch = None
    for span_ms in _SPANS_MS:
        batch = storage.select_portion(portion, until_ms - span_ms, until_ms, check_deadline=budget.check_deadline)
        period_ms, is_sure = period_of(batch)
        if period_ms and is_sure:
            return period_ms
    raise _NotSureError(period_of(batch, samples_min=2)[0] if batch is not None else None)
