"""A database that does not answer is 503 with Retry-After at every address, and nothing of its own words is shown."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import InterfaceError, OperationalError, connection
from django.test import Client

from tests.support.people import Tenant

pytestmark = pytest.mark.django_db
INSIDES = "10.20.30.40"
ERRORS = [
    OperationalError(f'connection to server at "{INSIDES}", port 5432 failed: Connection refused'),
    InterfaceError(f"connection to {INSIDES} already closed"),
]
PROMETHEUS = ["/prometheus/api/v1/query?query=up", "/prometheus/api/v1/labels", "/prometheus/federate?match[]=up"]
REST = ["/api/v1/apps", "/api/v1/apps/1/balance", "/api/v1/agents", "/api/v1/export?match[]=up"]
PAGES = ["/", "/explore", "/alerts/", "/admin/"]


@contextmanager
def away(error: Exception) -> Iterator[None]:
    """The database fails every statement."""

    def fail(*_: Any) -> None:
        raise error

    with connection.execute_wrapper(fail):
        yield


@pytest.fixture
def program(alpha: Tenant) -> Client:
    """A program with a token that was never used before."""
    return Client(raise_request_exception=False, headers={"Authorization": f"Bearer {alpha.token}"})


@pytest.mark.parametrize("error", ERRORS, ids=["refused", "closed"])
@pytest.mark.parametrize("address", [*PROMETHEUS, *REST])
def test_programs_get_503_and_when_to_try_again(address: str, error: Exception, program: Client) -> None:
    with away(error):
        answer = program.get(address)
    assert (answer.status_code, answer["Content-Type"].split(";")[0]) == (503, "application/json"), answer.content
    assert "the database does not answer now" in str(answer.json())
    assert int(answer["Retry-After"]) > 0
    assert INSIDES not in answer.content.decode()


@pytest.mark.parametrize(
    "send",
    [
        lambda c: c.post("/write", b"a v=1", "text/plain"),
        lambda c: c.post("/api/v1/import", b"{}", "application/x-ndjson"),
    ],
)
def test_senders_get_503_and_when_to_send_again(send: Callable[[Client], Any], program: Client) -> None:
    with away(ERRORS[0]):
        answer = send(program)
    assert (answer.status_code, int(answer["Retry-After"]) > 0) == (503, True)
    assert INSIDES not in answer.content.decode()


@pytest.mark.parametrize("address", PAGES)
def test_people_get_a_page_that_says_so(address: str, desk: Client) -> None:
    desk.raise_request_exception = False
    with away(ERRORS[0]):
        answer = desk.get(address)
    assert (answer.status_code, int(answer["Retry-After"]) > 0) == (503, True)
    assert "The database does not answer now" in answer.content.decode()
    assert INSIDES not in answer.content.decode()


def test_every_other_error_stays_an_error_of_the_server(desk: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.raise_request_exception = False
    monkeypatch.setattr("django.shortcuts.render", lambda *_: 1 / 0)
    with away(ZeroDivisionError("a bug")):
        answer = desk.get("/")
    assert answer.status_code == 500
