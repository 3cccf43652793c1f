"""Deliveries between the connection's thread and the writing one, which is woken for many at a time.

Waking a thread for each message costs more than everything else that is done for a small one: two threads of Python
take turns, and each turn waits for the other. ``put`` is for the one thread, ``wait`` and ``take`` are for the other.
"""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from ingest.transport.delivery import Delivery
from spm.clock import Clock


class Idle:
    """How long a thread has had nothing to do. Another thread may ask, and may be off by one wait for a moment."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sum_s = 0.0
        self._since: float | None = None

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around each wait."""
        self._since = self._clock.monotonic()
        try:
            yield
        finally:
            self._sum_s, self._since = self.seconds(), None

    def seconds(self) -> float:
        """So far, the present wait included."""
        since = self._since
        return self._sum_s + (0.0 if since is None else self._clock.monotonic() - since)


class Inbox:
    """First in, first out. The prefetch of the queues bounds it."""

    def __init__(self) -> None:
        self._deliveries: deque[Delivery] = deque()
        self._enough = threading.Event()
        self._wanted = 1
        self._closed = False

    def put(self, delivery: Delivery) -> None:
        """Add one; wakes who waits when there are enough, or when its queue sends fewer than that."""
        self._deliveries.append(delivery)
        if len(self._deliveries) >= self._wanted or delivery.share < self._wanted:
            self._enough.set()

    def take(self) -> Delivery | None:
        """The oldest, if there is one."""
        return self._deliveries.popleft() if self._deliveries else None

    def wait(self, wanted: int, timeout_s: float | None) -> None:
        """Until so many are there, a scarce one comes, the time is over, or the inbox is closed."""
        self._enough.clear()
        self._wanted = wanted
        if not self._closed and len(self._deliveries) < wanted:
            self._enough.wait(timeout_s)

    def close(self) -> None:
        """Nobody waits any more."""
        self._closed = True
        self._enough.set()
