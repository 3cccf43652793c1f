"""An organisation in a browser: a colleague is invited and joins, two clicks each; its pages in all looks."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from alerts.models import Outbox
from spm.accounts.models import Membership
from spm.accounts.services import issue_token
from tests.e2e.browser.conftest import fits_each_screen, log_in, picture
from tests.support.people import Tenant

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_a_colleague_is_invited_and_joins(open_page: Callable[..., Page], alpha: Tenant) -> None:
    owner, guest = open_page(), open_page()
    log_in(owner, alpha)
    owner.goto(f"/org/{alpha.organisation.pk}/settings/members")
    owner.get_by_label("Mail addresses").fill("ana@example.org")
    owner.get_by_role("button", name="Send invitations").click()
    expect(owner.get_by_text("Invited: ana@example.org")).to_be_visible()
    link = re.search(r"https?://[^/\s]+(/invitations/\S+)", Outbox.objects.get().payload["body"])
    assert link
    guest.goto(link[1])
    assert guest.url.endswith("/invitation"), "the secret stands in no address of a page"
    picture(guest, "invitation-light")
    guest.get_by_role("button", name="Create an account").click()
    guest.get_by_label("Password").fill("four green lamps 9")
    guest.keyboard.press("Enter")
    guest.wait_for_url("**/apps/**")
    assert Membership.objects.filter(organisation=alpha.organisation, user__username="ana@example.org").exists()


def test_pages_of_an_organisation_fit_each_screen(page: Page, alpha: Tenant) -> None:
    issue_token(alpha.owner, alpha.app, name="Backup of the kitchen", scopes=["ingest", "read"], days=365)
    log_in(page, alpha)
    root = f"/org/{alpha.organisation.pk}/settings"
    page.goto(f"{root}/members")
    page.get_by_label("Mail addresses").fill("ana@example.org")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Invited: ana@example.org")).to_be_visible()
    for name in ("members", "apps", "tokens", "usage", "audit", "general"):
        page.goto(f"{root}/{name}")
        for change in page.locator("details.change > summary").all():
            change.click()
        fits_each_screen(page, f"organisation-{name}")
