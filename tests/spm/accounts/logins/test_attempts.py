"""Guessing a password is slow from wherever it is done, and locks nobody out who has been here before."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import RequestFactory

from spm.accounts.logins import attempts, hashers, limits
from spm.accounts.models import AuditEntry, LoginBudget, LoginNotice
from spm.clock import FakeClock
from spm.errors import LoginRefused
from tests.spm.accounts.logins.conftest import RIGHT, WRONG, Browser, attackers

pytestmark = pytest.mark.usefixtures("ada")
DAY = 86_400_000


@pytest.fixture
def strangers_hashes(monkeypatch: pytest.MonkeyPatch, settings: Any, ada: User) -> list[bool]:
    """Whether each hash that the product's own hasher computed was one for a stranger."""
    computed: list[bool] = []
    settings.PASSWORD_HASHERS = ["spm.accounts.logins.hashers.BoundedArgon2"]
    monkeypatch.setattr(hashers.BoundedArgon2, "memory_cost", 64)

    @contextmanager
    def take(weight: int, *, is_stranger: bool) -> Iterator[None]:
        computed.append(is_stranger)
        yield

    ada.set_password(RIGHT)
    ada.save()
    monkeypatch.setattr(hashers.SLOTS, "take", take)
    return computed


def entries(action: str) -> list[AuditEntry]:
    return list(AuditEntry.objects.filter(action=action).order_by("pk"))


def test_a_stranger_has_five_tries_and_then_waits_longer_each_time(clock: FakeClock) -> None:
    stranger = Browser()
    assert stranger.guess(7) == ["wrong"] * 5 + ["refused"] * 2
    for pause_ms in (2_000, 4_000, 8_000):
        clock.advance(pause_ms - 1)
        assert stranger.guess(1) == ["refused"]
        clock.advance(1)
        assert stranger.guess(2) == ["wrong", "refused"]


@pytest.mark.parametrize("login", ["ada", "nobody"])
def test_an_account_that_does_not_exist_behaves_as_one_that_does(login: str, clock: FakeClock) -> None:
    stranger = Browser()
    first = stranger.guess(6, login)
    clock.advance(2_000)
    assert first + stranger.guess(2, login) == ["wrong"] * 5 + ["refused", "wrong", "refused"]


@pytest.mark.parametrize("login", ["ada", "nobody"])
def test_known_and_unknown_accounts_cost_one_hash_and_refused_tries_none(
    login: str, strangers_hashes: list[bool]
) -> None:
    assert Browser().guess(9, login).count("refused") == 4
    assert strangers_hashes == [True] * 5


def test_somebody_of_known_origin_does_not_wait_behind_strangers(strangers_hashes: list[bool]) -> None:
    laptop = Browser()
    laptop.log_in()
    strangers_hashes.clear()
    laptop.log_in()
    assert strangers_hashes == [False]


def test_a_refusal_says_when_to_try_again(clock: FakeClock) -> None:
    stranger, request = Browser(), RequestFactory().post("/login", REMOTE_ADDR="192.0.2.1")
    stranger.guess(5)
    with pytest.raises(LoginRefused, match=r"try again in 2 seconds\.") as refusal:
        attempts.log_in(request, "ada", RIGHT)
    assert refusal.value.retry_after_s == 2
    clock.advance(1_500)
    with pytest.raises(LoginRefused, match=r"try again in 1 second\.") as refusal:
        attempts.log_in(request, "ada", RIGHT)


def test_one_guesser_leaves_the_account_to_its_owner_elsewhere() -> None:
    Browser("198.51.100.1").guess(2_400)
    assert Browser("203.0.113.9").log_in() == "right"


