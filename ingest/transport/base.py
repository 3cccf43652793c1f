"""What a transport promises: a message that it has taken will be stored, if only this process lives long enough.

1. ``reserve`` keeps room for a message before it is stamped, and says at once when none can be taken;
2. ``send`` takes the stamped message over: it is published (or committed) again, the same bytes, until it is confirmed.
   It returns when that has happened, and raises when its sender should wait no longer: the message goes on alone;
3. ``close`` gives what is not confirmed a bounded time.

Two implementations: ``direct`` (this process commits to the store, in groups) and ``amqp`` (a quorum queue confirms).
Contract: tests/contracts/test_transports.py.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

from spm import limits
from spm.clock import Clock
from spm.wire import Envelope, Parsed

Outcome = Callable[[bool], None]  # told once: whether the queue or the store has the message, or it is lost to us
_OVERHEAD_BYTES = 512  # of an envelope beside its columns and names: head, stamp, ids, source


class Transport(ABC):
    """From the accepting process to the store. Thread-safe."""

    @abstractmethod
    def reserve(self, app: int, source: str, weight: int) -> None:
        """Keep room for a message of so many bytes, until ``send`` or ``release``.

        ``QueueUnavailable`` or ``StoreUnavailable``: none now. ``LimitExceeded``: for this one never.
        """

    @abstractmethod
    def release(self, weight: int) -> None:
        """Give room back that was kept for a message which is not to come."""

    @abstractmethod
    def send(self, envelope: Envelope, weight: int, timeout_s: float, outcome: Outcome) -> None:
        """Return when the message is durable. ``QueueUnavailable``, ``StoreUnavailable``: not yet; we stay at it."""

    @abstractmethod
    def close(self) -> None:
        """Take no more, wait a bounded time for what is not confirmed, and give back connections."""

    def publish(self, envelope: Envelope, timeout_s: float, outcome: Outcome = lambda stored: None) -> None:
        """Reserve and send a message that is stamped already."""
        weight = weight_of(envelope)
        self.reserve(envelope.app, envelope.source, weight)
        self.send(envelope, weight, timeout_s, outcome)


def weight_of(message: Parsed | Envelope) -> int:
    """What a message takes in memory and on the wire: at least the bytes of its envelope."""
    series = message.series
    text = int((series.ends - series.starts).sum())
    return _OVERHEAD_BYTES + 20 * len(message.ts) + 20 * len(series) + text


def waited(done: threading.Event, timeout_s: float, trouble: Callable[[], str | None], clock: Clock) -> str | None:
    """Wait until ``done``; else why to wait no longer: there is trouble, or the time is up."""
    end = clock.monotonic() + timeout_s
    while not done.wait(max(0.0, min(limits.PUBLISH_LOOK_S, end - clock.monotonic()))):
        why = trouble()
        if why is not None:
            return why
        if clock.monotonic() >= end:
            return f"no confirm within {timeout_s} s"
    return None
