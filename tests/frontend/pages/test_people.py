"""Sign-up, confirmation, reset and second factors: what they allow, what they cost, and what they never say."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP, format_hotp_value, hotp_value, yield_hotp_counters_from_time
from allauth.usersessions.models import UserSession
from django.contrib.auth.models import User
from django.test import Client

from alerts import tasks
from alerts.models import Outbox
from frontend.pages.account import adapter
from ingest.models import RejectedLine
from spm.accounts.logins import attempts, limits, session_rows
from spm.accounts.models import AuditEntry, Membership, Role
from spm.clock import FakeClock, SystemClock
from tests.support.people import Tenant

PASSWORD, NEW = "four green lamps 9", "seven blue lamps 3"
SMTP = "django.core.mail.backends.locmem.EmailBackend"
SECRET = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[FakeClock]:
    """The clock of all tries; everybody may sign up."""
    settings.SPM_SIGN_UP, settings.EMAIL_BACKEND = "open", SMTP
    clock = FakeClock(SystemClock().now_ms())
    for module in (attempts, adapter):
        monkeypatch.setattr(module, "_clock", clock)
    attempts._journal.clear()
    session_rows._noted.clear()
    yield clock
    attempts._journal.clear()


def sign_up(client: Client, email: str = "ana@example.org") -> Any:
    return client.post("/signup", {"email": email, "password1": PASSWORD})


def log_in(client: Client, login: str, password: str = "correct horse") -> Any:
    return client.post("/login", {"username": login, "password": password})


def link(outbox: Outbox) -> str:
    match = re.search(r"https?://[^/\s]+(/\S+)", outbox.payload["body"])
    assert match, outbox.payload
    return match[1]


def protect(user: User) -> None:
    TOTP.activate(user, SECRET)
    RecoveryCodes.activate(user)


def present_code() -> str:
    return str(format_hotp_value(hotp_value(SECRET, next(yield_hotp_counters_from_time()))))


def test_a_new_person_owns_an_organisation_with_an_app_and_lands_on_add_data(client: Client, db: None) -> None:
    answer = sign_up(client)
    membership = Membership.objects.get()
    assert (membership.role, membership.organisation.name) == (Role.OWNER, "ana")
    assert answer["Location"] == f"/apps/{membership.organisation.apps.get().pk}/add-data"
    assert [each.action for each in AuditEntry.objects.order_by("pk")][:2] == ["organisation created", "app created"]


def test_the_first_token_of_a_new_app_is_made_without_a_click_and_later_ones_are_not(client: Client, db: None) -> None:
    address = sign_up(client)["Location"]
    assert "first_token.js" in client.get(address).content.decode()
    page = client.post(address, {"name": "My data", "use": "ingest"}).content.decode()
    assert "SPM_AGENT_TOKEN=spm_" in page
    assert page.index("This machine") < page.index("curl -i")
    assert "first_token.js" not in client.get(address).content.decode()


def test_a_rejected_line_is_shown_where_data_is_awaited(client: Client, db: None) -> None:
    address = sign_up(client)["Location"]
    app = Membership.objects.get().organisation.apps.get()
    facts = {"time_ms": 1, "source": "web-1", "line": 1, "reason": "a value is no number"}
    known = {"known": re.findall(r"known=(\w+)", client.get(address).content.decode())[0]}
    assert client.get(f"{address}/arrivals", known).status_code == 204
    RejectedLine.objects.create(app=app, **facts)
    assert "a value is no number" in client.get(f"{address}/arrivals", known).content.decode()


@pytest.mark.parametrize("policy", ["invited", "closed"])
def test_nobody_signs_up_where_the_site_does_not_want_it(client: Client, db: None, settings: Any, policy: str) -> None:
    settings.SPM_SIGN_UP = policy
    assert "without an invitation" in sign_up(client).content.decode()
    assert not User.objects.exists()


def test_sign_up_and_reset_say_the_same_of_an_address_that_has_an_account(client: Client, db: None) -> None:
    sign_up(Client(), "ana@example.org")
    taken, free = sign_up(Client(), "ana@example.org"), sign_up(Client(), "bea@example.org")
    assert taken.status_code == free.status_code == 302
    assert re.sub(r"\d+", "", taken["Location"]) == re.sub(r"\d+", "", free["Location"])
    pages = [Client().post("/account/reset", {"email": each}, follow=True) for each in ("bea@example.org", "no@b.org")]
    assert {(page.status_code, page.request["PATH_INFO"]) for page in pages} == {(200, "/account/reset/sent")}
    assert pages[0].content == pages[1].content
    assert Outbox.objects.filter(payload__receivers=["no@b.org"]).count() == 1, "it costs a mail for each"


def test_a_second_account_with_an_address_neither_takes_the_first_ones_login_nor_is_confirmed(
    client: Client, db: None
) -> None:
    sign_up(Client())
    EmailAddress.objects.update(verified=True)
    sign_up(client)
    first, second = User.objects.order_by("pk")
    assert (first.username, second.username != first.username) == ("ana@example.org", True)
    client.post(link(Outbox.objects.order_by("-pk")[0]))
    assert list(EmailAddress.objects.filter(verified=True).values_list("user", flat=True)) == [first.pk]


def test_an_address_is_confirmed_by_a_post_alone_and_its_session_then_lasts(client: Client, db: None) -> None:
    sign_up(client)
    assert client.session.get_expiry_age() <= limits.UNCONFIRMED_MS / 1000
    address = link(Outbox.objects.get())
    assert client.get(address).status_code == 200
    assert not EmailAddress.objects.get().verified
    client.post(address)
    assert EmailAddress.objects.get().verified
    assert client.session.get_expiry_age() > limits.UNCONFIRMED_MS / 1000


def test_after_a_day_a_login_needs_a_confirmed_address(client: Client, db: None, clock: FakeClock) -> None:
    sign_up(Client())
    assert log_in(client, "ana@example.org", PASSWORD)["Location"] == "/"
    client.post("/logout")
    clock.advance(limits.UNCONFIRMED_MS + 60_000)
    assert log_in(client, "ana@example.org", PASSWORD)["Location"] == "/account/email/sent"
    assert "_auth_user_id" not in client.session
    assert Outbox.objects.count() == 2


def test_a_reset_link_works_once_and_is_no_way_round_the_second_factor(client: Client, alpha: Tenant) -> None:
    User.objects.filter(pk=alpha.owner.pk).update(email="ada@example.org")
    protect(alpha.owner)
    client.post("/account/reset", {"email": "ada@example.org"})
    form = client.get(link(Outbox.objects.get()))["Location"]
    assert client.post(form, {"password1": NEW})["Location"] == "/account/reset/done"
    assert "_auth_user_id" not in client.session
    assert "not valid any more" in Client().get(link(Outbox.objects.order_by("pk")[0])).content.decode()
    assert log_in(client, "ada@example.org", NEW)["Location"] == "/account/code"
    assert AuditEntry.objects.filter(action="password changed").count() == 1


def test_a_mails_link_is_not_kept_after_it_was_sent(client: Client, db: None) -> None:
    sign_up(client)
    secret = link(Outbox.objects.get())
    tasks.deliver_outbox()
    assert Outbox.objects.get().state == "sent"
    assert secret not in str(Outbox.objects.get().payload)


def test_mails_to_an_address_are_few_however_often_they_are_asked_for(client: Client, db: None) -> None:
    statuses = [client.post("/account/reset", {"email": "no@example.org"}).status_code for _ in range(8)]
    assert statuses == [302] * 5 + [429] * 3
    assert Outbox.objects.count() == 5
    assert log_in(client, "no@example.org").status_code == 200, "logins are counted apart"


def test_a_right_password_alone_opens_no_session_where_there_is_a_second_factor(client: Client, alpha: Tenant) -> None:
    protect(alpha.owner)
    assert log_in(client, alpha.owner.username)["Location"] == "/account/code"
    assert client.get("/")["Location"].startswith("/login")
    assert client.get("/api/v1/apps").status_code in (401, 403)
    assert client.post("/account/code", {"code": present_code()})["Location"] == "/"
    assert client.get("/")["Location"].startswith("/apps/")


def test_a_code_counts_once_and_wrong_ones_are_throttled_as_passwords_are(client: Client, alpha: Tenant) -> None:
    protect(alpha.owner)
    code = present_code()
    for browser in (client, Client()):
        log_in(browser, alpha.owner.username)
    assert client.post("/account/code", {"code": code}).status_code == 302
    again = Client()
    log_in(again, alpha.owner.username)
    statuses = [again.post("/account/code", {"code": code}).status_code for _ in range(12)]
    assert (statuses[0], statuses[-1]) == (200, 429)
    assert AuditEntry.objects.filter(action="second factor failed").exists()


def test_a_recovery_code_works_once(client: Client, alpha: Tenant) -> None:
    protect(alpha.owner)
    code = Authenticator.objects.get(type="recovery_codes").wrap().get_unused_codes()[0]
    statuses = []
    for browser in (client, Client()):
        log_in(browser, alpha.owner.username)
        statuses.append(browser.post("/account/code", {"code": code}).status_code)
    assert statuses == [302, 200]


def test_secrets_of_second_factors_are_encrypted_in_the_database(alpha: Tenant) -> None:
    protect(alpha.owner)
    assert SECRET not in str(list(Authenticator.objects.values_list("data", flat=True)))
    assert Authenticator.objects.get(type="totp").wrap().validate_code(present_code())


def test_a_change_of_second_factors_needs_the_password_again_and_its_guesses_are_counted(
    desk: Client, alpha: Tenant
) -> None:
    assert desk.get("/account/app/add")["Location"].startswith("/account/reauthenticate")
    statuses = [desk.post("/account/reauthenticate", {"password": "wrong"}).status_code for _ in range(6)]
    assert statuses == [200] * 5 + [429]


def test_a_person_ends_their_other_sessions(client: Client, alpha: Tenant) -> None:
    elsewhere = Client()
    for browser in (client, elsewhere):
        log_in(browser, alpha.owner.username)
    assert UserSession.objects.filter(user=alpha.owner).count() == 2
    client.post("/account/sessions")
    assert client.get("/")["Location"].startswith("/apps/")
    assert elsewhere.get("/")["Location"].startswith("/login")


def test_pages_of_an_account_are_for_its_person_and_stored_nowhere(client: Client, alpha: Tenant) -> None:
    protect(alpha.owner)
    pages = ["security", "email", "sessions", "keys", "recovery-codes"]
    assert {client.get(f"/account/{page}")["Location"].split("?")[0] for page in pages} == {"/login"}
    client.force_login(alpha.owner)
    client.post("/account/reauthenticate", {"password": "correct horse"})
    answers = [client.get(f"/account/{page}") for page in pages]
    assert [(answer.status_code, answer["Cache-Control"]) for answer in answers] == [(200, "no-store, private")] * 5
