"""The page for sending data, by keyboard alone: a method unfolds, and its first data appears by itself."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from spm.clock import SystemClock
from tests.e2e.browser.conftest import DRAWN_MS, log_in, picture
from tests.support import notes
from tests.support.people import Tenant

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.mark.parametrize("width", [1360, 390])
def test_the_first_data_of_a_method_appears_by_itself(
    open_page: Callable[..., Page], alpha: Tenant, width: int
) -> None:
    page = open_page(width=width, dark=width < 400)
    page.set_default_timeout(DRAWN_MS)
    log_in(page, alpha)
    page.goto(f"/apps/{alpha.app.pk}/add-data")
    page.locator("summary", has_text="Telegraf").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#telegraf")).to_be_visible()
    expect(page.locator("#curl")).to_be_hidden()
    expect(page.locator("#arrival-telegraf")).to_be_hidden()
    notes.see_arrival(alpha.app.pk, "telegraf", "web-1", SystemClock().now_ms())
    expect(page.locator("#arrival-telegraf")).to_have_text("first data received ✓", timeout=20_000)
    expect(page.locator("#arrivals")).to_contain_text("Telegraf from web-1")
    expect(page.locator("#telegraf")).to_be_visible()
    picture(page, f"send-arrival-{width}")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_missing_messages_of_a_source_are_on_the_overview(page: Page, fleet: Tenant) -> None:
    now = SystemClock().now_ms()
    notes.see_source(fleet.app.pk, "web-1", now, period_ms=10_000)
    log_in(page, fleet)
    page.locator("[hx-get$=completeness]").evaluate("part => part.scrollIntoView()")  # out of sight it is not asked for
    expect(page.get_by_role("heading", name="Completeness")).to_be_visible(timeout=20_000)
    picture(page, "overview-completeness")
