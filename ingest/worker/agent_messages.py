"""The front door for what agents send through RabbitMQ: identify, parse, stamp, in the consuming process.

The consumer is the accepting process of such a message. A redelivery is therefore a new acceptance, with a new stamp
under the same message id: equal values, counted once (DESIGN rule 1). There are two ways in. An agent that the broker
knows by its token publishes to ``AGENTS``; its routing key, which the broker checked, says whose it is. An agent with
an account of the broker's own sends its token in a header. Whose it is not clear becomes a dead letter that says so.
"""

from io import BytesIO

from django.db import close_old_connections

from ingest.accept import arrivals
from ingest.accept.acceptor import Sender, message_id_of, note, period_of, source_of
from ingest.accept.admission import Guard
from ingest.accept.announcer import Accepting
from ingest.http.body import read_body
from ingest.protocols import by_content
from ingest.routing import AGENTS, PERIOD_HEADER, SENDER_HEADER, SOURCE_HEADER, TOKEN_HEADER, split_agent_key
from ingest.senders import principals
from ingest.transport.amqp_receive import Delivery
from spm.accounts import tokens
from spm.accounts.tokens import Principal
from spm.clock import Clock
from spm.errors import BadMessage
from spm.wire import Envelope


class LineDoor:
    """Accepts deliveries of line protocol, collectd's JSON, or our columns (compressed or plain)."""

    def __init__(self, accepting: Accepting, clock: Clock, guard: Guard | None = None) -> None:
        self._accepting, self._clock, self._guard = accepting, clock, guard

    def accept(self, delivery: Delivery) -> Envelope | None:
        """The stamped envelope; ``None`` when nothing in the body can be taken, which is noted for people.

        ``BadMessage`` or ``LimitExceeded``: the body as a whole is none.
        """
        close_old_connections()  # no request ends here, after which Django would do it
        principal, named = _sender(delivery)
        source = source_of(str(delivery.headers.get(SOURCE_HEADER) or named), principal.token_id)
        body = read_body(BytesIO(delivery.body), encoding=delivery.encoding, length=len(delivery.body))
        now_ms = self._clock.now_ms()
        parsed = by_content.parse(body, delivery.content_type, now_ms)
        if self._guard is not None:
            parsed = self._guard.admit(principal.app_id, parsed)
        accepted = None
        if len(parsed.ts):
            token_id, given = principal.token_id, delivery.message_id
            message_id = message_id_of(parsed, given=given, token_id=token_id, path="amqp", body=body)
            accepted = self._accepting.accept(app=principal.app_id, source=source, parsed=parsed, message_id=message_id)
        way = arrivals.way_of(by_content.protocol(body), str(delivery.headers.get(SENDER_HEADER, "")))
        note(parsed, Sender(principal.app_id, source, way, period_of(str(delivery.headers.get(PERIOD_HEADER)))), now_ms)
        return accepted

    def whose(self, delivery: Delivery) -> int | None:
        """The app that a delivery is proven to be of, whatever is in it; ``None`` when that is not clear."""
        close_old_connections()
        try:
            return _sender(delivery)[0].app_id
        except BadMessage:
            return None

    def settled(self, envelope: Envelope) -> None:
        """An accepted envelope is stored, or a dead letter."""
        self._accepting.settled(envelope)

    def retire(self) -> None:
        """Accepted envelopes are given back: they come again, and are stamped by a process of another number."""
        self._accepting.retire()

    def close(self) -> None:
        """Say what was accepted in all."""
        self._accepting.close()


def _sender(delivery: Delivery) -> tuple[Principal, str]:
    """Who sent it, and the source that the way it came by names; ``BadMessage`` when nobody vouches for that."""
    return _by_key(delivery) if delivery.exchange == AGENTS else _by_header(delivery)


def _by_key(delivery: Delivery) -> tuple[Principal, str]:
    token_id, source = split_agent_key(delivery.key)
    if delivery.user_id not in ("", token_id):
        raise BadMessage("the routing key is another sender's", got=delivery.user_id[:40], wanted=token_id[:40])
    principal = principals.of_token_id(token_id, "ingest")
    if principal is None:
        raise BadMessage("no valid token", got=token_id[:40], wanted="a routing key that begins with a token's id")
    return principal, source


def _by_header(delivery: Delivery) -> tuple[Principal, str]:
    principal = tokens.authenticate(str(delivery.headers.get(TOKEN_HEADER, "")), "ingest")
    if principal is None:
        raise BadMessage("no valid token", wanted=f"the header {TOKEN_HEADER}, with the scope ingest")
    return principal, ""
