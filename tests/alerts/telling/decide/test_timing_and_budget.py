"""When groups are due, what a budget allows, and how escalation and acknowledgement go."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.telling import limits
from alerts.telling.decide.budget import Packing, TokenBucket, pack
from alerts.telling.decide.episodes import Decision
from alerts.telling.decide.escalation import Acknowledgement, Escalation, EscalationStep, escalate
from alerts.telling.decide.timing import GroupState, Waits, due_ms, next_look_ms, repeat_ms
from tests.alerts.telling.decide.builders import HOUR, MINUTE, T0, episode

STEPS = [EscalationStep(10 * MINUTE, frozenset({8})), EscalationStep(30 * MINUTE, frozenset({9}))]


def test_a_group_waits_for_its_first_alert_then_for_its_interval() -> None:
    young = [episode(created_ms=T0 + 3_000), episode(created_ms=T0)]
    assert due_ms(GroupState(), Waits(), young) == T0 + limits.GROUP_WAIT_MS
    assert due_ms(GroupState(last_flush_ms=T0), Waits(), young) == T0 + limits.GROUP_INTERVAL_MS
    assert due_ms(GroupState(blocked_until_ms=T0 + HOUR), Waits(), young) == T0 + HOUR


def test_open_alerts_are_repeated_after_the_last_time_they_were_said() -> None:
    assert repeat_ms(GroupState(), Waits()) is None
    assert repeat_ms(GroupState(last_flush_ms=T0), Waits()) == T0 + limits.GROUP_REPEAT_MS


def test_the_next_look_is_the_earliest_time_at_which_something_changes() -> None:
    assert next_look_ms([Decision(None, "a", T0 + 9), Decision(None, "b", T0 + 5)], None, T0 + 7) == T0 + 5
    assert next_look_ms([Decision(None, "no route")], None) is None


@given(st.lists(st.tuples(st.integers(0, 3_000_000), st.integers(0, 5)), max_size=30))
def test_no_hour_sees_more_notifications_than_the_budget(steps: list[tuple[int, int]]) -> None:
    bucket, now_ms, written = TokenBucket(limits.RECEIVER_TOKENS_MAX, T0), T0, 0
    for pause_ms, groups in steps:
        now_ms += pause_ms
        bucket = bucket.at(now_ms)
        count = len(pack(range(groups), bucket).notifications)
        bucket, written = bucket.spend(count), written + count
        allowed = limits.RECEIVER_TOKENS_MAX + (now_ms - T0) * limits.RECEIVER_TOKENS_PER_HOUR / HOUR
        assert 0 <= bucket.tokens <= limits.RECEIVER_TOKENS_MAX
        assert written <= allowed + 1e-6


@pytest.mark.parametrize(
    ("due", "tokens", "expected"),
    [
        ([], 5, Packing()),
        (["a"], 5, Packing((("a",),))),
        (["a", "b"], 5, Packing((("a",), ("b",)))),
        (["a", "b"], 1, Packing((("a", "b"),))),
        (["a", "b", "c"], 5, Packing((("a", "b", "c"),))),
        (["a"], 0.5, Packing(wait_until_ms=T0 + MINUTE)),
    ],
    ids=["nothing", "one", "two", "more than tokens", "many at once", "no token"],
)
def test_groups_share_a_digest_when_many_are_due_or_tokens_are_few(
    due: list[str], tokens: float, expected: Packing[str]
) -> None:
    assert pack(due, TokenBucket(tokens, T0)) == expected


def test_a_bucket_has_a_token_when_it_says_so() -> None:
    bucket = TokenBucket(0.25, T0)
    assert bucket.at(bucket.full_ms()).tokens >= 1 - 1e-9
    assert bucket.at(bucket.full_ms() - 1_000).tokens < 1


def test_a_clock_put_back_costs_no_tokens() -> None:
    assert TokenBucket(3, T0).at(T0 - HOUR).tokens == 3


@pytest.mark.parametrize(
    ("minutes", "failing", "expected"),
    [
        (5, (), Escalation(frozenset(), T0 + 10 * MINUTE)),
        (10, (), Escalation(frozenset({8}), T0 + 30 * MINUTE)),
        (30, (), Escalation(frozenset({8, 9}))),
        (10, (8,), Escalation(frozenset({8, 9}))),
    ],
    ids=["before the first step", "at it", "at the last", "a step whose receivers fail is passed at once"],
)
def test_what_nobody_acknowledges_reaches_more_receivers(
    minutes: int, failing: tuple[int, ...], expected: Escalation
) -> None:
    now_ms = T0 + minutes * MINUTE
    result = escalate(episode(), STEPS, acknowledged=False, failing=failing, first_told_ms=T0, now_ms=now_ms)
    assert result == expected


def test_an_acknowledged_or_ended_or_untold_alert_does_not_escalate() -> None:
    late = {"failing": (), "now_ms": T0 + HOUR}
    assert escalate(episode(), STEPS, acknowledged=True, first_told_ms=T0, **late) == Escalation()  # type: ignore[arg-type]
    ended = episode(end_ms=T0 + 1)
    assert escalate(ended, STEPS, acknowledged=False, first_told_ms=T0, **late) == Escalation()  # type: ignore[arg-type]
    assert escalate(episode(), STEPS, acknowledged=False, first_told_ms=None, **late) == Escalation()  # type: ignore[arg-type]


def test_an_acknowledgement_ends_with_its_time_or_with_a_higher_severity() -> None:
    taken = Acknowledgement("ada", T0 + HOUR, severity=1)
    assert taken.holds(episode(), T0)
    assert not taken.holds(episode(), T0 + HOUR)
    assert not taken.holds(replace(episode(), severity=2), T0)
