"""A person's journey in a real browser: log in, read charts, zoom, return, send data."""

import re
import subprocess

import pytest
from playwright.sync_api import Page, Route, expect

from spm.clock import SystemClock
from tests.e2e.browser.conftest import drawn, log_in, picture
from tests.support import sample_app
from tests.support.people import Tenant

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def points(page: Page) -> int:
    """How many values the first chart shows."""
    return int(page.locator("[data-chart]").first.get_attribute("data-points") or 0)


def painted(page: Page) -> int:
    """How many pixels of the first chart's canvas are not empty."""
    return int(
        page.evaluate("""() => {
        const canvas = document.querySelector(".uplot canvas");
        const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        let count = 0;
        for (let at = 3; at < pixels.length; at += 4) if (pixels[at]) count += 1;
        return count;
    }""")
    )


def drag(page: Page, start: float, end: float) -> None:
    """Drag over the first chart, from one share of its width to another."""
    box = page.locator(".u-over").first.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * start, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * end, middle, steps=8)
    page.mouse.up()


def series_of(page: Page) -> str:
    """The legend's text."""
    return page.locator(".legend").first.inner_text()


def test_the_overview_shows_hosts_and_leads_to_their_charts(page: Page, fleet: Tenant) -> None:
    log_in(page, fleet)
    drawn(page)
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Hosts", exact=True).click()
    expect(page.get_by_role("row", name=re.compile("db-1.*up"))).to_be_visible()
    page.get_by_role("link", name="db-1").click()
    expect(page.get_by_role("heading", name="db-1")).to_be_visible()
    drawn(page, 10)


def test_the_chart_page_paints_every_series_with_its_points(page: Page, fleet: Tenant) -> None:
    log_in(page, fleet)
    page.goto(f"/apps/{fleet.app.pk}/explore?range=1h")
    drawn(page)
    assert all(host in series_of(page) for host in sample_app.HOSTS)
    assert points(page) > 1200
    assert painted(page) > 5000


def test_dragging_zooms_and_the_address_keeps_it_over_a_reload(page: Page, fleet: Tenant) -> None:
    log_in(page, fleet)
    page.goto(f"/apps/{fleet.app.pk}/explore?range=1h")
    drawn(page)
    drag(page, 0.25, 0.75)
    page.wait_for_url(re.compile(r"from=\d+&to=\d+"))
    page.wait_for_load_state("networkidle")
    drawn(page)
    address, legend, shown = page.url, series_of(page), points(page)
    picture(page, "chart-zoomed")
    page.reload()
    drawn(page)
    assert (page.url, series_of(page), points(page)) == (address, legend, shown)


def test_a_double_click_and_the_back_button_leave_the_zoom(page: Page, fleet: Tenant) -> None:
    log_in(page, fleet)
    page.goto(f"/apps/{fleet.app.pk}/explore?range=6h")
    drawn(page)
    drag(page, 0.8, 0.95)
    page.wait_for_url(re.compile("from="))
    drawn(page)
    page.locator(".u-over").dblclick()
    page.wait_for_url(re.compile(r"range=6h$"))
    page.go_back()
    page.wait_for_url(re.compile("from="))
    drawn(page)


def test_a_metric_and_a_label_picked_draw_one_series(page: Page, fleet: Tenant) -> None:
    log_in(page, fleet)
    page.goto(f"/apps/{fleet.app.pk}/explore")
    drawn(page)
    page.get_by_label("Metric").fill("net_bytes_recv")
    page.get_by_label("Metric").press("Tab")
    for at, (label, value) in enumerate((("host", "web-1"), ("interface", "eth1")), 1):
        page.get_by_role("button", name="+ Filter").click()
        page.get_by_label(f"Label of filter {at} of A").fill(label)
        page.get_by_label(f"Value of filter {at} of A").fill(value)
        page.get_by_label(f"Value of filter {at} of A").press("Tab")
    expect(page.get_by_label("PromQL expression")).to_have_value(
        'rate(net_bytes_recv{host="web-1",interface="eth1"}[$__rate_interval])'
    )
    expect(page.locator(".legend button[aria-pressed]")).to_have_count(1)
    drawn(page)
    picture(page, "chart-picked")


