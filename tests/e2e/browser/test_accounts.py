"""People's accounts in a browser: sign up, confirm, second factors, passkeys, sessions; by keyboard and on a phone."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value, yield_hotp_counters_from_time
from playwright.sync_api import Page, expect

from alerts.models import Outbox
from tests.e2e.browser.conftest import picture
from tests.support.people import Tenant

pytestmark = [pytest.mark.browser, pytest.mark.slow]
ADDRESS, PASSWORD = "ana@example.org", "four green lamps 9"


@pytest.fixture(autouse=True)
def is_open(settings: Any) -> None:
    """Everybody may sign up."""
    settings.SPM_SIGN_UP = "open"
    settings.MFA_WEBAUTHN_ALLOW_INSECURE_ORIGIN = True


def code_of(secret: str) -> str:
    return str(format_hotp_value(hotp_value(secret, next(yield_hotp_counters_from_time()))))


def link_of_mail() -> str:
    """The link of the newest mail, without the host."""
    body = Outbox.objects.order_by("-pk")[0].payload["body"]
    link = re.search(r"https?://[^/\s]+(/\S+)", body)
    assert link, body
    return link[1]


def sign_up(page: Page) -> None:
    """Sign up with the keyboard alone."""
    page.goto("/signup")
    page.keyboard.type(ADDRESS)
    page.keyboard.press("Tab")
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_url("**/apps/**")
    expect(page.locator("#secret")).to_be_visible()


def confirm_again(page: Page) -> None:
    """Give the password that protects changes, where the page wants it."""
    page.get_by_label("Password").fill(PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: "reauthenticate" not in url)


def test_a_new_person_signs_up_confirms_and_protects_the_account(open_page: Callable[..., Page]) -> None:
    page = open_page()
    sign_up(page)
    assert not EmailAddress.objects.get().verified
    page.goto(link_of_mail())
    assert not EmailAddress.objects.get().verified, "opening a link changes nothing"
    page.get_by_role("button", name="Confirm address").click()
    assert EmailAddress.objects.get().verified
    page.goto("/account/app/add")
    confirm_again(page)
    picture(page, "account-app-light")
    page.get_by_label("Code that the app shows").fill(code_of(page.get_by_label("Scan this").input_value()))
    page.get_by_role("button", name="Turn on").click()
    expect(page.get_by_role("heading", name="Recovery codes")).to_be_visible()
    picture(page, "account-codes-light")
    recovery = page.locator("pre code").inner_text().split()[0]
    page.context.clear_cookies()
    page.goto("/login")
    page.get_by_label("login").fill(ADDRESS)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    picture(page, "account-second-factor-light")
    page.goto("/account/security")
    assert page.url.endswith("/account/code"), "a password alone is no session"
    page.get_by_label("Code").fill(recovery)
    page.get_by_role("button", name="Log in", exact=True).click()
    page.wait_for_url("**/apps/**")
    page.goto("/account/security")
    picture(page, "account-security-light")
    expect(page.get_by_text("9 left")).to_be_visible()


def test_a_passkey_logs_its_person_in(open_page: Callable[..., Page]) -> None:
    page = open_page()
    devices = page.context.new_cdp_session(page)
    devices.send("WebAuthn.enable")
    options = {"protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True}
    options |= {"isUserVerified": True, "automaticPresenceSimulation": True}
    devices.send("WebAuthn.addVirtualAuthenticator", {"options": options})
    sign_up(page)
    EmailAddress.objects.update(verified=True)
    page.goto("/account/keys/add")
    confirm_again(page)
    picture(page, "account-key-light")
    page.get_by_label("Name").fill("This laptop")
    page.get_by_role("button", name="Add passkey").click()
    page.wait_for_url(lambda url: not url.endswith("/keys/add"))
    page.goto("/account/keys")
    picture(page, "account-keys-light")
    expect(page.get_by_role("rowheader", name="This laptop")).to_be_visible()
    page.context.clear_cookies()
    page.goto("/login")
    page.get_by_role("button", name="Use a passkey").click()
    page.wait_for_url("**/apps/**")


@pytest.mark.parametrize(("look", "options"), [("dark", {"dark": True}), ("narrow", {"width": 390, "height": 844})])
def test_account_pages_fit_the_screen(
    open_page: Callable[..., Page], alpha: Tenant, look: str, options: dict[str, Any]
) -> None:
    page = open_page(**options)
    for name in ("signup", "account/reset"):
        page.goto(f"/{name}")
        picture(page, f"{name.replace('/', '-')}-{look}")
    sign_up(page)
    for name in ("security", "email", "sessions", "password"):
        page.goto(f"/account/{name}")
        picture(page, f"account-{name}-{look}")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
