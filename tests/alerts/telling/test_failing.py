"""A receiver that fails: its owners are told once by another address, and it is tried once an hour until it works."""

from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest
from django.contrib.auth.models import User

from alerts.models import Outbox, Rule
from alerts.models.telling import Notification, Receiver
from alerts.notify.base import DeliveryFailed, Notifier
from alerts.telling import flush, limits, sender
from tests.alerts.conftest import AlertingWorld

pytestmark = pytest.mark.django_db


class Refusing:
    """Refuses for good as long as a test says."""

    def __init__(self) -> None:
        self.refuses, self.keys = True, list[str]()

    def send(self, key: str, payload: Mapping[str, Any]) -> str:
        self.keys.append(key)
        if self.refuses:
            raise DeliveryFailed("550 no such user", permanent=True)
        return "taken"


@pytest.fixture
def failing(make_rule: Callable[..., Rule], world: AlertingWorld, people: dict[str, User]) -> tuple[Refusing, Any]:
    """A receiver that is refused, and what lets an hour of it pass in steps of a minute."""
    User.objects.filter(username="olga").update(email="olga@example.org")
    make_rule()
    world.evaluate_values(95)
    notifier = Refusing()

    def pass_time(minutes: int) -> None:
        for _ in range(minutes):
            world.clock.advance(60_000)
            flush.flush_due(world.clock.now_ms())
            sender.deliver(notifiers={"mail": cast(Notifier, notifier)}, clock=world.clock)

    return notifier, pass_time


def test_owners_are_told_once_by_another_address(failing: tuple[Refusing, Any]) -> None:
    _, pass_time = failing
    pass_time(180)
    [mail] = Outbox.objects.all()
    assert mail.payload["receivers"] == ["olga@example.org"]
    assert mail.payload["subject"] == "[SPM] Notifications do not reach ops@example.org"
    assert "550 no such user" in mail.payload["body"]


def test_it_is_tried_once_an_hour_and_told_what_is_true_when_it_works(failing: tuple[Refusing, Any]) -> None:
    notifier, pass_time = failing
    pass_time(20)
    before = len(notifier.keys)
    assert Receiver.objects.get().dead_in_a_row >= limits.DEAD_IN_A_ROW_MAX
    pass_time(180)
    assert before + 2 <= len(notifier.keys) <= before + 3
    notifier.refuses = False
    pass_time(61)
    assert Notification.objects.order_by("-pk")[0].state == "sent"
    assert Receiver.objects.get().dead_in_a_row == 0


def test_an_owner_is_not_told_through_the_address_that_fails(failing: tuple[Refusing, Any]) -> None:
    User.objects.filter(username="olga").update(email="ops@example.org")
    failing[1](20)
    assert not Outbox.objects.exists()
