"""Dashboards in a browser: every kind of panel, the editor by pointer and by keys, and the import of a file."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Dialog, Locator, Page, Request, expect

from frontend.dashboards import storage
from frontend.dashboards.document import Document, check
from frontend.dashboards.models import Dashboard
from spm.clock import SystemClock
from tests.e2e.browser.conftest import drawn, fits_each_screen, log_in, picture
from tests.support.people import Tenant

pytestmark = [pytest.mark.browser, pytest.mark.slow]

BATCH = re.compile(r"/api/v1/charts/batch$")
CLASSIC = Path(__file__).parents[2] / "frontend/dashboards/grafana/samples/classic.json"
CPU = [{"expr": f'cpu_usage_{kind}{{host=~"$host"}}', "legend": f"{kind} {{{{host}}}}"} for kind in ("user", "system")]
PANELS: list[dict[str, Any]] = [
    {"kind": "row", "title": "Numbers", "w": 24, "h": 1},
    {"kind": "stat", "title": "Hosts", "y": 1, "w": 4, "h": 4, "queries": [{"expr": "count(cpu_usage_total)"}]},
    {"kind": "gauge", "title": "Memory", "x": 4, "y": 1, "w": 8, "h": 4, "unit": "percent",
     "queries": [{"expr": "mem_used_percent", "legend": "{{host}}"}]},
    {"kind": "text", "title": "Who to ask", "x": 12, "y": 1, "w": 12, "h": 4,
     "text": "Hosts of **$host**.\n\n- ask `ana`\n- see [the plan](https://a.example)"},
    {"kind": "line", "title": "CPU of $host", "y": 5, "w": 12, "unit": "percent", "description": "User and system.",
     "queries": CPU},
    {"kind": "area", "title": "Memory, stacked", "x": 12, "y": 5, "w": 12, "unit": "bytes",
     "queries": [{"expr": 'mem_used{host=~"$host"}'}]},
    {"kind": "bars", "title": "Received", "y": 13, "w": 8, "unit": "bytes/s",
     "queries": [{"expr": "sum by (host) (rate(net_bytes_recv[$__rate_interval]))"}]},
    {"kind": "toplist", "title": "Busiest", "x": 8, "y": 13, "w": 8, "unit": "percent",
     "queries": [{"expr": "cpu_usage_total", "legend": "{{host}}"}]},
    {"kind": "table", "title": "Disks", "x": 16, "y": 13, "w": 8, "unit": "percent",
     "queries": [{"expr": "disk_used_percent"}]},
    {"kind": "line", "title": "One query is wrong", "y": 21, "w": 8,
     "queries": [{"expr": "load_load1"}, {"expr": "rate(load"}, {"expr": "4", "legend": "cores"}]},
    {"kind": "line", "title": "Nothing arrives", "x": 8, "y": 21, "w": 8, "queries": [{"expr": "pg_stat_all"}]},
    {"kind": "heatmap", "title": "Load as a heat map", "y": 29, "w": 12, "h": 6,
     "queries": [{"expr": "load_load1", "legend": "{{host}}"}]},
    {"kind": "states", "title": "Is it busy?", "x": 12, "y": 29, "w": 12, "h": 6,
     "queries": [{"expr": "cpu_usage_total > bool 40", "legend": "{{host}}"}]},
    {"kind": "line", "title": "Load of $host", "x": 16, "y": 21, "w": 8, "h": 6, "repeat": "host",
     "queries": [{"expr": 'load_load1{host="$host"}'}]},
]  # fmt: skip
VARIABLES = [{"name": "host", "label": "Host", "query": "label_values(cpu_usage_total, host)", "multi": True,
              "all": True, "values": ["web-1", "web-2"]}]  # fmt: skip


def every_kind() -> Document:
    """A dashboard with a panel of every kind."""
    panels = [{"number": number, **each} for number, each in enumerate(PANELS, 1)]
    return check({"title": "Shop, all of it", "variables": VARIABLES, "panels": panels})


def save(tenant: Tenant, document: Document) -> str:
    """Save a dashboard, and return its address."""
    author = storage.Author(tenant.owner, SystemClock().now_ms())
    return f"/apps/{tenant.app.pk}/dashboards/{storage.create(tenant.app, document, author).uid}"


def of_lines(count: int) -> Document:
    """A dashboard of small charts, four beside each other."""
    return check(
        {
            "title": "Many",
            "panels": [
                {"number": at + 1, "x": at % 4 * 6, "y": at // 4 * 6, "w": 6, "h": 6, "title": f"Panel {at + 1}",
                 "queries": [{"expr": f"cpu_usage_total + {at}"}]}
                for at in range(count)
            ],
        }
    )  # fmt: skip


def place_of(panel: Locator) -> list[int]:
    """Return x, y, width and height on the grid."""
    return [int(each) for each in (panel.get_attribute("data-place") or "").split()]


def test_a_dashboard_shows_every_kind_of_panel_and_fits_each_screen(page: Page, fleet: Tenant) -> None:
    at = save(fleet, every_kind())
    log_in(page, fleet)
    page.goto(f"{at}?range=1h")
    for figure in page.locator("[data-chart]").all():
        figure.scroll_into_view_if_needed()
        expect(figure).to_have_attribute("data-state", re.compile("drawn|empty"), timeout=30_000)
    expect(page.locator("[data-chart][data-state=empty]")).to_have_count(1)
    expect(page.locator("section", has_text="One query is wrong").locator(".warning")).to_contain_text("B:")
    page.evaluate("scrollTo(0, 0)")
    fits_each_screen(page, "dashboard")
    for name, address in {
        "list": at.rpartition("/")[0],
        "edit": f"{at}/edit",
        "panel": f"{at}/panels/5",
        "settings": f"{at}/settings",
        "variables": f"{at}/variables",
        "import": f"{at.rpartition('/')[0]}/import",
    }.items():
        page.goto(address)
        page.wait_for_load_state("networkidle")
        fits_each_screen(page, f"dashboard-{name}")


def test_scripts_of_panels_come_with_the_panels_that_need_them(open_page: Callable[..., Page], fleet: Tenant) -> None:
    queries = [{"expr": "cpu_usage_total"}]
    files: list[str] = []
    page = open_page()
    log_in(page, fleet)
    page.on("request", lambda request: files.append(request.url.rpartition("/")[2]))
    page.goto(save(fleet, check({"title": "Lines", "panels": [{"number": 1, "kind": "line", "queries": queries}]})))
    drawn(page)
    assert "plot.js" in files
    assert not {"cells.js", "figures.js"} & set(files)
    short = {"number": 1, "kind": "toplist", "h": 3, "w": 6, "queries": queries}
    page.goto(save(fleet, check({"title": "Busiest", "panels": [short]})))
    drawn(page)
    assert "figures.js" in files
    expect(page.locator(".figures.toplist")).to_have_attribute("tabindex", "0")  # it is longer than its panel


def test_forty_charts_in_sight_are_one_request(open_page: Callable[..., Page], fleet: Tenant) -> None:
    counts: list[int] = []

    def note(request: Request) -> None:
        if BATCH.search(request.url) and "dashboards" in request.headers.get("referer", ""):
            counts.append(len(json.loads(request.post_data or "")["panels"]))

    at = save(fleet, of_lines(40))
    page = open_page(height=2700)
    log_in(page, fleet)
    page.on("request", note)
    page.goto(f"{at}?range=1h&refresh=0")
    drawn(page, 40)
    assert counts == [40]


def test_a_panel_is_moved_sized_and_taken_back_by_keys(page: Page, fleet: Tenant) -> None:
    at = save(fleet, of_lines(2))
    log_in(page, fleet)
    page.goto(at)
    page.keyboard.press("e")
    page.wait_for_url("**/edit*")
    first = page.locator("[data-number='1']")
    first.locator("[data-handle]").focus()
    for key in ("ArrowRight", "ArrowDown", "Shift+ArrowRight", "Shift+ArrowUp"):
        page.keyboard.press(key)
    assert place_of(first) == [1, 1, 7, 5]
    page.keyboard.press("Control+z")
    assert place_of(first) == [1, 1, 7, 6]
    page.keyboard.press("Control+d")
    expect(page.locator("[data-place]")).to_have_count(3)
    page.locator("[data-number='2'] [data-handle]").focus()
    page.keyboard.press("Delete")
    page.get_by_role("button", name="Save places").click()
    page.wait_for_url(re.compile(r"/dashboards/\w+$"))
    panels = storage.document_of(Dashboard.objects.get()).panels
    assert [(each.number, each.x, each.y, each.w, each.h) for each in panels] == [(1, 1, 1, 7, 6), (3, 1, 7, 7, 6)]


def test_a_panel_is_dragged_onto_another_and_sized_by_its_corner(page: Page, fleet: Tenant) -> None:
    at = save(fleet, of_lines(2))
    log_in(page, fleet)
    page.goto(f"{at}/edit")
    first, second = page.locator("[data-number='1']"), page.locator("[data-number='2']")
    drag(page, first.locator("[data-handle]"), second.locator("[data-handle]"))
    assert (place_of(first), place_of(second)) == ([6, 0, 6, 6], [6, 6, 6, 6])
    drag(page, second.locator("[data-corner]"), first.locator("[data-corner]"), by=(220, 380))
    assert place_of(second)[0] == 6
    assert place_of(second)[2] > 6
    picture(page, "dashboard-dragged")


def drag(page: Page, handle: Locator, goal: Locator, by: tuple[int, int] = (0, 0)) -> None:
    """Drag with the pointer from one element to another."""
    start, end = handle.bounding_box(), goal.bounding_box()
    assert start is not None
    assert end is not None
    page.mouse.move(start["x"] + 10, start["y"] + 8)
    page.mouse.down()
    page.mouse.move(end["x"] + 10 + by[0], end["y"] + 8 + by[1], steps=8)
    page.mouse.up()


def test_a_file_of_grafanas_is_read_reported_and_saved(page: Page, fleet: Tenant) -> None:
    log_in(page, fleet)
    page.get_by_role("link", name="Dashboards").first.click()
    page.get_by_role("button", name="Import").click()
    page.get_by_label("File", exact=False).first.set_input_files(CLASSIC)
    expect(page.get_by_label("or the JSON itself")).to_have_value(re.compile(r'^\{"'))
    page.get_by_role("button", name="Look at it").click()
    expect(page.get_by_text("Nothing is saved yet.")).to_be_visible()
    picture(page, "dashboard-import-report")
    page.get_by_role("button", name="Save dashboard").click()
    page.wait_for_url(re.compile(r"/dashboards/\w+$"))
    assert Dashboard.objects.get().version == 1


def test_full_screen_leads_on_to_the_next_dashboard_and_back(page: Page, fleet: Tenant) -> None:
    first, second = (save(fleet, check({"title": title, "panels": []})) for title in ("First", "Second"))
    log_in(page, fleet)
    page.clock.install()
    page.goto(first)
    page.get_by_role("button", name="Full screen").click()
    page.get_by_label("Next dashboard").select_option("after 30 s")
    page.clock.fast_forward(31_000)
    page.wait_for_url(re.compile(rf"{second}\?.*advance=30"))
    expect(page.get_by_label("Next dashboard")).to_be_visible()
    page.clock.fast_forward(31_000)
    page.wait_for_url(re.compile(rf"{first}\?.*kiosk=1"))
    page.keyboard.press("Escape")
    page.clock.fast_forward(62_000)
    assert first in page.url


def test_variables_that_were_moved_and_not_saved_are_not_left_unasked(page: Page, fleet: Tenant) -> None:
    address = save(fleet, every_kind())
    log_in(page, fleet)
    page.goto(f"{address}/variables")
    page.get_by_role("button", name="Add variable").click()
    expect(page.get_by_text("Not saved yet")).to_be_visible()
    kinds: list[str] = []

    def stay(dialog: Dialog) -> None:
        kinds.append(dialog.type)
        dialog.dismiss()

    page.on("dialog", stay)
    page.get_by_label("Name").last.press("Tab")  # a page that nobody touched may be left
    page.get_by_role("button", name="Cancel").click()
    assert kinds == ["beforeunload"]


def test_a_star_stands_beside_its_title_on_a_phone(open_page: Callable[..., Page], fleet: Tenant) -> None:
    save(fleet, check({"title": "A title of some words that is quite long", "tags": ["a", "b"], "panels": []}))
    page = open_page(width=390, height=844)
    log_in(page, fleet)
    page.goto(f"/apps/{fleet.app.pk}/dashboards")
    star, title = page.locator("button.star").bounding_box(), page.locator("a.row").bounding_box()
    assert star is not None
    assert title is not None
    assert star["x"] + star["width"] <= title["x"]
    assert title["y"] <= star["y"] + star["height"] / 2 <= title["y"] + title["height"]
