"""How long a step waits for a source: by when its data was due, on the frontier, and bounded."""

import pytest

from alerts.judging.knowledge.patience import SourceLog, SourceTimes, not_waited_for, ready_ms

S = 1_000
CASES = {
    "nobody sends": ({}, 50 * S, 50 * S),
    "all sent": ({"a": SourceTimes(50 * S, 10 * S, 0)}, 55 * S, 55 * S),
    "one is due and waited for": ({"a": SourceTimes(40 * S, 10 * S, 0)}, 55 * S, 50 * S - 1),
    "its patience is over after two periods": ({"a": SourceTimes(40 * S, 10 * S, 0)}, 70 * S, 70 * S),
    "a usual lag is waited for too": ({"a": SourceTimes(40 * S, 10 * S, 30 * S)}, 70 * S, 50 * S - 1),
    "a source that sends hourly delays nobody for hours": ({"a": SourceTimes(0, 3600 * S, 0)}, 3661 * S, 3661 * S),
    "nobody is waited for longer than five minutes": ({"a": SourceTimes(0, 10 * S, 900 * S)}, 400 * S, 100 * S),
    "the slowest decides": (
        {"a": SourceTimes(40 * S, 10 * S, 0), "b": SourceTimes(30 * S, 10 * S, 0)},
        55 * S,
        40 * S - 1,
    ),
}


@pytest.mark.parametrize(("sources", "frontier", "expected"), CASES.values(), ids=CASES.keys())
def test_steps_are_ready_up_to_the_first_that_waits(
    sources: dict[str, SourceTimes], frontier: int, expected: int
) -> None:
    assert ready_ms(sources, frontier) == expected


def test_the_log_learns_period_and_lag_of_a_source() -> None:
    log = SourceLog()
    for at in range(30):
        log.add(["a"], [at * 10 * S], [at * 10 * S + (4 * S if at % 4 else 1 * S)])
    log.add(["once"], [5], [6])
    assert log.times() == {"a": SourceTimes(290 * S, 10 * S, 4 * S)}
    assert not_waited_for(log.times(), 299 * S) == ()
    assert not_waited_for(log.times(), 300 * S) == ("a",)
