"""From the queue into the store: what a Celery worker does besides its tasks when the transport is AMQP.

One thread turns deliveries into batches (``Batcher`` decides when), writes each batch and acknowledges its messages
once the commit record is durable:

1. ``DeliveryReader`` reads the deliveries at hand together. Messages that an agent sent to the queue are accepted
   there. A body that cannot be read becomes a dead letter with its cause; the others gather.
2. ``BatchWriter`` writes a due batch. While the store does not answer, it repeats that for ``CONSUME_RETRY_S`` at most;
   then the messages are given back.
3. A connection that is lost, or a queue that moves to another worker, takes with it what was not written yet: it is
   delivered again. What was written and not acknowledged is written a second time, which readers merge.
4. ``Forwarder`` passes messages with samples of long ago on to queues of their own, which a second consumer of the
   worker reads: live messages wait for none of them. Messages of an app that cannot be written for now it has wait in
   another queue: messages of other apps wait for none of those.
5. ``DeadLetterHandler`` stores what comes from the queue of dead letters.

Enter by ``Consumer``. Its connections and threads are in ``connections``.
"""

import logging
import threading
from collections.abc import Callable, Collection, Sequence

import numpy as np

from ingest.transport import topology
from ingest.transport.delivery import AckHandle, Delivery
from ingest.worker.batch import Batcher, Item
from ingest.worker.batch_writer import BatchWriter
from ingest.worker.dead_letter_publisher import DeadLetterPublisher
from ingest.worker.dead_queue import DeadDelivery, DeadLetterHandler
from ingest.worker.delivery_reader import DeliveryReader, cause_of_error
from ingest.worker.forwarding import Forwarder
from ingest.worker.inbox import Idle, Inbox
from ingest.worker.interfaces import DeliverySource, MessageAcceptor, QueuePublisher
from ingest.worker.metrics import ConsumerTally
from ingest.worker.retry import StoreRetry
from ingest.writer import Writer
from spm import limits
from spm.arrays import BOOL
from spm.clock import Clock, SystemClock
from spm.envelope_batch import Envelopes
from spm.errors import AppUnavailable, CorruptBlock, QueueUnavailable, StoreUnavailable
from spm.wire import Envelope

log = logging.getLogger(__name__)

# While a batch gathers, the writing thread is woken for so many deliveries, or looks for them so often.
WAKE_DELIVERIES, LOOK_S = 32, 0.05


