"""Remembers for a while that the store did not answer, so that no further body waits for it at admission.

Enter by ``StorePause``: ``may_ask`` before the store is asked, then ``ask`` for a small call that must answer within
``STORE_WAIT_S``, and ``answered`` or ``failed``. During a pause bodies are admitted as they are while the store does
not answer; then one of them asks again, and the others go on.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import Any, TypeVar

from spm.clock import Clock
from spm.errors import StoreUnavailable

STORE_PAUSE_S = 10  # after a call without an answer, in which no body waits for the store before it is accepted
STORE_WAIT_S = 0.5  # for one row of a store that hangs: its own time-out is meant for runs, not for senders

T = TypeVar("T")
Job = tuple[Future[Any], Callable[[], Any]]


class StorePause:
    """Whether the store of one process may be asked now. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._until: float | None = None  # monotonic seconds; None while the store answers
        self._helpers = _Helpers()

    @property
    def is_on(self) -> bool:
        """Whether nobody asks the store now."""
        until = self._until
        return until is not None and self._clock.monotonic() < until

    def may_ask(self) -> bool:
        """Whether the caller may ask: everybody while the store answers, after a pause one alone."""
        if self._until is None:
            return True
        with self._lock:
            if self.is_on:
                return False
            self.failed()
            return True

    def ask(self, call: Callable[[], T]) -> T:
        """Return what a call to the store returns; raise its error, or ``StoreUnavailable`` after ``STORE_WAIT_S``."""
        future = self._helpers.submit(call)
        if not wait([future], STORE_WAIT_S).done:
            raise StoreUnavailable(f"the store has not answered for {STORE_WAIT_S} s")
        return future.result()

    def answered(self) -> None:
        """End the pause: the store answers."""
        self._until = None

    def failed(self) -> None:
        """Begin a pause: the store did not answer."""
        self._until = self._clock.monotonic() + STORE_PAUSE_S


class _Helpers:
    """Threads that call in place of others, as many as calls are under way; no process waits for them at its end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid, self._idle = 0, 0
        self._jobs: SimpleQueue[Job] = SimpleQueue()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            if self._pid != os.getpid():  # a fork copies no threads
                self._pid, self._idle, self._jobs = os.getpid(), 0, SimpleQueue()
            self._jobs.put((future, call))
            if self._idle:
                self._idle -= 1
            else:
                threading.Thread(target=self._work, args=[self._jobs], daemon=True, name="ask the store").start()
        return future

    def _work(self, jobs: SimpleQueue[Job]) -> None:
        while True:
            future, call = jobs.get()
            try:
                future.set_result(call())
            except BaseException as error:  # it belongs to the caller
                future.set_exception(error)
            with self._lock:
                self._idle += 1
