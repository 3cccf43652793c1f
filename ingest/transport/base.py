"""What a transport promises: a message that it has taken will be stored, if only this process lives long enough.

1. ``reserve`` reserves room for a message before it is stamped, and says at once when none can be taken;
2. ``submit`` takes stamped messages over: the same bytes are published (or committed) again until they are confirmed,
   and the outcome of each is called then, in a thread of the transport. ``send`` submits one and returns when it is
   confirmed; it raises when its sender should wait no longer: the transport goes on alone;
3. ``close`` gives what is not confirmed a bounded time.

Two implementations: ``direct`` (this process commits to the store, in groups) and ``amqp`` (a quorum queue confirms).
Contract: tests/contracts/test_transports.py.
"""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spm import limits
from spm.clock import Clock
from spm.wire import Envelope, Parsed

log = logging.getLogger(__name__)
# Called once: true when the queue or the store has the message, false when this process cannot know it any more.
OutcomeCallback = Callable[[bool], None]
Trouble = Callable[[], str | None]  # why a message is not durable and will not be soon; ``None``: it will be


@dataclass(frozen=True, slots=True)
class Submission:
    """A stamped message with room for ``weight`` bytes, and what is called with its outcome."""

    envelope: Envelope
    weight: int
    outcome: OutcomeCallback


_OVERHEAD_BYTES = 512  # of an envelope beside its columns and names: head, stamp, ids, source


class Transport(ABC):
    """Carries messages from the accepting process to the store. Thread-safe."""

    @abstractmethod
    def reserve(self, app: int, source: str, weight: int, wait_s: float = limits.PUBLISH_ROOM_WAIT_S) -> None:
        """Reserve room for a message of so many bytes, until ``submit``, ``send`` or ``release``.

        A transport may wait up to ``wait_s`` for what passes soon.
        ``QueueUnavailable`` or ``StoreUnavailable``: there is none now. ``LimitExceeded``: for this one never.
        """

    @abstractmethod
    def release(self, app: int, weight: int) -> None:
        """Give back the room of a message of an app that will not be sent."""

    @abstractmethod
    def submit(self, messages: Sequence[Submission]) -> list[Trouble]:
        """Take messages over that have their room, all at once; return before they are durable.

        Returns for each message what says, while its outcome is not known, why its sender should wait no longer.
        """

    def submit_here(self, messages: Sequence[Submission], tell_troubles: Callable[[list[Trouble]], None]) -> None:
        """Submit messages; a transport may make them durable in the calling thread before it returns.

        ``tell_troubles`` gets what ``submit`` returns before that.
        """
        tell_troubles(self.submit(messages))

    def submit_apart(self, messages: Sequence[Submission], tell_troubles: Callable[[list[Trouble]], None]) -> None:
        """Submit messages that take long to write; a transport lets no others wait for them."""
        tell_troubles(self.submit(messages))

    def standstill(self) -> str | None:
        """Return why nothing becomes durable at present; ``None`` where messages do, or nobody can say."""
        return None

    @abstractmethod
    def send(self, envelope: Envelope, weight: int, timeout_s: float, outcome: OutcomeCallback) -> None:
        """Return when the message is durable.

        ``QueueUnavailable`` or ``StoreUnavailable``: it is not yet, and the transport goes on trying.
        """

    @abstractmethod
    def close(self) -> None:
        """Take no more, wait a bounded time for what is not confirmed, and close connections."""

    def publish(self, envelope: Envelope, timeout_s: float, outcome: OutcomeCallback = lambda stored: None) -> None:
        """Reserve room for a message that is stamped already, and send it."""
        weight = weight_of(envelope)
        self.reserve(envelope.app, envelope.source, weight)
        self.send(envelope, weight, timeout_s, outcome)


def tell_outcome(outcome: OutcomeCallback, stored: bool) -> None:
    """Call an outcome; a fault of it is logged, and harms no other message."""
    try:
        outcome(stored)
    except Exception:
        log.exception("BUG: what is called with the outcome of a message failed")


def weight_of(message: Parsed | Envelope) -> int:
    """Return the bytes of a message in memory and on the wire: at least those of its envelope."""
    series = message.series
    text = int((series.ends - series.starts).sum())
    return _OVERHEAD_BYTES + 20 * len(message.ts) + 20 * len(series) + text


def wait_until_done(
    done: threading.Event, timeout_s: float, trouble: Callable[[], str | None], clock: Clock
) -> str | None:
    """Wait until ``done``; else return why to wait no longer: there is trouble, or the time is up."""
    end = clock.monotonic() + timeout_s
    while not done.wait(max(0.0, min(limits.PUBLISH_LOOK_S, end - clock.monotonic()))):
        why = trouble()
        if why is not None:
            return why
        if clock.monotonic() >= end:
            return f"no confirm within {timeout_s} s"
    return None