class Consumer:
    """Writes what is delivered. ``take`` is for the connection's thread; everything else happens in ``run``'s.

    ``record_dead_letters`` stores deliveries of the queue of dead letters. ``sandbox`` returns why a delivery must not
    be handled in this process. ``forwarder`` passes messages on that others must not wait for; without it all are
    written here, or given back. ``by_turns``: its queues take turns, message by message.
    """

    reader_class = DeliveryReader

    def __init__(
        self,
        writer: Writer,
        publisher: QueuePublisher,
        *,
        clock: Clock | None = None,
        batcher: Batcher | None = None,
        wait: Callable[[float], object] | None = None,
        acceptor: MessageAcceptor | None = None,
        record_dead_letters: Callable[[Collection[DeadDelivery]], None] | None = None,
        sandbox: Callable[[Delivery], str | None] | None = None,
        forwarder: Forwarder | None = None,
        by_turns: bool = False,
    ) -> None:
        self._clock = clock or SystemClock()
        self._batcher = Batcher() if batcher is None else batcher
        self.tally = ConsumerTally()
        self._inbox = Inbox(by_turns=by_turns)
        self.idle = Idle(self._clock)
        self._dead: list[Delivery] = []
        self._stopping = threading.Event()
        self._wait = wait or self._stopping.wait
        self._retry = StoreRetry(self._clock, self.idle, self.tally, self._stopping, self._wait)
        self._dead_letters = DeadLetterPublisher(publisher, acceptor, self._clock, self.tally)
        self._reader = self.reader_class(acceptor, sandbox, self._retry)
        self._forwarder = forwarder
        self._batch_writer = BatchWriter(writer, self._retry, self._dead_letters)
        self._dead_letter_handler: DeadLetterHandler | None = None
        if record_dead_letters is not None:
            self._dead_letter_handler = DeadLetterHandler(
                record_dead_letters, self._reader, self._write, self._retry, self.tally
            )

    def connect(self, source: DeliverySource) -> None:
        """Say where deliveries come from, before the first of them."""
        self._retry.source = source

    def take(self, delivery: Delivery) -> None:
        """Queue a delivery for the writing thread. Prefetch bounds how many there are."""
        self._inbox.put(delivery)

    def stop(self) -> None:
        """Have ``run`` write what is at hand, and return."""
        self._stopping.set()
        self._inbox.close()

    def run(self) -> None:
        """Gather, write and acknowledge until ``stop``."""
        while not self._stopping.is_set():
            try:
                self.step()
            except Exception:
                self._renew()
        try:
            self._store(self._batcher.take())
        except Exception:
            self._renew()

    def step(self) -> None:
        """Wait for a delivery or for a batch to be due; take all that has come, and write what is due."""
        wait_ms = self._batcher.wait_ms(self._now_ms())
        with self.idle.waiting():
            if wait_ms is None:
                self._inbox.wait(1, None)
            else:
                self._inbox.wait(WAKE_DELIVERIES, min(wait_ms / 1000, LOOK_S))
        while deliveries := self._next_deliveries():
            self._gather(deliveries)
        self._handle_dead_letters()
        fill = self._batcher.fill()
        self._store(self._batcher.take_due(self._now_ms()), fill)
        oldest = self._batcher.oldest()
        self.tally.oldest_ms = None if oldest is None else oldest.delivery.arrived_ms

    def _renew(self) -> None:
        log.exception("the consumer failed; a new connection brings its messages again")
        self._dead = []
        self._reader.drop(self._batcher.take())
        self._source.renew("the consumer failed")
        self._wait(limits.CONSUME_RENEW_S)

    def _next_deliveries(self) -> list[Delivery]:
        """Take the next deliveries that are at hand, as many as are read together and the batch has room for."""
        deliveries: list[Delivery] = []
        room, size = min(self._batcher.room(), limits.CONSUME_JOIN_MESSAGES), 0
        while len(deliveries) < room and size < limits.CONSUME_JOIN_BYTES:
            delivery = self._inbox.take()
            if delivery is None:
                break
            deliveries.append(delivery)
            size += len(delivery.body)
        return deliveries

    def _gather(self, deliveries: Sequence[Delivery]) -> None:
        """Put deliveries into the batch, or among the dead letters."""
        self.tally.redelivered += sum(delivery.redelivered for delivery in deliveries)
        self._dead += [delivery for delivery in deliveries if delivery.queue == topology.DEAD]
        work = [delivery for delivery in deliveries if delivery.queue != topology.DEAD]
        results = self._reader.read_many(work)
        for result in results:  # all that is stamped is in the batch before anything else can fail
            if isinstance(result, Item):
                self._batcher.add(result)
        for delivery, result in zip(work, results, strict=True):
            if isinstance(result, Exception):
                self._publish_dead_letter(delivery, cause_of_error(result))
            elif result is None:
                self._source.acknowledge(delivery.ack_handle, multiple=False)

    def _handle_dead_letters(self) -> None:
        ours, self._dead = [each for each in self._dead if self._source.holds(each.ack_handle)], []
        if ours and self._dead_letter_handler is not None:
            self._dead_letter_handler.handle(ours, self._source)

    def _store(self, items: list[Item], fill: float = 0.0) -> None:
        """Write a batch and settle its messages; those that were taken from us meanwhile are delivered again."""
        items, envelopes = self._decode(self._ours(items))
        if not items:
            return
        newest = {item.delivery.queue: item.delivery for item in items}  # of each queue
        handles = [delivery.ack_handle for delivery in newest.values()]
        end_ms = items[0].delivery.arrived_ms + limits.CONSUME_RETRY_S * 1000
        started = self._clock.monotonic()
        self.tally.oldest_ms = items[0].delivery.arrived_ms
        try:
            written = self._write(items, envelopes, handles, end_ms)
        except (StoreUnavailable, QueueUnavailable) as error:
            log.warning("%d messages are given back: %s", len(items), error)
            self.tally.given_back += len(items)
            self._reader.drop(items)
            settle = self._source.give_back
        else:
            if len(written):
                took_s = self._clock.monotonic() - started
                self.tally.count_batch(messages=len(written), samples=len(written.ts), fill=fill, took_s=took_s)
            self._reader.confirm(items)
            settle = self._source.acknowledge
        for handle in handles:
            settle(handle)

    def _write(
        self, items: Sequence[Item], envelopes: Envelopes, handles: Collection[AckHandle], end_ms: int
    ) -> Envelopes:
        """Write messages, or pass them on; return those that are written. What is live comes first."""
        forwarder = self._forwarder
        past = np.zeros(len(envelopes), np.bool_) if forwarder is None else forwarder.are_past(envelopes)
        here, waiting = ~past, frozenset[int]()
        if here.any():
            waiting |= self._batch_writer.write(_chosen(envelopes, here), handles, end_ms)
        if forwarder is not None and past.any():
            refused = past & ~forwarder.pass_on(items, envelopes, past)
            if refused.any():
                waiting |= self._batch_writer.write(_chosen(envelopes, refused), handles, end_ms)
            here |= refused
        waits = here & np.isin(envelopes.app, sorted(waiting))
        self._have_wait([items[number] for number in np.flatnonzero(waits).tolist()])
        return _chosen(envelopes, here & ~waits)

    def _have_wait(self, items: Sequence[Item]) -> None:
        """Have messages wait in their queue; if it does not take them they are given back, after a pause."""
        if items and (self._forwarder is None or not self._forwarder.have_wait(items)):
            self._wait(limits.CONSUME_RENEW_S)
            raise AppUnavailable("messages of some apps can be neither written for now nor kept waiting")

    def _ours(self, items: list[Item]) -> list[Item]:
        """Return the items that can still be settled, and drop the others."""
        channels = {(item.delivery.generation, item.delivery.queue): item.delivery for item in items}
        closed = {channel for channel, delivery in channels.items() if not self._source.holds(delivery.ack_handle)}
        if not closed:
            return items
        self._reader.drop([item for item in items if (item.delivery.generation, item.delivery.queue) in closed])
        return [item for item in items if (item.delivery.generation, item.delivery.queue) not in closed]

    def _decode(self, items: list[Item]) -> tuple[list[Item], Envelopes]:
        """Return the items with their samples as columns; those whose body is damaged become dead letters."""
        try:
            return items, Envelopes.read([item.body for item in items])
        except CorruptBlock:
            intact = [item for item in items if self._is_intact(item)]
            return intact, Envelopes.read([item.body for item in intact])

    def _is_intact(self, item: Item) -> bool:
        try:
            Envelope.from_bytes(item.body)
        except CorruptBlock as error:
            self._publish_dead_letter(item.delivery, str(error))
            return False
        return True

    def _publish_dead_letter(self, delivery: Delivery, cause: str) -> None:
        try:
            self._dead_letters.publish_delivery(delivery, cause)
            self._source.acknowledge(delivery.ack_handle, multiple=False)
        except (QueueUnavailable, StoreUnavailable):  # the broker can do it alone, but without the cause
            log.warning("a dead letter lost its cause: %s", cause)
            self._source.reject(delivery.ack_handle)

    def _now_ms(self) -> int:
        return round(self._clock.monotonic() * 1000)

    @property
    def _source(self) -> DeliverySource:
        assert self._retry.source is not None, "BUG: a consumer without its source"
        return self._retry.source


def _chosen(envelopes: Envelopes, mask: BOOL) -> Envelopes:
    return envelopes if mask.all() else envelopes.select_messages(mask)
