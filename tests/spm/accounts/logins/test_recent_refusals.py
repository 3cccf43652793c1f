"""A process that has just refused a login refuses the next ones by its memory, and says and counts the same."""

from collections.abc import Iterator

import pytest
from django.test import RequestFactory

from spm.accounts.logins import limits
from spm.accounts.logins.budgets import LoginThrottled
from spm.accounts.logins.origins import DEVICE_COOKIE, Origin, origin_of
from spm.accounts.logins.recent_refusals import RecentRefusals, process_refusals
from spm.accounts.logins.rules import Scope
from spm.accounts.models import AuditEntry
from spm.clock import FakeClock
from tests.spm.accounts.logins.conftest import WRONG, Browser

pytestmark = pytest.mark.usefixtures("ada")


@pytest.fixture(autouse=True)
def no_refusals() -> Iterator[None]:
    process_refusals.clear()
    yield
    process_refusals.clear()


def origin(login: str = "ada", address: str = "192.0.2.1", device: str = "") -> Origin:
    request = RequestFactory().post("/login", REMOTE_ADDR=address)
    request.COOKIES.update({DEVICE_COOKIE: device} if device else {})
    return origin_of(request, login)


@pytest.mark.parametrize("login", ["ada", "ada@example.org", "nobody"])
def test_a_refused_login_is_refused_again_with_the_time_that_is_left(login: str, clock: FakeClock) -> None:
    assert process_refusals.refuse(origin(login), clock.now_ms()) is None
    assert Browser().guess(6, login)[-1] == "refused"
    clock.advance(900)
    refusal = process_refusals.refuse(origin(login), clock.now_ms())
    assert isinstance(refusal, LoginThrottled)
    assert (str(refusal)[-13:], refusal.retry_after_s) == ("in 2 seconds.", 2)
    clock.advance(1_100)
    assert process_refusals.refuse(origin(login), clock.now_ms()) is None


def test_a_refusal_is_remembered_for_moments_however_long_its_pause_is(clock: FakeClock) -> None:
    Browser().guess(6)
    for _ in range(5):
        clock.advance(limits.LOGIN_PAUSE_MAX_MS)
        assert Browser().guess(2)[-1] == "refused"
    clock.advance(limits.LOGIN_REFUSAL_KNOWN_MS - 1)
    assert process_refusals.refuse(origin(), clock.now_ms()) is not None
    clock.advance(1)
    assert process_refusals.refuse(origin(), clock.now_ms()) is None


@pytest.mark.parametrize(
    "other",
    [{"login": "eve"}, {"address": "203.0.113.1"}, {"device": "0" * 32}],
    ids=["another account", "another network", "a device"],
)
def test_a_login_from_elsewhere_is_for_the_database(other: dict[str, str], clock: FakeClock) -> None:
    Browser().guess(6)
    assert process_refusals.refuse(origin(), clock.now_ms()) is not None
    assert process_refusals.refuse(origin(**other), clock.now_ms()) is None


def test_a_right_login_forgets_all_refusals(clock: FakeClock) -> None:
    Browser().guess(6)
    assert Browser("203.0.113.1").log_in() == "right"
    assert process_refusals.refuse(origin(), clock.now_ms()) is None


def test_refusals_by_memory_are_counted_and_left_to_the_database_where_an_entry_is_due(clock: FakeClock) -> None:
    Browser().guess(6)
    by_memory = 0
    for _ in range(2_000):
        if process_refusals.refuse(origin(), clock.now_ms()) is None:
            assert Browser().log_in("ada", WRONG) == "refused"
        else:
            by_memory += 1
    counts = [entry.detail["count"] for entry in AuditEntry.objects.filter(action="login throttled").order_by("pk")]
    assert (counts, by_memory) == ([1, 10, 100, 1_000], 1_997)


def test_a_clock_that_falls_back_asks_the_database(clock: FakeClock) -> None:
    Browser().guess(6)
    assert process_refusals.refuse(origin(), clock.now_ms() - 1) is None


def test_the_number_of_refusals_is_bounded(monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> None:
    monkeypatch.setattr(limits, "LOGIN_REFUSALS_KNOWN_MAX", 3)
    refusals = RecentRefusals()
    for number in range(10):
        throttled = LoginThrottled(2_000, Scope.PAIR)
        refusals.note(origin(f"name{number}"), throttled, lambda _: True, clock.now_ms())
    known = [refusals.refuse(origin(f"name{number}"), clock.now_ms()) is not None for number in range(10)]
    assert known == [False] * 7 + [True] * 3
