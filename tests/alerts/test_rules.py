"""The state machine: tables of single steps, and properties of whole histories."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.rules import ACTIVE, COMPARATORS, Condition, SeriesState, State, end_episode, evaluate, step

ROOT = Path(__file__).resolve().parents[2]
OVER = Condition(">", 90.0)
FOR_60_S = Condition(">", 90.0, for_ms=60_000)
KEEP_FIRING = Condition(">", 90.0, keep_firing_for_ms=60_000)
RECOVERY = Condition(">", 90.0, recovery=80.0)
NO_COMPARISON = Condition()


def history(condition: Condition, *values: float | None, period_ms: int = 10_000) -> list[str]:
    series_state, states = SeriesState(), []
    for number, value in enumerate(values):
        series_state = step(condition, series_state, value, 1_000_000 + number * period_ms)
        states.append(series_state.state.value)
    return states


@pytest.mark.parametrize(
    ("condition", "values", "states"),
    [
        pytest.param(OVER, [50, 95, 95, 50], "inactive firing firing resolved", id="without for it fires at once"),
        pytest.param(FOR_60_S, [95] * 7, "pending " * 6 + "firing", id="for 60 s fires at the evaluation 60 s later"),
        pytest.param(FOR_60_S, [95, 95, 50, 95], "pending pending inactive pending", id="one good value starts anew"),
        pytest.param(
            KEEP_FIRING, [95, 50, 95, *[50] * 7], "firing " * 9 + "resolved", id="keeps firing until well for 60 s"
        ),
        pytest.param(RECOVERY, [95, 85, 85, 80], "firing firing firing resolved", id="recovers at its own threshold"),
        pytest.param(RECOVERY, [85], "inactive", id="the recovery threshold fires nothing"),
        pytest.param(OVER, [95, None, None, 50], "firing firing firing resolved", id="no data keeps firing"),
        pytest.param(OVER, [None, 50, None], "inactive inactive inactive", id="no data fires nothing"),
        pytest.param(OVER, [95, math.nan, 50], "firing firing resolved", id="NaN is no data"),
        pytest.param(OVER, [90.0], "inactive", id="the threshold itself is not over"),
        pytest.param(OVER, [math.inf, -math.inf], "firing resolved", id="infinities compare"),
        pytest.param(OVER, [95, 50, 95], "firing resolved firing", id="a resolved series fires again"),
        pytest.param(NO_COMPARISON, [0.0, None], "firing resolved", id="without comparator presence decides"),
        pytest.param(NO_COMPARISON, [math.nan], "firing", id="without comparator NaN is present"),
    ],
)
def test_a_series_moves_through_its_states(condition: Condition, values: list[float | None], states: str) -> None:
    assert history(condition, *values) == states.split()


@pytest.mark.parametrize(
    ("sign", "below", "equal", "above"),
    [(">", 0, 0, 1), (">=", 0, 1, 1), ("<", 1, 0, 0), ("<=", 1, 1, 0), ("==", 0, 1, 0), ("!=", 1, 0, 1)],
)
def test_comparators_say_what_they_are(sign: str, below: int, equal: int, above: int) -> None:
    assert [COMPARATORS[sign](value, 5.0) for value in (4.0, 5.0, 6.0)] == [bool(below), bool(equal), bool(above)]


def test_after_a_pause_the_first_evaluation_fires() -> None:
    pending = step(FOR_60_S, SeriesState(), 95.0, 0)
    assert step(FOR_60_S, pending, 95.0, 600_000).state is State.FIRING


def test_no_data_while_pending_does_not_fire_by_itself() -> None:
    pending = step(FOR_60_S, SeriesState(), 95.0, 0)
    assert step(FOR_60_S, pending, None, 600_000) == pending


def test_an_episode_keeps_its_name_to_its_end() -> None:
    pending = step(FOR_60_S, SeriesState(), 95.0, 5)
    firing = step(FOR_60_S, pending, 96.0, 60_005)
    resolved = step(FOR_60_S, firing, 1.0, 70_005)
    assert [one.episode_ms for one in (pending, firing, resolved)] == [5, 5, 5]
    assert resolved.value == 1.0


@pytest.mark.parametrize(
    ("state", "after"), [("firing", "resolved"), ("pending", "inactive"), ("resolved", "resolved")]
)
def test_a_person_ends_an_episode(state: str, after: str) -> None:
    assert end_episode(SeriesState(State(state), 1, 1), 9).state == after


def test_an_evaluation_bounds_new_episodes_but_continues_old_ones() -> None:
    states = {"b": SeriesState(State.FIRING, 1, 1, 95.0)}
    values = {"a": 95.0, "b": 1.0, "c": 95.0, "d": 95.0}
    result = evaluate(OVER, states, values, now_ms=10, active_max=2)
    assert [(change.fingerprint, change.after.state.value) for change in result.changes] == [
        ("a", "firing"),
        ("b", "resolved"),
    ]
    assert result.skipped == 2


def test_an_evaluation_without_news_changes_nothing() -> None:
    state = SeriesState(State.FIRING, 1, 1, math.nan)
    assert evaluate(NO_COMPARISON, {"a": state}, {"a": math.nan}, now_ms=10, active_max=5).changes == ()


VALUES = st.lists(st.one_of(st.none(), st.sampled_from([0.0, 85.0, 95.0, math.nan])), max_size=60)
CONDITIONS = st.builds(
    Condition,
    comparator=st.sampled_from([">", ""]),
    threshold=st.just(90.0),
    recovery=st.sampled_from([None, 80.0]),
    for_ms=st.sampled_from([0, 10_000, 35_000]),
    keep_firing_for_ms=st.sampled_from([0, 10_000, 35_000]),
)


@given(CONDITIONS, VALUES)
def test_messages_alternate_and_share_their_episode(condition: Condition, values: list[float | None]) -> None:
    state, messages = SeriesState(), []
    for number, value in enumerate(values):
        after = step(condition, state, value, 1_000 + number * 10_000)
        if after.state is not state.state and after.state in (State.FIRING, State.RESOLVED):
            messages.append((after.state, after.episode_ms))
        state = after
    assert [name for name, _ in messages] == [(State.FIRING, State.RESOLVED)[n % 2] for n in range(len(messages))]
    assert all(messages[number][1] == messages[number + 1][1] for number in range(0, len(messages) - 1, 2))
    assert len(set(messages)) == len(messages)


@given(CONDITIONS, VALUES)
def test_nothing_fires_before_its_time(condition: Condition, values: list[float | None]) -> None:
    state = SeriesState()
    for number, value in enumerate(values):
        now_ms = 1_000 + number * 10_000
        after = step(condition, state, value, now_ms)
        if after.state is State.FIRING and state.state is not State.FIRING:
            assert now_ms - after.episode_ms >= condition.for_ms
        assert (after.state in ACTIVE) or after.well_since_ms is None
        state = after


@given(high=st.integers(1, 6), low=st.integers(1, 6), waves=st.integers(1, 8))
def test_a_square_wave_makes_one_pair_of_messages(high: int, low: int, waves: int) -> None:
    condition = Condition(">", 90.0, for_ms=(high - 1) * 10_000, keep_firing_for_ms=low * 10_000)
    values = ([95.0] * high + [10.0] * low) * waves + [10.0] * (low + 1)
    states = history(condition, *values)
    changes = [after for before, after in zip(["inactive", *states], states, strict=False) if before != after]
    assert [state for state in changes if state in ("firing", "resolved")] == ["firing", "resolved"]


def test_the_state_machine_needs_no_django() -> None:
    check = "import sys, alerts.rules, alerts.durations; print('django' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", check], cwd=ROOT, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"
