"""Changes of rules by people: audited, bounded, and no alert keeps firing without a rule that watches it."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User

from alerts import evaluate, prune, rulebook
from alerts.judging.lane_plan import Decision, OperationKind
from alerts.judging.lane_plan import Operation as Plan
from alerts.models import AlertEvent, Episode, Instance, Lane, Outbox, Rule, RuleVersionRow
from alerts.models.telling import Notification
from alerts.telling.limits import GROUP_WAIT_MS, NOTIFICATION_KEEP_MS
from spm import limits
from spm.accounts.models import App, AuditEntry
from spm.errors import BadQuery, LimitExceeded
from tests.alerts.conftest import PERIOD_MS, START_MS, AlertingWorld, draft

pytestmark = pytest.mark.django_db
MakeRule = Callable[..., Rule]


@pytest.fixture
def change(world: AlertingWorld, people: dict[str, User]) -> Callable[..., Rule]:
    def changed(rule: Rule, **changes: Any) -> Rule:
        return rulebook.change(rule, draft(**changes), by=people["edda"], now_ms=world.clock.now_ms())

    return changed


def ends() -> list[tuple[str, str]]:
    return list(Episode.objects.order_by("pk").values_list("status", "end_reason"))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"expr": "other"}, "edited"), ({"enabled": False}, "switched off")],
)
def test_a_change_that_ends_the_evaluation_resolves_firing_alerts(
    make_rule: MakeRule, world: AlertingWorld, change: Callable[..., Rule], changes: dict[str, Any], reason: str
) -> None:
    rule = make_rule()
    world.evaluate_values(95)
    change(rule, **changes)
    world.machine.values = {}
    world.evaluate()
    assert ends() == [("ended", reason)]


def test_a_new_threshold_continues_the_episode(
    make_rule: MakeRule, world: AlertingWorld, change: Callable[..., Rule]
) -> None:
    rule = make_rule()
    world.evaluate_values(95)
    change(rule, threshold=80.0)
    world.evaluate_values(85, 70)
    assert ends() == [("ended", "recovered")]


def test_two_edits_between_two_steps_leave_one_version(
    make_rule: MakeRule, world: AlertingWorld, change: Callable[..., Rule]
) -> None:
    rule = make_rule()
    world.evaluate_values(50)
    change(rule, threshold=80.0)
    change(rule, threshold=70.0)
    versions = RuleVersionRow.objects.filter(rule=rule).order_by("from_ms")
    assert [row.content["condition"]["threshold"] for row in versions] == [90.0, 70.0]
    assert [(row.from_ms, row.until_ms) for row in versions] == [
        (START_MS, START_MS + PERIOD_MS),
        (START_MS + PERIOD_MS, None),
    ]


def test_an_edit_cancels_an_operation_under_way(
    make_rule: MakeRule, world: AlertingWorld, change: Callable[..., Rule]
) -> None:
    rule = make_rule()
    lane, plan = Lane.objects.get(), Plan(OperationKind.JUDGE, START_MS - PERIOD_MS, START_MS)
    world.machine.values = {"a": 95}
    change(rule, expr="other")
    sight = evaluate.at_present(world.machine.open_session, world.clock)(lane)
    assert not evaluate.judge(lane, Decision(plan), sight, now_ms=START_MS)
    assert not Episode.objects.exists()


def test_a_rule_of_an_idle_lane_is_judged_from_now_on(make_rule: MakeRule, world: AlertingWorld) -> None:
    make_rule(enabled=False)
    world.clock.advance(7 * 86_400_000)
    make_rule()
    assert Lane.objects.get().position_ms == START_MS + 7 * 86_400_000 - PERIOD_MS


def test_a_deleted_rule_resolves_and_keeps_its_history(
    make_rule: MakeRule, world: AlertingWorld, people: dict[str, User], app: App
) -> None:
    rule = make_rule()
    world.evaluate_values(95)
    rulebook.delete(rule, by=people["edda"], now_ms=world.clock.now_ms())
    world.evaluate_values(95, 95)
    assert ends() == [("ended", "deleted")]
    assert AlertEvent.objects.filter(rule=rule).count() == 2
    assert not rulebook.rules_of(app).exists()


def test_changes_are_in_the_audit_log(
    make_rule: MakeRule, world: AlertingWorld, people: dict[str, User], change: Callable[..., Rule]
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


def test_pruning_deletes_old_rows_and_keeps_open_ones(make_rule: MakeRule, world: AlertingWorld) -> None:
    make_rule()
    world.evaluate_values(95, 50, 95)
    world.clock.advance(GROUP_WAIT_MS)
    assert world.tell() == 1
    Outbox.objects.create(key="account:1:1", payload={}, created_ms=START_MS, next_attempt_ms=0)
    assert prune.prune(world.clock.now_ms()) == 0
    prune.prune(world.clock.now_ms() + NOTIFICATION_KEEP_MS + 1)
    assert not Notification.objects.exists()
    prune.prune(world.clock.now_ms() + limits.ALERT_EVENTS_KEEP_MS + 1)
    assert (AlertEvent.objects.count(), Instance.objects.get().phase) == (0, "firing")
    assert set(Outbox.objects.values_list("state", flat=True)) == {"waiting"}


COMPOSITES = {
    "names a rule that is not there": "#999999",
    "does not parse": "cpu > 5",
    "names itself": "#{itself}",
    "names itself through another": "#{above}",
}


@pytest.mark.parametrize("text", COMPOSITES.values(), ids=COMPOSITES.keys())
def test_a_composite_is_refused_that(make_rule: MakeRule, people: dict[str, User], text: str) -> None:
    part = make_rule()
    rule = make_rule(kind="composite", expr=f"#{part.pk}", by=("host",))
    above = make_rule(kind="composite", expr=f"#{rule.pk}")
    changed = draft(kind="composite", expr=text.format(itself=rule.pk, above=above.pk))
    with pytest.raises(BadQuery):
        rulebook.change(rule, changed, by=people["edda"], now_ms=START_MS)
    rule.refresh_from_db()
    assert rule.expr == f"#{part.pk}"
