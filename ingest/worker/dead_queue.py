"""From the queue of dead letters into the store's table of dead letters, with the balance of every stamp among them.

Enter by ``DeadLetterHandler.handle``, with deliveries of `spm.dead`; when it returns, they are settled.
``DeadLetterRecorder.record`` writes dead letters with their causes. No dead letter is ever given up: what is no
envelope is stored as it came. Recording twice writes equal rows.

The app of a dead letter is never taken from what an agent could have written:

1. A worker that publishes a dead letter names the app of an agent's body in a header. Without that header the body is
   an envelope of our own, which names its app.
2. The broker itself moves messages here with all headers of their senders, adding `x-death`. Then only the routing key
   counts: the broker lets an agent use no other than its token's, and those of our own messages look different.
3. A dead letter whose app cannot be proven belongs to app 0 (``UNKNOWN_APP``): only those who run the site see it.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime

import msgspec

from ingest.routing import LINES_TYPE, SOURCE_HEADER, split_agent_key
from ingest.transport import topology
from ingest.transport.delivery import AckHandle, Delivery
from ingest.worker.batch import Item
from ingest.worker.delivery_reader import DeliveryReader, cause_of_error
from ingest.worker.interfaces import DeliverySource
from ingest.worker.metrics import ConsumerTally
from ingest.worker.retry import StoreRetry, translate_database_error
from ingest.writer import dead_letter_steps
from spm import limits
from spm.clock import Clock
from spm.envelope_batch import Envelopes
from spm.errors import CorruptBlock, QueueUnavailable, StoreUnavailable
from spm.store.backends.base import Backend, RowPut, Step
from spm.store.ledger import dead_letters
from spm.store.ledger.dead_letters import BODY, TORN, UNKNOWN_APP, BodyDescription, DeadLetter
from spm.wire import Envelope

log = logging.getLogger(__name__)
DeadDelivery = tuple[Delivery, str]  # and its cause
MOVED = "x-death"  # what the broker adds to a message that it moves here


class DeadLetterRecorder:
    """Stores dead letters. ``app_of`` returns the app to which an agent's delivery is proven to belong."""

    def __init__(self, store: Backend, app_of: Callable[[Delivery], int | None], clock: Clock) -> None:
        self._store, self._app_of, self._clock = store, app_of, clock

    def record(self, deliveries: Collection[DeadDelivery]) -> None:
        """Make the dead letters durable; raise ``StoreUnavailable`` when that is not certain."""
        rows: dict[str, list[RowPut]] = {"dead": [], "ledger": []}
        for delivery, cause in deliveries:
            for table, puts in self._steps(delivery, cause):
                rows[table] += puts
        self._store.put([(table, puts) for table, puts in rows.items() if puts])

    def _steps(self, delivery: Delivery, cause: str) -> list[Step]:
        if is_unstamped(delivery):
            return [self._body_step(delivery, BODY, cause, self._app(delivery))]
        try:
            return dead_letter_steps(Envelope.from_bytes(delivery.body), cause)
        except CorruptBlock:
            return [self._body_step(delivery, TORN, cause, UNKNOWN_APP)]

    def _app(self, delivery: Delivery) -> int:
        """Return the app of an agent's body, or ``UNKNOWN_APP``."""
        if MOVED not in delivery.headers:
            text = str(delivery.headers.get(topology.APP))
            return int(text) if text.isascii() and text.isdecimal() and int(text) <= limits.APP_MAX else UNKNOWN_APP
        by_key = not topology.is_work_key(delivery.key)
        exchange = topology.AGENTS if by_key else topology.EXCHANGE
        return self._app_of(msgspec.structs.replace(delivery, exchange=exchange)) or UNKNOWN_APP

    def _body_step(self, delivery: Delivery, kind: int, cause: str, app: int) -> Step:
        """Return the step that stores a body as it came, or its beginning."""
        headers, moved = delivery.headers, MOVED in delivery.headers
        about = BodyDescription(
            source=_text(headers, SOURCE_HEADER) or split_agent_key(delivery.key)[1],
            media=delivery.content_type if moved else _text(headers, topology.TYPE),
            encoding=delivery.encoding if moved else _text(headers, topology.ENCODING),
            message_id=delivery.message_id[: limits.MESSAGE_ID_CHARS_MAX],
            size=len(delivery.body),
        )
        dead_letter = DeadLetter(kind, cause, delivery.body[: limits.DEAD_BODY_BYTES_MAX], key=about.to_bytes())
        at_ms = died_ms(delivery)
        return dead_letters.step(
            app, self._clock.now_ms() if at_ms is None else at_ms, dead_letters.body_name(dead_letter), dead_letter
        )