def test_many_guessers_share_the_tries_of_an_account(clock: FakeClock) -> None:
    results = [result for attacker in attackers(1_000) for result in attacker.guess(1)]
    assert results.count("wrong") == limits.LOGIN_ACCOUNT_FREE
    clock.advance(DAY // 24)
    results = [result for attacker in attackers(1_000) for result in attacker.guess(1)]
    assert results.count("wrong") == 1


def test_no_attack_locks_out_a_device_or_a_network_from_which_the_owner_has_logged_in(clock: FakeClock) -> None:
    laptop, desktop = Browser("203.0.113.1"), Browser("203.0.113.2")
    assert (laptop.log_in(), desktop.log_in()) == ("right", "right")
    for _ in range(3):
        clock.advance(DAY)
        for attacker in attackers(30):
            attacker.guess(3)
        assert Browser("203.0.113.3").log_in() == "refused"  # nobody knows this one
        laptop.address = f"203.0.113.{clock.now_ms() % 100 + 100}"  # another hotel
        assert laptop.log_in() == "right"
        desktop.device = ""  # a private window
        assert desktop.log_in() == "right"


def test_a_guesser_in_the_owners_network_does_not_lock_out_the_owners_device() -> None:
    laptop = Browser()
    laptop.log_in()
    assert "refused" in Browser(laptop.address).guess(20)
    assert laptop.log_in() == "right"


def test_a_stolen_device_guesses_no_faster(clock: FakeClock) -> None:
    thief = Browser()
    thief.log_in()
    thief.address = "203.0.113.7"
    assert thief.guess(20).count("wrong") == limits.LOGIN_KNOWN_FREE
    clock.advance(2_000)
    assert thief.guess(2) == ["wrong", "refused"]


def test_a_made_up_device_id_is_a_stranger_and_leaves_no_row() -> None:
    rows = []
    for number in range(3):
        Browser(device=f"{number:032x}").guess(1)
        rows.append(LoginBudget.objects.count())
    assert rows == [3, 3, 3]  # account, network, and both


def test_a_login_gives_an_id_that_nobody_could_have_chosen() -> None:
    victim = Browser(device="0" * 32)
    victim.log_in()
    assert victim.device != "0" * 32
    ours = victim.device
    victim.log_in()
    assert victim.device == ours


def test_a_device_is_forgotten_after_a_month_without_a_login(clock: FakeClock) -> None:
    laptop = Browser()
    laptop.log_in()
    clock.advance(limits.LOGIN_KNOWN_MS)
    for attacker in attackers(30):
        attacker.guess(3)
    assert laptop.log_in() == "refused"


def test_an_account_knows_no_more_than_the_newest_origins(clock: FakeClock) -> None:
    first = Browser("203.0.113.1")
    first.log_in()
    for number in range(40):
        clock.advance(1_000)
        Browser(f"192.0.2.{number}").log_in()
    assert LoginBudget.objects.filter(known_until_ms__gt=0).count() == limits.LOGIN_KNOWN_MAX
    for attacker in attackers(30):
        attacker.guess(3)
    assert first.log_in() == "refused"


def test_right_logins_use_up_nothing() -> None:
    for number in range(limits.LOGIN_NETWORK_FREE + 5):
        User.objects.create_user(f"colleague{number}", password=RIGHT)
        assert Browser("192.0.2.1").log_in(f"colleague{number}") == "right"


def test_trying_many_accounts_from_one_network_ends_at_its_tries() -> None:
    results = [Browser("192.0.2.1").log_in(f"name{number}", WRONG) for number in range(200)]
    assert results.count("wrong") == limits.LOGIN_NETWORK_FREE
    assert LoginBudget.objects.count() == 1 + 2 * limits.LOGIN_NETWORK_FREE


def test_a_hash_for_which_there_is_no_slot_gives_the_try_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*_: object, **__: object) -> None:
        raise LoginRefused("busy", 2)

    with monkeypatch.context() as patch:
        patch.setattr(attempts, "authenticate", busy)
        assert Browser().guess(50) == ["refused"] * 50
    assert Browser().guess(5) == ["wrong"] * 5


def test_a_stranger_is_sent_away_before_anything_is_written_while_others_are_about_to_be_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    laptop = Browser()
    laptop.log_in()
    rows = LoginBudget.objects.count()
    slots = hashers.HashSlots(at_once=2, waiting_max=1, wait_s=1)
    monkeypatch.setattr(hashers, "SLOTS", slots)
    with slots.place(is_stranger=True), slots.place(is_stranger=True):
        assert Browser("203.0.113.1").guess(3) == ["refused"] * 3
        assert LoginBudget.objects.count() == rows
        assert not entries("login throttled")
        assert laptop.log_in() == "right"
    assert Browser("203.0.113.1").guess(1) == ["wrong"]


