"""Corrections of wrong data in a real browser: preview, retract, look at the past, undo, roll back."""

import re
from datetime import timedelta

import pytest
from playwright.sync_api import Page, ViewportSize, expect

from rollups.models import Correction, CorrectionCause, Run, RunKind
from rollups.services import runs as services_runs
from spm.clock import SystemClock, moment
from tests.e2e.browser.conftest import drawn, fits_each_screen, log_in, picture
from tests.support.people import Tenant

pytestmark = [pytest.mark.browser, pytest.mark.slow]

KOLKATA_MS = 19_800_000
TABLET = ViewportSize(width=960, height=700)

WATCH_TIMES = """() => {
  window.changedTimes = [];
  const inTime = ({ target }) => (target.closest ? target : target.parentElement)?.closest("time");
  new MutationObserver((seen) => seen.filter(inTime).forEach(({ target }) => changedTimes.push(target.textContent)))
    .observe(document.querySelector("#main"), { subtree: true, characterData: true, childList: true });
  getSelection().selectAllChildren(document.querySelector("#run-900 time"));
}"""


@pytest.fixture
def past(fleet: Tenant) -> Tenant:
    """A fleet with a run behind it, one at work, and hours that were corrected."""
    site = services_runs.site()
    services_runs.roll(site, apps=[fleet.app.pk], kind=RunKind.MINOR, executor="local")
    Run.objects.create(
        number=900,
        kind=RunKind.FULL,
        executor="spark",
        started=site.now() - timedelta(seconds=42),
        units=31,
        units_total=120,
        samples=7_300_000,
        apps=[fleet.app.pk],
    )
    hour = site.now().replace(minute=0, second=0, microsecond=0)
    for back, cause, samples in (
        (2, CorrectionCause.LATE, 1_240),
        (5, CorrectionCause.RETRACTION, 0),
        (26, CorrectionCause.UNDO, 0),
    ):
        Correction.objects.create(
            app=fleet.app,
            hour=hour - timedelta(hours=back),
            run=12 - back % 3,
            cause=cause,
            samples=samples,
            sources=["db-1"] if samples else [],
            at=site.now(),
        )
    return fleet


def test_data_is_retracted_after_a_preview_and_restored(page: Page, past: Tenant) -> None:
    log_in(page, past)
    page.get_by_role("link", name="Data", exact=True).click()
    page.get_by_role("link", name="Corrections").click()
    picture(page, "corrections-before")
    page.get_by_label("Source").fill("web-1")
    page.get_by_label("Series, as PromQL").fill("cpu_usage_total")
    page.get_by_label("Why").fill("a benchmark ran on it by mistake")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator(".preview")).to_contain_text(re.compile(r"720 samples in 1 series, [23] hours, 0 past alerts"))
    drawn(page)
    expect(page.locator(".chart-note")).to_contain_text("dotted: before")
    expect(page.locator(".drawn-draft .legend")).to_contain_text("web-1")
    expect(page.locator(".preview")).to_contain_text("From web-1; metric cpu_usage_total.")
    picture(page, "corrections-preview")
    page.get_by_role("button", name="Retract").click()
    expect(page.get_by_text("hides 720 samples")).to_be_visible()
    picture(page, "corrections-retracted")
    page.goto(f"/apps/{past.app.pk}/explore?range=1h&expr=cpu_usage_total")
    drawn(page)
    expect(page.locator(".legend")).not_to_contain_text("web-1")
    page.goto(f"/apps/{past.app.pk}/data/corrections")
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("is undone")).to_be_visible()
    picture(page, "corrections-undone")
    page.goto(f"/apps/{past.app.pk}/explore?range=1h&expr=cpu_usage_total")
    drawn(page)
    expect(page.locator(".legend")).to_contain_text("web-1")


def test_a_refused_draft_keeps_its_input_and_says_why(page: Page, past: Tenant) -> None:
    log_in(page, past)
    page.goto(f"/apps/{past.app.pk}/data/corrections")
    page.get_by_label("Series, as PromQL").fill("sum(")
    page.get_by_label("Why").fill("nobody knows")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.get_by_label("Why")).to_have_value("nobody knows")
    picture(page, "corrections-refused")


