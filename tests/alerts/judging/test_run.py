"""Runs: many steps of many series at once give what single steps give, in any chunks."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alerts.judging.answers import Answer, fingerprint
from alerts.judging.automaton import OK, Input, InstanceState, Timing, step
from alerts.judging.conditions import COMPARATORS, Condition, MissingPolicy, classify, violates_none
from alerts.judging.instances.keys import Aspect, EndReason, InstanceKey
from alerts.judging.run import Outcome, run
from alerts.judging.versions import RuleVersion, Steps
from spm.arrays import BOOL

OVER = Condition(">", 90.0, 80.0)
TIMING = Timing(for_ms=20, keep_firing_for_ms=10, hold_ms=20)
GAP = None
Series = dict[str, Sequence[float | None]]


def read_series(series: Series, errors: dict[int, str] | None = None, expr: str = "cpu"):  # type: ignore[no-untyped-def]
    """Return a reader of the series of one expression, a value per step from 0 on; other expressions are empty."""

    def read(wanted: str, steps: Steps) -> Answer:
        shown = series if wanted == expr else {}
        values = np.full((len(shown), len(steps)), np.nan)
        present = np.zeros(values.shape, np.bool_)
        for row, points in enumerate(shown.values()):
            for column in range(len(steps)):
                place = steps.at_ms(column) // steps.period_ms
                if 0 <= place < len(points) and points[place] is not None:
                    values[row, column], present[row, column] = points[place], True
        failures = {steps.index_from(at * 10): text for at, text in (errors or {}).items()}
        return Answer(
            [{"host": name} for name in shown],
            values,
            present,
            {k: v for k, v in failures.items() if 0 <= k < len(steps)},
        )

    return read


def version(**changes: object) -> RuleVersion:
    return replace(RuleVersion(1, 0, None, "cpu", OVER, TIMING, 20), **changes)  # type: ignore[arg-type]


def judge(
    versions: Sequence[RuleVersion],
    series: Series,
    count: int,
    *,
    active_max: int = 100,
    incomplete: BOOL | None = None,
    errors: dict[int, str] | None = None,
) -> Outcome:
    steps = Steps(0, (count - 1) * 10, 10)
    return run(versions, steps, {}, read=read_series(series, errors), active_max=active_max, incomplete=incomplete)


def key(host: str, aspect: str = Aspect.VALUE) -> InstanceKey:
    return InstanceKey(1, fingerprint({"host": host}), aspect)


def story(outcome: Outcome, aspect: str = Aspect.VALUE) -> str:
    """Return step and phase of each transition of an aspect."""
    return " ".join(f"{each.at_ms}:{each.after.phase}" for each in outcome.transitions if each.key.aspect == aspect)


GOLDEN = {
    "for 20, keep firing for 10": ([95, 95, 95, 50, 50, 50], "0:pending 20:firing 30:recovering 40:ok"),
    "between the thresholds it goes on": ([95, 95, 95, 85, 85, 50, 50], "0:pending 20:firing 50:recovering 60:ok"),
    "a gap shorter than the hold": (
        [95, 95, 95, GAP, 95, 50, 50],
        "0:pending 20:firing 30:firing 40:firing 50:recovering 60:ok",
    ),
    "a gap as long as the hold": ([95, 95, 95, GAP, GAP, GAP], "0:pending 20:firing 30:firing 50:ok"),
}


@pytest.mark.parametrize(("values", "expected"), GOLDEN.values(), ids=GOLDEN.keys())
def test_a_series_has_the_transitions_that_a_person_computes(values: list[float | None], expected: str) -> None:
    assert story(judge([version()], {"a": values}, len(values))) == expected


def test_the_end_of_an_instance_has_its_reason() -> None:
    ends = judge([version()], {"a": [95, 95, 95, GAP, GAP, GAP], "b": [95, 95, 95, 50, 50]}, 6).transitions[-2:]
    assert [(each.key, each.reason) for each in ends] == [
        (key("b"), EndReason.RECOVERED),
        (key("a"), EndReason.NO_DATA),
    ]


def test_without_comparator_the_expression_decides() -> None:
    decides = version(condition=Condition(), timing=Timing())
    assert story(judge([decides], {"a": [GAP, 1, GAP]}, 3)) == "10:firing 20:ok"


def test_an_absence_is_an_alert_of_its_own_if_the_rule_wants_it() -> None:
    alerts = version(condition=replace(OVER, missing=MissingPolicy.ALERT))
    outcome = judge([alerts], {"a": [1, 1, GAP, GAP, GAP, GAP, 1]}, 7)
    assert story(outcome, Aspect.MISSING) == "20:pending 40:firing 60:ok"
    assert story(judge([version()], {"a": [1, 1, GAP, GAP, GAP]}, 5), Aspect.MISSING) == ""


def test_a_missing_series_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alerts.judging.limits.FORGET_MS", 30)
    alerts = version(condition=replace(OVER, missing=MissingPolicy.ALERT))
    outcome = judge([alerts], {"a": [1, *[GAP] * 9]}, 10)
    assert story(outcome, Aspect.MISSING) == "10:pending 30:firing 60:ok"
    assert outcome.transitions[-1].reason is EndReason.GONE


def test_an_expression_that_fails_three_times_is_an_alert_and_changes_no_series() -> None:
    outcome = judge([version()], {"a": [95] * 9}, 9, errors={3: "no", 4: "no", 5: "never"})
    assert story(outcome, Aspect.ERROR) == "30:pending 50:firing 60:ok"
    assert story(outcome) == "0:pending 20:firing"
    assert [each.detail for each in outcome.transitions if each.key.aspect == Aspect.ERROR] == ["no", "never", ""]


def test_a_deleted_rule_ends_its_instances() -> None:
    versions = [version(until_ms=30), version(from_ms=30, ended="deleted")]
    outcome = judge(versions, {"a": [95] * 6}, 6)
    assert story(outcome) == "0:pending 20:firing 30:ok"
    assert outcome.transitions[-1].reason is EndReason.DELETED


def test_an_edit_of_threshold_or_waits_keeps_the_state() -> None:
    versions = [version(until_ms=30), version(from_ms=30, condition=Condition(">", 99.0, 97.0), timing=Timing())]
    assert story(judge(versions, {"a": [95, 95, 95, 98, 98, 96]}, 6)) == "0:pending 20:firing 50:ok"


def test_an_edit_of_the_expression_ends_what_it_no_longer_selects() -> None:
    versions = [version(until_ms=30), version(from_ms=30, expr="other")]
    outcome = judge(versions, {"a": [95] * 6}, 6)
    assert story(outcome) == "0:pending 20:firing 30:ok"
    assert outcome.transitions[-1].reason is EndReason.EDITED


def test_while_data_is_on_its_way_no_absence_is_judged() -> None:
    incomplete = np.array([False] * 3 + [True] * 4)
    assert (
        story(judge([version()], {"a": [95, 95, 95, GAP, GAP, GAP, GAP]}, 7, incomplete=incomplete))
        == "0:pending 20:firing"
    )
    assert story(judge([version()], {"a": [95, 95, 95, 50, 50, GAP, GAP]}, 7, incomplete=incomplete)).endswith(
        "30:recovering 40:ok"
    )


def test_beyond_the_bound_new_instances_wait_and_old_ones_go_on() -> None:
    at_once = version(timing=Timing())
    series: Series = {name: [95.0] * 4 for name in "abcde"}
    outcome = judge([at_once], series, 4, active_max=2)
    assert len(outcome.states) == 3  # two series and the error
    assert next(each.detail for each in outcome.transitions if each.detail).startswith("3 more series")
    assert story(outcome, Aspect.ERROR) == "0:pending 20:firing"


VALUES = st.lists(st.sampled_from([GAP, 50.0, 85.0, 95.0, float("nan")]), min_size=24, max_size=24)
CONDITIONS = st.builds(
    Condition,
    st.sampled_from([">", ""]),
    st.just(90.0),
    st.sampled_from([None, 80.0]),
    st.sampled_from(list(MissingPolicy)),
)
TIMINGS = st.builds(Timing, *[st.sampled_from([0, 10, 25, 40])] * 3)
ERRORS = st.dictionaries(st.integers(0, 23), st.just("no"), max_size=4)


@given(
    st.sampled_from([*COMPARATORS, ""]),
    st.lists(st.tuples(st.floats(-3, 3) | st.sampled_from([float("nan"), float("inf"), 1.0]), st.booleans())),
)
def test_extremes_leave_out_a_rule_only_if_no_value_is_violated(
    comparator: str, points: list[tuple[float, bool]]
) -> None:
    condition = Condition(comparator, 1.0)
    values = np.array([[value for value, _ in points]], np.float64)
    present = np.array([[is_there for _, is_there in points]], np.bool_)
    is_none_violated = not (classify(condition, values, present) == Input.VIOLATED).any()
    is_left_out = violates_none(condition, *Answer([{}], values, present).extremes)
    assert is_none_violated if is_left_out else not is_none_violated or comparator in ("", "==", "!=")


@settings(max_examples=50, deadline=None)
@given(CONDITIONS, TIMINGS, VALUES, ERRORS)
def test_a_run_equals_a_fold_of_single_steps(
    condition: Condition, timing: Timing, values: list[float | None], errors: dict[int, str]
) -> None:
    outcome = judge([version(condition=condition, timing=timing)], {"a": values}, 24, errors=errors)
    state, changes = OK, list[tuple[int, InstanceState]]()
    for number, value in enumerate(values):
        present = np.array([value is not None])
        code = Input(int(classify(condition, np.array([np.nan if value is None else value]), present)[0]))
        after = step(timing, state, Input.UNJUDGED if number in errors else code, number * 10)
        changes += [(number * 10, after)] if after != state else []
        state = after
    assert [(each.at_ms, each.after) for each in outcome.transitions if each.key == key("a")] == changes


@settings(max_examples=50, deadline=None)
@given(
    CONDITIONS,
    TIMINGS,
    st.lists(VALUES, min_size=1, max_size=3),
    ERRORS,
    st.integers(1, 23),
    st.integers(1, 23),
    st.integers(1, 4),
)
def test_chunks_do_not_matter(
    condition: Condition,
    timing: Timing,
    series: list[list[float | None]],
    errors: dict[int, str],
    cut: int,
    edit: int,
    active_max: int,
) -> None:
    first = version(condition=condition, timing=timing, until_ms=edit * 10)
    versions = [first, replace(first, from_ms=edit * 10, until_ms=None, timing=Timing(10, 0, 10))]
    read = read_series({str(number): values for number, values in enumerate(series)}, errors)
    whole = run(versions, Steps(0, 230, 10), {}, read=read, active_max=active_max)
    early = run(versions, Steps(0, cut * 10 - 10, 10), {}, read=read, active_max=active_max)
    late = run(versions, Steps(cut * 10, 230, 10), early.states, read=read, active_max=active_max)
    assert whole.transitions == early.transitions + late.transitions
    assert whole.states == late.states
