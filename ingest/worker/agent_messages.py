"""Accepts what agents send through RabbitMQ: identify, parse, admit and stamp, in the consuming process.

The consumer is the accepting process of such a message. A redelivery is therefore a new acceptance, with a new stamp
under the same message id: equal values, counted once (PROTOCOL 1). A message is identified in one of two ways. An agent
that the broker knows by its token publishes to ``AGENTS``; the routing key, which the broker checked, names its token.
An agent with an account of the broker's own sends its token in a header. A message whose sender is not proven becomes a
dead letter that says so. The app's rate is charged, but no message is refused for it, since the broker has taken it
already. Enter by ``open_acceptor``.
"""

from io import BytesIO

from django.db import close_old_connections

from ingest.accept import arrivals
from ingest.accept.activity import record_accepted
from ingest.accept.admission import Admission
from ingest.accept.announcer import StampAnnouncer
from ingest.accept.identity import Sender, message_id_of, period_of, source_of
from ingest.http.body import read_body
from ingest.protocols import by_content
from ingest.routing import AGENTS, PERIOD_HEADER, SENDER_HEADER, SOURCE_HEADER, TOKEN_HEADER, split_agent_key
from ingest.senders import principals
from ingest.transport.delivery import Delivery
from spm.accounts import tokens
from spm.accounts.tokens import Principal
from spm.clock import Clock
from spm.errors import BadMessage
from spm.store.backends.base import Backend
from spm.wire import Envelope


class AgentMessageAcceptor:
    """Accepts deliveries of line protocol, collectd's JSON, or our columns (compressed or plain)."""

    def __init__(self, announcer: StampAnnouncer, clock: Clock, admission: Admission | None = None) -> None:
        self._announcer, self._clock, self._admission = announcer, clock, admission

    def accept(self, delivery: Delivery) -> Envelope | None:
        """Return the stamped envelope; ``None`` when every sample is rejected, which is recorded for people.

        Raises ``BadMessage`` or ``LimitExceeded`` when the body as a whole is rejected.
        """
        close_old_connections()  # no request ends here, after which Django would do it
        principal, source_of_key = _sender(delivery)
        source = source_of(str(delivery.headers.get(SOURCE_HEADER) or source_of_key), principal.token_id)
        body = read_body(BytesIO(delivery.body), encoding=delivery.encoding, length=len(delivery.body))
        now_ms = self._clock.now_ms()
        parsed = by_content.parse(body, delivery.content_type, now_ms)
        if self._admission is not None:
            parsed = self._admission.admit(principal.app_id, parsed)
        envelope = None
        if len(parsed.ts):
            token_id, given = principal.token_id, delivery.message_id
            message_id = message_id_of(parsed, given=given, token_id=token_id, path="amqp", body=body)
            envelope = self._announcer.stamp_message(
                app=principal.app_id, source=source, parsed=parsed, message_id=message_id
            )
        way = arrivals.way_of(by_content.protocol(body), str(delivery.headers.get(SENDER_HEADER, "")))
        period_ms = period_of(str(delivery.headers.get(PERIOD_HEADER)))
        record_accepted(parsed, Sender(principal.app_id, source, way, period_ms), now_ms)
        return envelope

    def app_of(self, delivery: Delivery) -> int | None:
        """Return the app that is proven to have sent a delivery, whatever it contains; ``None`` if none is."""
        close_old_connections()
        try:
            return _sender(delivery)[0].app_id
        except BadMessage:
            return None

    def confirm(self, envelope: Envelope) -> None:
        """Confirm that an accepted envelope is stored, or a dead letter."""
        self._announcer.confirm(envelope)

    def retire(self) -> None:
        """Give accepted envelopes back: they are delivered again, and stamped under another process number."""
        self._announcer.retire()

    def close(self) -> None:
        """Announce the final counts."""
        self._announcer.close()


def open_acceptor(backend: Backend, clock: Clock) -> AgentMessageAcceptor:
    """Return an acceptor that announces to this store."""
    return AgentMessageAcceptor(StampAnnouncer(backend, clock), clock, Admission(backend, clock))


def _sender(delivery: Delivery) -> tuple[Principal, str]:
    """Return the principal that sent it, and the source in its routing key; ``BadMessage`` if neither is proven."""
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
