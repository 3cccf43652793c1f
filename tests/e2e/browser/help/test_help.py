"""The pages of help in light, dark and on a phone: they fit, run under the content policy, and keep nobody out."""

from collections.abc import Callable
from pathlib import Path

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from django.core.management import call_command
from playwright.sync_api import Page, expect

from tests.e2e.browser.conftest import log_in, picture
from tests.e2e.browser.test_access import RULES, serious_findings
from tests.e2e.browser.test_look import LOOKS
from tests.support.people import Tenant

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(180)]
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


@pytest.mark.parametrize("look", LOOKS)
def test_pages_of_help_fit_and_have_no_serious_finding_of_axe(
    look: str, open_page: Callable[..., Page], alpha: Tenant
) -> None:
    page = open_page(**LOOKS[look])
    page.add_init_script(AXE_SCRIPT)
    log_in(page, alpha)
    findings = {}
    for name, address in PAGES.items():
        page.goto(address)
        picture(page, f"help-{name}-{look}", full_page=False)
        assert not page.evaluate("document.documentElement.scrollWidth > innerWidth"), f"{name} is too wide"
        findings[name] = serious_findings(page, look if look in RULES else "light")
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


@pytest.mark.parametrize("look", LOOKS)
def test_the_site_of_files_is_searched_without_a_server(
    look: str, open_page: Callable[..., Page], tmp_path: Path
) -> None:
    call_command("docs", str(tmp_path), verbosity=0)
    page = open_page(**LOOKS[look])
    page.add_init_script(AXE_SCRIPT)
    page.goto(f"file://{tmp_path}/index.html")
    picture(page, f"help-site-{look}", full_page=False)
    page.get_by_role("searchbox").fill("retract samples")
    page.locator("#hits a", has_text="Take wrong data out").click()
    expect(page.get_by_role("heading", name="Operate the product")).to_be_visible()
    assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
    assert serious_findings(page, "dark") == []  # colours: the other rules read styles, which files are not let
