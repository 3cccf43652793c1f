"""Rejections with their quotas, and heartbeats, in a real browser: light, dark and narrow."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from alerts import rulebook
from alerts.models.noise import NoiseReport, NoisyRule
from ingest.http import pings
from spm.accounts.models import App
from spm.clock import SystemClock
from spm.store.backends import open_backend
from spm.store.ledger import quota
from spm.wire import Rejection
from tests.alerts.conftest import draft
from tests.e2e.browser.conftest import LOOKS, fits, log_in
from tests.support import notes
from tests.support.people import Tenant

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.mark.parametrize("look", LOOKS)
def test_rejections_and_heartbeats_fit_the_screen_and_work(
    look: str, open_page: Callable[..., Page], alpha: Tenant, own_store: str
) -> None:
    now_ms = SystemClock().now_ms()
    App.objects.filter(pk=alpha.app.pk).update(series_max=1_000)
    store = open_backend(own_store)
    for _ in range(2):
        quota.take_series(store, alpha.app.pk, wanted=1_000, quota=1_000, now_ms=now_ms)
    reason = "a new series over the app's quota of 1,000 series; those it has are taken as before"
    lines = [Rejection(0, reason, f'http_requests_total{{path="/u/{n}",method="GET"}}') for n in range(30)]
    lines += [Rejection(17, "a field has no =", "cpu,host=web-1 usage 5 " + "x" * 90)]
    notes.see_rejections(alpha.app.pk, "web-1.example.com", lines, now_ms, "telegraf")
    page = open_page(**LOOKS[look])
    log_in(page, alpha)
    page.goto(f"/apps/{alpha.app.pk}/data/rejected")
    expect(page.get_by_text("new series are rejected")).to_be_visible()
    fits(page, f"rejected-quota-{look}")
    page.get_by_role("link", name="a field has no =").click()
    expect(page.get_by_role("link", name="show all")).to_be_visible()
    page.goto(f"/apps/{alpha.app.pk}/heartbeats")
    page.get_by_label("Name").fill("nightly backup")
    page.get_by_role("button", name="Create an address").click()
    expect(page.get_by_role("heading", name="nightly backup")).to_be_visible()
    pings.create_heartbeat(alpha.app, "weekly report", actor=alpha.owner, now_ms=now_ms)
    page.reload()
    fits(page, f"heartbeats-{look}")


PHONE_MAX = 2_000
LONG_NAME = "PaymentServiceLatencyOfTheEuropeanCheckoutIsAboveItsObjectiveForMoreThanFiveMinutes in_" + "x" * 30


def test_lists_of_data_are_short_on_a_phone_until_all_rows_are_asked_for(
    open_page: Callable[..., Page], alpha: Tenant, own_store: str
) -> None:
    now_ms = SystemClock().now_ms()
    for number in range(12):
        reason = f"a value cannot be read; got 'on{number}', wanted a number, true or false"
        lines = [Rejection(each, reason, f"cpu,host=web-{number} usage=on{number} " + "x" * 60) for each in range(9)]
        notes.see_rejections(alpha.app.pk, f"web-{number}.eu-central-1.example.com", lines, now_ms, "telegraf")
        notes.see_source(alpha.app.pk, f"web-{number}.eu-central-1.example.com", now_ms)
    page = open_page(width=390, height=844)
    log_in(page, alpha)
    for place in ("rejected", "sources"):
        page.goto(f"/apps/{alpha.app.pk}/data/{place}")
        fits(page, f"short-{place}")
        assert page.evaluate("document.documentElement.scrollHeight") <= PHONE_MAX, place
        rows = page.locator(".few").last.locator("tbody tr")
        expect(rows.nth(4)).to_be_hidden()
        page.locator(".few").last.get_by_label("Show all").check()
        expect(rows.nth(11)).to_be_visible()
    page.wait_for_timeout(11_000)  # the part of the sources refreshes itself
    expect(rows.nth(11)).to_be_visible()


@pytest.mark.parametrize("width", [1024, 390])
def test_a_long_name_of_a_rule_pushes_no_column_out(
    width: int, open_page: Callable[..., Page], alpha: Tenant, own_store: str
) -> None:
    now_ms = SystemClock().now_ms()
    rule = rulebook.write(alpha.app, draft(name=LONG_NAME), by=alpha.owner, now_ms=now_ms)
    counts = {"alerts": 3, "notifications": 3, "unattended": 1, "flaps": 1}
    times = {"from_ms": 0, "to_ms": now_ms, "made_ms": now_ms}
    report = NoiseReport.objects.create(organisation=alpha.organisation, rules=1, **times, **counts)
    NoisyRule.objects.create(report=report, rule=rule, **counts)
    page = open_page(width=width)
    log_in(page, alpha)
    for place in ("/alerts/", f"/alerts/noise?report={report.pk}"):
        page.goto(place)
        table = page.locator("table").first
        expect(table.get_by_role("link", name=rule.name, exact=True)).to_be_visible()
        assert table.evaluate("each => each.scrollWidth <= each.parentElement.clientWidth"), place
        fits(page, f"long-name-{place[8:13]}-{width}")
