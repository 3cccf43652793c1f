"""Notifications and receivers by REST: the log, a further try, a test with its delivery."""

from typing import Any

import pytest
from django.core import mail
from django.test import Client

from alerts.models.telling import Delivery, Notification, Receiver
from alerts.notify.registry import NOTIFIERS
from alerts.telling import actions, limits, sender
from spm.accounts.models import AuditEntry
from spm.clock import SystemClock
from tests.support.people import Tenant

pytestmark = pytest.mark.django_db
HOOK = "https://hooks.slack.com/services/T000/B000/secret-of-a-hook"


def at(tenant: Tenant, rest: str) -> str:
    """An address of the organisation."""
    return f"/api/v1/organisations/{tenant.organisation.pk}/{rest}"


def receiver_of(tenant: Tenant, target: str = "ops@example.org") -> Receiver:
    """A receiver that has agreed."""
    actions.add_contact_point(tenant.organisation, target[:9], (target,), by=tenant.owner, now_ms=1)
    Receiver.objects.filter(target=target).update(confirmed_ms=1)
    return Receiver.objects.get(organisation=tenant.organisation, target=target)


def fire(client: Client, tenant: Tenant, receiver: Receiver) -> dict[str, Any]:
    """The answer to a test of the receiver."""
    answer = client.post(at(tenant, f"receivers/{receiver.pk}/test"))
    assert answer.status_code == 201, answer.content
    body: dict[str, Any] = answer.json()
    return body


def test_a_test_of_a_receiver_is_delivered_and_its_result_is_read(desk: Client, alpha: Tenant) -> None:
    row = fire(desk, alpha, receiver_of(alpha))
    assert (row["state"], row["attempts"], row["alerts"]) == ("waiting", 0, [])
    sender.deliver(notifiers=NOTIFIERS, clock=SystemClock())
    row = desk.get(at(alpha, f"notifications/{row['id']}")).json()
    assert (row["state"], row["attempts"], row["target"]) == ("sent", 1, "ops@example.org")
    assert [message.subject for message in mail.outbox] == [row["subject"]]


def test_a_receiver_that_has_not_agreed_is_not_tested(desk: Client, alpha: Tenant) -> None:
    receiver = receiver_of(alpha)
    Receiver.objects.update(confirmed_ms=None)
    answer = desk.post(at(alpha, f"receivers/{receiver.pk}/test"))
    assert (answer.status_code, "has not agreed" in answer.json()["error"]) == (409, True)
    assert not Notification.objects.exists()


def test_the_log_is_filtered_and_goes_on_at_its_cursor(desk: Client, alpha: Tenant) -> None:
    first, second = receiver_of(alpha), receiver_of(alpha, "second@example.org")
    numbers = [fire(desk, alpha, receiver)["id"] for receiver in (first, second, first, second)]
    Notification.objects.filter(pk=numbers[0]).update(state=Delivery.DEAD)

    def listed(query: str) -> list[int]:
        return [row["id"] for row in desk.get(at(alpha, f"notifications?{query}")).json()["notifications"]]

    page = desk.get(at(alpha, "notifications?limit=3")).json()
    assert [row["id"] for row in page["notifications"]] == numbers[:0:-1]
    assert listed(f"cursor={page['next']}") == numbers[:1]
    assert listed("state=dead") == numbers[:1]
    assert listed(f"receiver={second.pk}") == [numbers[3], numbers[1]]
    assert desk.get(at(alpha, "notifications?state=lost")).status_code == 400


def test_a_waiting_notification_is_tried_now_and_who_did_it_is_noted(desk: Client, alpha: Tenant) -> None:
    number = fire(desk, alpha, receiver_of(alpha))["id"]
    Notification.objects.update(next_attempt_ms=SystemClock().now_ms() + 3_600_000)
    answer = desk.post(at(alpha, f"notifications/{number}/retry"))
    assert (answer.status_code, answer.json()["next_attempt_ms"]) == (200, 0)
    act = AuditEntry.objects.get(action="notification.retry")
    assert (act.actor, act.subject, act.detail) == (alpha.owner, "ops@example.org", {"notification": number})


def test_no_answer_has_the_secret_of_a_receiver(desk: Client, alpha: Tenant) -> None:
    fire(desk, alpha, receiver_of(alpha, HOOK))
    for rest in ("notifications", "receivers"):
        answer = desk.get(at(alpha, rest)).content.decode()
        assert "slack" in answer
        assert "secret-of-a-hook" not in answer
    assert not AuditEntry.objects.filter(subject__contains="secret-of-a-hook").exists()


def test_a_receiver_that_takes_nothing_is_listed_as_failing(desk: Client, alpha: Tenant) -> None:
    receiver_of(alpha)
    for dead, is_failing in ((limits.DEAD_IN_A_ROW_MAX - 1, False), (limits.DEAD_IN_A_ROW_MAX, True)):
        Receiver.objects.update(dead_in_a_row=dead)
        assert [each["is_failing"] for each in desk.get(at(alpha, "receivers")).json()] == [is_failing]


def test_what_another_organisation_is_sent_is_not_there(desk: Client, alpha: Tenant, beta: Tenant) -> None:
    receiver = receiver_of(beta)
    number = actions.test_fire(receiver, by=beta.owner, now_ms=1).pk
    assert desk.get(at(alpha, "notifications")).json()["notifications"] == desk.get(at(alpha, "receivers")).json() == []
    assert desk.get(at(alpha, f"notifications?receiver={receiver.pk}")).json()["notifications"] == []
    assert desk.get(at(alpha, f"notifications/{number}")).status_code == 404
    assert desk.post(at(alpha, f"notifications/{number}/retry")).status_code == 404
    assert desk.post(at(alpha, f"receivers/{receiver.pk}/test")).status_code == 404
