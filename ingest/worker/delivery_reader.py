"""Turns a delivery into an item of a batch: our own envelope as it is, an agent's message after its acceptance.

Enter by ``DeliveryReader.read``. A delivery that was under way when workers ended, several times, is tried in the
poison sandbox first.
"""

import logging
from collections.abc import Callable, Collection

from ingest.transport import topology
from ingest.transport.delivery import Delivery
from ingest.worker.batch import Item
from ingest.worker.dead_letter_publisher import is_by_agent
from ingest.worker.interfaces import MessageAcceptor
from ingest.worker.retry import StoreRetry, translate_database_error
from spm import limits
from spm.envelope_batch import count_samples
from spm.errors import CorruptBlock, Explained

log = logging.getLogger(__name__)


class DeliveryReader:
    """Reads deliveries. ``sandbox`` returns why a delivery must not be handled in this process, else ``None``."""

    def __init__(
        self, acceptor: MessageAcceptor | None, sandbox: Callable[[Delivery], str | None] | None, retry: StoreRetry
    ) -> None:
        self._acceptor, self._sandbox, self._retry = acceptor, sandbox, retry

    @property
    def has_sandbox(self) -> bool:
        """Whether suspicious deliveries can be tried."""
        return self._sandbox is not None

    def read(self, delivery: Delivery) -> Item | None:
        """Return what is to be written of a delivery, ``None`` for nothing; raise what is wrong with its body.

        The body of an envelope is checked with its batch.
        """
        return (self.read_suspect if delivery.tries >= limits.CONSUME_SUSPECT_TRIES else self._open)(delivery)

    def read_suspect(self, delivery: Delivery) -> Item | None:
        """Read a delivery after the sandbox has tried it; ``CorruptBlock`` with the cause if that ended."""
        cause = None if self._sandbox is None else self._sandbox(delivery)
        if cause is not None:
            raise CorruptBlock(cause)
        return self._open(delivery)

    def confirm(self, items: Collection[Item]) -> None:
        """Confirm the stamps that were given here, once their messages are durable or dead letters."""
        for item in items:
            if item.accepted is not None and self._acceptor is not None:
                self._acceptor.confirm(item.accepted)

    def drop(self, items: Collection[Item]) -> None:
        """Give items up. They are delivered again and stamped by another process number: this one cannot confirm."""
        if self._acceptor is not None and any(item.accepted for item in items):
            self._acceptor.retire()

    def _open(self, delivery: Delivery) -> Item | None:
        acceptor = self._acceptor
        if not is_by_agent(delivery) or acceptor is None:
            assert delivery.exchange != topology.AGENTS, "BUG: an agent's message is taken for our own"
            return Item(delivery, delivery.body, count_samples(delivery.body))
        end_ms = delivery.arrived_ms + limits.CONSUME_RETRY_S * 1000
        envelope = self._retry.call(
            lambda: translate_database_error(acceptor.accept, delivery), [delivery.ack_handle], end_ms
        )
        return None if envelope is None else Item(delivery, envelope.to_bytes(), len(envelope), envelope)


def cause_of_error(error: Exception) -> str:
    """Return the cause for the dead letter of a body that cannot be read."""
    if isinstance(error, Explained):
        return str(error)
    log.error("a body cannot be read", exc_info=error)
    return f"cannot be read: {error!r}"
