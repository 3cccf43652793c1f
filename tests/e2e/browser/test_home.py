"""Pages while somebody works with them: refreshes disturb nobody, and charts can be read by keyboard."""

import re

import pytest
from playwright.sync_api import Page, Route, expect

from tests.e2e.browser.conftest import drawn, log_in, picture
from tests.support.people import Tenant

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PART = ".hosts-live"
REFRESH = f"htmx.trigger(document.querySelector('{PART}'), 'every')"
HOSTS = re.compile(r"/apps/\d+/hosts-part(\?|$)")


def look_at_hosts(page: Page, tenant: Tenant) -> None:
    """Open the table of hosts."""
    log_in(page, tenant)
    page.goto(f"/apps/{tenant.app.pk}/hosts")


def test_a_refresh_keeps_focus_selection_and_what_is_typed(page: Page, fleet: Tenant) -> None:
    look_at_hosts(page, fleet)
    page.get_by_label("Filter hosts").fill("we")
    page.evaluate("getSelection().selectAllChildren(document.querySelector('#host-web-2 th'))")
    page.locator("#host-web-1 a").focus()
    page.evaluate("document.querySelector('#host-web-1').marked = true")
    with page.expect_response(HOSTS):
        page.evaluate(REFRESH)
    page.wait_for_timeout(300)
    assert page.evaluate("document.activeElement.textContent") == "web-1"
    assert page.evaluate("getSelection().toString()").strip() == "web-2"
    assert page.evaluate("document.querySelector('#host-web-1').marked") is True
    expect(page.get_by_label("Filter hosts")).to_have_value("we")


def test_nothing_is_asked_for_while_nobody_looks(page: Page, fleet: Tenant) -> None:
    look_at_hosts(page, fleet)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.evaluate("Object.defineProperty(document, 'hidden', { value: true, configurable: true })")
    page.evaluate(REFRESH)
    page.wait_for_timeout(600)
    assert [url for url in requests if "/static/" not in url] == []
    page.evaluate("Object.defineProperty(document, 'hidden', { value: false, configurable: true })")
    with page.expect_request(HOSTS):
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def test_a_part_that_cannot_be_refreshed_stays_and_says_so(page: Page, fleet: Tenant) -> None:
    def refuse(route: Route) -> None:
        route.fulfill(status=429, body="later", content_type="text/plain")

    look_at_hosts(page, fleet)
    page.route(HOSTS, refuse)
    page.evaluate(REFRESH)
    expect(page.locator(".stale")).to_contain_text("not refreshed for")
    expect(page.get_by_role("row", name=re.compile("web-1"))).to_be_visible()
    picture(page, "overview-stale")
    page.unroute(HOSTS)
    page.evaluate(REFRESH)
    expect(page.locator(".stale")).to_have_count(0)


def test_a_chart_is_read_by_arrow_keys_and_says_what_it_shows(page: Page, fleet: Tenant) -> None:
    log_in(page, fleet)
    page.goto(f"/apps/{fleet.app.pk}/explore?range=1h")
    drawn(page)
    area = page.locator(".chart-area")
    expect(area).to_have_attribute(
        "aria-label", re.compile(r".*4 series, highest [\d.]+\s% \S+ at \d\d:\d\d, 1 with gaps.*")
    )
    area.focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".tip")).to_be_visible()
    last = page.locator(".tip time").inner_text()
    page.keyboard.press("Shift+ArrowLeft")
    assert page.locator(".tip time").inner_text() != last
    expect(page.locator(".visually-hidden[aria-live=polite]")).to_contain_text("worker-1")
    picture(page, "chart-keyboard")
    page.keyboard.press("Escape")
    expect(page.locator(".tip")).to_be_hidden()


def test_a_filter_of_hosts_stands_in_the_address_and_survives_refreshes(page: Page, fleet: Tenant) -> None:
    look_at_hosts(page, fleet)
    page.get_by_label("Filter hosts").fill("web")
    page.get_by_label("Filter hosts").press("Enter")
    page.wait_for_url(re.compile(r"\?q=web"))
    rows = page.locator("#hosts tbody tr")
    expect(rows).to_have_count(2)
    with page.expect_response(HOSTS):
        page.evaluate(REFRESH)
    expect(rows).to_have_count(2)
