"""What a transport promises: when ``publish`` returns, the message will be stored, whatever dies next.

Two implementations: ``direct`` (this process commits to the store, in groups) and ``amqp`` (a quorum queue confirms).
Contract: tests/contracts/test_transports.py.
"""

from typing import Protocol

from spm.wire import Envelope


class Transport(Protocol):
    """From the accepting process to the store."""

    def publish(self, envelope: Envelope, timeout_s: float) -> None:
        """Return when the message is durable; ``QueueUnavailable`` or ``StoreUnavailable`` when that is not sure."""

    def close(self) -> None:
        """Settle what is under way and give back connections."""
