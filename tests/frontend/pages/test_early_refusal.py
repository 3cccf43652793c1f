"""A login that has to wait is refused without a view, by what the process remembers; every other one gets its view."""

import re
from collections.abc import Iterator
from io import BytesIO
from typing import Any
from urllib.parse import urlencode

import pytest
from django.template import Engine
from django.test import Client

from frontend.pages.account import early_refusal
from spm.accounts.logins import attempts
from spm.accounts.logins.recent_refusals import process_refusals
from spm.clock import FakeClock
from tests.support.people import Tenant

FORM = "application/x-www-form-urlencoded"
Answer = tuple[str, dict[str, str], str]


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeClock]:
    """The clock of logins and of their refusals."""
    clock = FakeClock()
    monkeypatch.setattr(attempts, "_clock", clock)
    monkeypatch.setattr(early_refusal, "_clock", clock)
    for memory in (attempts._journal, process_refusals):
        memory.clear()
    yield clock
    for memory in (attempts._journal, process_refusals):
        memory.clear()


@pytest.fixture
def throttled(client: Client, alpha: Tenant) -> str:
    """The login of an account that has to wait."""
    login = alpha.owner.get_username()
    for _ in range(6):
        client.post("/login", {"username": login, "password": "wrong"}, REMOTE_ADDR="192.0.2.1")
    return login


def ask(login: str, address: str = "192.0.2.1", content_type: str = FORM, more: str = "") -> Answer | None:
    body = (urlencode({"username": login, "password": "x"}) + more).encode()
    environ = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/login",
        "SCRIPT_NAME": "",
        "QUERY_STRING": "",
        "SERVER_NAME": "testserver",
        "SERVER_PORT": "80",
        "wsgi.url_scheme": "http",
        "REMOTE_ADDR": address,
        "CONTENT_TYPE": content_type,
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": BytesIO(body),
    }
    begun: list[Any] = []
    answer = early_refusal.refuse_at_once(environ, lambda *head: begun.append(head))
    return None if answer is None else (begun[0][0], dict(begun[0][1]), b"".join(answer).decode())


def test_a_throttled_login_is_refused_without_the_database(throttled: str, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        answer = ask(throttled)
    assert answer is not None
    status, headers, page = answer
    assert (status, headers["Retry-After"]) == ("429 Too Many Requests", "2")
    assert "There were too many wrong logins. Please try again in 2 seconds." in page
    assert (headers["Cache-Control"], headers["X-Frame-Options"]) == ("no-store", "DENY")
    assert "script" not in headers["Content-Security-Policy"]


def test_the_page_of_a_refusal_is_made_of_nothing_that_was_sent(throttled: str) -> None:
    answer = ask(throttled)
    assert answer is not None
    assert throttled not in answer[2]


def test_the_page_of_a_refusal_leads_back_to_its_own_address_with_where_one_came_from(throttled: str) -> None:
    answer = ask(throttled)
    assert answer is not None
    assert re.findall(r'<a [^>]*href="([^"]*)"', answer[2]) == [""]


def test_the_page_of_a_refusal_has_no_other_files_than_that_of_a_database_that_is_away() -> None:
    files = [
        re.findall(r"{% static '([^']+)' %}", Engine.get_default().get_template(name).source)
        for name in ("login_refused.html", "503.html")
    ]
    assert files[0] == files[1] != []


@pytest.mark.parametrize(
    "other",
    [
        {"login": "nobody"},
        {"address": "203.0.113.1"},
        {"content_type": "multipart/form-data; boundary=x"},
        {"content_type": FORM + "; charset=latin-1"},
        {"more": "&a=1" * 2_000},
    ],
    ids=["another account", "another network", "no plain form", "another charset", "too many fields"],
)
def test_every_other_login_gets_its_view(throttled: str, other: dict[str, str]) -> None:
    assert ask(**{"login": throttled, **other}) is None


def test_a_login_gets_its_view_again_after_the_pause(throttled: str, clock: FakeClock) -> None:
    clock.advance(2_000)
    assert ask(throttled) is None
