"""The ranges of values that a backtest draws: no peak is lost, whatever the chunks."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from alerts.backtesting.ranges import ValueRanges
from alerts.judging.answers import Answer
from alerts.judging.versions import Steps

STEP_MS = 10_000


def answer(values: list[float]) -> Answer:
    row = np.array([values], np.float64)
    return Answer([{"host": "a"}], row, ~np.isnan(row))


@given(
    values=st.lists(st.sampled_from([float("nan"), 0.0, 1.0, -3.0, 7.5]), min_size=1, max_size=60),
    columns=st.integers(1, 12),
    cut=st.integers(0, 60),
)
def test_each_column_has_the_extremes_of_its_steps_in_any_chunks(values: list[float], columns: int, cut: int) -> None:
    steps = Steps(0, (len(values) - 1) * STEP_MS, STEP_MS)
    ranges = ValueRanges(steps, columns)
    for first, last in ((0, min(cut, len(values))), (min(cut, len(values)), len(values)), (0, min(cut, len(values)))):
        if first < last:
            ranges.add(answer(values[first:last]), Steps(first * STEP_MS, (last - 1) * STEP_MS, STEP_MS))
    low, high = ranges.range_of(next(iter(ranges.labels)))
    for column in range(ranges.columns):
        own = [v for at, v in enumerate(values) if at * ranges.columns // len(values) == column and v == v]
        assert (low[column], high[column]) == (min(own), max(own)) if own else np.isnan(low[column])


def test_the_series_that_go_farthest_are_drawn() -> None:
    steps = Steps(0, 3 * STEP_MS, STEP_MS)
    values = np.array([[1.0, 9.0, 1.0, 1.0], [5.0, 5.0, 5.0, 5.0], [np.nan] * 4])
    ranges = ValueRanges(steps, 4)
    ranges.add(Answer([{"host": each} for each in "abc"], values, ~np.isnan(values)), steps)
    hosts = [[ranges.labels[name]["host"] for name in ranges.farthest(up=up, most=1)] for up in (True, False)]
    assert hosts == [["a"], ["a"]]
    assert [ranges.labels[name]["host"] for name in ranges.farthest(up=True, most=9)] == ["a", "b"]


def test_it_says_since_when_there_is_data() -> None:
    steps = Steps(0, 9 * STEP_MS, STEP_MS)
    ranges = ValueRanges(steps, 10)
    assert ranges.from_ms() is None
    ranges.add(answer([float("nan")] * 4 + [1.0] * 6), steps)
    assert ranges.from_ms() == 4 * STEP_MS
