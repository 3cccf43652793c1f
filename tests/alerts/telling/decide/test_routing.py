"""Matchers as text, and the walk of an alert through the tree of policies."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.telling.decide.matchers import read_matchers, select
from alerts.telling.decide.routing import Escalation, PolicyNode, escalation, matching_policies, routes
from spm.errors import BadQuery
from spm.store.matchers import Matcher
from tests.alerts.telling.decide.builders import matchers


def policy(id: int, text: str, *children: PolicyNode, goes_on: bool = False) -> PolicyNode:
    return PolicyNode(id, matchers(text), frozenset({id * 10}), ("host",), goes_on=goes_on, children=children)


TREE = [
    policy(1, 'team="db"', policy(2, 'severity="critical"'), policy(3, 'severity=~"critical|info"')),
    policy(4, 'env="prod"', goes_on=True),
    policy(5, 'env=~"p.*"'),
    policy(6, 'env="prod"'),
]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"team": "db", "severity": "critical"}, [2]),
        ({"team": "db", "severity": "info"}, [3]),
        ({"team": "db", "severity": "warning"}, [1]),
        ({"env": "prod"}, [4, 5]),
        ({"env": "preview"}, [5]),
        ({"env": "xprod"}, []),
        ({}, []),
    ],
)
def test_the_first_policy_that_matches_takes_the_alert(labels: dict[str, str], expected: list[int]) -> None:
    assert [each.id for each in matching_policies(TREE, labels)] == expected


def test_the_rules_own_receivers_hear_of_it_besides_those_of_policies() -> None:
    first, second = routes(TREE, frozenset({1}), rule=7, labels={"env": "preview", "host": "a"})
    assert (first.policy, first.receivers, first.group) == (None, frozenset({1}), (("rule", "7"),))
    assert (second.policy, second.receivers, second.group) == (5, frozenset({50}), (("host", "a"),))


def test_a_rule_without_receivers_and_policies_has_no_route() -> None:
    assert routes([], frozenset(), rule=7, labels={}) == []


@pytest.mark.parametrize(
    ("unreachable", "expected"),
    [
        pytest.param({}, [10, 20, 30], id="all work"),
        pytest.param({1}, [0, 20, 30], id="those of the policy all fail"),
        pytest.param({2}, [10, 20, 30], id="one of the first step fails"),
        pytest.param({2, 3}, [10, 10, 30], id="the first step fails"),
        pytest.param({2, 3, 4}, [10, 10, 10], id="two steps fail"),
        pytest.param({1, 2, 3, 4, 5}, [0, 0, 0], id="all fail"),
        pytest.param({5}, [10, 20, 30], id="the last step fails"),
    ],
)
def test_a_step_that_reaches_nobody_passes_at_once(unreachable: set[int], expected: list[int]) -> None:
    steps = [Escalation(10, frozenset({2, 3})), Escalation(20, frozenset({4})), Escalation(30, frozenset({5}))]
    came = escalation(frozenset({1}), steps, frozenset(unreachable))
    assert [step.after_ms for step in came] == expected
    assert [step.receivers for step in came] == [step.receivers for step in steps]


texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8)


@given(st.lists(st.tuples(st.sampled_from(["host", "env", "a_1"]), st.sampled_from(["=", "!="]), texts), max_size=4))
def test_any_text_can_be_a_value_of_a_matcher(triples: list[tuple[str, str, str]]) -> None:
    parts = [f"{name}{sign}{json.dumps(value, ensure_ascii=False)}" for name, sign, value in triples]
    expected = (Matcher("job", "=", "x"), *(Matcher(*each) for each in triples))
    assert read_matchers(", ".join(['job="x"', *parts])) == expected


@pytest.mark.parametrize(
    "text", ["", "host", 'host="', 'host=~"("', 'a="1"} or up{b="2"', "1 + 1", 'a="b"} offset 5m{', 'a=~".*"']
)
def test_what_is_no_matcher_or_matches_everything_is_refused(text: str) -> None:
    with pytest.raises(BadQuery):
        read_matchers(text)


def test_an_absent_label_is_the_empty_text() -> None:
    assert list(select(matchers('a="1", b!="2"'), [{"a": "1"}, {"a": "1", "b": "2"}, {}])) == [True, False, False]
