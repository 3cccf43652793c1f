"""The pages of what happened, with a past to show: they fit each screen, and axe finds nothing serious on them."""

from collections.abc import Callable
from typing import Any

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page, expect

from alerts import rulebook
from alerts.history.notes import add_note
from alerts.models import Episode, Rule
from alerts.telling import actions
from spm.clock import SystemClock
from spm.events.models import Event
from tests.alerts.conftest import draft
from tests.alerts.noise.past import MINUTE_MS, alert
from tests.e2e.browser.conftest import LOOKS, fits, log_in, show_as
from tests.e2e.browser.test_access import serious_findings
from tests.support.people import Tenant

pytestmark = [pytest.mark.browser, pytest.mark.slow]
HOUR_MS = 60 * MINUTE_MS


def past_of(tenant: Tenant) -> tuple[Rule, Episode]:
    """Write a week of alerts of three rules, some taken and noted, and a deploy; returns a rule and an open alert."""
    now_ms, user = SystemClock().now_ms(), tenant.owner
    rules = [
        rulebook.write(tenant.app, draft(name=name, severity=severity, expr="cpu"), by=user, now_ms=now_ms)
        for name, severity in (("CPU above 85 %", "critical"), ("Disk fills", "warning"), ("Backup is late", "info"))
    ]
    for number, rule in enumerate(rules):
        for hours in (5, 30, 31, 77, 120 + number):
            past: dict[str, Any] = {"minutes": 20 + 200 * number, "host": f"web-{hours}", "end_reason": "recovered"}
            alert(rule, now_ms - hours * HOUR_MS, start_value=91.0, last_value=71.0, **past)
    going = alert(rules[0], now_ms - 2 * HOUR_MS, minutes=None, host="db-1", start_value=96.0, last_value=97.5)
    for episode in Episode.objects.filter(rule=rules[0]):
        if episode.end_ms is None:
            actions.acknowledge_episode(episode, by=user, for_ms=HOUR_MS, now_ms=episode.start_ms + 40 * MINUTE_MS)
    add_note(going, "A batch job of the night still runs; it ends by itself.", by=user, clock=SystemClock())
    Event.objects.create(
        organisation=tenant.organisation, app=tenant.app, kind="deploy", text="api 2.4.1", author="ci", event_id="d",
        at_ms=now_ms - 50 * HOUR_MS, made_ms=now_ms, is_posted=True, link="https://ci.example.org/7",
    )  # fmt: skip
    return rules[0], going


def test_pages_with_a_past_fit_each_screen_and_have_no_serious_finding_of_axe(
    open_page: Callable[..., Page], alpha: Tenant
) -> None:
    rule, going = past_of(alpha)
    page = open_page()
    page.add_init_script(AXE_SCRIPT)
    log_in(page, alpha)
    for name, address in {
        "incidents": "/alerts/incidents",
        "events": "/alerts/events",
        "alert": f"/alerts/{going.pk}",
        "rule-history": f"/alerts/rules/{rule.pk}",
        "rules-history": "/alerts/",
    }.items():
        page.goto(address)
        for lane in page.locator("details.lane > summary").all()[:1]:
            lane.click()
            expect(page.locator("details.lane[open] table")).to_be_visible()
        for look in LOOKS:
            show_as(page, look)
            fits(page, f"{name}-{look}")
            assert serious_findings(page, look) == [], f"{name}, {look}"
        show_as(page, "light")
