"""The password hasher: Argon2, of which a process computes few at a time.

A hash takes tens of megabytes and a core for its time, and strangers can ask for as many as they like. So each needs a
slot, of which strangers get one: a core stays free for everybody else. Callers wait in order, those of known origin
before strangers; beyond a bound of waiting callers, or of time, a caller is refused. A stored hash that needs more
memory than ours takes all slots. The hash itself does not hold the interpreter's lock, and a thread of low priority
computes it: pages, queries and bodies that arrive have a processor first. Enter by ``BoundedArgon2``, the setting
``PASSWORD_HASHERS``.
"""

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import TypeVar

from django.contrib.auth.hashers import Argon2PasswordHasher

from spm.accounts.logins import limits
from spm.errors import LoginRefused

T = TypeVar("T")
_NICE = 10  # above the process's own: a tenth of what others get of a full processor
_is_stranger: ContextVar[bool] = ContextVar("is_stranger", default=False)


@contextmanager
def as_stranger(is_stranger: bool) -> Iterator[None]:
    """Within this, hashes are computed for somebody of unknown origin, if ``is_stranger``."""
    token = _is_stranger.set(is_stranger)
    try:
        yield
    finally:
        _is_stranger.reset(token)


class HashSlots:
    """``at_once`` slots, one for strangers; ``waiting_max`` callers of each kind wait, for ``wait_s`` at most."""

    def __init__(self, at_once: int, waiting_max: int, wait_s: float) -> None:
        self._at_once, self._waiting_max, self._wait_s = at_once, waiting_max, wait_s
        self._changed = threading.Condition()
        self._running, self._stranger_runs = 0, False
        self._known: deque[object] = deque()
        self._strangers: deque[object] = deque()
        self._coming = {True: 0, False: 0}  # by whether they are strangers

    @contextmanager
    def take(self, weight: int, *, is_stranger: bool) -> Iterator[None]:
        """Wait for ``weight`` slots and hold them; raises ``LoginRefused`` when too many wait, or for too long."""
        weight = min(weight, self._at_once)
        with self._changed:
            self._wait(weight, self._strangers if is_stranger else self._known)
            self._running += weight
            self._stranger_runs |= is_stranger
        try:
            yield
        finally:
            with self._changed:
                self._running -= weight
                self._stranger_runs &= not is_stranger
                self._changed.notify_all()

    @contextmanager
    def place(self, *, is_stranger: bool) -> Iterator[None]:
        """Be one of those who are about to ``take`` a slot; raises ``LoginRefused`` where as many are as may take it.

        Who is refused here has cost nothing yet.
        """
        most = self._waiting_max + (1 if is_stranger else self._at_once)
        with self._changed:
            if self._coming[is_stranger] >= most:
                raise _busy()
            self._coming[is_stranger] += 1
        try:
            yield
        finally:
            with self._changed:
                self._coming[is_stranger] -= 1

    def _wait(self, weight: int, queue: deque[object]) -> None:
        ticket = object()
        queue.append(ticket)
        try:
            if self._is_due(ticket, weight):
                return
            can_wait = len(queue) <= self._waiting_max
            if not can_wait or not self._changed.wait_for(lambda: self._is_due(ticket, weight), self._wait_s):
                raise _busy()
        finally:
            queue.remove(ticket)
            self._changed.notify_all()

    def _is_due(self, ticket: object, weight: int) -> bool:
        is_first = (self._known or self._strangers)[0] is ticket
        may_run = bool(self._known) or not self._stranger_runs
        return is_first and may_run and self._running + weight <= self._at_once


def _busy() -> LoginRefused:
    text = "Many people are logging in at this moment. Please try again in a few seconds."
    return LoginRefused(text, limits.PASSWORDS_BUSY_RETRY_S)


@lru_cache(maxsize=1)
def _threads(process: int) -> ThreadPoolExecutor:
    """The threads of this process: those of a parent do not survive a fork."""
    return ThreadPoolExecutor(limits.PASSWORD_HASHES_AT_ONCE, f"hash-{process}", initializer=_lower_priority)


def _lower_priority() -> None:
    if sys.platform == "linux":  # elsewhere it is the priority of the whole process
        os.nice(_NICE)


def _aside(compute: Callable[[], T]) -> T:
    return _threads(os.getpid()).submit(compute).result()


SLOTS = HashSlots(limits.PASSWORD_HASHES_AT_ONCE, limits.PASSWORD_HASHES_WAITING_MAX, limits.PASSWORD_HASH_WAIT_S)


class BoundedArgon2(Argon2PasswordHasher):
    """Django's hasher with our parameters; each hash needs a slot."""

    time_cost = limits.PASSWORD_HASH_PASSES
    memory_cost = limits.PASSWORD_HASH_KIB
    parallelism = 1

    def encode(self, password: str, salt: str) -> str:
        """Hash a new password."""
        with SLOTS.take(1, is_stranger=_is_stranger.get()):
            encode = super().encode
            return _aside(lambda: encode(password, salt))

    def verify(self, password: str, encoded: str) -> bool:
        """Check a password against a stored hash."""
        weight = -(-self.decode(encoded)["memory_cost"] // self.memory_cost)
        with SLOTS.take(weight, is_stranger=_is_stranger.get()):
            verify = super().verify
            return _aside(lambda: verify(password, encoded))
