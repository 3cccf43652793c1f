"""The pictures of the README, made from the pages as they are.

``SPM_PICTURES=1 bin/test tests/e2e/browser/pictures`` replaces those in ``docs``, so that a run changes no file. A page
whose words changed makes the committed picture an old one, and this says so.
"""

import os
import re
import shutil
from collections.abc import Callable

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from spm.clock import SystemClock, moment
from tests.e2e.browser.conftest import PICTURES, drawn, log_in, picture
from tests.e2e.browser.pictures.film import Film, Shown, words_of
from tests.e2e.browser.pictures.test_committed import ANIMATED, STILL, is_light
from tests.support import sample_app
from tests.support.people import Tenant

pytestmark = [pytest.mark.browser, pytest.mark.slow]

IS_ASKED_FOR = os.environ.get("SPM_PICTURES") == "1"

MINUTE_MS = 60_000
WRONG_MS = (-26 * MINUTE_MS, -17 * MINUTE_MS)  # what the script sends begins and ends so long before now
SEEN_MS = 1_100  # an answer that begins so long after a commit has it: the tail is read once a second
SCRIPT = "cpu.sh"
CORES = 8
RIGHT, WRONG = r"\d\d(\.\d)?\D", r"[45]\d\d"  # the highest value of the chart, in percent
CAPTIONS = (
    "CPU usage of three hosts",
    "A script sends wrong values: a spike",
    "Preview: what a retraction would hide",
    "Retracted: out of every answer at once",
    "Undone: every sample is back",
)


@pytest.fixture
def shop(alpha: Tenant, own_store: str) -> Tenant:
    """Three hosts of a shop, which all sent all the time."""
    alpha.organisation.name, alpha.app.name = "Acme", "shop"
    alpha.organisation.save()
    alpha.app.save()
    alpha.owner.username = "ada@acme.example"
    alpha.owner.save()
    return alpha


def send_wrong_values(store: str, tenant: Tenant, now_ms: int, share: tuple[float, float]) -> None:
    """Send this part of what the script sends: for worker-1, the load of its cores added up instead of their mean."""
    first, last = (now_ms + WRONG_MS[0] + (WRONG_MS[1] - WRONG_MS[0]) * each for each in share)
    times = sample_app.times_of("worker-1", now_ms, 3_600_000)
    times = times[(times > first) & (times <= last)]
    draw = np.random.default_rng(int(share[0] * 100))
    values = (CORES * draw.normal(62, 2.2, len(times))).round(1)
    line = sample_app.Line("cpu_usage_total", {"host": "worker-1"}, values)
    sample_app.write_lines(store, tenant.app.pk, SCRIPT, [line], times)


def scroll_below_bar(page: Page, selector: str) -> None:
    """Scroll an element to the page's bar, by whole pixels of the picture; the page has room below it for that."""
    page.locator(selector).first.evaluate("""(it) => {
        document.body.style.paddingBottom = "100vh";
        const gap = it.getBoundingClientRect().top - document.querySelector(".bar").offsetHeight;
        scrollTo(0, Math.floor((scrollY + gap - 10) / 4) * 4);
    }""")


def show_chart(page: Page, tenant: Tenant, now_ms: int, highest: str) -> None:
    """Show the chart of all hosts once its highest value is as expected: a second later at most."""
    for _ in range(40):
        page.goto(f"/apps/{tenant.app.pk}/explore?from={now_ms - 3_600_000}&to={now_ms}")
        drawn(page)
        if re.search(f"highest {highest}", page.locator(".chart-area").get_attribute("aria-label") or ""):
            break
    expect(page.locator(".chart-area")).to_have_attribute("aria-label", re.compile(f"highest {highest}"))
    scroll_below_bar(page, "section.card:has(.chart)")


def show_draft(page: Page, tenant: Tenant, now_ms: int) -> None:
    """Show what a retraction of everything that the script sent in that time would hide."""
    first, last = (moment(now_ms + each).strftime("%Y-%m-%dT%H:%M:%S") for each in WRONG_MS)
    page.goto(f"/apps/{tenant.app.pk}/data/corrections?source={SCRIPT}&data_from={first}&data_to={last}")
    page.get_by_label("Why").fill("It adds up all cores")
    page.get_by_role("button", name="Preview").click()
    drawn(page)
    scroll_below_bar(page, ".preview")


def show_retractions(page: Page, state: str) -> None:
    """Show the list of retractions, the one of which is in this state."""
    expect(page.locator("td .badge")).to_have_text(state)
    scroll_below_bar(page, "section.card:has(td .badge)")


def test_the_animated_picture_shows_a_spike_taken_out_and_put_back(
    open_page: Callable[..., Page], shop: Tenant, own_store: str
) -> None:
    now_ms, film = SystemClock().now_ms() // 10_000 * 10_000, Film(len(CAPTIONS))
    sample_app.fill(own_store, shop.app.pk, now_ms=now_ms, hosts=sample_app.HOSTS[1:])
    page = open_page(width=960, height=660, scale=1.25)
    log_in(page, shop)
    show_chart(page, shop, now_ms, RIGHT)
    film.take(page, CAPTIONS[0], 900)
    for part, ms in enumerate((200, 200, 1_100)):
        send_wrong_values(own_store, shop, now_ms, (part / 3, (part + 1) / 3))
        page.wait_for_timeout(SEEN_MS)
        show_chart(page, shop, now_ms, WRONG)
        film.take(page, CAPTIONS[1], ms)
    show_draft(page, shop, now_ms)
    page.get_by_role("button", name="Retract 54 samples").hover()
    film.take(page, CAPTIONS[2], 1_900)
    page.get_by_role("button", name="Retract 54 samples").click()
    show_retractions(page, "in force")
    page.get_by_role("button", name="Undo").hover()
    film.take(page, CAPTIONS[3], 1_000)
    show_chart(page, shop, now_ms, RIGHT)
    film.take(page, CAPTIONS[3], 1_200)
    page.goto(f"/apps/{shop.app.pk}/data/corrections")
    page.get_by_role("button", name="Undo").click()
    show_retractions(page, "undone")
    film.take(page, CAPTIONS[4], 1_000)
    show_chart(page, shop, now_ms, WRONG)
    film.take(page, CAPTIONS[4], 1_200)

    film.save(PICTURES / ANIMATED.name)
    animated = Shown.read(PICTURES / ANIMATED.name)
    assert (len(animated.frames), is_light(animated)) == (9, True)
    if IS_ASKED_FOR:
        shutil.copy(PICTURES / ANIMATED.name, ANIMATED)
    assert words_of(ANIMATED) == [*film.words], "made from other pages: see the head of this file"


def test_the_still_picture_shows_a_chart_with_its_values(open_page: Callable[..., Page], fleet: Tenant) -> None:
    page = open_page(width=1280, height=850)
    log_in(page, fleet)
    page.goto(f"/apps/{fleet.app.pk}/explore?range=1h")
    drawn(page)
    page.locator(".u-over").hover(position={"x": 700, "y": 150})
    expect(page.locator(".tip")).to_be_visible()
    picture(page, "readme", full_page=False)
    if IS_ASKED_FOR:
        shutil.copy(PICTURES / "readme.png", STILL)
