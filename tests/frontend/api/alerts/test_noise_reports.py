"""Noise reports by REST: the list, one with its rules, the last seven days, and who gets them by mail."""

from typing import Any

import pytest
from django.test import Client

from alerts import rulebook
from alerts.models.noise import NoiseReport, NoisyRule
from alerts.models.telling import ContactPoint
from spm.clock import SystemClock
from tests.alerts.conftest import draft
from tests.alerts.noise.past import alert, notified
from tests.support.people import Tenant

pytestmark = pytest.mark.django_db


def path_of(tenant: Tenant, rest: str = "") -> str:
    return f"/api/v1/organisations/{tenant.organisation.pk}/noise-reports{rest}"


def report_of(tenant: Tenant, to_ms: int = 7) -> NoiseReport:
    rule = rulebook.write(tenant.app, draft(), by=tenant.owner, now_ms=1)
    counts = {"rules": 1, "alerts": 4, "notifications": 8, "unattended": 2, "flaps": 1}
    report = NoiseReport.objects.create(
        organisation=tenant.organisation, from_ms=0, to_ms=to_ms, made_ms=to_ms, **counts
    )
    effects = [{"for_ms": 60_000, "episodes": 1, "notifications": 2}]
    NoisyRule.objects.create(report=report, rule=rule, tried_notifications=8, effects=effects, notifications=8)
    return report


def test_reports_are_listed_newest_first(desk: Client, alpha: Tenant) -> None:
    reports = [report_of(alpha, to_ms) for to_ms in (7, 14)]
    page: Any = desk.get(path_of(alpha, "?limit=1")).json()
    assert (page["noise_reports"][0]["id"], page["next"]) == (reports[1].pk, reports[1].pk)


def test_one_report_has_its_rules_and_what_a_longer_for_had_saved(desk: Client, alpha: Tenant) -> None:
    report = report_of(alpha)
    answer: Any = desk.get(path_of(alpha, f"/{report.pk}")).json()
    [rule] = answer["rules"]
    assert (answer["report"]["notifications"], rule["name"], rule["app"]) == (8, "CPU is busy", alpha.app.pk)
    assert rule["saving"] == rule["effects"][0] == {"for_ms": 60_000, "episodes": 1, "notifications": 2}


def test_the_last_seven_days_are_counted(desk: Client, alpha: Tenant) -> None:
    rule = rulebook.write(alpha.app, draft(), by=alpha.owner, now_ms=1)
    notified(alert(rule, SystemClock().now_ms() - 60_000, minutes=None))
    answer: Any = desk.get(path_of(alpha, "/now")).json()
    assert (answer["report"]["id"], answer["report"]["notifications"]) == (None, 1)
    assert [(each["rule"], each["saving"]) for each in answer["rules"]] == [(rule.pk, None)]


def test_the_schema_says_that_only_stored_reports_have_a_number(desk: Client) -> None:
    schemas: Any = desk.get("/api/v1/schema?format=json").json()["components"]["schemas"]
    number = schemas["NoiseReport"]["properties"]["id"]
    assert number.get("nullable") or "null" in number["type"]


def test_a_report_of_another_organisation_is_not_found(desk: Client, alpha: Tenant, beta: Tenant) -> None:
    report = report_of(beta)
    assert desk.get(path_of(alpha, f"/{report.pk}")).status_code == 404
    assert desk.get(path_of(beta, f"/{report.pk}")).status_code in (403, 404)


def test_a_contact_point_asks_for_the_report_until_it_says_otherwise(desk: Client, alpha: Tenant) -> None:
    path = f"/api/v1/organisations/{alpha.organisation.pk}/contact-points"
    wanted = []
    for extra in ({"wants_report": True}, {}, {"wants_report": False}):
        body = {"name": "On call", "receivers": ["ops@example.org"], **extra}
        wanted.append(desk.post(path, body, content_type="application/json").json()["wants_report"])
    assert wanted == [True, True, False]
    assert not ContactPoint.objects.get().wants_report
