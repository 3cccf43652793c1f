"""The page of noise: the report of a week, the last seven days, and who gets the report by mail."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.test import Client

from alerts.models import Rule
from alerts.models.noise import NoiseReport, NoisyRule
from alerts.models.telling import ContactPoint
from alerts.noise import limits
from alerts.telling import actions
from spm.accounts.models import App, AuditEntry
from spm.clock import SystemClock
from tests.alerts.conftest import START_MS
from tests.alerts.noise.past import alert, notified

pytestmark = pytest.mark.django_db
MakeRule = Callable[..., Rule]


def report_of(rule: Rule) -> NoiseReport:
    """A report of a week, in which the rule notified most."""
    report = NoiseReport.objects.create(
        organisation=rule.app.organisation,
        from_ms=START_MS,
        to_ms=START_MS + limits.WEEK_MS,
        made_ms=START_MS,
        rules=1,
        alerts=38,
        notifications=41,
        unattended=30,
        flaps=0,
    )
    effects = [{"for_ms": 600_000, "episodes": 2, "notifications": 3}]
    numbers = {"alerts": 38, "notifications": 41, "unattended": 30}
    NoisyRule.objects.create(report=report, rule=rule, tried_notifications=40, effects=effects, **numbers)
    return report


def test_the_page_shows_the_last_report_and_what_a_longer_for_had_saved(
    login: Callable[[str], Client], make_rule: MakeRule
) -> None:
    report_of(make_rule())
    page = login("vera").get("/alerts/noise").content.decode()
    assert "<strong>10m</strong>: 3 instead of 40 notifications each" in page
    assert "Try it" not in page  # a viewer does not write rules
    assert "None of this kind" in login("vera").get("/alerts/noise?by=flaps").content.decode()


def test_the_last_seven_days_are_counted_when_they_are_asked_for_or_no_report_is_there(
    login: Callable[[str], Client], make_rule: MakeRule
) -> None:
    rule = make_rule()
    notified(alert(rule, SystemClock().now_ms() - 3_600_000))
    pages = [login("vera").get("/alerts/noise").context["report"]]
    report_of(rule)
    pages.append(login("vera").get("/alerts/noise?report=now").context["report"])
    assert [(page.pk, page.notifications, page.alerts) for page in pages] == [(None, 1, 1)] * 2


@pytest.mark.parametrize("name", ["mallory", "vera"])
def test_a_report_of_another_organisation_or_none_is_not_found(
    login: Callable[[str], Client], foreign_app: App, make_rule: MakeRule, name: str
) -> None:
    report = report_of(make_rule())
    number = report.pk if name == "mallory" else report.pk + 1
    assert login(name).get(f"/alerts/noise?report={number}").status_code == 404
    assert login(name).get(f"/alerts/noise?report={'9' * 30}").status_code == 200


def test_an_admin_has_the_report_mailed_to_a_contact_point(
    login: Callable[[str], Client], app: App, people: dict[str, User]
) -> None:
    point = actions.add_contact_point(app.organisation, "Ops", ("a@example.org",), by=people["olga"], now_ms=1)
    address = f"/alerts/contact-points/{point.pk}/report"
    assert login("edda").post(address, {"wants": "yes"}).status_code == 403
    for wants in ("yes", "no"):
        login("olga").post(address, {"wants": wants})
        assert ContactPoint.objects.get().wants_report == (wants == "yes")
    acts = AuditEntry.objects.filter(action__startswith="contact-point.").values_list("action", flat=True)
    assert {"contact-point.report", "contact-point.no-report"} <= set(acts)


def test_a_contact_point_of_another_organisation_is_not_found(
    login: Callable[[str], Client], app: App, foreign_app: App, people: dict[str, User]
) -> None:
    point = actions.add_contact_point(app.organisation, "Ops", ("a@example.org",), by=people["olga"], now_ms=1)
    assert login("mallory").post(f"/alerts/contact-points/{point.pk}/report", {"wants": "yes"}).status_code == 404
