"""Lets the threads of a process write to LMDB in the order in which they came; small writes join the one that is on.

LMDB has one writer, and its lock is not fair: a thread that writes again at once mostly gets it before those that
wait. So a commit of one tenant would wait for several of another one. Enter by ``WriterLine``.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar, cast

JOINED_BYTES_MAX = 200_000  # of all writes that join another one's transaction: some milliseconds

_T = TypeVar("_T")


@dataclass(slots=True, eq=False)
class _Write(Generic[_T]):
    """A write that a thread wants done, and how far it is: waiting, joined (to another one), leading or done."""

    act: Callable[[Any], _T]
    size: int
    state: str = "waiting"
    result: _T | None = None
    woken: threading.Semaphore = field(default_factory=partial(threading.Semaphore, 0))  # once it leads or is done


class WriterLine:
    """The writes of a process to one environment. Thread-safe.

    A transaction is synced whatever joined it; if it fails, each of its writes is done again by itself.
    """

    def __init__(self, env: Any) -> None:
        self._env, self._lock = env, threading.Lock()
        self._is_taken = False
        self._waiting: deque[_Write[Any]] = deque()

    @property
    def is_wanted(self) -> bool:
        """Whether another thread waits."""
        return bool(self._waiting)

    def write(self, act: Callable[[Any], _T], size: int) -> _T:
        """Call ``act``, which writes some ``size`` bytes, in a transaction; return its result once it is durable."""
        own = _Write(act, size)
        with self._lock:
            own.state = "waiting" if self._is_taken else "leading"
            self._is_taken = True
            if own.state == "waiting":
                self._waiting.append(own)
        if own.state != "leading":
            self._wait(own)
        if own.state == "leading":
            self._lead(own)
        return cast(_T, own.result)

    def _wait(self, own: _Write[Any]) -> None:
        try:
            own.woken.acquire()
        except BaseException:  # a signal's, in the main thread
            with self._lock:
                if own.state == "waiting":
                    self._waiting.remove(own)
                elif own.state == "leading":
                    self._pass_on()
                own.state = "done"
            raise

    def _lead(self, own: _Write[Any]) -> None:
        joined: list[_Write[Any]] = []
        try:
            try:
                with self._env.begin(write=True) as transaction:
                    own.result = own.act(transaction)
                    joined = self._join()
                    for each in joined:
                        each.result = each.act(transaction)
            except Exception:
                if not joined:
                    raise
                self._part(joined)
                with self._env.begin(write=True) as transaction:
                    own.result = own.act(transaction)
        except BaseException:
            self._part(joined)
            raise
        finally:
            with self._lock:
                own.state = "done"
                for each in joined:
                    each.state = "done"
                    each.woken.release()
                self._pass_on()

    def _join(self) -> list[_Write[Any]]:
        """Take small writes out of the line."""
        joined, room = list[_Write[Any]](), JOINED_BYTES_MAX
        with self._lock:
            for each in list(self._waiting):
                if each.size <= room:
                    self._waiting.remove(each)
                    each.state = "joined"
                    joined.append(each)
                    room -= each.size
        return joined

    def _part(self, joined: list[_Write[Any]]) -> None:
        """Put writes back whose transaction has failed; they join no other one."""
        with self._lock:
            while joined:
                each = joined.pop()
                if each.state == "joined":
                    each.state, each.size = "waiting", JOINED_BYTES_MAX + 1
                    self._waiting.appendleft(each)

    def _pass_on(self) -> None:
        self._is_taken = bool(self._waiting)
        if self._waiting:
            first = self._waiting.popleft()
            first.state = "leading"
            first.woken.release()
