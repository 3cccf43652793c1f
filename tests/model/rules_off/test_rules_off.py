"""Each rule of the storage protocol: a history that is right with it, and goes wrong when it is switched off.

The tables ``rules_off_*.py`` say of each rule what is done instead, how that is brought about in our code, and the
history. ``PROTOCOL`` are the rules that must be there; ``INEXPRESSIBLE`` says why our code has no wrong way for some.
"""

import pytest

from tests.model.rules_off import moves, purges, reading
from tests.model.rules_off import runs as rules_off_runs
from tests.model.rules_off.switch import CALAMITIES, Rule

RULES = (*rules_off_runs.RULES, *purges.RULES, *reading.RULES, *moves.RULES)

# Every rule that the model of the protocol was searched with: each is in force because a history went wrong without it.
PROTOCOL = {
    "pending_first",
    "fresh_manifest",
    "recheck",
    "forward_rollback",
    "plan_cas",
    "unique_ver",
    "one_cell",
    "exact_pending",
    "cell_per_unit",
    "publish_then_pending",
    "unique_attempt",
    "no_age_sweep",
    "fence_sweep",
    "floor",
    "accept_stamp",
    "full_dedupe",
    "total_order",
    "keep_retracted",
    "stamp_match",
    "undo_keeps",
    "epoch_union",
    "minor_covers",
    "rebase_check",
    "fence_rebase",
    "hours_stamp_now",
    "directory",
    "transitive",
    "seal_two_step",
    "seal_stops_runs",
    "seal_hour",
    "seal_ret",
    "mig_together",
    "close_recheck",
    "close_floor",
    "close_verify",
    "cross_raw",
}
INEXPRESSIBLE = {
    "one_cell": "entries, hours and seals of an (app, day) are fields of one value, which is put by one check-and-put: "
    "there is no second cell that could be written apart from it, nor a function that writes a part of the value",
}


def test_every_rule_of_the_protocol_is_switched_off_or_has_no_wrong_way() -> None:
    assert PROTOCOL - INEXPRESSIBLE.keys() <= {rule.name for rule in RULES}
    assert len({rule.name for rule in RULES}) == len(RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_history_is_right_with_its_rule(rule: Rule) -> None:
    rule.scenario()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_history_goes_wrong_without_its_rule(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    rule.off(monkeypatch)
    with pytest.raises(CALAMITIES):
        rule.scenario()
