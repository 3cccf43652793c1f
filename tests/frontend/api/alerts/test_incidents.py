"""Incidents by REST: lanes, the means, and that another organisation's are not found."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from alerts import rulebook
from alerts.models import Rule
from alerts.telling import actions
from spm.clock import FakeClock
from tests.alerts.conftest import draft
from tests.alerts.noise.past import MINUTE_MS, alert
from tests.support.people import Tenant

pytestmark = pytest.mark.django_db
DAY_MS = 24 * 60 * MINUTE_MS
RANGE = {"from_ms": 1, "to_ms": 100 * MINUTE_MS}


def rule_of(tenant: Tenant, **changes: Any) -> Rule:
    """A rule of the tenant."""
    return rulebook.write(tenant.app, draft(**changes), by=tenant.owner, now_ms=1)


def read(client: Client, tenant: Tenant, **query: Any) -> Any:
    return client.get(f"/api/v1/organisations/{tenant.organisation.pk}/incidents", {**RANGE, **query})


def take(number: Any, by: User, after_ms: int) -> None:
    actions.acknowledge_episode(number, by=by, for_ms=1_000, now_ms=number.created_ms + after_ms)


def test_incidents_come_in_lanes_with_their_means(desk: Client, alpha: Tenant) -> None:
    rule = rule_of(alpha)
    over = alert(rule, MINUTE_MS, minutes=4, host="a", end_reason="recovered")
    going = alert(rule, 2 * MINUTE_MS, minutes=None, host="b")
    take(going, alpha.owner, 30_000)
    answer = read(desk, alpha).json()
    [lane] = answer["lanes"]
    assert (lane["name"], lane["rule"], lane["count"], lane["open"]) == ("CPU is busy", rule.pk, 2, 1)
    first, second = lane["alerts"]
    assert (first["id"], first["end_ms"], first["acknowledged"]["by"]) == (going.pk, None, str(alpha.owner))
    assert (second["id"], second["lasted_ms"], second["end_reason"]) == (over.pk, 4 * MINUTE_MS, "recovered")
    assert (answer["count"], answer["open"], answer["acknowledged"], answer["is_cut"]) == (2, 1, 1, False)
    assert (answer["mean_to_acknowledge_ms"], answer["mean_to_resolve_ms"]) == (30_000, 4 * MINUTE_MS)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"by": "host"}, ["b", "a"]),
        ({"severity": "critical"}, ["Disk"]),
        ({"matchers": 'host="a"'}, ["CPU is busy"]),
        ({"app": 2**61}, []),
        ({"to_ms": 90_000}, ["CPU is busy"]),
    ],
    ids=str,
)
def test_a_query_chooses(desk: Client, alpha: Tenant, query: dict[str, Any], names: list[str]) -> None:
    alert(rule_of(alpha), MINUTE_MS, host="a")
    alert(rule_of(alpha, name="Disk", severity="critical"), 2 * MINUTE_MS, host="b")
    assert [lane["name"] for lane in read(desk, alpha, **query).json()["lanes"]] == names


@pytest.mark.parametrize("query", [{"to_ms": 0}, {"from_ms": -1}, {"severity": "loud"}, {"matchers": "host"}], ids=str)
def test_what_cannot_be_asked_is_refused(desk: Client, alpha: Tenant, query: dict[str, Any]) -> None:
    assert read(desk, alpha, **query).status_code == 400


def test_without_a_range_the_last_seven_days_are_read(
    desk: Client, alpha: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = 100 * DAY_MS
    monkeypatch.setattr("frontend.api.alerts.incidents._clock", FakeClock(now_ms))
    rule = rule_of(alpha)
    for host, days in (("long ago", -8), ("days ago", -6), ("later", 1)):
        alert(rule, now_ms + days * DAY_MS, host=host)
    answer = desk.get(f"/api/v1/organisations/{alpha.organisation.pk}/incidents").json()
    assert [each["labels"]["host"] for lane in answer["lanes"] for each in lane["alerts"]] == ["days ago"]


def test_a_lane_lists_its_newest_alerts_and_counts_all(
    desk: Client, alpha: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frontend.api.alerts.incidents._ALERTS_MAX", 1)
    rule = rule_of(alpha)
    alert(rule, MINUTE_MS, host="old")
    newest = alert(rule, 2 * MINUTE_MS, host="new")
    [lane] = read(desk, alpha).json()["lanes"]
    assert (lane["count"], [each["id"] for each in lane["alerts"]]) == (2, [newest.pk])


def test_another_organisations_incidents_are_not_found(desk: Client, alpha: Tenant, beta: Tenant) -> None:
    theirs = alert(rule_of(beta), MINUTE_MS)
    assert read(desk, beta).status_code == 404
    assert read(desk, alpha, app=theirs.rule.app_id).json()["lanes"] == []
