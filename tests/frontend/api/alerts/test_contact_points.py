"""Contact points by REST: write, replace, list, delete; and that no answer has a secret."""

from typing import Any

import pytest
from django.test import Client

from alerts.models.telling import ContactPoint, Receiver
from alerts.telling import limits
from spm.accounts.models import AuditEntry
from tests.support.people import Tenant

pytestmark = pytest.mark.django_db
HOOK = "https://hooks.slack.com/services/T000/B000/secret-of-a-hook"


def at(tenant: Tenant, rest: str = "") -> str:
    """An address of the organisation's contact points."""
    return f"/api/v1/organisations/{tenant.organisation.pk}/contact-points{rest}"


def post(client: Client, tenant: Tenant, *receivers: str, name: str = "Ops") -> Any:
    """The answer to a contact point."""
    return client.post(at(tenant), {"name": name, "receivers": receivers}, content_type="application/json")


def test_a_contact_point_is_written_and_the_same_name_replaces_its_receivers(desk: Client, alpha: Tenant) -> None:
    first = post(desk, alpha, "a@example.org").json()
    second = post(desk, alpha, "b@example.org", "c@example.org").json()
    assert (first["id"], first["receivers"]) == (second["id"], ["a@example.org"])
    assert desk.get(at(alpha)).json() == {"contact_points": [second], "next": None}
    assert second["receivers"] == ["b@example.org", "c@example.org"]


def test_a_contact_point_is_deleted_and_each_act_is_noted(desk: Client, alpha: Tenant) -> None:
    number = post(desk, alpha, "a@example.org").json()["id"]
    assert desk.delete(at(alpha, f"/{number}")).status_code == 204
    assert not ContactPoint.objects.exists()
    acts = AuditEntry.objects.filter(action__startswith="contact-point.").order_by("pk")
    assert [(act.action, act.actor) for act in acts] == [
        ("contact-point.write", alpha.owner),
        ("contact-point.delete", alpha.owner),
    ]


@pytest.mark.parametrize("receivers", [[], ["no receiver"], ["a@example.org", "x" * 501]])
def test_receivers_that_no_notifier_takes_are_refused_and_nothing_is_written(
    desk: Client, alpha: Tenant, receivers: list[str]
) -> None:
    assert post(desk, alpha, *receivers).status_code == 400
    assert not ContactPoint.objects.exists()
    assert not Receiver.objects.exists()


def test_no_answer_has_the_secret_of_a_receiver(desk: Client, alpha: Tenant) -> None:
    for answer in (post(desk, alpha, HOOK), desk.get(at(alpha))):
        assert "slack" in answer.content.decode()
        assert "secret-of-a-hook" not in answer.content.decode()


def test_contact_points_of_another_organisation_are_not_there(desk: Client, alpha: Tenant, beta: Tenant) -> None:
    foreign = ContactPoint.objects.create(organisation=beta.organisation, name="Ops")
    assert desk.get(at(alpha)).json()["contact_points"] == []
    assert desk.delete(at(alpha, f"/{foreign.pk}")).status_code == 404
    assert post(desk, alpha, "a@example.org").json()["id"] != foreign.pk


def test_receivers_that_there_are_count_once_against_the_bound(
    desk: Client, alpha: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RECEIVERS_MAX", 2)
    both = ("a@example.org", "b@example.org")
    assert post(desk, alpha, *both).status_code == 201
    assert post(desk, alpha, *both, name="Night").status_code == 201
    answer = post(desk, alpha, *both, "c@example.org")
    assert (answer.status_code, "too many receivers" in answer.json()["error"]) == (422, True)
    assert Receiver.objects.count() == 2


def test_an_organisation_has_a_bound_of_contact_points(
    desk: Client, alpha: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CONTACT_POINTS_MAX", 1)
    codes = [post(desk, alpha, "a@example.org", name=name).status_code for name in ("one", "two", "one")]
    assert codes == [201, 422, 201]
    assert ContactPoint.objects.count() == 1
