"""Explore: fields and text in step, several queries and formulas, and what changed; and the parts of a host's page."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.browser.conftest import drawn, fits_each_screen, log_in
from tests.support.people import Tenant

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def open_explore(page: Page, tenant: Tenant, query: str = "") -> None:
    """Open the page and wait for its chart."""
    log_in(page, tenant)
    page.goto(f"/apps/{tenant.app.pk}/explore?range=1h{query}")
    drawn(page)


def test_fields_write_the_text_and_a_typed_text_fills_the_fields(page: Page, fleet: Tenant) -> None:
    open_explore(page, fleet)
    text = page.get_by_label("PromQL expression")
    page.get_by_label("Metric").fill("net_bytes_recv")
    page.get_by_label("Metric").press("Tab")
    expect(text).to_have_value(re.compile(r"rate\(net_bytes_recv\[\$__rate_interval\]\)"))
    page.get_by_label("Aggregate").select_option("sum")
    page.get_by_label("Grouped").select_option("by")
    page.get_by_label("Label to group by, of A").fill("host")
    page.get_by_label("Label to group by, of A").press("Tab")
    expect(text).to_have_value("sum by (host) (rate(net_bytes_recv[$__rate_interval]))")
    page.get_by_label("Over", exact=True).fill("5m")
    page.get_by_label("Over", exact=True).press("Tab")
    expect(text).to_have_value("sum by (host) (rate(net_bytes_recv[5m]))")
    expect(page.locator(".legend button[aria-pressed]")).to_have_count(4)
    text.fill('max by (host) (max_over_time(cpu_usage_total{host!="db-1"}[$window]))')
    text.press("Enter")
    expect(page.get_by_label("Metric")).to_have_value("cpu_usage_total")
    expect(page.get_by_label("Comparison of filter 1 of A")).to_have_value("!=")
    expect(page.get_by_label("Value of filter 1 of A")).to_have_value("db-1")
    expect(page.locator(".legend button[aria-pressed]")).to_have_count(3)
    text.fill("cpu_usage_total / 2")
    text.press("Enter")
    expect(page.locator("[data-reason]")).to_contain_text("The builder cannot show this: it combines values with “/”")
    expect(page.get_by_label("Metric")).to_be_hidden()
    drawn(page)


def test_several_queries_and_a_formula_stand_in_the_address(page: Page, fleet: Tenant) -> None:
    open_explore(page, fleet, "&expr=mem_used_percent")
    page.get_by_role("button", name="+ Query").click()
    page.get_by_label("PromQL of B").fill("cpu_usage_total")
    page.get_by_label("PromQL of B").press("Enter")
    expect(page.locator(".legend button[aria-pressed]")).to_have_count(8)
    page.get_by_role("button", name="+ Formula").click()
    page.get_by_label("Formula C").fill("A / B")
    page.get_by_label("Formula C").press("Enter")
    expect(page.locator(".legend button[aria-pressed]")).to_have_count(12)
    page.get_by_label("draw").nth(0).uncheck()
    page.get_by_label("draw").nth(1).uncheck()
    expect(page.locator(".legend button[aria-pressed]")).to_have_count(4)
    address = page.url
    assert re.search(r"expr=mem_used_percent.*q=B%3Acpu_usage_total.*f=C%3AA\+%2F\+B.*hide=A.*hide=B", address)
    page.goto("/")
    page.goto(address)
    drawn(page)
    expect(page.get_by_label("Formula C")).to_have_value("A / B")
    expect(page.locator(".legend button[aria-pressed]")).to_have_count(4)
    page.get_by_role("button", name="Remove").nth(1).click()
    expect(page.locator(".chart-note")).to_contain_text("No metric is called B")
    page.go_back()
    expect(page.get_by_label("PromQL of B")).to_have_value("cpu_usage_total")


def test_explore_and_the_parts_of_a_host_fit_each_screen(page: Page, fleet: Tenant) -> None:
    text = 'topk by (host) (3, rate(net_bytes_recv{host=~"web.*"}[$__rate_interval]))'
    open_explore(page, fleet, f"&expr={text.replace('+', '%2B')}&q=B:cpu_usage_total&f=C:A / B&changes=1")
    expect(page.locator("[data-changes-answer]")).to_contain_text("Looked at")
    fits_each_screen(page, "explore")
    page.goto(f"/apps/{fleet.app.pk}/hosts/web-1?tab=all")
    page.get_by_role("link", name="mem_used_percent").click()
    drawn(page)
    fits_each_screen(page, "explore-of-host")
    page.go_back()
    fits_each_screen(page, "host-metrics")
    page.get_by_role("link", name="Overview", exact=True).click()
    drawn(page)
    fits_each_screen(page, "host-tabs")


def test_what_changed_is_found_from_a_pinned_time(page: Page, fleet: Tenant) -> None:
    open_explore(page, fleet, "&expr=cpu_usage_total")
    page.locator(".u-over").first.click(position={"x": 300, "y": 90})
    page.locator(".tip.pinned .acts").get_by_role("link", name="What changed?").click()
    page.wait_for_url(re.compile("changes=1"))
    expect(page.locator("[data-changes-answer]")).to_contain_text("Looked at")
    page.get_by_role("button", name="Find what changed in this range").click()
    expect(page.locator("[data-changes-answer]")).to_contain_text("against the time of equal length before")
