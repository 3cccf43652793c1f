"""Publishes what can never be stored to the queue of dead letters, with its cause.

Enter by ``DeadLetterPublisher``: ``publish_delivery`` for a delivery that cannot be read, ``publish_envelope`` for a
message that cannot be written. Both return once the queue has confirmed the dead letter.
"""

from ingest.routing import LINES_TYPE, SOURCE_HEADER
from ingest.transport import topology
from ingest.transport.delivery import Delivery
from ingest.worker.interfaces import MessageAcceptor, QueuePublisher
from ingest.worker.metrics import ConsumerTally
from ingest.worker.retry import translate_database_error
from spm.clock import Clock
from spm.wire import Envelope

PUBLISH_S = 10.0


class DeadLetterPublisher:
    """Publishes the dead letters of one consumer."""

    def __init__(
        self, publisher: QueuePublisher, acceptor: MessageAcceptor | None, clock: Clock, tally: ConsumerTally
    ) -> None:
        self._publisher, self._acceptor, self._clock, self._tally = publisher, acceptor, clock, tally

    def publish_delivery(self, delivery: Delivery, cause: str) -> None:
        """Publish a body as it came. Raises ``QueueUnavailable``, or ``StoreUnavailable`` without the database."""
        self._publish(delivery.body, cause, delivery.message_id, self._origin(delivery), delivery.key)

    def publish_envelope(self, envelope: Envelope, cause: str) -> None:
        """Publish a stamped message. Raises ``QueueUnavailable``."""
        self._publish(envelope.to_bytes(), cause, envelope.message_id.hex(), {}, "")

    def _origin(self, delivery: Delivery) -> dict[str, str]:
        """Return the headers about a delivery: its queue and, if it has no stamp, its app and how to read it."""
        headers = {topology.ORIGIN: delivery.queue}
        if not is_by_agent(delivery):
            return headers
        app = None if self._acceptor is None else translate_database_error(self._acceptor.app_of, delivery)
        source = str(delivery.headers.get(SOURCE_HEADER) or "")
        return headers | {
            topology.APP: str(app or 0),
            topology.TYPE: delivery.content_type,
            topology.ENCODING: delivery.encoding,
            SOURCE_HEADER: source,
        }

    def _publish(self, body: bytes, cause: str, message_id: str, headers: dict[str, str], key: str) -> None:
        self._tally.dead += 1
        headers = {topology.CAUSE: cause[:1000], topology.AT_MS: str(self._clock.now_ms()), **headers}
        self._publisher.publish(topology.DEAD, key, body, timeout_s=PUBLISH_S, message_id=message_id, headers=headers)


def is_by_agent(delivery: Delivery) -> bool:
    """Whether an agent sent the delivery, so that it has no stamp."""
    return delivery.content_type == LINES_TYPE or delivery.exchange == topology.AGENTS
