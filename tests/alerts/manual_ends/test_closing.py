"""What a person has ended is over at that step and fires again only after it was well; values computed by hand."""

from itertools import pairwise

import pytest

from alerts.judging.automaton import OK, InstanceState, Phase
from alerts.judging.conditions import Condition, MissingPolicy
from alerts.judging.instances.keys import Aspect, EndReason, InstanceKey, Transition
from alerts.judging.run import run
from alerts.judging.versions import Closing, RuleVersion, Steps
from tests.alerts.judging.test_run import GAP, OVER, Series, judge, key, read_series, story, version


def closing(one: InstanceKey, at_ms: int) -> Closing:
    """The end of an instance at a step."""
    return Closing(one.fingerprint, one.aspect, at_ms)


ENDED_AT_40 = (closing(key("a"), 40),)
GOLDEN = {
    "it stays over while violated": ([95] * 8, "0:pending 20:firing 40:closed"),
    "between the thresholds is not well": ([95] * 5 + [85, 95, 95], "0:pending 20:firing 40:closed"),
    "well, then anew": ([95] * 5 + [50, 95, 95, 95], "0:pending 20:firing 40:closed 50:ok 60:pending 80:firing"),
    "well at that very step": ([95] * 4 + [50, 95, 95, 95], "0:pending 20:firing 40:ok 50:pending 70:firing"),
    "while it recovers": ([95] * 3 + [85, 85, 95, 95], "0:pending 20:firing 40:closed"),
    "a short gap": ([95] * 5 + [GAP, 95, 95], "0:pending 20:firing 40:closed 50:closed 60:closed"),
    "a gap as long as the hold": (
        [95] * 5 + [GAP] * 3 + [95],
        "0:pending 20:firing 40:closed 50:closed 70:ok 80:pending",
    ),
    "over before": ([95] * 3 + [50, 50, 95, 95, 95], "0:pending 20:firing 30:recovering 40:ok 50:pending 70:firing"),
    "not firing yet": ([50] * 3 + [95] * 4, "30:pending 50:firing"),
}


@pytest.mark.parametrize(("values", "expected"), GOLDEN.values(), ids=GOLDEN.keys())
def test_a_series_whose_alert_a_person_ended(values: list[float | None], expected: str) -> None:
    outcome = judge([version(closings=ENDED_AT_40)], {"a": values}, len(values))
    assert story(outcome) == expected


@pytest.mark.parametrize("values", [values for values, _ in GOLDEN.values()], ids=GOLDEN.keys())
def test_steps_in_one_call_and_one_by_one_give_the_same(values: list[float | None]) -> None:
    one = judge([version(closings=ENDED_AT_40)], {"a": values}, len(values))
    states, transitions = dict[InstanceKey, InstanceState](), list[Transition]()
    for at_ms in range(0, 10 * len(values), 10):
        outcome = run(
            [version(closings=ENDED_AT_40)],
            Steps(at_ms, at_ms, 10),
            states,
            read=read_series({"a": values}),
            active_max=100,
            labels=one.labels,
        )
        states, transitions = dict(outcome.states), [*transitions, *outcome.transitions]
    assert (tuple(transitions), states) == (one.transitions, one.states)


def test_the_end_says_that_a_person_made_it_and_others_go_on() -> None:
    outcome = judge([version(closings=ENDED_AT_40)], {"a": [95] * 6, "b": [95] * 6}, 6)
    assert [(each.key, each.reason) for each in outcome.transitions if each.at_ms == 40] == [
        (key("a"), EndReason.PERSON)
    ]
    assert outcome.states[key("b")].phase is Phase.FIRING


def test_it_ends_also_while_nothing_can_be_judged() -> None:
    failing = judge([version(closings=ENDED_AT_40)], {"a": [95] * 6}, 6, errors={4: "no", 5: "no"})
    faulty = [version(until_ms=30), version(from_ms=30, fault="ours", closings=ENDED_AT_40)]
    for outcome in (failing, judge(faulty, {"a": [95] * 6}, 6)):
        assert story(outcome) == "0:pending 20:firing 40:closed"


def test_a_deleted_rule_leaves_nothing_closed() -> None:
    versions = [version(until_ms=50, closings=ENDED_AT_40), version(from_ms=50, ended="deleted")]
    outcome = judge(versions, {"a": [95] * 7}, 7)
    assert story(outcome) == "0:pending 20:firing 40:closed 50:ok"
    assert outcome.states == {}


def test_the_alert_of_a_missing_series_is_ended_alone() -> None:
    condition = Condition(OVER.comparator, OVER.threshold, OVER.recovery, MissingPolicy.ALERT)
    missing: Series = {"a": [1, *[GAP] * 7, 1]}
    closings = (closing(key("a", Aspect.MISSING), 50),)
    outcome = judge([version(condition=condition, closings=closings)], missing, 9)
    assert story(outcome, Aspect.MISSING) == "10:pending 30:firing 50:closed 80:ok"


def test_states_follow_each_other() -> None:
    rule: RuleVersion = version(closings=(*ENDED_AT_40, closing(key("a"), 100)))
    outcome = judge([rule], {"a": [95] * 5 + [50] + [95] * 8}, 14)
    own = [each for each in outcome.transitions if each.key == key("a")]
    assert own[0].before == OK
    assert all(one.after == other.before for one, other in pairwise(own))
    assert story(outcome) == "0:pending 20:firing 40:closed 50:ok 60:pending 80:firing 100:closed"
