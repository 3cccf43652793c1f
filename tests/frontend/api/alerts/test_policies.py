"""Policies and inhibitions by REST: the tree, what is refused, that edits are in force at once, and the tester."""

from typing import Any

import pytest
from django.test import Client

from alerts.models.telling import Inhibition, NotificationGroup, Policy
from alerts.telling import actions, limits
from spm.accounts.models import AuditEntry
from tests.support.people import Tenant

pytestmark = pytest.mark.django_db


def at(tenant: Tenant, rest: str = "policies") -> str:
    """An address of the organisation."""
    return f"/api/v1/organisations/{tenant.organisation.pk}/{rest}"


def point_of(tenant: Tenant, name: str = "Ops") -> int:
    """The number of a contact point."""
    point = actions.add_contact_point(tenant.organisation, name, (f"{name}@example.org",), by=tenant.owner, now_ms=5)
    return point.pk


def post(client: Client, tenant: Tenant, **changes: Any) -> Any:
    """The answer to a new policy."""
    body = {"matchers": 'env="prod"', "contact_point": point_of(tenant), **changes}
    return client.post(at(tenant), body, content_type="application/json")


def test_a_policy_is_read_as_it_was_written_with_the_waits_that_it_leaves_out(desk: Client, alpha: Tenant) -> None:
    answer = post(desk, alpha, group_by=["host"])
    policy = answer.json()
    assert answer.status_code == 201
    assert (policy["matchers"], policy["group_by"], policy["contact_point_name"]) == ('env="prod"', ["host"], "Ops")
    assert policy["interval_ms"] == limits.GROUP_INTERVAL_MS
    assert desk.get(at(alpha)).json() == {"policies": [policy]}


def test_the_tree_is_listed_in_the_order_in_which_an_alert_comes_to_it(desk: Client, alpha: Tenant) -> None:
    last, first = (post(desk, alpha, position=position).json()["id"] for position in (2, 1))
    below = post(desk, alpha, parent=first).json()["id"]
    assert [each["id"] for each in desk.get(at(alpha)).json()["policies"]] == [first, below, last]
    assert desk.delete(at(alpha, f"policies/{first}")).status_code == 204
    assert [each["id"] for each in desk.get(at(alpha)).json()["policies"]] == [last]
    acts = AuditEntry.objects.filter(action="policy.delete")
    assert [(act.actor, act.subject) for act in acts] == [(alpha.owner, 'env="prod" → Ops')]


def test_a_policy_that_is_replaced_has_groups_looked_at_again(desk: Client, alpha: Tenant) -> None:
    number = post(desk, alpha, group_by=["host"]).json()["id"]
    receiver = Policy.objects.get().contact_point.receivers.get()
    NotificationGroup.objects.create(receiver=receiver, key="k", labels={}, next_look_ms=None)
    body = {"matchers": 'env="test"', "contact_point": point_of(alpha)}
    answer = desk.put(at(alpha, f"policies/{number}"), body, content_type="application/json")
    assert (answer.status_code, answer.json()["group_by"], answer.json()["matchers"]) == (200, [], 'env="test"')
    assert NotificationGroup.objects.get().next_look_ms is not None


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        pytest.param({"matchers": 'env=~".*"'}, "non-empty matcher", id="matchers of everything"),
        pytest.param({"contact_point": 1 << 40}, "belong to another organisation", id="no such contact point"),
        pytest.param({"parent": 1 << 40}, "belong to another organisation", id="no such parent"),
        pytest.param({"interval_ms": 9_999}, "at least 10000", id="an interval below the grid"),
        pytest.param({"repeat_ms": 60_000}, "not shorter", id="repeated within the interval"),
        pytest.param({"group_by": [f"l{n}" for n in range(11)]}, "group_by", id="too many labels"),
        pytest.param({"wait_ms": -1}, "wait_ms", id="a wait that is no time"),
    ],
)
def test_a_policy_that_cannot_be_is_refused_with_what_is_wanted(
    desk: Client, alpha: Tenant, changes: dict[str, Any], wanted: str
) -> None:
    answer = post(desk, alpha, **changes)
    assert (answer.status_code, wanted in answer.content.decode()) == (400, True)
    assert not Policy.objects.exists()


def test_no_edit_makes_a_ring_or_a_tree_that_is_too_deep(
    desk: Client, alpha: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "POLICY_DEPTH_MAX", 3)
    top = post(desk, alpha).json()["id"]
    middle = post(desk, alpha, parent=top).json()["id"]
    other = post(desk, alpha).json()["id"]
    body = {"matchers": 'a="b"', "contact_point": point_of(alpha)}

    def move(number: int, parent: int) -> Any:
        return desk.put(at(alpha, f"policies/{number}"), {**body, "parent": parent}, content_type="application/json")

    assert "below itself" in move(top, middle).json()["error"]
    assert move(top, other).status_code == 200
    assert "3 deep" in post(desk, alpha, parent=middle).json()["error"]


