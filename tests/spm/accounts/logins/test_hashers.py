"""At most two password hashes at a time, and few callers that wait for one."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from django.contrib.auth.hashers import Argon2PasswordHasher

from spm.accounts.logins import hashers, limits
from spm.accounts.logins.hashers import BoundedArgon2, HashSlots, as_stranger
from spm.errors import LoginRefused

WAIT_S = 60.0


class Hall:
    """Slots, callers that keep theirs until they are let go, and the order in which they got them."""

    def __init__(self, slots: HashSlots) -> None:
        self.slots, self.running, self.most, self.order = slots, 0, 0, list[str]()
        self._changed = threading.Condition()
        self._may_leave = 0
        self._pool = ThreadPoolExecutor(16)

    def call(self, name: str, *, weight: int = 1, is_stranger: bool = False) -> Future[None]:
        return self._pool.submit(self._take, name, weight, is_stranger)

    def _take(self, name: str, weight: int, is_stranger: bool) -> None:
        with self.slots.take(weight, is_stranger=is_stranger), self._changed:
            self.running += weight
            self.most = max(self.most, self.running)
            self.order.append(name)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._may_leave > 0, WAIT_S)
            self._may_leave -= 1
            self.running -= weight

    def let_go(self, count: int) -> None:
        """Let so many callers leave their slots."""
        with self._changed:
            self._may_leave += count
            self._changed.notify_all()

    def until(self, calls: int) -> None:
        """Wait until so many callers got a slot."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.order) >= calls, WAIT_S)

    def until_waiting(self, count: int) -> None:
        """Wait until so many callers wait."""
        for _ in range(12_000):
            if len(self.slots._known) + len(self.slots._strangers) == count:
                return
            threading.Event().wait(0.005)
        raise AssertionError(f"no {count} callers wait")


@contextmanager
def hall(waiting_max: int = 3, wait_s: float = WAIT_S) -> Iterator[Hall]:
    people = Hall(HashSlots(2, waiting_max, wait_s))
    yield people
    people.let_go(100)
    people._pool.shutdown()


def test_two_callers_run_and_the_others_follow_in_their_order() -> None:
    with hall() as people:
        calls = []
        for number, name in enumerate("abcde"):
            calls.append(people.call(name))
            people.until(number + 1) if number < 2 else people.until_waiting(number - 1)
        for left in (3, 4, 5):
            people.let_go(1)
            people.until(left)
        people.let_go(2)
        assert [call.result(WAIT_S) for call in calls] == [None] * 5
        assert (people.most, "".join(people.order)) == (2, "abcde")


def test_one_more_than_may_wait_is_refused_at_once() -> None:
    with hall(waiting_max=3) as people:
        people.call("running", is_stranger=True)
        people.until(1)
        for number in range(3):
            people.call(str(number), is_stranger=True)
            people.until_waiting(number + 1)
        with pytest.raises(LoginRefused) as refusal:
            people.call("one more", is_stranger=True).result(WAIT_S)
        assert refusal.value.retry_after_s == limits.PASSWORDS_BUSY_RETRY_S


def test_strangers_get_one_slot_and_known_people_the_other_at_once() -> None:
    with hall() as people:
        people.call("a stranger", is_stranger=True)
        people.until(1)
        people.call("another", is_stranger=True)
        people.until_waiting(1)
        people.call("known")
        people.until(2)
        assert people.order == ["a stranger", "known"]
        people.let_go(2)
        people.until(3)


def test_known_people_go_before_strangers() -> None:
    with hall() as people:
        for number, is_stranger in enumerate([True, False]):
            people.call(str(number), is_stranger=is_stranger)
            people.until(number + 1)
        people.call("stranger", is_stranger=True)
        people.until_waiting(1)
        people.call("known")
        people.until_waiting(2)
        people.let_go(1)
        people.until(3)
        assert people.order[2] == "known"


def test_a_wait_ends_with_a_refusal() -> None:
    with hall(wait_s=0.05) as people:
        for number in range(2):
            people.call(str(number))
            people.until(number + 1)
        with pytest.raises(LoginRefused):
            people.call("late").result(WAIT_S)
        people.let_go(1)
        people.call("next")  # the late one left no trace
        people.until(3)


def test_a_failed_hash_gives_its_slot_back() -> None:
    slots = HashSlots(1, 0, 0.1)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), slots.take(1, is_stranger=False):
            raise ZeroDivisionError
    with slots.take(1, is_stranger=False):
        pass


def test_a_hash_that_needs_twice_the_memory_takes_both_slots() -> None:
    with hall() as people:
        people.call("old", weight=3)
        people.until(1)
        people.call("new")
        people.until_waiting(1)
        assert people.order == ["old"]


class Few(BoundedArgon2):
    """A cheap one."""

    time_cost, memory_cost = 1, 64


@pytest.fixture
def weights(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """The weight of each turn, and whether a stranger took it."""
    taken: list[tuple[int, bool]] = []

    @contextmanager
    def take(weight: int, *, is_stranger: bool) -> Iterator[None]:
        taken.append((weight, is_stranger))
        yield

    monkeypatch.setattr(hashers.SLOTS, "take", take)
    return taken


def test_every_hash_needs_slots_by_its_memory(weights: list[tuple[int, bool]]) -> None:
    hasher, old = Few(), Argon2PasswordHasher()
    old.memory_cost, old.time_cost, old.parallelism = 129, 1, 1
    with as_stranger(True):
        own = hasher.encode("secret", hasher.salt())
    assert hasher.verify("secret", own)
    assert not hasher.verify("wrong", own)
    foreign = old.encode("secret", "saltsalt")
    assert hasher.verify("secret", foreign)
    assert hasher.must_update(foreign)
    assert not hasher.must_update(own)
    assert weights == [(1, True), (1, False), (1, False), (3, False)]


def test_the_product_hashes_within_eighty_megabytes_and_a_core_each() -> None:
    assert limits.PASSWORD_HASHES_AT_ONCE * BoundedArgon2.memory_cost * 1_024 <= 80_000_000
    assert BoundedArgon2.parallelism == 1


@pytest.mark.parametrize("act", ["encode", "verify"])
def test_a_hash_is_computed_at_a_low_priority_and_its_caller_keeps_its_own(
    monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    def priority() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    monkeypatch.setattr(Argon2PasswordHasher, act, lambda *_: priority())
    encoded = f"argon2$argon2id$v=19$m={limits.PASSWORD_HASH_KIB},t=1,p=1$c2FsdHNhbHQ$aGFzaA"
    before = priority()
    computed = {"encode": BoundedArgon2().encode, "verify": BoundedArgon2().verify}[act]("word", encoded)
    assert computed == min(19, before + 10)
    assert priority() == before


def test_a_hash_that_fails_fails_for_its_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> str:
        raise MemoryError

    monkeypatch.setattr(Argon2PasswordHasher, "encode", fail)
    with pytest.raises(MemoryError):
        BoundedArgon2().encode("word", "saltsaltsalt")
