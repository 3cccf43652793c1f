"""The pages of help in light, dark and on a phone: they fit, run under the content policy, and keep nobody out."""

from collections.abc import Callable
from pathlib import Path

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from django.core.management import call_command
from playwright.sync_api import Page, expect

from tests.e2e.browser.conftest import LOOKS, fits, log_in, show_as
from tests.e2e.browser.test_access import serious_findings
from tests.support.people import Tenant

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(400)]
PAGES = {
    "home": "/help",
    "search": "/help?q=retract",
    "document": "/help/docs/sending",
    "tables": "/help/docs/protocols",
    "code": "/help/docs/first-steps",
    "api": "/help/api",
    "api-search": "/help/api?q=retract",
    "api-rule": "/help/api/rule_create",
    "api-query": "/help/api/prometheus_api_v1_query_range_get",
}


def test_pages_of_help_fit_each_screen_and_have_no_serious_finding_of_axe(
    open_page: Callable[..., Page], alpha: Tenant
) -> None:
    page = open_page()
    page.add_init_script(AXE_SCRIPT)
    log_in(page, alpha)
    findings = {}
    for name, address in PAGES.items():
        page.goto(address)
        for look in LOOKS:
            show_as(page, look)
            fits(page, f"help-{name}-{look}", full_page=False)
            findings[f"{name}, {look}"] = serious_findings(page, look)
    assert {name: serious for name, serious in findings.items() if serious} == {}


def test_help_is_reached_from_the_bar_and_leads_to_an_operation(page: Page, alpha: Tenant) -> None:
    log_in(page, alpha)
    page.get_by_label("Your account").click()
    page.get_by_role("link", name="Help", exact=True).click()
    page.get_by_role("link", name="First steps").click()
    page.get_by_role("searchbox").fill("percentiles")
    page.keyboard.press("Enter")
    page.locator("a[href='/help/api/percentiles']").click()
    expect(page.locator("#command")).to_contain_text(page.url.partition("/help")[0])


def test_the_site_of_files_is_searched_without_a_server(page: Page, tmp_path: Path) -> None:
    call_command("docs", str(tmp_path), verbosity=0)
    page.add_init_script(AXE_SCRIPT)
    page.goto(f"file://{tmp_path}/index.html")
    fits(page, "help-site", full_page=False)
    page.get_by_role("searchbox").fill("retract samples")
    page.locator("#hits a", has_text="Take wrong data out").click()
    expect(page.get_by_role("heading", name="Operate the product")).to_be_visible()
    for look in LOOKS:
        show_as(page, look)
        fits(page, f"help-site-document-{look}", full_page=False)
        assert serious_findings(page, "dark") == []  # colours: the other rules read styles, which files are not let
