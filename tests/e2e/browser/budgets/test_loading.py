"""What it costs to open a page as it is served: requests, bytes, and how much of it moves while it comes."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.browser.conftest import DRAWN_MS, enter
from tests.support.people import Tenant

pytestmark = [pytest.mark.browser, pytest.mark.slow]

FIRST_REQUESTS_MAX, LATER_REQUESTS_MAX = 10, 3  # the later ones: the page, and what belongs to the moment
SHIFT_MAX = 0.02
SCRIPT_BYTES_MAX, STYLE_BYTES_MAX = 65_000, 20_000  # compressed
QUIET_MS = 700  # after the last answer
PAGES = {
    "home": "/apps/{app}/",
    "hosts": "/apps/{app}/hosts",
    "map": "/apps/{app}/hosts?view=map",
    "host": "/apps/{app}/hosts/db-1",
    "explore": "/apps/{app}/explore?range=1h",
    "dashboard": "/apps/{app}/dashboards/ready/host-telegraf",
    "alerts": "/alerts/",
    "rule editor": "/alerts/new",
    "sources": "/apps/{app}/data/sources",
}
LOADED = """() => ({
  files: performance.getEntriesByType("resource").map((each) => [each.name, each.encodedBodySize, each.transferSize]),
  shift: window.shifts.reduce((sum, each) => sum + each.value, 0),
  moved: window.shifts.flatMap((each) => each.sources.map(({ node }) => (node?.outerHTML ?? "").slice(0, 60))),
  painted: performance.getEntriesByName("first-contentful-paint")[0]?.startTime,
})"""
OBSERVE = """window.shifts = [];
new PerformanceObserver((list) => window.shifts.push(...list.getEntries())).observe({ type: "layout-shift" });"""


@dataclass
class Loading:
    """What one opening of a page took."""

    requests: int
    shift: float
    moved: list[str]
    painted_ms: float
    scripts: int
    styles: int
    names: list[str]


def load(page: Page, address: str) -> Loading:
    """Open a page, and wait until nothing comes any more."""
    page.goto(address, wait_until="networkidle")
    if page.locator("[data-chart]").count():
        expect(page.locator("[data-chart]").first).not_to_have_attribute("data-state", "loading", timeout=DRAWN_MS)
    page.wait_for_timeout(QUIET_MS)
    loading = page.evaluate(LOADED)
    sent = [name for name, _, transferred in loading["files"] if transferred]
    sizes = {
        ending: sum(size for name, size, _ in loading["files"] if name.endswith(ending)) for ending in (".js", ".css")
    }
    return Loading(
        requests=1 + len(sent),
        shift=loading["shift"],
        moved=loading["moved"],
        painted_ms=loading["painted"],
        scripts=sizes[".js"],
        styles=sizes[".css"],
        names=sent,
    )


@pytest.mark.parametrize("name", PAGES)
def test_a_page_comes_with_few_requests_and_stays_where_it_is(
    name: str, open_page: Callable[..., Page], fleet: Tenant, server: str
) -> None:
    page = open_page()
    page.add_init_script(OBSERVE)
    enter(page, fleet, server)
    first, later = (load(page, PAGES[name].format(app=fleet.app.pk)) for _ in range(2))
    assert first.requests <= FIRST_REQUESTS_MAX, first.names
    assert later.requests <= LATER_REQUESTS_MAX, later.names
    assert first.scripts <= SCRIPT_BYTES_MAX
    assert first.styles <= STYLE_BYTES_MAX
    assert max(first.shift, later.shift) <= SHIFT_MAX, (first.moved, later.moved)
