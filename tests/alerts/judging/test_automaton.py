"""The automaton: golden tables with hand-computed times, properties of all histories, and each rule switched off."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.judging.automaton import OK, Input, InstanceState, Phase, Timing, due_ms, step

Automaton = Callable[[Timing, InstanceState, Input, int], InstanceState]
LETTERS = dict(zip("VBWMHG", Input, strict=True))
SHORT = {Phase.OK: "o", Phase.PENDING: "p", Phase.FIRING: "f", Phase.RECOVERING: "r"}
NOTHING, FOR_30, KEEP_20, HOLD_30 = Timing(hold_ms=60), Timing(30, hold_ms=60), Timing(0, 20, 60), Timing(0, 0, 30)
BOTH = Timing(20, 20, 40)


def history(timing: Timing, inputs: str, automaton: Automaton = step) -> str:
    """Return the phases of steps at 0, 10, 20, …, a letter each."""
    state, phases = OK, ""
    for number, letter in enumerate(inputs):
        state = automaton(timing, state, LETTERS[letter], number * 10)
        phases += SHORT[state.phase]
    return phases


GOLDEN = {
    "without for it fires at once": (NOTHING, "WVVW", "offo"),
    "for 30 fires at the step 30 later": (FOR_30, "VVVVV", "pppff"),
    "one good step starts the wait anew": (FOR_30, "VVWVVVV", "ppopppf"),
    "between the thresholds nothing begins": (NOTHING, "BB", "oo"),
    "between the thresholds a pending one ends": (FOR_30, "VVB", "ppo"),
    "between the thresholds a firing one goes on": (NOTHING, "VBBW", "fffo"),
    "keep firing for 20 ends 20 after the first good step": (KEEP_20, "VWWWW", "frroo"),
    "a recovering one that is violated fires on": (KEEP_20, "VWVWWW", "frfrro"),
    "a recovering one between the thresholds fires on": (KEEP_20, "VWBWWW", "frfrro"),
    "missing data keeps firing for the hold and then ends": (HOLD_30, "VMMMMV", "ffffof"),
    "data within the hold starts the hold anew": (HOLD_30, "VMMVMMM", "fffffff"),
    "missing data fires nothing": (NOTHING, "MMM", "ooo"),
    "a pending one waits while data is missing, and fires with data": (FOR_30, "VMMMV", "ppppf"),
    "a pending one ends with the hold": (Timing(50, hold_ms=20), "VMMM", "pppo"),
    "a recovering one does not recover without data": (KEEP_20, "VWMMMW", "frrrro"),
    "a hold of nothing ends at the first gap": (Timing(), "VM", "fo"),
    "what cannot be judged changes nothing": (FOR_30, "VHHHHV", "pppppf"),
    "what cannot be judged ends no hold": (HOLD_30, "VMHHHHM", "ffffffo"),
    "gone ends pending": (FOR_30, "VG", "po"),
    "gone ends firing": (NOTHING, "VG", "fo"),
    "gone ends recovering": (KEEP_20, "VWG", "fro"),
    "both waits": (BOTH, "VVVWWWVVV", "ppfrroppf"),
}


@pytest.mark.parametrize(("timing", "inputs", "phases"), GOLDEN.values(), ids=GOLDEN.keys())
def test_an_instance_moves_through_its_phases(timing: Timing, inputs: str, phases: str) -> None:
    assert history(timing, inputs) == phases


def test_a_state_names_the_steps_of_its_episode() -> None:
    states, state = [], OK
    for number, letter in enumerate("VVVWVM"):
        state = step(BOTH, state, LETTERS[letter], number * 10)
        states.append(state)
    assert states[1] == InstanceState(Phase.PENDING, since_ms=0, active_ms=0)
    assert states[2] == InstanceState(Phase.FIRING, since_ms=20, start_ms=20, active_ms=0)
    assert states[3] == InstanceState(Phase.RECOVERING, since_ms=30, start_ms=20, active_ms=0)
    assert states[4] == InstanceState(Phase.FIRING, since_ms=40, start_ms=20, active_ms=0)
    assert states[5] == replace(states[4], missing_ms=50)


def test_an_instance_that_may_fire_so_long_ends_while_it_is_violated() -> None:
    assert history(Timing(0, 0, 60, firing_max_ms=30), "VVVVV") == "fffof"


TIMINGS = st.builds(Timing, *[st.sampled_from([0, 10, 25, 40])] * 3, firing_max_ms=st.sampled_from([None, 30]))
INPUTS = st.text("VBWMHG", max_size=40)


@given(TIMINGS, INPUTS)
def test_an_input_given_twice_changes_nothing_unless_a_timer_is_due(timing: Timing, inputs: str) -> None:
    state = OK
    for number, letter in enumerate(inputs):
        state = step(timing, state, LETTERS[letter], number * 20)
        due = due_ms(timing, state, LETTERS[letter])
        again = step(timing, state, LETTERS[letter], number * 20 + 10)
        is_due = due is not None and due <= number * 20 + 10
        assert (again != state) == is_due or (state.phase is Phase.OK and letter == "V")


@given(TIMINGS, INPUTS)
def test_no_instance_outlives_its_data_by_more_than_the_hold(timing: Timing, inputs: str) -> None:
    state, missing_steps = OK, 0
    for number, letter in enumerate(inputs.replace("H", "M")):
        state = step(timing, state, LETTERS[letter], number * 10)
        missing_steps = missing_steps + 1 if letter == "M" else 0
        assert state.phase is Phase.OK or (missing_steps - 1) * 10 < max(timing.hold_ms, 1)


@given(TIMINGS, INPUTS)
def test_timers_complete_only_on_data(timing: Timing, inputs: str) -> None:
    state = OK
    for number, letter in enumerate(inputs):
        after = step(timing, state, LETTERS[letter], number * 10)
        if after.is_alerting and not state.is_alerting:
            assert letter == "V"
        if letter in "MH" and after.phase is not state.phase:
            assert letter == "M"
            assert after.phase is Phase.OK
        state = after


@given(TIMINGS, INPUTS)
def test_nothing_fires_before_its_time(timing: Timing, inputs: str) -> None:
    state = OK
    for number, letter in enumerate(inputs):
        state = step(timing, state, LETTERS[letter], number * 10)
        if state.start_ms is not None and state.active_ms is not None:
            assert state.start_ms - state.active_ms >= timing.for_ms


def _held_for_ever(timing: Timing, state: InstanceState, given: Input, at_ms: int) -> InstanceState:
    return step(replace(timing, hold_ms=10**9), state, given, at_ms)


def _missing_is_well(timing: Timing, state: InstanceState, given: Input, at_ms: int) -> InstanceState:
    return step(timing, state, Input.WELL if given is Input.MISSING else given, at_ms)


def _timers_run_without_data(timing: Timing, state: InstanceState, given: Input, at_ms: int) -> InstanceState:
    is_waiting = given is Input.UNJUDGED and state.phase is Phase.PENDING
    return step(timing, state, Input.VIOLATED if is_waiting else given, at_ms)


def _recovery_threshold_is_none(timing: Timing, state: InstanceState, given: Input, at_ms: int) -> InstanceState:
    return step(timing, state, Input.WELL if given is Input.BETWEEN else given, at_ms)


def _gone_is_missing(timing: Timing, state: InstanceState, given: Input, at_ms: int) -> InstanceState:
    return step(timing, state, Input.MISSING if given is Input.GONE else given, at_ms)


def _relapse_is_a_new_episode(timing: Timing, state: InstanceState, given: Input, at_ms: int) -> InstanceState:
    is_relapse = state.phase is Phase.RECOVERING and given in (Input.VIOLATED, Input.BETWEEN)
    return step(timing, OK if is_relapse else state, given, at_ms)


@pytest.mark.parametrize(
    "broken",
    [
        _held_for_ever,
        _missing_is_well,
        _timers_run_without_data,
        _recovery_threshold_is_none,
        _gone_is_missing,
        _relapse_is_a_new_episode,
    ],
)
def test_a_golden_history_goes_wrong_without_its_rule(
    broken: Automaton,
) -> None:
    assert any(history(timing, inputs, broken) != phases for timing, inputs, phases in GOLDEN.values())