def test_a_chart_shows_what_was_known_at_a_moment(page: Page, past: Tenant) -> None:
    log_in(page, past)
    page.goto(f"/apps/{past.app.pk}/explore?range=1h")
    drawn(page)
    then = SystemClock().now_ms() // 1000 - 86_400
    page.goto(f"/apps/{past.app.pk}/explore?range=1h&asof={then}")
    expect(page.locator("[data-asof-banner]")).to_be_visible()
    expect(page.locator("[data-chart]")).to_have_attribute("data-state", "empty")
    picture(page, "chart-asof")
    page.get_by_role("button", name="Back to now").click()
    drawn(page)
    assert "asof" not in page.url
    page.get_by_text("as of: now").click()
    page.get_by_label("As known at").fill("2024-01-01T10:00:00")
    page.get_by_label("As known at").press("Tab")
    page.wait_for_url(re.compile(r"asof=1704"))


def test_a_running_run_is_watched_and_a_finished_one_rolled_back(page: Page, past: Tenant) -> None:
    log_in(page, past)
    page.goto(f"/apps/{past.app.pk}/data/rollups")
    expect(page.get_by_text("31 of 120 hours")).to_be_visible()
    Run.objects.filter(number=900).update(units=60)
    expect(page.get_by_text("60 of 120 hours")).to_be_visible(timeout=15_000)
    page.get_by_role("button", name="Roll back").click()
    expect(page.get_by_text("is rolled back:")).to_be_visible()
    picture(page, "runs-rolled-back")


def test_pages_of_corrections_fit_each_screen(page: Page, past: Tenant) -> None:
    log_in(page, past)
    page.goto(f"/apps/{past.app.pk}/data/corrections")
    page.get_by_label("Source").fill("db-1")
    page.get_by_label("Why").fill("its clock was a day ahead after the power cut")
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("button", name="Retract").click()
    number = re.findall(r"Retraction (\d+)", page.locator(".notice").inner_text())[0]
    page.set_viewport_size(TABLET)
    acts = page.locator("td.acts > *").evaluate_all("(all) => all.map((each) => each.getBoundingClientRect().right)")
    assert len(acts) == 2
    assert max(acts) < TABLET["width"] - 20  # else the table hides them until it is scrolled
    pages = {
        "corrections": "corrections",
        "runs": "runs",
        "retention": "retention",
        "purge": f"corrections/{number}/purge",
        "chart-asof": "chart?range=1h&asof=1700000000",
    }
    for name, address in pages.items():
        page.goto(f"/apps/{past.app.pk}/{address}")
        page.wait_for_load_state("load")
        fits_each_screen(page, name)


def test_times_of_the_form_are_in_the_zone_of_charts(page: Page, past: Tenant) -> None:
    log_in(page, past)
    now = SystemClock().now_ms() // 60_000 * 60_000 - 13_000  # a browser leaves out seconds that are zero
    query = f"tz=Asia/Kolkata&source=web-1&data_from={text_of(now - 600_000)}&data_to={text_of(now)}"
    page.goto(f"/apps/{past.app.pk}/data/corrections?{query}")
    expect(page.locator("[data-zone-name]")).to_have_text("Asia/Kolkata")
    expect(page.get_by_label("Timestamps after")).to_have_value(text_of(now - 600_000 + KOLKATA_MS))
    page.get_by_role("button", name="Preview").click()
    expect(page.locator(".preview")).to_contain_text("samples in")
    shown = page.evaluate("document.querySelector('.preview time').getAttribute('datetime')")
    assert text_of(now - 600_000) <= shown <= text_of(now)


def test_a_refresh_leaves_times_in_the_zone_of_charts(page: Page, past: Tenant) -> None:
    log_in(page, past)
    page.goto(f"/apps/{past.app.pk}/data/rollups?tz=Asia/Kolkata")
    expect(page.locator("[data-zone-name]")).to_have_text("Asia/Kolkata")
    time = page.locator("#run-900 time")
    at = moment(int(time.get_attribute("data-ms") or 0) + KOLKATA_MS)
    expect(time).to_have_text(f"{at.day} {at:%b}, {at:%H:%M}")
    page.evaluate(WATCH_TIMES)
    Run.objects.filter(number=900).update(units=60)
    expect(page.get_by_text("60 of 120 hours")).to_be_visible(timeout=15_000)
    assert page.evaluate("window.changedTimes") == []
    assert page.evaluate("String(getSelection())") == time.inner_text()


def text_of(ms: int) -> str:
    """A time as the address and the browser's field have it."""
    return moment(ms).strftime("%Y-%m-%dT%H:%M:%S")