def test_one_policy_over_the_bound_is_refused(desk: Client, alpha: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "POLICIES_MAX", 1)
    assert post(desk, alpha).status_code == 201
    answer = post(desk, alpha)
    assert (answer.status_code, "too many policies" in answer.json()["error"]) == (422, True)


def test_a_policy_leads_to_no_contact_point_of_another_organisation(desk: Client, alpha: Tenant, beta: Tenant) -> None:
    assert post(desk, alpha, contact_point=point_of(beta)).status_code == 400
    foreign = Policy.objects.create(
        organisation=beta.organisation, contact_point_id=point_of(beta), matchers='a="b"',
        wait_ms=5_000, interval_ms=10_000, repeat_ms=10_000,
    )  # fmt: skip
    assert post(desk, alpha, parent=foreign.pk).status_code == 400
    assert desk.delete(at(alpha, f"policies/{foreign.pk}")).status_code == 404
    assert desk.get(at(alpha)).json()["policies"] == []


def test_steps_of_escalation_are_written_replaced_and_refused(desk: Client, alpha: Tenant) -> None:
    night = point_of(alpha, "Night")
    steps = [{"after_ms": after_ms, "contact_point": night} for after_ms in (600_000, 1_200_000)]
    policy = post(desk, alpha, escalation=steps).json()
    assert policy["escalation"] == steps
    assert desk.get(at(alpha)).json()["policies"] == [policy]
    body = {"matchers": 'a="b"', "contact_point": night}
    one = at(alpha, f"policies/{policy['id']}")

    def put(escalation: list[dict[str, int]]) -> Any:
        return desk.put(one, {**body, "escalation": escalation}, content_type="application/json")

    assert put(steps[:1]).json()["escalation"] == steps[:1]
    missing = {"after_ms": 600_001, "contact_point": 1 << 40}
    for wrong in ([*steps[:1], missing], steps[::-1], [{"after_ms": 1, "contact_point": night}], steps * 3):
        assert put(wrong).status_code == 400
    assert desk.get(at(alpha)).json()["policies"][0]["escalation"] == steps[:1]


def test_the_tester_says_of_every_policy_what_it_does_and_why(desk: Client, alpha: Tenant) -> None:
    prod = post(desk, alpha, position=1, group_by=["host"]).json()["id"]
    post(desk, alpha, parent=prod, matchers='severity="critical"')
    post(desk, alpha, position=2, matchers='host="a"', contact_point=point_of(alpha, "Night"))
    post(desk, alpha, position=0, matchers='team="db"')
    body = {"labels": {"env": "prod", "severity": "info", "host": "a"}}
    answer = desk.post(at(alpha, "policies/test"), body, content_type="application/json").json()
    assert [(each["takes"], each["reason"]) for each in answer["verdicts"]] == [
        (False, 'there is no team; this takes team="db"'),
        (True, "it matches, and none below it does"),
        (False, 'severity is "info"; this takes severity="critical"'),
        (False, "a policy before it took the alert"),
    ]
    assert answer["verdicts"][1]["group"] == {"host": "a"}
    assert answer["mutes"] == []


def test_the_tester_names_the_windows_that_hold_now(desk: Client, alpha: Tenant) -> None:
    window = {"name": "Always", "matchers": 'host="a"', "cron": "* * * * *", "duration_ms": 3_600_000}
    desk.post(at(alpha, "maintenance-windows"), window, content_type="application/json")
    for host, mutes in (("a", ["in the maintenance window Always"]), ("b", [])):
        answer = desk.post(at(alpha, "policies/test"), {"labels": {"host": host}}, content_type="application/json")
        assert answer.json() == {"verdicts": [], "mutes": mutes}


def test_an_inhibition_is_written_replaced_listed_and_deleted(desk: Client, alpha: Tenant) -> None:
    body = {"source": 'alertname="down"', "target": 'severity="warning"', "equal": ["host"]}
    inhibition = desk.post(at(alpha, "inhibitions"), body, content_type="application/json").json()
    assert inhibition == {"id": inhibition["id"], **body}
    one = at(alpha, f"inhibitions/{inhibition['id']}")
    changed = desk.put(one, {**body, "equal": []}, content_type="application/json").json()
    assert desk.get(at(alpha, "inhibitions")).json() == {"inhibitions": [{**inhibition, "equal": []}], "next": None}
    assert changed["equal"] == []
    assert desk.put(one, {**body, "source": "down"}, content_type="application/json").status_code == 400
    assert desk.delete(one).status_code == 204
    assert not Inhibition.objects.exists()
