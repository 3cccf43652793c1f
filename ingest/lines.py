"""The front door for what agents send through RabbitMQ: identify, parse, stamp, in the consuming process.

The consumer is the accepting process of such a message. A redelivery is therefore a new acceptance, with a new stamp
under the same message id: equal values, counted once (DESIGN rule 1). There are two ways in. An agent that the broker
knows by its token publishes to ``AGENTS``; its routing key, which the broker checked, says whose it is. An agent with
an account of the broker's own sends its token in a header. Whose it is not clear becomes a dead letter that says so.
"""

from io import BytesIO

from django.db import close_old_connections

from ingest import senders
from ingest.accept import Acceptor
from ingest.body import read_body
from ingest.protocols import collectd, envelope, line_protocol
from ingest.push import Sender, message_id_of, note, source_of
from ingest.routing import AGENTS, LINES_TYPE, SOURCE_HEADER, TOKEN_HEADER, split_agent_key
from ingest.transport.amqp_receive import Delivery
from spm.accounts import tokens
from spm.accounts.tokens import Principal
from spm.clock import Clock
from spm.errors import BadMessage
from spm.wire import Envelope, Parsed


class LineDoor:
    """Accepts deliveries of line protocol, collectd's JSON, or our columns (compressed or plain)."""

    def __init__(self, acceptor: Acceptor, clock: Clock) -> None:
        self._acceptor, self._clock = acceptor, clock

    def accept(self, delivery: Delivery) -> Envelope:
        """The stamped envelope, perhaps empty; ``BadMessage`` or ``LimitExceeded`` for what cannot be taken."""
        close_old_connections()  # no request ends here, after which Django would do it
        principal, named = _by_key(delivery) if delivery.exchange == AGENTS else _by_header(delivery)
        source = source_of(str(delivery.headers.get(SOURCE_HEADER) or named), principal.token_id)
        body = read_body(BytesIO(delivery.body), encoding=delivery.encoding, length=len(delivery.body))
        now_ms = self._clock.now_ms()
        parsed = _parse(body, delivery.content_type, now_ms)
        token_id, given = principal.token_id, delivery.message_id
        message_id = message_id_of(parsed, given=given, token_id=token_id, path="amqp", body=body)
        accepted = self._acceptor.accept(app=principal.app_id, source=source, parsed=parsed, message_id=message_id)
        note(parsed, Sender(principal.app_id, source), now_ms)
        return accepted


def _by_key(delivery: Delivery) -> tuple[Principal, str]:
    token_id, source = split_agent_key(delivery.key)
    if delivery.user_id not in ("", token_id):
        raise BadMessage("the routing key is another sender's", got=delivery.user_id[:40], wanted=token_id[:40])
    principal = senders.of_token_id(token_id, "ingest")
    if principal is None:
        raise BadMessage("no valid token", got=token_id[:40], wanted="a routing key that begins with a token's id")
    return principal, source


def _by_header(delivery: Delivery) -> tuple[Principal, str]:
    principal = tokens.authenticate(str(delivery.headers.get(TOKEN_HEADER, "")), "ingest")
    if principal is None:
        raise BadMessage("no valid token", wanted=f"the header {TOKEN_HEADER}, with the scope ingest")
    return principal, ""


def _parse(body: bytes, content_type: str, now_ms: int) -> Parsed:
    """By what the body is: senders say little and not always the truth about it."""
    if body.startswith(envelope.MAGIC):
        return envelope.parse(body, now_ms=now_ms)
    if body[:64].lstrip().startswith(b"["):
        return collectd.parse(body, now_ms=now_ms)
    precision = "ms" if content_type == LINES_TYPE else "ns"  # our agent says ms; Telegraf writes what Influx does
    return line_protocol.parse(body, now_ms=now_ms, precision=precision)
