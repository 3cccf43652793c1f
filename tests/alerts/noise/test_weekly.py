"""Reports of a week: made once, with what the backtest's engine says of longer for, and mailed to those who want it."""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from django.contrib.auth.models import User
from django.core import mail

from alerts import prune
from alerts.backtesting.backtests import try_rule
from alerts.models import Outbox, Rule
from alerts.models.noise import NoiseReport
from alerts.models.telling import ContactPoint, Receiver
from alerts.noise import limits, savings, weekly
from alerts.notify import outbox
from alerts.notify.registry import NOTIFIERS
from alerts.telling import actions
from ingest.accounting.watermark_keeper import advance_watermarks
from spm import query
from spm.accounts.models import App
from spm.errors import QueryFailed
from tests.alerts.conftest import START_MS, AlertingWorld
from tests.alerts.knowledge_world import Installation
from tests.alerts.noise.past import MINUTE_MS, alert, notified

pytestmark = pytest.mark.django_db
MakeRule = Callable[..., Rule]
MONDAY_MS = 1_700_438_400_000  # 2023-11-20, the first after START_MS
HOUR_MS = 60 * MINUTE_MS


@pytest.fixture
def noisy(app: App, make_rule: MakeRule, world: AlertingWorld, monkeypatch: pytest.MonkeyPatch) -> Rule:
    """A rule that fired for a step every hour, with the samples of that; the week is over."""
    installation = Installation(app.pk, world.clock)
    monkeypatch.setattr(query, "configure", lambda url: None)
    monkeypatch.setattr(query, "storage_for", lambda number: installation.new_storage())
    for hour in range(4):
        world.clock.advance(START_MS + hour * HOUR_MS - world.clock.now_ms())
        for value in (1.0, 95.0, 1.0):
            installation.send("a", world.clock.now_ms(), value)
            world.clock.advance(10_000)
            installation.announce()
            advance_watermarks(installation.store, app.pk, world.clock.now_ms())
    rule = make_rule()
    for hour in range(4):
        notified(alert(rule, START_MS + hour * HOUR_MS))
    world.clock.advance(MONDAY_MS + limits.READY_MS - world.clock.now_ms())
    return rule


