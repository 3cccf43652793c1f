"""Lets the threads of a process write to LMDB in the order in which they came.

LMDB has one writer, and its lock is not fair: a thread that writes again at once mostly gets it before those that wait.
So a commit of one tenant would wait for several of another one. Enter by ``WriterTurns``.
"""

import threading
from collections import deque


class WriterTurns:
    """A lock that the longest waiting thread gets next; its holder sees whether others wait. Not reentrant."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_taken = False
        self._waiting: deque[threading.Lock] = deque()

    @property
    def is_wanted(self) -> bool:
        """Whether another thread waits."""
        return bool(self._waiting)

    def __enter__(self) -> None:
        with self._lock:
            if not self._is_taken:
                self._is_taken = True
                return
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        try:
            turn.acquire()  # the holder before releases it
        except BaseException:  # a signal's, in the main thread
            self._give_up(turn)
            raise

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._pass_on()

    def _give_up(self, turn: threading.Lock) -> None:
        with self._lock:
            if turn in self._waiting:
                self._waiting.remove(turn)
            else:  # it had just been given
                self._pass_on()

    def _pass_on(self) -> None:
        if self._waiting:
            self._waiting.popleft().release()
        else:
            self._is_taken = False