def test_a_code_needs_no_place_among_passwords(ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    slots = hashers.HashSlots(at_once=1, waiting_max=0, wait_s=1)
    monkeypatch.setattr(hashers, "SLOTS", slots)
    request = RequestFactory().post("/account/code", REMOTE_ADDR="192.0.2.1")
    with slots.place(is_stranger=True), slots.place(is_stranger=False):
        assert Browser().log_in() == "refused"
        assert attempts.is_code_of(ada, request, lambda: True)


def test_rows_of_which_nothing_counts_any_more_are_swept(clock: FakeClock) -> None:
    for attacker in attackers(10):
        attacker.guess(1, attacker.address)
    assert LoginBudget.objects.count() == 30
    clock.advance(limits.LOGIN_FORGET_FEW_MS + 1)
    for _ in range(2):
        Browser("203.0.113.1").guess(1)
    assert LoginBudget.objects.count() == 3


def test_guesses_are_written_down_at_once_and_a_flood_in_a_few_entries() -> None:
    Browser("198.51.100.1").guess(2_400)
    failed, throttled = entries("login failed"), entries("login throttled")
    assert [entry.detail["count"] for entry in failed] == [1]
    assert [entry.detail["count"] for entry in throttled] == [1, 10, 100, 1_000]
    assert {(entry.subject, entry.actor_name, entry.detail["address"]) for entry in failed + throttled} == {
        ("ada", "somebody", "198.51.100.1")
    }
    assert datetime.fromisoformat(failed[0].detail["since"])


def test_a_flood_of_names_from_many_networks_fills_no_table() -> None:
    for attacker in attackers(300):
        attacker.guess(1, f"name of {attacker.address}")
    assert len(entries("login failed")) <= limits.LOGIN_AUDIT_PER_MINUTE + 3
    assert entries("login failed")[-1].subject == "many logins"


def test_what_was_typed_as_a_login_is_not_written_down_unless_it_is_one() -> None:
    Browser().guess(20, "my secret password")
    assert {entry.subject for entry in AuditEntry.objects.all()} == {"an unknown login"}


def test_logins_are_written_down_with_their_address(ada: User) -> None:
    Browser().log_in()
    [entry] = entries("login")
    assert (entry.actor, entry.subject, entry.detail["address"]) == (ada, "ada", "192.0.2.1")


def test_the_owner_gets_one_notice_a_day_once_tries_have_to_wait(ada: User, clock: FakeClock) -> None:
    stranger = Browser()
    stranger.guess(4)
    assert not LoginNotice.objects.exists()
    stranger.guess(1)
    notice = LoginNotice.objects.get()
    assert (notice.user, notice.address, notice.at_ms) == (ada, "192.0.2.1", clock.now_ms())
    for attacker in attackers(30):
        attacker.guess(6)
    assert LoginNotice.objects.count() == 1
    clock.advance(limits.LOGIN_NOTICE_EVERY_MS)
    for attacker in attackers(30):
        attacker.guess(6)
    assert LoginNotice.objects.count() == 2


def test_the_device_in_a_notice_may_log_in_during_the_attack() -> None:
    for attacker in attackers(30):
        attacker.guess(6)
    assert Browser("203.0.113.1").log_in() == "refused"
    assert Browser("203.0.113.1", LoginNotice.objects.get().device).log_in() == "right"


@pytest.mark.parametrize("email", ["", None], ids=["no address", "no account"])
def test_nobody_is_written_to_who_is_not_there(email: str | None) -> None:
    User.objects.filter(username="ada").update(**({"username": "eve"} if email is None else {"email": email}))
    assert Browser().guess(6)[-1] == "refused"
    assert not LoginNotice.objects.exists()


def test_an_account_that_is_switched_off_looks_as_one_that_is_not_there(ada: User) -> None:
    User.objects.filter(pk=ada.pk).update(is_active=False)
    assert Browser().log_in() == "wrong"
