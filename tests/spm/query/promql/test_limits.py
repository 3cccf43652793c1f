"""A query that is one over a limit is refused with the reason; one at the limit is answered."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from spm import limits
from spm.clock import FakeClock
from spm.errors import BadQuery, QueryTimeout, QueryTooLarge
from spm.query.fake import FakeStorage
from spm.query.promql.engine import Engine, QueryLimits, Result
from spm.query.promql.operators.binary import vector_vector
from spm.query.promql.operators.vector import make_vector
from spm.query.promql.planning.plan import Matching
from spm.query.request.batches import DeadlineCheck, Matcher, SeriesBatch
from spm.query.samples.sample_runs import SampleRuns


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


def test_range_query_may_have_eleven_thousand_intervals() -> None:
    engine = Engine(FakeStorage())
    assert len(engine.range("1", 0, limits.QUERY_POINTS_MAX, 1).times) == limits.QUERY_POINTS_MAX + 1
    assert len(engine.range("1", 0, limits.QUERY_POINTS_MAX * 10 + 9, 10).times) == limits.QUERY_POINTS_MAX + 1
    with pytest.raises(BadQuery, match="11000 points"):
        engine.range("1", 0, limits.QUERY_POINTS_MAX + 1, 1)


def test_pairs_of_an_operator_are_bounded() -> None:
    labels = [{"n": str(n)} for n in range(1_500)]
    values = np.zeros((1_500, 10))
    never = np.zeros((1_500, 10), np.bool_)
    side = make_vector(labels, values, never, nameless=False)
    with pytest.raises(QueryTooLarge, match="pairs"):
        vector_vector("+", side, side, Matching(on=True), as_bool=False)


class WatchedStorage(FakeStorage):
    """A storage that keeps weak references to its answers: they show whether these are still in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[weakref.ref[Any]] = []

    def select_runs(
        self, matchers: Sequence[Matcher], start_ms: int, end_ms: int, *, check_deadline: DeadlineCheck | None = None
    ) -> SampleRuns:
        runs = super().select_runs(matchers, start_ms, end_ms, check_deadline=check_deadline)
        self.answers.append(weakref.ref(runs.values))
        return runs


@pytest.mark.parametrize("expr", ["m", "sum(rate(m[3s]))", "max_over_time(sum(m)[3s:1s])"])
def test_samples_are_released_at_the_end_of_their_query_without_a_garbage_collection(expr: str) -> None:
    storage = WatchedStorage()
    storage.add("m", {}, [1_000, 2_000], [1, 2])
    gc.disable()
    try:
        Engine(storage).range(expr, 1_000, 4_000, 1_000)
        assert [each() for each in storage.answers] == [None]
    finally:
        gc.enable()


class SlowStorage(FakeStorage):
    """A storage that takes a minute for each answer."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock

    def select(
        self, matchers: Sequence[Matcher], start_ms: int, end_ms: int, *, check_deadline: DeadlineCheck | None = None
    ) -> SeriesBatch:
        self._clock.advance(60_000)
        return super().select(matchers, start_ms, end_ms)


def test_query_ends_when_its_time_is_over() -> None:
    clock = FakeClock()
    engine = Engine(SlowStorage(clock), QueryLimits(timeout_s=30), clock)
    with pytest.raises(QueryTimeout):
        engine.instant("a + b", 1_000)


def test_subquery_may_have_so_many_steps_and_not_one_more() -> None:
    most = limits.QUERY_SUBQUERY_STEPS_MAX
    assert ask(QueryLimits(), f"count_over_time(vector(1)[{most - 3}s:1s])").present.all()
    with pytest.raises(QueryTooLarge, match="a subquery has"):
        ask(QueryLimits(), f"count_over_time(vector(1)[{most - 2}s:1s])")


def test_computed_label_longer_than_the_limit_is_refused() -> None:
    half = "x" * (limits.LABEL_VALUE_BYTES_MAX // 2)
    assert ask(QueryLimits(), f'label_replace(m, "l", "{half}$1$1", "x", "()")').labels
    for call in (f'label_replace(m, "l", "{half}{half}$0", "n", ".+")', f'label_join(m, "l", "{half}", "n", "n", "n")'):
        with pytest.raises(QueryTooLarge, match="more than"):
            ask(QueryLimits(), call)


def test_bytes_of_vectors_count_while_they_are_needed() -> None:
    enough = QueryLimits(bytes=42_000)
    deep, wide = "(m + (m + (m + (m + m))))", "((((m + m) + m) + m) + m)"
    engine = Engine(three_series(), enough)
    assert engine.range(wide, 1_000, 250_000, 1_000).labels
    with pytest.raises(QueryTooLarge, match="MB"):
        engine.range(deep, 1_000, 250_000, 1_000)


def test_series_of_or_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spm.query.promql.operators.binary.QUERY_CELLS_MAX", 23)
    assert ask(QueryLimits(), "m or m").labels
    with pytest.raises(QueryTooLarge, match="'or'"):
        ask(QueryLimits(), 'm or label_replace(m, "other", "x", "", "")')


@pytest.mark.parametrize(
    ("module", "expr"),
    [
        ("binary", 'm or label_replace(m, "x", "y", "", "")'),
        ("binary", "m * on (n) m"),
        ("select_elements", 'count_values("v", m + on (n) group_left () m)'),
    ],
)
def test_operation_with_a_too_large_result_is_refused_with_the_limit_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, module: str, expr: str
) -> None:
    monkeypatch.setattr(f"spm.query.promql.operators.{module}.QUERY_CELLS_MAX", 7)
    with pytest.raises(QueryTooLarge, match=r"at most 7 values are computed: .*a longer step or fewer series$"):
        ask(QueryLimits(), expr)
