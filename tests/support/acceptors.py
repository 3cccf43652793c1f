"""Acceptors for tests: a transport that records what it is given, and an announcer that announces on request."""

from collections.abc import Sequence

from ingest.accept.announcer import StampAnnouncer
from ingest.transport.base import OutcomeCallback, Submission, Transport, Trouble
from ingest.transport.delivery import Delivery
from ingest.worker.interfaces import MessageAcceptor
from spm.clock import Clock
from spm.errors import SpmError
from spm.store.backends.base import Backend
from spm.store.backends.memory import MemoryBackend
from spm.wire import Envelope


def silent_announcer(clock: Clock, backend: Backend | None = None) -> StampAnnouncer:
    """Return an announcer for process 1 of a new store, without a thread."""
    return StampAnnouncer(backend or MemoryBackend(), clock, every_s=None)


def accept_alone(acceptor: MessageAcceptor, delivery: Delivery) -> Envelope | None:
    """Return what an acceptor makes of one delivery; raise its error."""
    [result] = acceptor.accept_many([delivery])
    if isinstance(result, Exception):
        raise result
    return result


class Recorder(Transport):
    """Records what was sent, or fails: before the stamp (``full``) or after it (``error``)."""

    def __init__(self) -> None:
        self.published: list[Envelope] = []
        self.outcomes: list[OutcomeCallback] = []  # of what was not confirmed
        self.reserved = 0
        self.full: SpmError | None = None
        self.error: Exception | None = None

    def reserve(self, app: int, source: str, weight: int, wait_s: float = 0.0) -> None:
        if self.full:
            raise self.full
        self.reserved += weight

    def release(self, app: int, weight: int) -> None:
        self.reserved -= weight

    def submit(self, messages: Sequence[Submission]) -> list[Trouble]:
        for message in messages:
            self.send(message.envelope, message.weight, 0, message.outcome)
        return [lambda: None] * len(messages)

    def send(self, envelope: Envelope, weight: int, timeout_s: float, outcome: OutcomeCallback) -> None:
        assert weight <= self.reserved, "sent without room"
        if self.error:
            self.outcomes.append(outcome)
            raise self.error
        self.reserved -= weight
        self.published.append(envelope)
        outcome(True)

    def close(self) -> None:
        return
