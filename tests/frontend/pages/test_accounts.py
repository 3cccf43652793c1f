"""Log in, log out and change the password: for the pages and for the admin."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import get_resolver

from frontend.forms import LoginForm, PasswordForm
from spm.accounts.logins import attempts, hashers, limits
from spm.accounts.logins.origins import DEVICE_COOKIE
from spm.accounts.models import AuditEntry, LoginNotice
from spm.clock import FakeClock
from spm.errors import LoginRefused
from tests.support.people import Tenant

RIGHT, NEW = "correct horse", "four green lamps 9"
CHANGE = {"new_password1": NEW, "new_password2": NEW}


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeClock]:
    """The clock of all logins."""
    clock = FakeClock()
    monkeypatch.setattr(attempts, "_clock", clock)
    attempts._journal.clear()
    yield clock
    attempts._journal.clear()


@pytest.fixture
def staff(db: None) -> User:
    """A person who may enter the admin."""
    return User.objects.create_superuser("operator", password=RIGHT)


def log_in(client: Client, login: str, password: str = RIGHT, address: str = "192.0.2.1", **extra: Any) -> Any:
    return client.post("/login", {"username": login, "password": password, **extra}, REMOTE_ADDR=address)


def owner_of(tenant: Tenant) -> str:
    return tenant.owner.get_username()


@pytest.mark.parametrize("login", ["owner@alpha.example", "nobody@alpha.example"])
def test_a_throttled_login_says_when_to_try_again_for_any_name(client: Client, alpha: Tenant, login: str) -> None:
    pages = [log_in(client, login, "wrong") for _ in range(6)]
    assert [page.status_code for page in pages] == [200] * 5 + [429]
    assert pages[5]["Retry-After"] == "2"
    assert "There were too many wrong logins. Please try again in 2 seconds." in pages[5].content.decode()
    assert log_in(client, login).status_code == 429


def test_forty_guesses_a_second_leave_the_account_to_its_owner_elsewhere(
    client: Client, alpha: Tenant, clock: FakeClock
) -> None:
    statuses = []
    for _ in range(400):
        statuses.append(log_in(client, owner_of(alpha), "wrong", "198.51.100.1").status_code)
        clock.advance(25)
    assert (statuses.count(200), statuses.count(429)) == (7, 393)
    assert AuditEntry.objects.filter(action="login throttled").count() == 3
    assert log_in(Client(), owner_of(alpha)).status_code == 302


def test_a_login_without_a_slot_for_its_hash_is_answered_at_once(
    client: Client, alpha: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: object, **__: object) -> None:
        raise LoginRefused("Many people are logging in at this moment.", 2)

    monkeypatch.setattr(attempts, "authenticate", busy)
    page = log_in(client, owner_of(alpha))
    assert (page.status_code, page["Retry-After"]) == (429, "2")
    assert "Many people are logging in" in page.content.decode()


def test_the_session_id_changes_at_login(client: Client, alpha: Tenant) -> None:
    session = client.session
    session["planted"] = "by an attacker who knows its id"
    session.save()
    before = session.session_key
    log_in(client, owner_of(alpha))
    assert client.session.session_key != before
    attacker = Client()
    attacker.cookies["sessionid"] = str(before)
    assert attacker.get("/")["Location"].startswith("/login")


def test_a_login_makes_the_browser_one_that_the_account_knows(client: Client, alpha: Tenant) -> None:
    log_in(client, owner_of(alpha))
    cookie = client.cookies[DEVICE_COOKIE]
    assert re.fullmatch("[0-9a-f]{32}", cookie.value)
    assert (cookie["httponly"], cookie["samesite"], cookie["max-age"]) == (True, "Lax", limits.LOGIN_KNOWN_MS // 1000)


def test_the_link_of_a_notice_opens_the_login_during_an_attack(client: Client, alpha: Tenant) -> None:
    User.objects.update(email="ada@example.org")
    for number in range(25):
        log_in(Client(), owner_of(alpha), "wrong", f"198.51.100.{number}")
    assert log_in(client, owner_of(alpha)).status_code == 429
    assert client.get(f"/login?device={LoginNotice.objects.get().device}")["Location"] == "/login"
    assert log_in(client, owner_of(alpha)).status_code == 302


@pytest.mark.parametrize("device", ["x", "0" * 33, "%22%3E"])
def test_a_link_with_another_text_sets_no_cookie(client: Client, device: str, db: None) -> None:
    assert client.get(f"/login?device={device}").status_code == 200
    assert DEVICE_COOKIE not in client.cookies


def test_logins_logouts_and_changed_passwords_are_in_the_audit_log_with_their_address(
    client: Client, alpha: Tenant
) -> None:
    log_in(client, owner_of(alpha), address="192.0.2.7")
    client.post("/account/password", {"old_password": RIGHT, **CHANGE}, REMOTE_ADDR="192.0.2.8")
    client.post("/logout", REMOTE_ADDR="192.0.2.9")
    rows = [(each.action, each.actor_name, each.detail["address"]) for each in AuditEntry.objects.order_by("pk")]
    assert rows == [
        (action, owner_of(alpha), f"192.0.2.{number}")
        for action, number in (("login", 7), ("password changed", 8), ("logout", 9))
    ]


def test_a_changed_password_ends_every_other_session(client: Client, alpha: Tenant) -> None:
    elsewhere = Client()
    for browser in (client, elsewhere):
        log_in(browser, owner_of(alpha))
    assert client.post("/account/password", {"old_password": RIGHT, **CHANGE}).status_code == 302
    assert client.get("/")["Location"].startswith("/apps/")
    assert elsewhere.get("/")["Location"].startswith("/login")
    assert elsewhere.get("/api/v1/apps").status_code in (401, 403)


def test_a_password_set_by_staff_ends_the_sessions_of_its_person(client: Client, alpha: Tenant, staff: User) -> None:
    elsewhere = Client()
    elsewhere.force_login(alpha.owner)
    client.force_login(staff)
    client.post(f"/admin/auth/user/{alpha.owner.pk}/password/", {"password1": NEW, "password2": NEW})
    assert elsewhere.get("/")["Location"].startswith("/login")


def test_a_session_left_open_is_no_way_to_guess_the_password(desk: Client, alpha: Tenant) -> None:
    form = {"old_password": "wrong", **CHANGE}
    pages = [desk.post("/account/password", form) for _ in range(6)]
    assert [page.status_code for page in pages] == [200] * 5 + [429]
    assert "too many wrong logins" in pages[5].content.decode()
    assert desk.post("/account/password", {**form, "old_password": RIGHT}).status_code == 429
    alpha.owner.refresh_from_db()
    assert alpha.owner.check_password(RIGHT)


@pytest.mark.parametrize("address", ["/account/password", "/admin/auth/user/add/"])
def test_a_new_password_without_a_slot_for_its_hash_is_answered_with_try_again(
    client: Client, staff: User, address: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(client, "operator")
    monkeypatch.setattr(attempts, "is_password_of", lambda *_: True)
    slots = hashers.HashSlots(1, 0, 0.0)
    monkeypatch.setattr(hashers, "SLOTS", slots)
    settings.PASSWORD_HASHERS = ["spm.accounts.logins.hashers.BoundedArgon2"]
    form = {"old_password": RIGHT, **CHANGE, "username": "new", "password1": NEW, "password2": NEW}
    with slots.take(1, is_stranger=False):
        page = client.post(address, {**form, "usable_password": "true"})
    assert (page.status_code, page["Retry-After"]) == (429, "2")
    assert "Please try again" in page.content.decode()


def test_the_admin_is_entered_by_the_login_of_everybody(client: Client, staff: User) -> None:
    first = client.get("/admin/auth/user/")
    second = client.get(first["Location"])
    assert second["Location"] == "/login?next=/admin/auth/user/"
    assert log_in(client, "operator", next="/admin/auth/user/")["Location"] == "/admin/auth/user/"
    assert client.get("/admin/auth/user/").status_code == 200
    assert client.get("/admin/login/")["Location"] == "/admin/"


def test_no_password_is_tried_at_the_admins_address(client: Client, staff: User) -> None:
    for _ in range(3):
        answer = client.post("/admin/login/", {"username": "operator", "password": RIGHT})
        assert (answer.status_code, answer["Location"]) == (302, "/login?next=/admin/")
    assert "_auth_user_id" not in client.session
    assert not AuditEntry.objects.exists()


def test_a_person_who_is_no_staff_is_not_sent_in_circles(desk: Client) -> None:
    assert desk.get("/admin/login/?next=/admin/").status_code == 403


def test_the_admin_changes_a_password_and_logs_out_as_the_pages_do(client: Client, staff: User) -> None:
    client.force_login(staff)
    assert client.get("/admin/password_change/")["Location"] == "/account/password"
    assert client.post("/admin/logout/")["Location"] == "/login"
    assert AuditEntry.objects.get().action == "logout"
    assert "_auth_user_id" not in client.session


def test_no_address_takes_a_password_by_another_form() -> None:
    """Walks all addresses: a view of Django's that checks passwords has one of our forms."""
    forms: list[Any] = [LoginForm, PasswordForm]
    for pattern in _patterns(get_resolver().url_patterns):
        view = getattr(pattern.callback, "view_class", None)
        form = getattr(view, "authentication_form", None) or getattr(view, "form_class", None)
        if view and any(base.__module__ == "django.contrib.auth.views" for base in view.__mro__) and form:
            assert form in forms, pattern


def test_only_one_module_of_the_product_checks_passwords() -> None:
    root = Path(__file__).resolve().parents[3]
    checks = re.compile(r"\bauthenticate\(request|\.check_password\(|import authenticate\b")
    callers = {
        str(path.relative_to(root))
        for room in ("spm", "ingest", "rollups", "alerts", "frontend")
        for path in (root / room).rglob("*.py")
        if checks.search(path.read_text())
    }
    assert callers == {"spm/accounts/logins/attempts.py", "spm/accounts/bootstrap.py"}


def _patterns(patterns: Any) -> Iterator[Any]:
    for each in patterns:
        yield from _patterns(each.url_patterns) if hasattr(each, "url_patterns") else [each]