@pytest.fixture
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No rule is tried."""
    monkeypatch.setattr(weekly, "try_longer", lambda *arguments, **named: None)


def want(app: App, by: User, *targets: str, name: str = "On call") -> ContactPoint:
    point = actions.add_contact_point(app.organisation, name, targets, by=by, now_ms=START_MS)
    actions.want_report(point, wants=True, by=by)
    return point


def test_the_report_says_what_the_backtest_says_of_a_longer_for(noisy: Rule, world: AlertingWorld) -> None:
    assert weekly.make_due(world.clock) == 1
    [row] = NoiseReport.objects.get().noisy_rules.all()
    tried = try_rule(noisy, MONDAY_MS - limits.WEEK_MS, MONDAY_MS - 10_000)
    assert (row.notifications, row.alerts, row.tried_notifications) == (4, 4, tried.notifications)
    assert [each["notifications"] for each in row.effects] == [each.notifications for each in tried.effects[1:]]
    assert (tried.notifications, row.saving) == (8, {"for_ms": 60_000, "episodes": 0, "notifications": 0})


def test_a_week_is_reported_once_and_not_before_its_end(noisy: Rule, world: AlertingWorld, untried: None) -> None:
    world.clock.advance(-1)
    assert weekly.make_due(world.clock) == 0 or NoiseReport.objects.get().to_ms < MONDAY_MS
    world.clock.advance(1)
    assert [weekly.make_due(world.clock) for _ in range(2)] == [1, 0]
    assert NoiseReport.objects.filter(to_ms=MONDAY_MS).count() == 1


def test_two_workers_make_one_report_and_one_mail(
    noisy: Rule, people: dict[str, User], world: AlertingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    want(noisy.app, people["olga"], "ops@example.org")

    def other_first(*arguments: Any, **named: Any) -> None:
        monkeypatch.setattr(weekly, "try_longer", lambda *arguments, **named: None)
        weekly.make(noisy.app.organisation_id, MONDAY_MS, clock=world.clock)

    monkeypatch.setattr(weekly, "try_longer", other_first)
    assert weekly.make_due(world.clock) == 0
    assert (NoiseReport.objects.count(), Outbox.objects.count()) == (1, 1)


def test_the_mail_goes_to_the_mail_addresses_of_contact_points_that_ask_for_it(
    noisy: Rule, people: dict[str, User], world: AlertingWorld
) -> None:
    olga = people["olga"]
    want(noisy.app, olga, "ops@example.org", "no@example.org", "https://example.org/hook")
    want(noisy.app, olga, "ops@example.org", name="Again")
    actions.add_contact_point(noisy.app.organisation, "Others", ("other@example.org",), by=olga, now_ms=START_MS)
    Receiver.objects.filter(target="no@example.org").update(confirmed_ms=None)
    weekly.make_due(world.clock)
    outbox.deliver(notifiers=NOTIFIERS, clock=world.clock)
    [message] = mail.outbox
    assert message.to == ["ops@example.org"]
    assert message.subject == "[SPM] Noise of Acme, 13 Nov to 19 Nov 2023: 4 notifications, 4 alerts of 1 rule"
    assert "with “for 1m”: 0 instead of 8 notifications each" in message.body
    assert f"/alerts/rules/{noisy.pk}" in message.body


def test_a_stranger_can_stop_the_mail(
    noisy: Rule, people: dict[str, User], world: AlertingWorld, untried: None
) -> None:
    want(noisy.app, people["olga"], "ops@example.org")
    Receiver.objects.update(is_member=False)
    weekly.make_due(world.clock)
    assert "/a/stop." in Outbox.objects.get().payload["body"]


def test_a_quiet_week_is_reported_and_not_mailed(
    app: App, people: dict[str, User], make_rule: MakeRule, world: AlertingWorld
) -> None:
    make_rule()
    want(app, people["olga"], "ops@example.org")
    world.clock.advance(MONDAY_MS + limits.READY_MS - START_MS)
    weekly.make_due(world.clock)
    assert (NoiseReport.objects.get().alerts, Outbox.objects.count()) == (0, 0)


def test_a_rule_that_cannot_be_tried_says_why(noisy: Rule, world: AlertingWorld) -> None:
    with patch.object(savings, "try_rule", side_effect=QueryFailed("too much")):
        weekly.make_due(world.clock)
    [row] = NoiseReport.objects.get().noisy_rules.all()
    assert ("too much" in row.untried, row.tried_notifications, row.saving) == (True, None, None)


def test_a_report_and_a_round_have_a_bound_of_time(
    noisy: Rule, make_rule: MakeRule, world: AlertingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    notified(alert(make_rule(name="Second"), START_MS))

    def slow(*arguments: Any) -> Any:
        world.clock.advance(int(limits.TRY_S * 1_000) + 1)
        raise QueryFailed("slow")

    monkeypatch.setattr(savings, "try_rule", slow)
    weekly.make_due(world.clock)
    [first, second] = NoiseReport.objects.get().noisy_rules.all()
    assert ("slow" in first.untried, second.untried) == (True, "there was no time left")


def test_one_organisation_that_fails_keeps_no_other_from_its_report(
    noisy: Rule, foreign_app: App, people: dict[str, User], world: AlertingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    Rule.objects.create(app=foreign_app, name="x", expr="x", created_ms=1, changed_ms=1)
    original = weekly.make

    def make(organisation: int, to_ms: int, **named: Any) -> NoiseReport:
        if organisation == noisy.app.organisation_id:
            raise ValueError("broken")
        return original(organisation, to_ms, **named)

    monkeypatch.setattr(weekly, "make", make)
    assert weekly.make_due(world.clock) == 1
    assert NoiseReport.objects.get().organisation == foreign_app.organisation


def test_reports_are_pruned_after_their_time(noisy: Rule, world: AlertingWorld, untried: None) -> None:
    weekly.make_due(world.clock)
    prune.prune(MONDAY_MS + limits.REPORTS_KEEP_MS)
    assert NoiseReport.objects.exists()
    prune.prune(MONDAY_MS + limits.REPORTS_KEEP_MS + 1)
    assert not NoiseReport.objects.exists()
