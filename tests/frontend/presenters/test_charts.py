"""Steps of charts: round, on their own multiples, never too many."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from frontend.presenters.charts import POINTS, Steps, fill_variables, first_range, rate_interval, round_step, steps_of
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


SECOND = 1_000


@pytest.mark.parametrize(
    ("period_s", "range_ms", "step_s"),
    [
        (10, HOUR, 10),
        (30, HOUR, 30),
        (60, HOUR, 60),
        (45, HOUR, 60),
        (300, HOUR, 300),
        (60, 6 * HOUR, 60),
        (300, 15 * MINUTE, 300),
        (86_400, 15 * MINUTE, 300),
        (60, 7 * DAY, 1_800),
    ],
)
def test_no_step_is_shorter_than_the_period_while_there_are_points_to_draw(
    period_s: int, range_ms: int, step_s: int
) -> None:
    assert round_step(range_ms, period_s * SECOND) == step_s * SECOND


@pytest.mark.parametrize(
    ("step_s", "period_s", "window_s"),
    [(10, 10, 40), (60, 60, 240), (60, 10, 70), (300, 60, 360), (3_600, 60, 3_600), (3_600, 1_800, 7_200)],
    ids=["step", "slow sender", "coarse", "long range", "whole hours", "whole hours, slow sender"],
)
def test_a_window_of_rates_spans_four_periods_or_a_step_and_a_period(step_s: int, period_s: int, window_s: int) -> None:
    assert rate_interval(step_s * SECOND, period_s * SECOND) == window_s * SECOND


@pytest.mark.parametrize(
    ("expr", "filled"),
    [
        ("rate(x[$__rate_interval])", "rate(x[240000ms])"),
        ("rate(x[$window])", "rate(x[240000ms])"),
        ('sum(increase(x{a="b"}[$window]))', 'sum(increase(x{a="b"}[240000ms]))'),
        ("avg_over_time(x[$window])", "avg_over_time(x[90000ms])"),
        ("max_over_time(x[$__range:$__interval])", "max_over_time(x[3600000ms:60000ms])"),
        ('x{host="$window"} offset $__interval', 'x{host="$window"} offset 60000ms'),
        (r'x{host="a\"$window"}', r'x{host="a\"$window"}'),
        ("x{a='$window',b=`$window`}", "x{a='$window',b=`$window`}"),
        ("x[$windows]", "x[$windows]"),
    ],
)
def test_variables_stand_for_durations_outside_of_texts(expr: str, filled: str) -> None:
    assert fill_variables(expr, Steps(0, HOUR, MINUTE), MINUTE) == filled
