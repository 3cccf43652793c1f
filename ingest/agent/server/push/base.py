"""What became of a push: taken, refused for good, or to be tried again later."""

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from ingest.agent.spool.records import Message


class Verdict(Enum):
    """Whose turn it is now."""

    TAKEN = "taken"  # durable at the server
    REFUSED = "refused"  # sending it again cannot help
    LATER = "later"  # the same message again, after a pause


@dataclass(frozen=True, slots=True)
class Outcome:
    """A verdict, the server's reason, and the pause it asks for."""

    verdict: Verdict
    reason: str = ""
    retry_after_s: float | None = None


class Push(Protocol):
    """One way to the server."""

    def send(self, message: Message) -> Outcome:
        """Send one message and wait for the verdict, for a bounded time."""

    def announce(self, period_ms: int) -> None:
        """From now on the server is told this period, where the way to it can."""

    def close(self) -> None:
        """Let the connection go."""
