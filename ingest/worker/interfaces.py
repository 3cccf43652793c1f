"""What a consumer needs of others: the source of its deliveries, a publisher, an acceptor of agents' messages.

Each protocol has a real implementation here or in ``ingest.transport``, and a fake in the tests.
"""

from collections.abc import Sequence
from typing import Protocol

from ingest.transport.delivery import AckHandle, Delivery
from spm.wire import Envelope


class DeliverySource(Protocol):
    """Where deliveries come from and are settled: ``amqp_receive.Receiver``."""

    def holds(self, handle: AckHandle) -> bool: ...
    def acknowledge(self, handle: AckHandle, *, multiple: bool = True) -> None: ...
    def give_back(self, handle: AckHandle) -> None: ...
    def reject(self, handle: AckHandle) -> None: ...
    def renew(self, why: str) -> None: ...


class QueuePublisher(Protocol):
    """Publishes to an exchange and waits for the confirm: ``amqp.Publisher``."""

    def publish(
        self, exchange: str, key: str, body: bytes, *, timeout_s: float, message_id: str, headers: dict[str, str]
    ) -> None: ...
    def publish_all(
        self, exchange: str, messages: Sequence[tuple[str, bytes, str]], *, timeout_s: float
    ) -> list[bool]: ...


class MessageAcceptor(Protocol):
    """Accepts messages of agents that have no stamp yet: ``agent_messages.AgentMessageAcceptor``."""

    def accept_many(self, deliveries: Sequence[Delivery]) -> list[Envelope | Exception | None]: ...
    def app_of(self, delivery: Delivery) -> int | None: ...
    def confirm(self, envelope: Envelope) -> None: ...
    def retire(self) -> None: ...
