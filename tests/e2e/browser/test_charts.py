"""What charts say about their numbers, what people can do with them, and what they ask the server for."""

import json
import re
from collections.abc import Callable

import pytest
from django.test import Client
from playwright.sync_api import Page, Request, expect

from alerts.models import Episode, Rule
from rollups.models import Correction
from spm.clock import SystemClock, moment
from tests.e2e.browser.conftest import drawn, log_in, picture
from tests.support.people import Tenant

pytestmark = [pytest.mark.browser, pytest.mark.slow]

HOUR = 3_600_000
BATCH = re.compile(r"/api/v1/charts/batch$")


@pytest.fixture
def eventful(fleet: Tenant, client: Client) -> Tenant:
    """The fleet after an alert, a retraction and samples that came late."""
    now = SystemClock().now_ms()
    rule = Rule.objects.create(
        app=fleet.app, name="CPU above 40", expr="cpu_usage_total", threshold=40, created_ms=now, changed_ms=now
    )
    Episode.objects.create(
        rule=rule,
        fingerprint="x",
        labels={"host": "web-1"},
        severity="warning",
        start_ms=now - 1_000_000,
        end_ms=now - 700_000,
        status="ended",
        created_ms=now,
        changed_ms=now,
    )
    Correction.objects.create(
        app=fleet.app, hour=moment(now // HOUR * HOUR - HOUR), run=7, cause="late", samples=31, at=moment(now - 60_000)
    )
    client.force_login(fleet.owner)
    body = {"series": '{host="web-2"}', "data_from": now - 1_900_000, "data_to": now - 1_600_000, "reason": "a test"}
    response = client.post(
        f"/api/v1/apps/{fleet.app.pk}/retractions", json.dumps(body), content_type="application/json"
    )
    assert response.status_code < 300
    return fleet


def explore(page: Page, tenant: Tenant, expr: str = "cpu_usage_total", more: str = "") -> None:
    """Open a chart of an hour."""
    page.goto(f"/apps/{tenant.app.pk}/explore?range=1h&expr={expr}{more}")
    drawn(page)


def click_at(page: Page, share: float) -> None:
    """Click into the first chart, at a share of its width."""
    box = page.locator(".u-over").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * share, box["y"] + 90, steps=3)
    page.mouse.click(box["x"] + box["width"] * share, box["y"] + 90)


def test_a_chart_says_where_its_numbers_are_not_sure(open_page: Callable[..., Page], eventful: Tenant) -> None:
    for dark in (False, True):
        page = open_page(dark=dark)
        log_in(page, eventful)
        explore(page, eventful)
        note = page.locator(".chart-note")
        expect(note).to_contain_text("1 retraction")
        expect(note).to_contain_text("31 late samples")
        click_at(page, 0.51)  # half an hour ago: within the retracted range
        tip = page.locator(".tip")
        expect(tip).to_contain_text("retracted by")
        expect(tip).to_contain_text("“a test”")
        picture(page, f"chart-unsure-{'dark' if dark else 'light'}")


def test_a_pinned_time_offers_what_can_be_done_there(page: Page, eventful: Tenant) -> None:
    log_in(page, eventful)
    explore(page, eventful, 'rate(net_bytes_recv{host="web-2"}[$__rate_interval])')
    click_at(page, 0.51)
    acts = page.locator(".tip.pinned .acts")
    expect(acts.get_by_role("link", name="New rule")).to_have_attribute("href", re.compile(r"\?expr=rate%28net"))
    retract = acts.get_by_role("link", name="Retract…").get_attribute("href")
    acts.get_by_role("button", name="Explain").click()
    drawer = page.locator("dialog.drawer")
    expect(drawer).to_contain_text("raw samples")
    expect(drawer).to_contain_text("a test")
    picture(page, "chart-explained", full_page=False)
    page.keyboard.press("Escape")
    expect(drawer).to_have_count(0)
    page.goto(retract or "")
    expect(page.locator("[name=series]")).to_have_value('net_bytes_recv{host="web-2"}')
    expect(page.locator("[name=data_from]")).not_to_have_value("")


def test_a_page_asks_once_for_all_its_charts_and_then_for_what_is_new(
    open_page: Callable[..., Page], fleet: Tenant
) -> None:
    requests: list[Request] = []
    page = open_page(height=1600)  # all charts are in sight
    log_in(page, fleet)
    page.on("request", lambda request: requests.append(request) if BATCH.search(request.url) else None)
    page.goto(f"/apps/{fleet.app.pk}/hosts/web-1?range=1h&refresh=5")
    drawn(page, 10)
    assert 10 in {len(json.loads(request.post_data or "")["panels"]) for request in requests}
    with page.expect_request_finished(lambda request: bool(BATCH.search(request.url)), timeout=15_000) as finished:
        pass
    panels = json.loads(finished.value.post_data or "")["panels"]
    assert all("since" in panel for panel in panels)
    sizes = finished.value.sizes()
    assert sizes["responseBodySize"] + sizes["responseHeadersSize"] < 20_000


