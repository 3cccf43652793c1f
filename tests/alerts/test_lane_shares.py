"""A lane that is long at work keeps no other lane from being judged."""

from collections.abc import Callable

import pytest

from alerts import evaluate, rulebook
from alerts.judging import lane_shares, limits
from alerts.judging.knowledge.sight import Sight
from alerts.judging.lane_shares import LaneShares
from alerts.models import Lane, Rule
from spm.accounts.models import App
from spm.clock import FakeClock
from tests.alerts.conftest import PERIOD_MS, START_MS, AlertingWorld, draft

MakeRule = Callable[..., Rule]
LOUD, CALM, OTHER = ("judge", 1), ("judge", 2), ("judge", 3)


@pytest.fixture
def shares(monkeypatch: pytest.MonkeyPatch) -> LaneShares:
    """Those of a process that has just begun."""
    fresh = LaneShares()
    monkeypatch.setattr(evaluate, "SHARES", fresh)
    return fresh


@pytest.mark.django_db
def test_while_a_lane_is_at_work_another_judge_judges_the_others_and_not_that_one(
    make_rule: MakeRule, foreign_app: App, world: AlertingWorld, shares: LaneShares
) -> None:
    loud = make_rule().app_id
    rulebook.write(foreign_app, draft(), by=None, now_ms=world.clock.now_ms())
    world.clock.advance(PERIOD_MS)
    present, looks = evaluate.at_present(world.machine.open_session, world.clock), list[int]()

    def observe(lane: Lane) -> Sight:
        looks.append(lane.app_id)
        if lane.app_id == loud and looks.count(loud) == 1:  # it takes longer than its claim holds
            world.clock.advance(2 * limits.LEASE_MS)
            counts = evaluate.evaluate_due_lanes(observe=observe, clock=world.clock)
            assert counts == evaluate.EvaluationCounts(1, 0)
            assert looks == [loud, foreign_app.pk]
        return present(lane)

    evaluate.evaluate_due_lanes(observe=observe, clock=world.clock)
    assert looks[:2] == [loud, foreign_app.pk]


@pytest.mark.django_db
def test_a_lane_that_was_slow_is_judged_after_the_others(
    make_rule: MakeRule, foreign_app: App, world: AlertingWorld, shares: LaneShares
) -> None:
    loud = make_rule().app_id
    rulebook.write(foreign_app, draft(), by=None, now_ms=world.clock.now_ms())
    present, looks = evaluate.at_present(world.machine.open_session, world.clock), list[int]()

    def observe(lane: Lane) -> Sight:
        looks.append(lane.app_id)
        world.clock.advance(2_000 if lane.app_id == loud else 0)
        return present(lane)

    for _ in range(2):
        world.clock.advance(PERIOD_MS)
        evaluate.evaluate_due_lanes(observe=observe, clock=world.clock)
    assert list(dict.fromkeys(looks[:2])) == [loud, foreign_app.pk]
    assert looks.index(foreign_app.pk, 2) < looks.index(loud, 2)


def took(shares: LaneShares, lane: lane_shares.LaneName, clock: FakeClock, ms: int) -> bool:
    """Work at a lane for so long; whether that was allowed."""
    with shares.share(lane, clock) as may_work:
        clock.advance(ms)
        return may_work


def test_slow_lanes_leave_judges_to_quick_ones() -> None:
    shares, clock = LaneShares(slow_max=1), FakeClock(START_MS)
    for lane in (LOUD, OTHER):
        assert took(shares, lane, clock, 5_000)
    with shares.share(LOUD, clock) as may_work:
        assert may_work
        assert not took(shares, LOUD, clock, 0), "two judges at one lane"
        assert not took(shares, OTHER, clock, 0), "a second slow lane"
        assert took(shares, CALM, clock, 0)
    assert took(shares, OTHER, clock, 0)
    with shares.share(LOUD, clock):
        assert took(shares, OTHER, clock, 0), "it was quick the last time"


def test_a_lane_that_has_just_become_slow_counts_as_slow() -> None:
    shares, clock = LaneShares(slow_max=1), FakeClock(START_MS)
    assert took(shares, LOUD, clock, 5_000)
    with shares.share(OTHER, clock):
        assert took(shares, LOUD, clock, 5_000)
        assert not took(shares, LOUD, clock, 0)


def test_there_are_more_judges_than_slow_lanes_at_once() -> None:
    assert limits.SLOW_LANES_MAX < limits.JUDGES


def test_what_fails_is_no_longer_at_work() -> None:
    shares, clock = LaneShares(), FakeClock(START_MS)
    with pytest.raises(ValueError, match="x"), shares.share(LOUD, clock):
        raise ValueError("x")
    assert took(shares, LOUD, clock, 0)