class DeadLetterHandler:
    """Stores what comes from the queue of dead letters, and writes those messages that can be written after all."""

    def __init__(
        self,
        record: Callable[[Collection[DeadDelivery]], None],
        reader: DeliveryReader,
        write: Callable[[Sequence[Item], Envelopes, Collection[AckHandle], int], object],
        retry: StoreRetry,
        tally: ConsumerTally,
    ) -> None:
        self._record, self._reader, self._write = record, reader, write
        self._retry, self._tally = retry, tally

    def handle(self, deliveries: list[Delivery], source: DeliverySource) -> None:
        """Store the deliveries and acknowledge them, or give them back while the store does not answer."""
        newest = deliveries[-1].ack_handle
        try:
            end_ms = deliveries[0].arrived_ms + limits.CONSUME_RETRY_S * 1000
            dead, items = self._separate(deliveries)
            if dead:  # first: done twice, it writes equal rows
                self._retry.call(lambda: translate_database_error(self._record, dead), [newest], end_ms)
            self._revive(items, newest, end_ms)
        except (StoreUnavailable, QueueUnavailable) as error:
            log.warning("%d dead letters are given back: %s", len(deliveries), error)
            source.give_back(newest)
        else:
            self._tally.dead_letters_stored += len(dead)
            source.acknowledge(newest)

    def _separate(self, deliveries: list[Delivery]) -> tuple[list[DeadDelivery], list[Item]]:
        """Return the dead letters with their causes, and what died of the number of its deliveries alone."""
        dead: list[DeadDelivery] = []
        items: list[Item] = []
        for delivery in deliveries:
            original = as_work_delivery(delivery) if self._reader.has_sandbox else None
            if original is None:
                dead.append((delivery, cause_of(delivery)))
                continue
            try:
                item = self._reader.read_suspect(original)
                if item is not None:
                    Envelope.from_bytes(item.body)  # checks all of it while a dead letter can still name the cause
                    items.append(item)
            except StoreUnavailable:
                self._reader.drop(items)
                raise
            except Exception as error:
                dead.append((delivery, cause_of_error(error)))
        return dead, items

    def _revive(self, items: list[Item], newest: AckHandle, end_ms: int) -> None:
        """Write messages that came as dead letters; the deliveries are settled together afterwards."""
        if not items:
            return
        try:
            self._write(items, Envelopes.read([item.body for item in items]), [newest], end_ms)
        except (StoreUnavailable, QueueUnavailable):
            self._reader.drop(items)
            raise
        self._reader.confirm(items)
        log.info("%d dead letters were delivered too often, and are stored after all", len(items))


def as_work_delivery(delivery: Delivery) -> Delivery | None:
    """Return a dead letter as its work queue delivered it, if it died of the number of its deliveries alone.

    That number says nothing about the message: while the store is away and workers come and go, each of them counts. A
    dead letter that reaches the limit again in this queue stays one: it may end its worker in a way that the sandbox
    does not show.
    """
    if MOVED not in delivery.headers or _death(delivery).get("reason") != "delivery_limit":
        return None
    if delivery.tries >= limits.AMQP_DELIVERY_LIMIT:
        return None
    exchange = topology.EXCHANGE if topology.is_work_key(delivery.key) else topology.AGENTS
    return msgspec.structs.replace(delivery, exchange=exchange, tries=limits.AMQP_DELIVERY_LIMIT)


def is_unstamped(delivery: Delivery) -> bool:
    """Whether a dead letter is an agent's message without a stamp."""
    if MOVED not in delivery.headers:
        return topology.APP in delivery.headers
    return delivery.content_type == LINES_TYPE or not topology.is_work_key(delivery.key)


def cause_of(delivery: Delivery) -> str:
    """Return why it is a dead letter, as a sentence for people."""
    if MOVED not in delivery.headers:
        return _text(delivery.headers, topology.CAUSE) or "its worker did not say why"
    reason = str(_death(delivery).get("reason", ""))[:40]
    if reason == "delivery_limit":
        return "it was delivered too often without being settled"
    if reason == "rejected" and len(delivery.body) > limits.AMQP_PARTITION_BODY_BYTES_MAX:
        return f"too large: {len(delivery.body):,} bytes, wanted at most {limits.AMQP_PARTITION_BODY_BYTES_MAX:,}"
    return "a worker rejected it without a cause" if reason == "rejected" else f"its queue gave it up: {reason}"


def died_ms(delivery: Delivery) -> int | None:
    """Return when the worker or the broker put it here; equal for every delivery of it."""
    if MOVED in delivery.headers:
        time = _death(delivery).get("time")
        return round(time.timestamp() * 1000) if isinstance(time, datetime) else None
    text = _text(delivery.headers, topology.AT_MS)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 15 else None


def _death(delivery: Delivery) -> Mapping[str, object]:
    """Return the broker's newest entry about its death."""
    entries = delivery.headers[MOVED]
    first = entries[0] if isinstance(entries, list) and entries else {}
    return first if isinstance(first, Mapping) else {}


def _text(headers: Mapping[str, object], name: str) -> str:
    return str(headers.get(name) or "")[:1000]
