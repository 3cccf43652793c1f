"""Rejections with their quotas, and heartbeats, in a real browser: light, dark and narrow."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from ingest.http import pings
from spm.accounts.models import App
from spm.clock import SystemClock
from spm.store.backends import open_backend
from spm.store.ledger import quota
from spm.wire import Rejection
from tests.e2e.browser.conftest import log_in
from tests.e2e.browser.test_delivery import fits
from tests.e2e.browser.test_look import LOOKS
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
