"""Every page for people who do not see or point as others do: axe finds nothing serious, light or dark."""

from collections.abc import Callable
from typing import Any

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page, expect

from alerts.models import Rule
from tests.e2e.browser.conftest import drawn, log_in, show_as
from tests.e2e.browser.test_dashboards import every_kind, save
from tests.e2e.browser.test_look import PAGES
from tests.support.people import Tenant

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(400)]
# What axe looks for; a theme changes colours alone, and a phone sizes. With `preload` it writes sheets into the page.
RULES = {
    "light": "{preload: false, runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']}",
    "dark": "{preload: false, runOnly: {type: 'rule', values: ['color-contrast']}}",
    "narrow": "{preload: false, runOnly: {type: 'rule', values: ['scrollable-region-focusable', 'target-size']}}",
}
MORE_PAGES = {
    "ingestion": ("/apps/{app}/data/ingestion", 0),
    "corrections": ("/apps/{app}/data/corrections", 0),
    "rollups": ("/apps/{app}/data/rollups", 0),
    "retention": ("/apps/{app}/data/retention", 0),
    "hosts-grouped": ("/apps/{app}/hosts?by=region&q=web", 0),
    "no-host": ("/apps/{app}/hosts/db-9", 0),
    "active": ("/alerts/active", 0),
    "events": ("/alerts/events", 0),
    "policies": ("/alerts/policies", 0),
    "windows": ("/alerts/windows", 0),
    "incidents": ("/alerts/incidents", 0),
    "rule": ("/alerts/rules/{rule}", 0),
    "members": ("/org/{organisation}/settings/members", 0),
    "apps": ("/org/{organisation}/settings/apps", 0),
    "tokens": ("/org/{organisation}/settings/tokens", 0),
    "usage": ("/org/{organisation}/settings/usage", 0),
    "audit": ("/org/{organisation}/settings/audit", 0),
    "general": ("/org/{organisation}/settings/general", 0),
    "dashboards": ("/apps/{app}/dashboards", 0),
    "dashboard": ("/apps/{app}/dashboards/{dashboard}?range=1h", 8),
    "dashboard-edit": ("/apps/{app}/dashboards/{dashboard}/edit", 0),
    "dashboard-panel": ("/apps/{app}/dashboards/{dashboard}/panels/5", 1),
    "dashboard-settings": ("/apps/{app}/dashboards/{dashboard}/settings", 0),
    "dashboard-variables": ("/apps/{app}/dashboards/{dashboard}/variables", 0),
    "dashboard-import": ("/apps/{app}/dashboards/import", 0),
    "security": ("/account/security", 0),
    "sessions": ("/account/sessions", 0),
}
SERIOUS = ("serious", "critical")


def serious_findings(page: Page, look: str = "light") -> list[str]:
    """What axe calls serious or critical: the rule, and the first element that breaks it."""
    violations: list[dict[str, Any]] = page.evaluate(f"axe.run(document, {RULES[look]})")["violations"]
    return [f"{each['id']}: {each['nodes'][0]['html'][:140]}" for each in violations if each["impact"] in SERIOUS]


def test_no_page_has_a_serious_finding_of_axe(open_page: Callable[..., Page], fleet: Tenant) -> None:
    rule = Rule.objects.create(app=fleet.app, name="CPU is busy", expr="x", created_ms=1, changed_ms=1)
    uid = save(fleet, every_kind()).rpartition("/")[2]
    values = {"app": fleet.app.pk, "organisation": fleet.organisation.pk, "rule": rule.pk, "dashboard": uid}
    page = open_page()
    page.add_init_script(AXE_SCRIPT)
    log_in(page, fleet)
    findings = {}
    for name, (address, charts) in {**PAGES, **MORE_PAGES}.items():
        page.goto(address.format(**values))
        drawn(page, min(charts, 1))
        expect(page.locator(".htmx-request")).to_have_count(0)  # parts that are being loaded are faint
        for look in ("light", "dark"):
            show_as(page, look)
            findings[f"{name}, {look}"] = serious_findings(page, look)
        show_as(page, "light")
    assert {name: serious for name, serious in findings.items() if serious} == {}


def test_menus_palette_and_drawer_have_no_serious_finding_of_axe(open_page: Callable[..., Page], fleet: Tenant) -> None:
    page = open_page()
    page.add_init_script(AXE_SCRIPT)
    log_in(page, fleet)
    drawn(page)
    page.locator("summary", has_text="Time range").click()
    assert serious_findings(page) == []
    page.keyboard.press("Escape")
    page.get_by_label("Your account").click()
    assert serious_findings(page) == []
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    expect(page.locator(".palette [role=option]").first).to_be_visible()
    assert serious_findings(page) == []
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("heading", name="Keyboard shortcuts")).to_be_visible()
    assert serious_findings(page) == []
