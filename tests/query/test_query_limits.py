"""A query that is one over a limit is refused with the reason; one at the limit is answered."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from spm import limits
from spm.clock import FakeClock
from spm.errors import BadQuery, QueryTimeout, QueryTooLarge
from spm.query.fake import FakeStorage
from spm.query.promql.binary import vector_vector
from spm.query.promql.engine import Engine, QueryLimits, Result
from spm.query.promql.plan import Matching
from spm.query.promql.vector import named
from spm.query.select import Matcher, SeriesBatch, Tick


def three_series() -> FakeStorage:
    storage = FakeStorage()
    for n in range(3):
        storage.add("m", {"n": str(n)}, [1_000, 2_000], [1, 2])
    return storage


def ask(given: QueryLimits, expr: str = "m") -> Result:
    return Engine(three_series(), given).range(expr, 1_000, 4_000, 1_000)


@pytest.mark.parametrize(
    ("enough", "short"),
    [
        (QueryLimits(series=3), QueryLimits(series=2)),
        (QueryLimits(samples=6), QueryLimits(samples=5)),
        (QueryLimits(cells=12), QueryLimits(cells=11)),
    ],
    ids=["series", "samples", "cells"],
)
def test_query_is_too_large_one_over_a_limit(enough: QueryLimits, short: QueryLimits) -> None:
    assert len(ask(enough).labels) == 3
    with pytest.raises(QueryTooLarge):
        ask(short)


def test_samples_of_all_selectors_count_together_and_a_repeated_one_once() -> None:
    assert ask(QueryLimits(samples=6), "m + m").labels
    with pytest.raises(QueryTooLarge):
        ask(QueryLimits(samples=7), 'm + on (n) m{n="0"}')


def test_range_query_may_have_eleven_thousand_points() -> None:
    engine = Engine(FakeStorage())
    assert len(engine.range("1", 0, limits.QUERY_POINTS_MAX - 1, 1).times) == limits.QUERY_POINTS_MAX
    with pytest.raises(BadQuery, match="11000 points"):
        engine.range("1", 0, limits.QUERY_POINTS_MAX, 1)


def test_pairs_of_an_operator_are_bounded() -> None:
    labels = [{"n": str(n)} for n in range(1_500)]
    values = np.zeros((1_500, 10))
    never = np.zeros((1_500, 10), np.bool_)
    side = named(labels, values, never, nameless=False)
    with pytest.raises(QueryTooLarge, match="pairs"):
        vector_vector("+", side, side, Matching(on=True), as_bool=False)


class SlowStorage(FakeStorage):
    """Takes a minute for each answer."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock

    def select(
        self, matchers: Sequence[Matcher], start_ms: int, end_ms: int, *, tick: Tick | None = None
    ) -> SeriesBatch:
        self._clock.advance(60_000)
        return super().select(matchers, start_ms, end_ms)


def test_query_ends_when_its_time_is_over() -> None:
    clock = FakeClock()
    engine = Engine(SlowStorage(clock), QueryLimits(timeout_s=30), clock)
    with pytest.raises(QueryTimeout):
        engine.instant("a + b", 1_000)
