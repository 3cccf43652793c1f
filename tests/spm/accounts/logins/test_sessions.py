"""A session ends a fixed time after its login, whatever is done in it."""

from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.test import Client

from spm.accounts.logins import attempts, sessions
from spm.accounts.logins.sessions import SessionStore
from spm.clock import FakeClock, SystemClock, moment
from tests.support.people import Tenant

pytestmark = pytest.mark.django_db
LIFE_S = 14 * 86_400
DAY_MS = 86_400_000


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The clock of sessions and logins, which begins now: the database's own sessions end by the system's."""
    clock = FakeClock(SystemClock().now_ms())
    monkeypatch.setattr(sessions, "_clock", clock)
    monkeypatch.setattr(attempts, "_clock", clock)
    return clock


def log_in(client: Client, tenant: Tenant) -> Any:
    """Log in; return the cookie."""
    client.post("/login", {"username": tenant.owner.get_username(), "password": "correct horse"})
    return client.cookies["sessionid"]


def end_ms(client: Client) -> int:
    """When the session of a client ends, by its row."""
    return round(Session.objects.get(pk=client.cookies["sessionid"].value).expire_date.timestamp() * 1000)


def test_a_session_and_its_cookie_end_two_weeks_after_the_login(
    client: Client, alpha: Tenant, clock: FakeClock
) -> None:
    cookie = log_in(client, alpha)
    assert (int(cookie["max-age"]), end_ms(client)) == (LIFE_S, clock.now_ms() + 1000 * LIFE_S)


def test_nothing_that_is_saved_in_a_session_puts_off_its_end(client: Client, alpha: Tenant, clock: FakeClock) -> None:
    log_in(client, alpha)
    end = end_ms(client)
    for _ in range(3):
        clock.advance(DAY_MS)
        session = client.session
        session["seen"] = clock.now_ms()
        session.save()
        assert (end_ms(client), session.get_expiry_age()) == (end, (end - clock.now_ms()) // 1000)


def test_a_session_past_its_end_is_nobody_s(client: Client, alpha: Tenant) -> None:
    log_in(client, alpha)
    assert client.get("/")["Location"].startswith("/apps/")
    session = client.session
    session["begun_ms"] -= 1000 * LIFE_S
    session.save()  # what is saved late ends at once
    assert client.get("/")["Location"].startswith("/login")


@pytest.mark.parametrize("days", [1, 30])
def test_the_setting_says_how_long_sessions_last(client: Client, alpha: Tenant, settings: Any, days: int) -> None:
    settings.SESSION_COOKIE_AGE = 86_400 * days
    assert int(log_in(client, alpha)["max-age"]) == 86_400 * days


def test_a_new_password_begins_the_session_anew(client: Client, alpha: Tenant, clock: FakeClock) -> None:
    log_in(client, alpha)
    end = end_ms(client)
    clock.advance(DAY_MS)
    new = "four green lamps 9"
    said = {"old_password": "correct horse", "new_password1": new, "new_password2": new}
    assert client.post("/account/password", said).status_code == 302
    assert end_ms(client) == end + DAY_MS


def test_a_session_of_an_older_version_begins_when_it_is_next_saved(clock: FakeClock) -> None:
    older = SessionStore()
    older["x"] = 1
    older.save()
    row = Session.objects.get()
    row.session_data = older.encode({"x": 1})
    row.save()
    again = SessionStore(older.session_key)
    assert again["x"] == 1
    again["x"] = 2
    again.save()
    assert Session.objects.get().expire_date == moment(clock.now_ms() + 1000 * LIFE_S)
    assert SessionStore(older.session_key)["begun_ms"] == clock.now_ms()
