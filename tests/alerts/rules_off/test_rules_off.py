"""Every rule of judging and telling: switched off once, and seen to be needed.

``DESIGN`` are the rules that an executable model of alerting was searched with. The switches of judging are in
``switches``, those of telling in ``tests/alerts/telling/test_histories.py``; ``INEXPRESSIBLE`` says why our code has no
wrong way for some.
"""

from inspect import signature

import pytest
from django.core.exceptions import ObjectDoesNotExist

from tests.alerts.replay.test_replay import installation  # noqa: F401  # a fixture that claims name
from tests.alerts.rules_off import claims
from tests.alerts.rules_off.switches import RULES, Off
from tests.alerts.telling.test_histories import SWITCHES as OF_TELLING

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
FAILURES = (AssertionError, ObjectDoesNotExist, ExceptionGroup)  # a group is what Hypothesis may raise
DESIGN = {
    "keep_e",
    "keep_r",
    "keep_rules",
    "e_first",
    "op_cas",
    "in_order",
    "catch_hold",
    "same_tx",
    "pipeline_time",
    "causal",
    "probe_first",
    "probe_all",
    "register",
    "gone_words",
    "due_patience",
    "median_clock",
    "rewind",
    "behind_holds",
    "behind_again",
    "amend",
    "amend_all",
    "match",
    "merge",
    "hold_bound",
    "edit_keeps",
    "delete_ends",
    "told_level",
    "freeze",
    "one_open",
    "per_receiver",
    "doubt",
    "undelivered",
    "brief",
    "only_told",
    "told_route",
    "silence_end",
    "exposed",
    "inhibit_order",
    "prune_order",
    "quiet_writes",
}
INEXPRESSIBLE = {
    "prune_order": "a receiver's last word of an episode has no age of its own: the database deletes it with its "
    "episode, and a delivery that ends later finds no row to write",
}


def test_every_rule_of_the_design_is_switched_off_or_has_no_wrong_way() -> None:
    assert DESIGN - INEXPRESSIBLE.keys() <= {rule.name for rule in RULES} | OF_TELLING.keys()
    assert len({rule.name for rule in RULES}) == len(RULES)


OWN = {rule.claim.__name__: rule for rule in RULES if rule.claim.__module__ == claims.__name__}


@pytest.mark.parametrize("rule", OWN.values(), ids=OWN)
def test_a_claim_holds_with_all_rules(rule: Off, request: pytest.FixtureRequest) -> None:
    hold(rule, request)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_claim_fails_without_its_rule(
    rule: Off, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = arguments_of(rule, request)
    rule.switch(monkeypatch)
    with pytest.raises(FAILURES):
        rule.claim(**arguments)


def hold(rule: Off, request: pytest.FixtureRequest) -> None:
    rule.claim(**arguments_of(rule, request))


def arguments_of(rule: Off, request: pytest.FixtureRequest) -> dict[str, object]:
    return {name: request.getfixturevalue(name) for name in signature(rule.claim).parameters}
