"""Names longer than any screen: no page of alerts is wider than it, and each row of a table is a card on a phone."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from alerts import rulebook
from alerts.models import Episode, Rule
from spm.clock import SystemClock
from tests.alerts.conftest import draft
from tests.e2e.browser.conftest import drawn, log_in, picture
from tests.support.people import Tenant

pytestmark = [pytest.mark.browser, pytest.mark.slow]
LONG = "a_name_without_spaces_that_nobody_should_ever_give_but_somebody_does_anyhow_because_it_is_possible"


@pytest.fixture
def named(fleet: Tenant) -> Tenant:
    """The fleet with an open alert of a long name and 36 labels, one of them wider than the screen."""
    now_ms = SystemClock().now_ms()
    rule = rulebook.write(fleet.app, draft(name=LONG, expr="cpu_usage_total"), by=fleet.owner, now_ms=now_ms)
    labels = {"host": "web-1", "path": LONG * 2, **{f"label_{number}": LONG[:40] for number in range(34)}}
    times = {"start_ms": now_ms - 600_000, "created_ms": now_ms, "changed_ms": now_ms}
    Episode.objects.create(rule=rule, fingerprint="x", labels=labels, severity="warning", **times)
    return fleet


@pytest.mark.parametrize("width", [390, 1024])
def test_no_page_is_wider_than_the_screen_for_a_long_name(
    width: int, open_page: Callable[..., Page], named: Tenant
) -> None:
    page = open_page(width=width, height=844)
    log_in(page, named)
    rule = Rule.objects.get(app=named.app)
    for name, place in {
        "home": f"/apps/{named.app.pk}/",
        "policies": f"/alerts/policies?app={named.app.pk}",
        "rule": f"/alerts/rules/{rule.pk}",
        "alert": f"/alerts/{Episode.objects.get().pk}",
        "silences": f"/alerts/silences?app={named.app.pk}",
    }.items():
        page.goto(place)
        drawn(page, page.locator("[data-chart]").count())
        picture(page, f"odd-{name}-{width}")
        assert not page.evaluate("document.documentElement.scrollWidth > innerWidth"), name


def test_an_open_alert_of_many_labels_leaves_the_policies_in_sight(
    open_page: Callable[..., Page], named: Tenant
) -> None:
    page = open_page(width=390, height=844)
    log_in(page, named)
    page.goto(f"/alerts/policies?app={named.app.pk}")
    example = page.locator("#tester a code")
    expect(example).to_be_visible()
    assert example.bounding_box()["height"] < 60  # type: ignore[index]  # it is visible
