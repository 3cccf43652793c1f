"""What every page has: navigation that fits phones, a theme, a palette, keys, and refreshes that disturb nobody."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from alerts.models import Rule
from tests.e2e.browser.conftest import drawn, log_in, picture
from tests.support.people import Tenant

pytestmark = [pytest.mark.browser, pytest.mark.slow]
BACKDROP = "getComputedStyle(document.documentElement).getPropertyValue('--backdrop')"


def test_a_theme_is_taken_at_once_by_charts_too_and_stays(page: Page, fleet: Tenant) -> None:
    log_in(page, fleet)
    drawn(page, 2)
    light = page.evaluate(BACKDROP)
    line = page.locator(".legend i").first
    before = line.evaluate("each => getComputedStyle(each).borderTopColor")
    page.get_by_label("Your account").click()
    page.get_by_role("button", name="Dark").click()
    assert page.evaluate(BACKDROP) != light
    expect(line).not_to_have_css("border-top-color", before)
    page.reload()
    assert page.evaluate(BACKDROP) != light
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    picture(page, "theme-dark-on-a-light-system", full_page=False)


def test_at_1024_pixels_the_bar_has_room_for_all_sections(open_page: Callable[..., Page], fleet: Tenant) -> None:
    page = open_page(width=1024)
    log_in(page, fleet)
    nav = page.locator(".bar nav")
    assert nav.evaluate("nav => nav.scrollWidth <= nav.clientWidth")


def test_on_a_phone_the_navigation_stands_at_the_bottom_and_leads_to_all_pages(
    open_page: Callable[..., Page], fleet: Tenant
) -> None:
    page = open_page(width=390, height=844)
    log_in(page, fleet)
    bar = page.get_by_label("Main")
    box = bar.bounding_box()
    assert box is not None
    assert (box["y"] + box["height"], box["height"] >= 48) == (844, True)
    bar.get_by_text("More").click()
    picture(page, "phone-more", full_page=False)
    bar.get_by_role("link", name="Data", exact=True).click()
    page.wait_for_url("**/data/sources")
    page.get_by_role("navigation", name="Data").get_by_role("link", name="Retention").click()
    page.wait_for_url("**/data/retention")


def test_a_refresh_of_the_rules_keeps_the_focus_and_pauses_while_nobody_looks(page: Page, fleet: Tenant) -> None:
    Rule.objects.create(app=fleet.app, name="CPU is busy", expr="x", created_ms=1, changed_ms=1)
    log_in(page, fleet)
    page.goto("/alerts/")
    page.get_by_role("link", name="CPU is busy").focus()
    with page.expect_response(re.compile("/alerts/")):
        page.evaluate("htmx.trigger(document.querySelector('#live'), 'every')")
    page.wait_for_timeout(300)
    assert page.evaluate("document.activeElement.textContent") == "CPU is busy"
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.evaluate("Object.defineProperty(document, 'hidden', { value: true, configurable: true })")
    page.evaluate("htmx.trigger(document.querySelector('#live'), 'every')")
    page.wait_for_timeout(400)
    assert requests == []


CONTEXTS = [
    ("cpu_us", {"kind": "name", "from": 0, "text": "cpu_us"}),
    ("rate(net", {"kind": "name", "from": 5, "text": "net"}),
    ("up{", {"kind": "label", "from": 3, "text": "", "metric": "up"}),
    ('up{host="a", ro', {"kind": "label", "from": 13, "text": "ro", "metric": "up"}),
    ('up{host=~"we', {"kind": "value", "from": 10, "text": "we", "metric": "up", "label": "host"}),
    ("sum by (ho", {"kind": "label", "from": 8, "text": "ho", "metric": ""}),
    ('label_replace(up, "ho', None),
    ("up[5m", None),
]


@pytest.mark.parametrize(("text", "context"), CONTEXTS, ids=[text for text, _ in CONTEXTS])
def test_what_may_stand_at_the_caret_is_known(text: str, context: dict[str, object] | None, page: Page) -> None:
    page.goto("/login")
    script = "(text) => import('/static/js/complete.js').then((each) => each.contextOf(text, text.length))"
    assert page.evaluate(script, text) == context


def test_an_expression_is_completed_by_keyboard(page: Page, fleet: Tenant) -> None:
    log_in(page, fleet)
    page.goto(f"/apps/{fleet.app.pk}/explore?range=1h")
    field, offers = page.get_by_label("PromQL expression"), page.get_by_label("Completions").get_by_role("option")
    field.fill("")
    field.press_sequentially("cpu_usage_st")
    expect(offers).to_have_text(["cpu_usage_stealmetric"])
    field.press("Tab")
    field.press_sequentially("{ho")
    expect(offers).to_have_text(["host"])
    field.press("ArrowDown")
    field.press("Enter")
    field.press_sequentially('="WEB')
    expect(offers).to_have_text(["web-1", "web-2"])
    picture(page, "explore-completion", full_page=False)
    field.press("ArrowDown")
    field.press("ArrowDown")
    field.press("Enter")
    field.press_sequentially("}")
    expect(field).to_have_value('cpu_usage_steal{host="web-2"}')
    field.press("Enter")
    page.wait_for_url(re.compile("expr=cpu_usage_steal"))
    drawn(page)