def test_nothing_is_asked_for_charts_out_of_sight(open_page: Callable[..., Page], fleet: Tenant) -> None:
    requests: list[Request] = []
    page = open_page(width=390, height=500)
    log_in(page, fleet)
    page.on("request", lambda request: requests.append(request) if BATCH.search(request.url) else None)
    page.goto(f"/apps/{fleet.app.pk}/hosts/web-1?range=1h")
    drawn(page)
    assert len(json.loads(requests[0].post_data or "")["panels"]) < 6
    page.locator("[data-chart]").last.scroll_into_view_if_needed()
    expect(page.locator("[data-chart]").last).to_have_attribute("data-state", "drawn")


@pytest.mark.parametrize(
    ("since", "until", "address"),
    [
        ("now-2h", "now", r"from=now-2h&to=now"),
        ("2026-11-20 10:00", "2026-11-20 11:30", r"from=1795168800000&to=1795174200000"),
        ("2026-11-20T10:00Z to 2026-11-20T11:30Z", "", r"from=1795168800000&to=1795174200000"),
    ],
    ids=["relative", "a date", "a pasted pair"],
)
def test_a_range_is_typed_and_stands_in_the_address(
    page: Page, fleet: Tenant, since: str, until: str, address: str
) -> None:
    log_in(page, fleet)
    explore(page, fleet, more="&tz=utc")
    page.locator(".range-menu summary").click()
    page.get_by_label("From").fill("nonsense")
    page.get_by_role("button", name="Apply").click()
    expect(page.locator("#range-error")).to_contain_text("“nonsense” is no time")
    picture(page, "range-open", full_page=False)
    page.get_by_label("From").fill(since)
    page.get_by_label("To", exact=True).fill(until)
    page.get_by_role("button", name="Apply").click()
    page.wait_for_url(re.compile(address))
    expect(page.locator("[data-zone-text]")).to_have_text("UTC")


def test_a_chart_is_compared_with_the_hour_before(page: Page, fleet: Tenant) -> None:
    log_in(page, fleet)
    explore(page, fleet, more="&compare=previous")
    expect(page.locator(".chart-note")).to_contain_text("dotted: 1 h before")
    picture(page, "chart-compared")


def test_a_click_on_a_name_leaves_one_line_and_columns_sort(page: Page, fleet: Tenant) -> None:
    log_in(page, fleet)
    explore(page, fleet)
    page.locator(".legend button[data-name='web-1']").click()
    expect(page.locator(".legend button[aria-pressed=true]")).to_have_count(1)
    page.locator(".legend button[data-name='web-1']").click()
    expect(page.locator(".legend button[aria-pressed=true]")).to_have_count(4)
    page.locator(".legend").get_by_role("button", name="max").click()
    expect(page.locator(".legend tbody tr").first).not_to_contain_text("db-1")
    page.locator(".legend").get_by_role("button", name="max").click()
    expect(page.locator(".legend tbody tr").first).to_contain_text("db-1")


def test_keys_alone_lead_from_home_to_the_values_of_a_disk(page: Page, fleet: Tenant) -> None:
    log_in(page, fleet)
    drawn(page, 2)
    page.keyboard.press("g")
    page.keyboard.press("o")
    page.wait_for_url(re.compile("/hosts$"))
    page.keyboard.press("j")
    expect(page.locator("a:focus")).to_have_text("db-1")
    page.keyboard.press("Enter")
    drawn(page, 10)
    page.get_by_label(re.compile("^Disk space used:")).focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowDown")
    expect(page.locator(".tip:visible .nearest")).to_contain_text("/")
    page.keyboard.press("p")
    expect(page.locator(".tip.pinned a:focus")).to_have_text("Explore")
    page.keyboard.press("Escape")
    expect(page.locator(".tip.pinned")).to_have_count(0)


def test_the_palette_finds_hosts_metrics_and_pages(page: Page, fleet: Tenant) -> None:
    log_in(page, fleet)
    page.keyboard.press("Control+k")
    page.keyboard.type("web-1")
    option = page.get_by_role("option", name="web-1")
    expect(option).to_have_attribute("aria-selected", "true")
    picture(page, "palette", full_page=False)
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/hosts/web-1"))
    page.keyboard.press("/")
    page.keyboard.type("net_bytes_r")
    expect(page.get_by_role("option", name="net_bytes_recv")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)
    page.keyboard.press("g")
    page.keyboard.press("e")
    page.wait_for_url(re.compile("/(chart|explore)"))
    page.keyboard.press("?")
    expect(page.get_by_role("heading", name="Keyboard shortcuts")).to_be_visible()
    picture(page, "keys", full_page=False)


def test_a_server_that_refuses_leaves_the_picture_and_says_how_old_it_is(page: Page, fleet: Tenant) -> None:
    log_in(page, fleet)
    explore(page, fleet, more="&refresh=2")
    page.route(BATCH, lambda route: route.fulfill(status=429, body=json.dumps({"error": "too many queries"})))
    expect(page.locator(".stale-chip")).to_contain_text("not refreshed for", timeout=10_000)
    expect(page.locator("[data-chart]")).to_have_attribute("data-state", "drawn")
    page.unroute(BATCH)
    expect(page.locator(".stale-chip")).to_have_count(0, timeout=15_000)
