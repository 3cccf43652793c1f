"""Where times lie on the line of a picture."""

import pytest

from alerts.history.timeline import WIDTH, Bar, Timeline

LINE = Timeline(10_000, 20_000)


@pytest.mark.parametrize(
    ("start_ms", "end_ms", "left", "width"),
    [
        (12_000, 17_000, 200, 500),
        (5_000, 12_000, 0, 200),  # it began before the range
        (15_000, 40_000, 500, 500),  # it ended after it
        (15_000, None, 500, 500),
        (15_000, 15_001, 500, 4),  # too short to be seen
        (19_999, None, WIDTH - 4, 4),
    ],
)
def test_a_bar_lies_where_it_lasted_within_the_range(
    start_ms: int, end_ms: int | None, left: float, width: float
) -> None:
    assert LINE.bar(start_ms, end_ms, "info") == Bar(left, width, "info")


def test_marks_outside_the_range_are_left_out() -> None:
    assert LINE.marks([9_999, 10_000, 15_000, 20_000]) == [0, 500]


def test_times_stand_at_quarters() -> None:
    assert LINE.ticks_ms == [10_000, 12_500, 15_000, 17_500, 20_000]
