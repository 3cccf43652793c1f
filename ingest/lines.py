"""The front door for lines that agents send through RabbitMQ: authenticate, parse, stamp, in the consuming process.

The consumer is the accepting process of such a message. A redelivery is therefore a new acceptance, with a new stamp
under the same message id: equal values, counted once (DESIGN rule 1). A message without a good token is refused here,
and becomes a dead letter that says so.
"""

from io import BytesIO

from django.db import close_old_connections

from ingest.accept import Acceptor
from ingest.body import read_body
from ingest.protocols import line_protocol
from ingest.push import Sender, message_id_of, note, source_of
from ingest.routing import SOURCE_HEADER, TOKEN_HEADER
from ingest.transport.amqp import Delivery
from spm.accounts import tokens
from spm.clock import Clock
from spm.errors import BadMessage
from spm.wire import Envelope


class LineDoor:
    """Accepts deliveries of line protocol (gzip or plain, times in milliseconds)."""

    def __init__(self, acceptor: Acceptor, clock: Clock) -> None:
        self._acceptor, self._clock = acceptor, clock

    def accept(self, delivery: Delivery) -> Envelope:
        """The stamped envelope, perhaps empty; ``BadMessage`` or ``LimitExceeded`` for what cannot be taken."""
        close_old_connections()  # no request ends here, after which Django would do it
        principal = tokens.authenticate(str(delivery.headers.get(TOKEN_HEADER, "")), "ingest")
        if principal is None:
            raise BadMessage("no valid token", wanted=f"the header {TOKEN_HEADER}, with the scope ingest")
        source = source_of(str(delivery.headers.get(SOURCE_HEADER) or ""), principal.token_id)
        body = read_body(BytesIO(delivery.body), encoding=delivery.encoding, length=len(delivery.body))
        now_ms = self._clock.now_ms()
        parsed = line_protocol.parse(body, now_ms=now_ms, precision="ms")
        token_id, given = principal.token_id, delivery.message_id
        message_id = message_id_of(parsed, given=given, token_id=token_id, path="amqp", body=body)
        envelope = self._acceptor.accept(app=principal.app_id, source=source, parsed=parsed, message_id=message_id)
        note(parsed, Sender(principal.app_id, source), now_ms)
        return envelope
