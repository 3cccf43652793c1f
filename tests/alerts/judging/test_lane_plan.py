"""Which steps of a lane come next."""

import pytest

from alerts.judging.lane_plan import next_steps

PERIOD, HOUR = 10_000, 3_600_000
NOW = 1_700_000_000_000
TABLE = {
    "nothing is due": (NOW, NOW, NOW, None),
    "one step": (NOW - PERIOD, NOW + 9_999, NOW + 9_999, ("judge", NOW - PERIOD, NOW)),
    "all missed steps, in chunks": (NOW - 2 * HOUR, NOW, NOW, ("judge", NOW - 2 * HOUR, NOW - HOUR)),
    "more than a day is skipped": (NOW - 30 * HOUR, NOW, NOW, ("skip", NOW - 30 * HOUR, NOW - 24 * HOUR)),
    "data on its way is waited for": (NOW - 2 * PERIOD, NOW, NOW - 1, ("judge", NOW - 2 * PERIOD, NOW - PERIOD)),
    "never before its time": (NOW, NOW + 9_999, NOW + HOUR, None),
    "a little ahead is waited for": (NOW + 30_000, NOW, NOW, None),
    "far ahead is taken back": (NOW + HOUR, NOW, NOW, ("rewind", NOW, NOW)),
}


@pytest.mark.parametrize(("position", "now", "ready", "expected"), TABLE.values(), ids=TABLE.keys())
def test_a_lane_knows_its_next_steps(
    position: int, now: int, ready: int, expected: tuple[str, int, int] | None
) -> None:
    operation = next_steps(position, now_ms=now, ready_ms=ready, period_ms=PERIOD)
    assert (operation and (operation.kind, operation.after_ms, operation.upto_ms)) == expected
