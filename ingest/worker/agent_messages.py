"""Accepts what agents send through RabbitMQ: identify, parse, admit and stamp, in the consuming process.

The consumer is the accepting process of such a message. A redelivery is therefore a new acceptance, with a new stamp
under the same message id: equal values, counted once (PROTOCOL 1). A message is identified in one of two ways. An agent
that the broker knows by its token publishes to ``AGENTS``; the routing key, which the broker checked, names its token.
An agent with an account of the broker's own sends its token in a header. A message whose sender is not proven becomes a
dead letter that says so. Nobody can ask a sender to wait whose message the broker has taken: the messages of an app
that is an hour's worth of samples over its rate are rejected, and counted. The deliveries at hand are accepted
together; an error of one never touches another. Enter by ``open_acceptor``.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import TypeVar

from django.db import close_old_connections

from ingest.accept.activity import record_accepted
from ingest.accept.admission import Admission
from ingest.accept.announcer import StampAnnouncer
from ingest.accept.identity import Sender, message_id_of, period_of, source_of, way_of
from ingest.http.body import read_body
from ingest.protocols import by_content
from ingest.protocols.by_content import QueuedBody
from ingest.routing import AGENTS, PERIOD_HEADER, SENDER_HEADER, SOURCE_HEADER, TOKEN_HEADER, split_agent_key
from ingest.senders import principals
from ingest.transport.delivery import Delivery
from ingest.worker.retry import translate_database_error
from spm.accounts import tokens
from spm.accounts.tokens import Principal
from spm.clock import Clock
from spm.errors import BadMessage, StoreUnavailable
from spm.limits import CONSUME_JOIN_BYTES
from spm.store.backends.base import Backend
from spm.store.ledger.quota import QUEUED
from spm.wire import Envelope, Parsed

log = logging.getLogger(__name__)
A = TypeVar("A")
T = TypeVar("T")


@dataclass(slots=True)
class _Message:
    """One delivery on its way: its sender, its decoded body, and the admitted part of it, or its error."""

    delivery: Delivery
    principal: Principal
    source: str
    body: QueuedBody
    admitted: Parsed | Exception | None = None


class AgentMessageAcceptor:
    """Accepts deliveries of line protocol, collectd's JSON, or our columns (compressed or plain)."""

    def __init__(self, announcer: StampAnnouncer, clock: Clock, admission: Admission | None = None) -> None:
        self._announcer, self._clock, self._admission = announcer, clock, admission

    def accept_many(self, deliveries: Sequence[Delivery]) -> list[Envelope | Exception | None]:
        """Return for each delivery its stamped envelope, or the error of a body that is rejected as a whole.

        ``None`` when it holds neither samples nor rejected lines. One whose samples are all rejected is stamped, too:
        nobody tells its sender, and the balance has it. Stamps are in the order of the deliveries: with the first that
        the store or the database keeps from being accepted, and with all behind it, the result is ``StoreUnavailable``,
        and nothing of them is stamped or recorded.
        """
        close_old_connections()  # no request ends here, after which Django would do it
        results: list[Envelope | Exception | None] = []
        while rest := deliveries[len(results) :]:
            results += self._accept_some(rest)
            if isinstance(results[-1], StoreUnavailable):
                results += [results[-1]] * (len(deliveries) - len(results))
        return results

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

    def _accept_some(self, deliveries: Sequence[Delivery]) -> list[Envelope | Exception | None]:
        """Accept the first deliveries, as many as are joined, up to one that must wait for the store."""
        opened = self._open_some(deliveries)
        now_ms = self._clock.now_ms()
        self._admit([one for one in opened if isinstance(one, _Message)], now_ms)
        results: list[Envelope | Exception | None] = []
        for one in opened:
            result = one if isinstance(one, Exception) else _result(self._stamp, one)
            results.append(result)
            if isinstance(result, StoreUnavailable):
                break
            if isinstance(one, _Message) and not isinstance(result, Exception):
                _record(one, now_ms, None if result is None else result.stamp.ms)
        return results

    def _open_some(self, deliveries: Sequence[Delivery]) -> list[_Message | Exception]:
        """Identify senders and decode bodies until they are many bytes, or one must wait for the database."""
        opened: list[_Message | Exception] = []
        size = 0
        for delivery in deliveries:
            one = _result(self._open, delivery)
            opened.append(one)
            size += len(one.body.raw) if isinstance(one, _Message) else 0
            if isinstance(one, StoreUnavailable) or size >= CONSUME_JOIN_BYTES:
                break
        return opened

    def _open(self, delivery: Delivery) -> _Message:
        principal, source_of_key = _sender(delivery)
        source = source_of(str(delivery.headers.get(SOURCE_HEADER) or source_of_key), principal.token_id)
        raw = read_body(BytesIO(delivery.body), encoding=delivery.encoding, length=len(delivery.body))
        over_quota = self._admission is not None and self._admission.is_over_quota(principal.app_id)
        return _Message(delivery, principal, source, QueuedBody(raw, delivery.content_type, over_quota))

    def _admit(self, messages: Sequence[_Message], now_ms: int) -> None:
        """Parse and admit the bodies together."""
        results = by_content.parse_many([message.body for message in messages], now_ms)
        for message, parsed in zip(messages, results, strict=True):
            message.admitted = parsed
        admission = self._admission
        if admission is None:
            return
        for message in messages:
            if isinstance(message.admitted, Parsed) and len(message.admitted.ts):
                message.admitted = _result(
                    partial(_rejected_or_same, admission, message.principal.app_id), message.admitted
                )
        parsed_ones = [(each, each.admitted) for each in messages if isinstance(each.admitted, Parsed)]
        bodies = [(each.principal.app_id, parsed, each.body.unit) for each, parsed in parsed_ones]
        try:
            results = admission.admit_many(bodies)
        except Exception:  # a fault of ours: the bodies that did not cause it are accepted
            log.exception("%d bodies cannot be admitted together", len(bodies))
            results = [_result(lambda body: admission.admit(*body), body) for body in bodies]
        for (message, _), admitted in zip(parsed_ones, results, strict=True):
            message.admitted = admitted

    def _stamp(self, message: _Message) -> Envelope | None:
        """Stamp the admitted part of a message; ``None`` if there is nothing to count."""
        admitted, app, token_id = message.admitted, message.principal.app_id, message.principal.token_id
        assert admitted is not None, "BUG: stamped before it is admitted"
        if isinstance(admitted, Exception):
            raise admitted
        if not len(admitted.ts) and not admitted.rejected:
            return None
        given, body = message.delivery.message_id, message.body.raw
        message_id = message_id_of(admitted, given=given, token_id=token_id, path="amqp", body=body)
        return self._announcer.stamp_message(app=app, source=message.source, parsed=admitted, message_id=message_id)


