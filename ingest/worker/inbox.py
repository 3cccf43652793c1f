"""Passes deliveries from the connection's thread to the writing thread, which is woken for many at a time.

Waking a thread for each message costs more than everything else that is done for a small one: two threads of Python
take turns, and each turn waits for the other. Enter by ``Inbox``: ``put`` is for the connection's thread, ``wait`` and
``take`` are for the writing one. Of messages with samples of long ago its queues take turns. ``Idle`` measures how long
a thread has waited.
"""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from ingest.transport.delivery import Delivery
from ingest.transport.turns import Turns
from spm.clock import Clock


class Idle:
    """How long a thread has had nothing to do. Another thread may ask; it may be wrong by one wait for a moment."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sum_s = 0.0
        self._since: float | None = None

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Measure one wait."""
        self._since = self._clock.monotonic()
        try:
            yield
        finally:
            self._sum_s, self._since = self.seconds(), None

    def seconds(self) -> float:
        """Return the sum of all waits, the present one included."""
        since = self._since
        return self._sum_s + (0.0 if since is None else self._clock.monotonic() - since)


class _QueueTurns:
    """Deliveries of which RabbitMQ's queues take turns. Thread-safe; the part of a deque that an inbox uses."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turns: Turns[Delivery] = Turns()

    def __len__(self) -> int:
        return len(self._turns)

    def append(self, delivery: Delivery) -> None:
        """Add a delivery behind those of its queue."""
        with self._lock:
            self._turns.put(0, delivery.queue, delivery)

    def popleft(self) -> Delivery:
        """Take the oldest of the queue whose turn it is."""
        with self._lock:
            return self._turns.take()


class Inbox:
    """A first-in-first-out queue, or ``by_turns`` one for each queue of RabbitMQ, whose prefetch bounds it."""

    def __init__(self, *, by_turns: bool = False) -> None:
        self._deliveries: deque[Delivery] | _QueueTurns = _QueueTurns() if by_turns else deque()
        self._enough = threading.Event()
        self._wanted_count = 1
        self._closed = False

    def put(self, delivery: Delivery) -> None:
        """Add one; wake the waiting thread when there are enough, or when its queue sends fewer than that."""
        self._deliveries.append(delivery)
        if len(self._deliveries) >= self._wanted_count or delivery.share < self._wanted_count:
            self._enough.set()

    def take(self) -> Delivery | None:
        """Return the oldest, or that of the queue whose turn it is, if there is one."""
        return self._deliveries.popleft() if self._deliveries else None

    def wait(self, count: int, timeout_s: float | None) -> None:
        """Wait until so many are there, one of a scarce queue comes, the time is over, or the inbox is closed."""
        self._enough.clear()
        self._wanted_count = count
        if not self._closed and len(self._deliveries) < count:
            self._enough.wait(timeout_s)

    def close(self) -> None:
        """End every wait, now and later."""
        self._closed = True
        self._enough.set()
