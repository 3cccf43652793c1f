"""What people do to rules: audited, bounded, and never leaving anybody with an alert that nobody watches."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User

from alerts import evaluate, prune, rulebook
from alerts.models import Alert, AlertEvent, Outbox, Rule
from alerts.readings import Reading
from spm import limits
from spm.accounts.models import App, AuditEntry
from spm.errors import LimitExceeded
from tests.alerts.conftest import START_MS, Watch, draft

pytestmark = pytest.mark.django_db
MakeRule = Callable[..., Rule]


@pytest.fixture
def change(watch: Watch, people: dict[str, User]) -> Callable[..., Rule]:
    def changed(rule: Rule, **changes: Any) -> Rule:
        return rulebook.change(rule, draft(**changes), by=people["edda"], now_ms=watch.clock.now_ms())

    return changed


def told() -> list[tuple[str, str]]:
    return [(row.payload["state"], row.payload["reason"]) for row in Outbox.objects.order_by("pk")]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"expr": "other"}, "the expression was changed"), ({"enabled": False}, "the rule is switched off")],
)
def test_a_change_that_ends_the_watch_resolves_what_fires(
    make_rule: MakeRule, watch: Watch, change: Callable[..., Rule], changes: dict[str, Any], reason: str
) -> None:
    rule = make_rule()
    watch.see(95)
    change(rule, **changes)
    assert told() == [("firing", ""), ("resolved", reason)]


def test_a_new_threshold_goes_on_with_the_episode(
    make_rule: MakeRule, watch: Watch, change: Callable[..., Rule]
) -> None:
    rule = make_rule()
    watch.see(95)
    change(rule, threshold=80.0)
    watch.see(85, 70)
    assert told() == [("firing", ""), ("resolved", "")]


def test_an_edit_and_a_new_crossing_in_one_period_are_two_episodes(
    make_rule: MakeRule, watch: Watch, change: Callable[..., Rule]
) -> None:
    rule = make_rule()
    watch.machine.values = {"a": 95}
    watch.tick()
    watch.clock.advance(3_000)
    change(rule, expr="other")
    assert [watch.tick().failed, watch.tick().judged] == [0, 0]
    watch.clock.advance(7_000)
    assert watch.tick().messages == 1
    assert [state for state, _ in told()] == ["firing", "resolved", "firing"]


def test_an_edit_makes_a_look_under_way_void(make_rule: MakeRule, watch: Watch, change: Callable[..., Rule]) -> None:
    rule = make_rule()
    ticket = evaluate.claim(rule.pk, watch.clock.now_ms())
    assert ticket is not None
    change(rule, expr="other")
    late = [Reading({"host": "a"}, 95.0)]
    assert evaluate.settle_look(rule, ticket, late, at_ms=START_MS, error="") is None
    assert not Outbox.objects.exists()


def test_a_deleted_rule_resolves_and_keeps_its_history(
    make_rule: MakeRule, watch: Watch, people: dict[str, User], app: App
) -> None:
    rule = make_rule()
    watch.see(95)
    rulebook.delete(rule, by=people["edda"], now_ms=watch.clock.now_ms())
    watch.see(95)
    assert told() == [("firing", ""), ("resolved", "the rule was deleted")]
    assert AlertEvent.objects.filter(rule=rule).count() == 2
    assert not rulebook.rules_of(app).exists()


def test_acts_stand_in_the_audit_log(
    make_rule: MakeRule, watch: Watch, people: dict[str, User], change: Callable[..., Rule]
) -> None:
    rule = make_rule()
    change(rule, threshold=1.0)
    rulebook.delete(rule, by=people["edda"], now_ms=1)
    entries = AuditEntry.objects.filter(action__startswith="rule.").order_by("pk")
    assert [(entry.action, entry.actor_name) for entry in entries] == [
        ("rule.create", "edda"),
        ("rule.change", "edda"),
        ("rule.delete", "edda"),
    ]


def test_one_rule_over_the_limit_is_refused(make_rule: MakeRule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RULES_PER_APP_MAX", 2)
    make_rule()
    make_rule()
    with pytest.raises(LimitExceeded):
        make_rule()


def test_pruning_forgets_the_old_and_keeps_what_is_open(make_rule: MakeRule, watch: Watch) -> None:
    make_rule()
    watch.see(95, 50, 95)
    Outbox.objects.filter(key__endswith="resolved").update(state="sent")
    assert prune.prune(watch.clock.now_ms()) == 0
    prune.prune(watch.clock.now_ms() + limits.ALERT_EVENTS_KEEP_MS + 1)
    assert (AlertEvent.objects.count(), Alert.objects.get().state) == (0, "firing")
    assert set(Outbox.objects.values_list("state", flat=True)) == {"waiting"}
