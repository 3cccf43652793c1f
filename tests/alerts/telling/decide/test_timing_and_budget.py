"""When groups are due, and what a budget allows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.telling import limits
from alerts.telling.decide.budget import Packing, TokenBucket, pack
from alerts.telling.decide.episodes import Decision
from alerts.telling.decide.timing import GroupState, Waits, due_ms, next_look_ms, repeat_ms
from tests.alerts.telling.decide.builders import HOUR, MINUTE, T0, episode


def test_a_group_waits_for_its_first_alert_then_for_its_interval() -> None:
    young = [episode(created_ms=T0 + 3_000), episode(created_ms=T0)]
    assert due_ms(GroupState(), Waits(), young, T0 + 3_000) == T0 + limits.GROUP_WAIT_MS
    assert due_ms(GroupState(last_flush_ms=T0), Waits(), young, T0 + 3_000) == T0 + limits.GROUP_INTERVAL_MS
    assert due_ms(GroupState(blocked_until_ms=T0 + HOUR), Waits(), young, T0 + 3_000) == T0 + HOUR


@pytest.mark.parametrize(
    ("last_flush_ms", "taken_until_ms", "expected"),
    [
        (None, [0], None),
        (T0, [], None),
        (T0, [0], T0 + limits.GROUP_REPEAT_MS),
        (T0, [0, T0 + 9 * HOUR], T0 + limits.GROUP_REPEAT_MS),
        (T0, [T0 + 9 * HOUR, T0 + 8 * HOUR], T0 + 8 * HOUR),
    ],
    ids=["never told", "nothing open", "open", "one of two acknowledged", "all acknowledged"],
)
def test_open_alerts_are_repeated_after_the_last_time_they_were_said_and_not_while_acknowledged(
    last_flush_ms: int | None, taken_until_ms: list[int], expected: int | None
) -> None:
    assert repeat_ms(GroupState(last_flush_ms), Waits(), taken_until_ms) == expected


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


def test_a_digest_waits_for_its_interval_and_a_single_group_does_not() -> None:
    bucket, next_ms = TokenBucket(5, T0), T0 + MINUTE
    assert pack(["a", "b", "c"], bucket, digest_from_ms=next_ms) == Packing(wait_until_ms=next_ms)
    assert pack(["a"], bucket, digest_from_ms=next_ms) == Packing((("a",),))


def test_a_bucket_has_a_token_when_it_says_so() -> None:
    bucket = TokenBucket(0.25, T0)
    assert bucket.at(bucket.full_ms()).tokens >= 1 - 1e-9
    assert bucket.at(bucket.full_ms() - 1_000).tokens < 1


def test_a_clock_put_back_costs_no_tokens() -> None:
    assert TokenBucket(3, T0).at(T0 - HOUR).tokens == 3