def test_a_filter_that_is_added_while_labels_arrive_stays(page: Page, fleet: Tenant) -> None:
    log_in(page, fleet)
    page.goto(f"/apps/{fleet.app.pk}/explore")
    drawn(page)
    waiting: list[Route] = []
    page.route(re.compile(r"/apps/\d+/labels"), lambda route: waiting.append(route))
    page.get_by_label("Metric").fill("net_bytes_recv")
    page.get_by_label("Metric").press("Tab")
    page.get_by_role("button", name="+ Filter").click()
    page.wait_for_timeout(200)
    assert waiting
    for route in waiting:
        route.continue_()
    expect(page.get_by_label("PromQL expression")).to_have_value("rate(net_bytes_recv[$__rate_interval])")
    expect(page.get_by_label("Label of filter 1 of A")).to_be_visible()


def test_a_silent_host_leaves_a_gap_in_its_line(page: Page, fleet: Tenant) -> None:
    log_in(page, fleet)
    page.goto(f"/apps/{fleet.app.pk}/explore?range=1h&expr=last_over_time(cpu_usage_total{{host='db-1'}}[$window])")
    drawn(page)
    assert 260 < points(page) < 300  # of 361, while 15 minutes are silent and a window holds one
    expect(page.locator(".chart-area")).to_have_attribute("aria-label", re.compile("1 with gaps"))


@pytest.mark.parametrize(
    ("expr", "state", "place", "text"),
    [
        ("cpu_usage_totl", "empty", ".chart-veil", "No metric is called cpu_usage_totl. Did you mean cpu_usage_total"),
        ("sum(", "error", "#expr-error", "1:5: parse error: unexpected end of input"),
    ],
    ids=["an unknown metric", "a broken expression"],
)
def test_a_chart_without_data_says_why(page: Page, fleet: Tenant, expr: str, state: str, place: str, text: str) -> None:
    log_in(page, fleet)
    page.goto(f"/apps/{fleet.app.pk}/explore?expr={expr}")
    expect(page.locator("[data-chart]")).to_have_attribute("data-state", state)
    expect(page.locator(place)).to_contain_text(text)
    picture(page, f"chart-{state}")


def test_new_samples_appear_without_a_reload(page: Page, alpha: Tenant, own_store: str) -> None:
    log_in(page, alpha)
    expect(page.get_by_text("Nothing has reported yet")).to_be_visible()
    picture(page, "overview-empty")
    sample_app.fill(own_store, alpha.app.pk, now_ms=SystemClock().now_ms(), span_ms=600_000)
    expect(page.get_by_role("link", name="of 4 hosts up")).to_be_visible(timeout=20_000)
    drawn(page)


def test_the_send_page_gives_a_command_that_works_as_pasted(page: Page, alpha: Tenant) -> None:
    log_in(page, alpha)
    page.get_by_role("link", name="Add data").first.click()
    page.get_by_label("Name").fill("kitchen")
    page.get_by_role("button", name="Create a token").click()
    command = page.locator("#curl").text_content() or ""
    picture(page, "send-token")
    process = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=30, check=True)
    assert re.match(r"HTTP/1.1 20[24]", process.stdout), process.stdout
    page.goto(f"/apps/{alpha.app.pk}/explore?range=15m&expr=room_temperature")
    drawn(page)
    assert "21.5" in series_of(page)


def test_a_token_just_made_is_not_shown_again(page: Page, alpha: Tenant) -> None:
    log_in(page, alpha)
    page.goto(f"/apps/{alpha.app.pk}/add-data")
    page.get_by_role("button", name="Create a token").click()
    secret = page.locator("#secret").inner_text()
    page.goto(f"/apps/{alpha.app.pk}/add-data")
    assert secret not in page.content()
    assert "YOUR_TOKEN" in (page.locator("#curl").text_content() or "")
