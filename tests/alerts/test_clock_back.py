"""A wall clock that is set back delays no notification: neither new alerts, nor ends, nor attempts."""

from collections.abc import Callable
from typing import Any

import pytest

from alerts.models import Outbox, Rule
from alerts.models.telling import LastWord, Notification, NotificationGroup
from alerts.notify import outbox
from alerts.notify.base import RecordingNotifier
from alerts.telling import limits
from alerts.telling.decide.episodes import LineKind
from spm.accounts.models import App
from tests.alerts.conftest import AlertingWorld
from tests.alerts.telling import configure

pytestmark = pytest.mark.django_db
HOUR_MS = 3_600_000


def said(world: AlertingWorld, seconds: int) -> list[tuple[int, str]]:
    """What is told within so many seconds, each with its second and kind."""
    known, lines = Notification.objects.count(), list[tuple[int, str]]()
    for second in range(0, seconds + 1, 5):
        world.tell()
        for row in Notification.objects.order_by("pk")[known:]:
            lines += [(second, line["kind"]) for line in row.body["lines"]]
            known += 1
        world.clock.advance(5_000)
    return lines


@pytest.mark.parametrize("back_ms", [HOUR_MS, 10 * 86_400_000], ids=["an hour", "ten days"])
def test_an_alert_that_began_before_is_told_within_a_group_wait(
    make_rule: Callable[..., Rule], world: AlertingWorld, back_ms: int
) -> None:
    world.tell()
    make_rule()
    world.evaluate_values(95)
    world.clock.jump(-back_ms)
    assert said(world, 20) == [(0, LineKind.FIRING)]


def test_the_end_of_an_alert_is_told_within_a_group_interval(
    make_rule: Callable[..., Rule], world: AlertingWorld
) -> None:
    make_rule()
    world.evaluate_values(95, 95)
    world.tell()
    world.clock.advance(5_000)
    world.evaluate_values(10)
    world.tell()
    world.clock.jump(-HOUR_MS)
    [(second, kind)] = said(world, 200)
    assert kind == LineKind.RESOLVED
    assert second <= limits.GROUP_INTERVAL_MS / 1_000


@pytest.fixture
def routed(app: App, make_rule: Callable[..., Rule], people: dict[str, Any], world: AlertingWorld) -> AlertingWorld:
    """A world whose alert a policy has told to one address."""
    configure.policy(app, 'severity="warning"', "ops@example.org", by=people["olga"])
    make_rule(receivers=())
    world.evaluate_values(95)
    world.tell()
    return world


def test_an_attempt_that_waits_and_an_escalation_keep_their_pause(routed: AlertingWorld) -> None:
    now_ms = routed.clock.now_ms()
    Notification.objects.update(state="waiting", next_attempt_ms=now_ms + 10_000)
    LastWord.objects.update(not_before_ms=now_ms + 60_000, level="nothing")
    routed.clock.jump(-HOUR_MS)
    routed.tell()
    assert not Notification.objects.filter(state="waiting").exists()
    assert LastWord.objects.get().not_before_ms == routed.clock.now_ms() + 60_000
    assert not NotificationGroup.objects.filter(last_flush_ms__gt=routed.clock.now_ms()).exists()


def test_a_mail_about_an_account_that_waits_for_its_next_attempt_is_tried_at_once(world: AlertingWorld) -> None:
    world.tell()
    now_ms = world.clock.now_ms()
    Outbox.objects.create(kind="mail", key="1", payload={}, created_ms=now_ms, next_attempt_ms=now_ms + 10_000)
    world.clock.jump(-HOUR_MS)
    world.tell()
    notifier = RecordingNotifier()
    assert outbox.deliver(notifiers={"mail": notifier}, clock=world.clock).sent == 1
    assert notifier.keys == ["1"]


def test_clocks_of_two_machines_that_differ_a_little_move_nothing(routed: AlertingWorld) -> None:
    later_ms = routed.clock.now_ms() + 600_000
    LastWord.objects.update(not_before_ms=later_ms, level="nothing")
    for _ in range(20):
        for skew_ms in (-2_000, 2_000):
            routed.clock.jump(skew_ms)
            routed.tell()
        routed.clock.advance(5_000)
    assert LastWord.objects.get().not_before_ms == later_ms