def open_acceptor(backend: Backend, clock: Clock) -> AgentMessageAcceptor:
    """Return an acceptor that announces to this store."""
    return AgentMessageAcceptor(StampAnnouncer(backend, clock), clock, Admission(backend, clock, bucket=QUEUED))


def _rejected_or_same(admission: Admission, app: int, parsed: Parsed) -> Parsed:
    """Return a body as it is, or with all its samples rejected where its app has used up its rate."""
    rejected = admission.reject_if_too_fast(app, parsed)
    return parsed if rejected is None else rejected


def _sender(delivery: Delivery) -> tuple[Principal, str]:
    """Return the principal that sent it, and the source in its routing key; ``BadMessage`` if neither is proven."""
    return _by_key(delivery) if delivery.exchange == AGENTS else _by_header(delivery)


def _by_key(delivery: Delivery) -> tuple[Principal, str]:
    token_id, source = split_agent_key(delivery.key)
    if delivery.user_id not in ("", token_id):
        raise BadMessage("the routing key is another sender's", got=delivery.user_id[:40], wanted=token_id[:40])
    principal = principals.of_token_id(token_id, "ingest") if token_id.isprintable() else None  # a database may object
    if principal is None:
        raise BadMessage("no valid token", got=token_id[:40], wanted="a routing key that begins with a token's id")
    return principal, source


def _by_header(delivery: Delivery) -> tuple[Principal, str]:
    principal = tokens.authenticate(str(delivery.headers.get(TOKEN_HEADER, "")), "ingest")
    if principal is None:
        raise BadMessage("no valid token", wanted=f"the header {TOKEN_HEADER}, with the scope ingest")
    return principal, ""


def _record(message: _Message, now_ms: int, stamp_ms: int | None) -> None:
    """Record what people see of an accepted message; it is accepted whatever becomes of that."""
    assert isinstance(message.admitted, Parsed), "BUG: an accepted message without samples or rejections"
    headers = message.delivery.headers
    try:
        way = way_of(message.body.protocol.name, str(headers.get(SENDER_HEADER, "")))
        period_ms = period_of(str(headers.get(PERIOD_HEADER)))
        sender = Sender(message.principal.app_id, message.source, way, period_ms)
        record_accepted(message.admitted, sender, now_ms, stamp_ms)
    except Exception:  # a fault of ours
        log.exception("an accepted message cannot be recorded")


def _result(act: Callable[[A], T], argument: A) -> T | Exception:
    """Return what ``act`` returns, or its error; that of the database as ``StoreUnavailable``."""
    try:
        return translate_database_error(act, argument)
    except Exception as error:  # of one delivery: it never touches another
        return error
