"""The interface of pushes, and their outcome: accepted, rejected permanently, or to be retried."""

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from ingest.agent.spool.records import Message


class Verdict(Enum):
    """What happened to a message, and so what to do with it."""

    ACCEPTED = "accepted"  # durable at the server
    REJECTED = "rejected"  # sending it again cannot help
    RETRY = "retry"  # the same message again, after a pause


@dataclass(frozen=True, slots=True)
class Outcome:
    """A verdict, the server's reason, and the pause that it requests."""

    verdict: Verdict
    reason: str = ""
    retry_after_s: float | None = None


class Push(Protocol):
    """Sends messages to one server."""

    def send(self, message: Message) -> Outcome:
        """Send one message and wait for the answer, for a bounded time."""

    def set_period(self, period_ms: int) -> None:
        """Report this period of collection to the server with each message from now on."""

    def close(self) -> None:
        """Close the connection."""
