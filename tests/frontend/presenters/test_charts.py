"""Steps of charts: round, on their own multiples, never too many."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from frontend.presenters.charts import POINTS, fill_window, first_range, round_step, steps_of
from spm.errors import BadQuery
from spm.limits import QUERY_POINTS_MAX

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


@pytest.mark.parametrize(
    ("range_ms", "step_ms"),
    [
        (MINUTE, 1_000),
        (5 * MINUTE, 5_000),
        (15 * MINUTE, 10_000),
        (HOUR, 10_000),
        (6 * HOUR, MINUTE),
        (DAY, 5 * MINUTE),
        (7 * DAY, 30 * MINUTE),
        (30 * DAY, 2 * HOUR),
        (365 * DAY, DAY + DAY),
    ],
)
def test_a_range_gets_a_round_step(range_ms: int, step_ms: int) -> None:
    assert round_step(range_ms) == step_ms


@given(some.integers(0, 10**12), some.integers(1_000, 50 * 365 * DAY))
def test_any_range_has_few_points_on_multiples_of_the_step(start: int, length: int) -> None:
    steps = steps_of(start, start + length, None)
    assert steps.start_ms % steps.step_ms == steps.end_ms % steps.step_ms == 0
    assert (steps.end_ms - steps.start_ms) // steps.step_ms <= POINTS + 1


def test_a_step_that_is_asked_for_is_taken() -> None:
    assert steps_of(0, HOUR, 7_000).step_ms == 7_000


@pytest.mark.parametrize("points", [QUERY_POINTS_MAX, QUERY_POINTS_MAX + 1])
def test_more_points_than_the_engine_gives_are_refused(points: int) -> None:
    if points > QUERY_POINTS_MAX:
        with pytest.raises(BadQuery):
            steps_of(0, (points - 1) * 1_000, 1_000)
    else:
        assert steps_of(0, (points - 1) * 1_000, 1_000)


@pytest.mark.parametrize("end", [0, -1])
def test_a_range_that_ends_before_it_starts_is_refused(end: int) -> None:
    with pytest.raises(BadQuery):
        steps_of(0, end, None)


@pytest.mark.parametrize(("history_ms", "text"), [(0, "15m"), (19 * MINUTE, "15m"), (20 * MINUTE, "1h"), (DAY, "1h")])
def test_a_young_app_begins_with_a_short_range(history_ms: int, text: str) -> None:
    assert first_range(history_ms) == text


@pytest.mark.parametrize(("step_ms", "window"), [(10_000, "60000ms"), (300_000, "300000ms")])
def test_the_window_is_the_step_but_at_least_a_minute(step_ms: int, window: str) -> None:
    assert fill_window("rate(x[$window])", step_ms) == f"rate(x[{window}])"
