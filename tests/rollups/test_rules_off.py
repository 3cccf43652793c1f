"""Each rule of the storage protocol: a history that is right with it, and goes wrong when it is switched off.

The tables ``rules_off_*.py`` say of each rule what is done instead, how that is brought about in our code, and the
history. ``PROTOCOL`` are the rules that must be there; ``INEXPRESSIBLE`` says why our code has no wrong way for some.
"""

import pytest

from tests.rollups import rules_off_purges, rules_off_reading, rules_off_runs
from tests.rollups.switched import CALAMITIES, Rule

RULES = (*rules_off_runs.RULES, *rules_off_purges.RULES, *rules_off_reading.RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_history_is_right_with_its_rule(rule: Rule) -> None:
    rule.scenario()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_history_goes_wrong_without_its_rule(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    rule.off(monkeypatch)
    with pytest.raises(CALAMITIES):
        rule.scenario()
