"""The admin: what operators set about telling is refused if it could not be read, audited, and in force at once."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from alerts.models.telling import ContactPoint, Inhibition, MuteTiming, Policy
from spm.accounts.models import App, AuditEntry

pytestmark = pytest.mark.django_db


@pytest.fixture
def operator(client: Client, app: App) -> Client:
    client.force_login(User.objects.create_superuser("operator"))
    return client


def policy(app: App, **changes: Any) -> dict[str, Any]:
    point, _ = ContactPoint.objects.get_or_create(organisation=app.organisation, name="On call")
    fields = {"matchers": 'env="prod"', "group_by": '["host"]', "wait_ms": 5_000, "interval_ms": 120_000}
    whole = {"organisation": app.organisation_id, "contact_point": point.pk, "repeat_ms": 14_400_000, "position": 0}
    return {**fields, **whole, **changes}


def test_an_operator_adds_and_deletes_a_policy(app: App, operator: Client) -> None:
    operator.post("/admin/alerts/policy/add/", policy(app))
    row = Policy.objects.get()
    assert (row.matchers, row.group_by) == ('env="prod"', ["host"])
    operator.post(f"/admin/alerts/policy/{row.pk}/delete/", {"post": "yes"})
    assert not Policy.objects.exists()
    actions = AuditEntry.objects.filter(action__startswith="policy.").order_by("pk")
    assert list(actions.values_list("action", flat=True)) == ["policy.write", "policy.delete"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"matchers": "env=~"}, "matchers"),
        ({"matchers": 'env=~".*"'}, "non-empty matcher"),
        ({"group_by": '{"host": 1}'}, "list of label names"),
    ],
)
def test_a_policy_that_could_not_be_read_is_refused(
    app: App, operator: Client, changes: dict[str, Any], reason: str
) -> None:
    answer = operator.post("/admin/alerts/policy/add/", policy(app, **changes))
    assert answer.status_code == 200
    assert not Policy.objects.exists()
    assert "errornote" in answer.content.decode() or reason in answer.content.decode()


def test_a_policy_notifies_nobody_of_another_organisation(app: App, foreign_app: App, operator: Client) -> None:
    foreign = ContactPoint.objects.create(organisation=foreign_app.organisation, name="Lair")
    answer = operator.post("/admin/alerts/policy/add/", policy(app, contact_point=foreign.pk))
    assert "belong to another organisation" in answer.content.decode()
    assert not Policy.objects.exists()


def test_a_policy_cannot_be_below_itself(app: App, operator: Client) -> None:
    operator.post("/admin/alerts/policy/add/", policy(app))
    row = Policy.objects.get()
    answer = operator.post(f"/admin/alerts/policy/{row.pk}/change/", policy(app, parent=row.pk))
    assert "below itself" in answer.content.decode()


def test_windows_and_inhibitions_are_checked_too(app: App, operator: Client) -> None:
    window = {"organisation": app.organisation_id, "name": "Backup", "matchers": 'a="b"', "zone": "UTC"}
    operator.post("/admin/alerts/mutetiming/add/", {**window, "cron": "never", "duration_ms": 60_000})
    assert not MuteTiming.objects.exists()
    operator.post("/admin/alerts/mutetiming/add/", {**window, "cron": "0 2 * * *", "duration_ms": 60_000})
    assert MuteTiming.objects.exists()
    inhibition = {"organisation": app.organisation_id, "source": "down", "target": 'a="b"', "equal": '["host"]'}
    operator.post("/admin/alerts/inhibition/add/", inhibition)
    assert not Inhibition.objects.exists()
    operator.post("/admin/alerts/inhibition/add/", {**inhibition, "source": 'alertname="down"'})
    assert Inhibition.objects.exists()


@pytest.mark.parametrize("name", ["notification", "silence", "outbox", "policy", "mutetiming", "inhibition", "rule"])
def test_every_list_of_the_admin_opens(operator: Client, name: str) -> None:
    assert operator.get(f"/admin/alerts/{name}/").status_code == 200
