"""The balance in a real browser: light, dark and narrow; full, empty, huge, and when it does not add up."""

from dataclasses import replace

import pytest
from playwright.sync_api import Page, expect

from spm.clock import SystemClock
from spm.store.ledger import watermarks
from spm.store.ledger.watermarks import Announcement
from tests.e2e.browser.conftest import fits_each_screen, log_in, picture, show_as
from tests.frontend import balance_examples
from tests.frontend.balance_examples import Book
from tests.support.people import Tenant

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture
def book(alpha: Tenant, own_store: str) -> Book:
    """A day with something of everything."""
    return balance_examples.fill(own_store, alpha.app.pk, SystemClock().now_ms())


def test_the_pages_of_the_balance_fit_each_screen(page: Page, alpha: Tenant, book: Book) -> None:
    log_in(page, alpha)
    page.goto(f"/apps/{alpha.app.pk}/data/ingestion")
    expect(page.get_by_role("heading", name="By hour of acceptance")).to_be_visible()
    expect(page.get_by_role("heading", name="Missing messages")).to_be_visible()
    fits_each_screen(page, "delivery")
    for name in ("Rejected", "Dead letters"):
        page.get_by_role("navigation", name="Data").get_by_role("link", name=name).click()
        page.wait_for_load_state("networkidle")
        fits_each_screen(page, f"delivery-{name.split()[0].lower()}")


def test_an_empty_or_faulty_balance_says_so(page: Page, alpha: Tenant, own_store: str) -> None:
    log_in(page, alpha)
    page.goto(f"/apps/{alpha.app.pk}/data/ingestion")
    expect(page.get_by_role("heading", name="Nothing has been accepted yet")).to_be_visible()
    fits_each_screen(page, "delivery-empty")
    book = Book.open(own_store, alpha.app.pk, SystemClock().now_ms())
    book.store_all(book.accept("web-1", samples=3))
    book.acceptor._counts[book.app] = replace(book.acceptor._counts[book.app], samples=1)
    book.announce()
    huge = Announcement(SystemClock().now_ms(), 0, 9_876_543_210, 12_345_678_901_234, 7, 5, 500, SystemClock().now_ms())
    watermarks.announce(book.store, book.app, book.acceptor.process + 1, huge)
    page.reload()
    expect(page.get_by_text("does not add up").first).to_be_visible()
    expect(page.get_by_role("heading", name="By source")).to_be_visible()
    fits_each_screen(page, "delivery-fault")
    show_as(page, "narrow")
    assert page.evaluate("document.documentElement.scrollHeight") <= 2_000


def test_a_span_can_be_selected_and_downloaded(page: Page, alpha: Tenant, book: Book) -> None:
    log_in(page, alpha)
    page.goto(f"/apps/{alpha.app.pk}/data/ingestion")
    page.get_by_role("link", name="7 days").click()
    expect(page.locator("a[aria-current=true]", has_text="7 days")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").first.click()
    assert download.value.suggested_filename.startswith(f"hours-of-app-{alpha.app.pk}-")


def test_staff_look_at_all_accounts(page: Page, alpha: Tenant, book: Book) -> None:
    alpha.owner.is_staff = alpha.owner.is_superuser = True
    alpha.owner.save()
    log_in(page, alpha)
    page.goto("/admin/ingest/appbalance/")
    page.wait_for_load_state("networkidle")
    picture(page, "admin-accounts")
    page.goto(f"/admin/ingest/appbalance/{alpha.app.pk}/balance/")
    page.wait_for_load_state("networkidle")
    picture(page, "admin-account")
    assert "In flight" in page.content()
