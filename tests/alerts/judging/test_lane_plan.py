"""Which steps of a lane come next, and which are judged again."""

import pytest

from alerts.judging.lane_plan import Decision, LaneState, News, Operation, OperationKind, decide, next_steps

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


MINUTE = 60_000


def decided(
    lane: LaneState, *, now: int = NOW, ready: int | None = None, frontier: int | None = None, news: News | None = None
) -> Decision | None:
    ready_ms, frontier_ms = now if ready is None else ready, now if frontier is None else frontier
    return decide(lane, now_ms=now, ready_ms=ready_ms, frontier_ms=frontier_ms, news=lambda: news, period_ms=PERIOD)


JUDGE = OperationKind.JUDGE
AT = NOW - PERIOD  # one step is due
DECISIONS = {
    "nothing new": (decided(LaneState(AT)), Decision(Operation(JUDGE, AT, NOW))),
    "no step is due": (decided(LaneState(NOW), news=News(NOW - MINUTE)), None),
    "a step that waits": (decided(LaneState(AT), ready=NOW - 1), None),
    "news reach back to the step before": (
        decided(LaneState(AT), news=News(AT - MINUTE + 1)),
        Decision(Operation(JUDGE, AT - MINUTE, NOW), News(AT - MINUTE + 1), None, NOW),
    ),
    "a sample on a step changes that step": (
        decided(LaneState(AT), news=News(AT - MINUTE)),
        Decision(Operation(JUDGE, AT - MINUTE - PERIOD, NOW), News(AT - MINUTE), None, NOW),
    ),
    "news are bounded by the look-back": (
        decided(LaneState(AT), news=News(0)),
        Decision(Operation(JUDGE, AT - 60 * MINUTE, NOW), News(0), None, NOW),
    ),
    "and by the lane's beginning": (
        decided(LaneState(AT, AT - MINUTE), news=News(0)),
        Decision(Operation(JUDGE, AT - MINUTE, NOW), News(0), None, NOW),
    ),
    "soon after a re-judging news are owed": (
        decided(LaneState(AT, rejudged_ms=NOW - MINUTE + 1), news=News(AT - MINUTE)),
        Decision(Operation(JUDGE, AT, NOW), None, News(AT - MINUTE), NOW - MINUTE + 1),
    ),
    "what is owed is judged later": (
        decided(LaneState(AT, owed=News(AT - MINUTE, frozenset({1}))), news=News(AT - PERIOD, frozenset({2}))),
        Decision(Operation(JUDGE, AT - MINUTE - PERIOD, NOW), News(AT - MINUTE, frozenset({1, 2})), None, NOW),
    ),
    "a pipeline behind by less than five minutes": (
        decided(LaneState(NOW - 4 * MINUTE), ready=NOW - 4 * MINUTE, frontier=NOW - 4 * MINUTE),
        None,
    ),
    "a pipeline behind by more": (
        decided(LaneState(NOW - 6 * MINUTE), ready=NOW - 6 * MINUTE, frontier=NOW - 6 * MINUTE),
        Decision(Operation(JUDGE, NOW - 6 * MINUTE, NOW - 5 * MINUTE, NOW - 6 * MINUTE + PERIOD)),
    ),
    "a pipeline that is still behind": (
        decided(
            LaneState(NOW - 5 * MINUTE - PERIOD, behind_ms=NOW - 6 * MINUTE),
            ready=NOW - 7 * MINUTE,
            frontier=NOW - 7 * MINUTE,
        ),
        Decision(Operation(JUDGE, NOW - 5 * MINUTE - PERIOD, NOW - 5 * MINUTE, NOW - 6 * MINUTE)),
    ),
    "a pipeline that has caught up": (
        decided(LaneState(NOW - 5 * MINUTE, behind_ms=NOW - 6 * MINUTE, rejudged_ms=NOW - 1)),
        Decision(Operation(JUDGE, NOW - 6 * MINUTE - PERIOD, NOW), News(NOW - 6 * MINUTE), None, NOW),
    ),
    "slow sources are no pipeline that is behind": (
        decided(LaneState(NOW - 6 * MINUTE), ready=NOW - 6 * MINUTE),
        None,
    ),
}


@pytest.mark.parametrize(("decision", "expected"), DECISIONS.values(), ids=DECISIONS.keys())
def test_a_lane_decides(decision: Decision | None, expected: Decision | None) -> None:
    assert decision == expected
