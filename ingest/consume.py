"""From the queue into the store: what a Celery worker does besides its tasks when the transport is AMQP.

One thread turns deliveries into batches (``batch.Batcher`` decides), writes each with ``write.Writer`` and acknowledges
it once its commit record is durable:

1. A body that cannot be read becomes a dead letter with its cause; the others gather. Lines that an agent sent past the
   front door are accepted here (``lines``).
2. A due batch is prepared once and put; while the store does not answer, the same bytes are put again with growing
   pauses, without what is confirmed already, for ``CONSUME_RETRY_S`` at most; then the messages are given back.
3. A batch that cannot be written for another reason is written message by message; what fails then is a dead letter.
4. A connection that is lost, or a queue that moves to another worker, takes with it what was not written yet: it is
   delivered again. What was written and not acknowledged is written a second time, which readers merge.

The connection is our own and not the one Celery has to its broker: that may be a folder instead of RabbitMQ, and is
served by the thread of the worker's event loop, which a write of some seconds would keep from heartbeats and tasks. For
the same reason ``ConsumerStep`` belongs to the worker and not to Celery's consumer, which restarts with its broker.
"""

import logging
import queue
import threading
from collections.abc import Callable, Collection
from dataclasses import replace
from importlib import import_module
from typing import Protocol, TypeVar

from celery import bootsteps
from django.conf import settings
from django.db import DatabaseError

from ingest.accept import Acceptor, take_process
from ingest.batch import Batcher, Item
from ingest.gauges import Gauges, Tally, text
from ingest.routing import LINES_TYPE
from ingest.transport import topology
from ingest.transport.amqp import Publisher
from ingest.transport.amqp_receive import Delivery, Mark, Receiver
from ingest.transport.topology import Address
from ingest.write import Writer
from spm import limits
from spm.clock import Clock, SystemClock
from spm.errors import BadMessage, CorruptBlock, LimitExceeded, QueueUnavailable, StoreUnavailable
from spm.store.backends import open_backend
from spm.store.keys import Distribution
from spm.wire import Envelope

log = logging.getLogger(__name__)

T = TypeVar("T")
BURY_S = 10.0


class Source(Protocol):
    """Where deliveries come from and are settled: ``amqp.Receiver``, or a test's."""

    def holds(self, mark: Mark) -> bool: ...
    def acknowledge(self, mark: Mark, *, multiple: bool = True) -> None: ...
    def give_back(self, mark: Mark) -> None: ...
    def reject(self, mark: Mark) -> None: ...
    def renew(self, why: str) -> None: ...


class Grave(Protocol):
    """Where dead letters go: ``amqp.Publisher``, or a test's."""

    def publish(
        self, exchange: str, key: str, body: bytes, *, timeout_s: float, message_id: str, headers: dict[str, str]
    ) -> None: ...


class Door(Protocol):
    """What accepts lines that nobody has stamped yet: ``lines.LineDoor``."""

    def accept(self, delivery: Delivery) -> Envelope: ...


class Consumer:
    """Writes what is delivered. ``take`` may be called from any thread; everything else happens in ``run``'s."""

    def __init__(
        self,
        writer: Writer,
        grave: Grave,
        *,
        clock: Clock | None = None,
        batcher: Batcher | None = None,
        wait: Callable[[float], object] | None = None,
        lines: Callable[[Delivery], Envelope] | None = None,
    ) -> None:
        self._writer, self._grave, self._lines = writer, grave, lines
        self._clock = clock or SystemClock()
        self._batcher = Batcher() if batcher is None else batcher
        self.tally = Tally()
        self._inbox: queue.SimpleQueue[Delivery | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._wait = wait or self._stopping.wait
        self.source: Source | None = None

    def take(self, delivery: Delivery) -> None:
        """Queue a delivery for the writing thread. Prefetch bounds how many there are."""
        self._inbox.put(delivery)

    def stop(self) -> None:
        """Have ``run`` write what is at hand, and return."""
        self._stopping.set()
        self._inbox.put(None)

    def run(self) -> None:
        """Until ``stop``: gather, write, acknowledge."""
        while not self._stopping.is_set():
            try:
                self.step()
            except Exception:
                self._renew()
        try:
            self._store(self._batcher.take())
        except Exception:
            self._renew()

    def _renew(self) -> None:
        log.exception("the consumer failed; a new connection brings its messages again")
        self._batcher.take()
        self._source.renew("the consumer failed")
        self._wait(limits.CONSUME_RENEW_S)

    def step(self) -> None:
        """Wait for a delivery or for a batch to be due; take all that has come, and write what is due."""
        wait_ms = self._batcher.wait_ms(self._now_ms())
        delivery = self._next(None if wait_ms is None else wait_ms / 1000)
        while delivery is not None:
            self._gather(delivery)
            delivery = None if self._batcher.full() else self._next(0)
        fill = self._batcher.fill()
        self._store(self._batcher.take_due(self._now_ms()), fill)
        oldest = self._batcher.oldest()
        self.tally.oldest_ms = None if oldest is None else oldest.came_ms

    def _next(self, timeout_s: float | None) -> Delivery | None:
        try:
            return self._inbox.get(block=timeout_s != 0, timeout=timeout_s)
        except queue.Empty:
            return None

    def _gather(self, delivery: Delivery) -> None:
        self.tally.redelivered += delivery.redelivered
        try:
            end_ms = delivery.came_ms + limits.CONSUME_RETRY_S * 1000
            envelope = self._patiently(lambda: self._open(delivery), [delivery.mark], end_ms)
        except (CorruptBlock, BadMessage, LimitExceeded, ValueError) as error:
            self._bury_delivery(delivery, str(error))
            return
        size = len(delivery.body)
        item = Item(envelope, delivery.queue, delivery.tag, size, delivery.came_ms, delivery.generation)
        self._batcher.add(item)

    def _open(self, delivery: Delivery) -> Envelope:
        """The envelope in a delivery; one of an agent's lines is made here."""
        by_agent = delivery.content_type == LINES_TYPE or delivery.exchange == topology.AGENTS
        if by_agent and self._lines is not None:
            try:
                return self._lines(delivery)
            except DatabaseError as error:  # whose token it is cannot be said now
                raise StoreUnavailable(f"the database does not answer: {error}") from error
        assert delivery.exchange != topology.AGENTS, "BUG: what an agent sent is taken for our own message"
        return Envelope.from_bytes(delivery.body)

    def _store(self, items: list[Item], fill: float = 0.0) -> None:
        """Write a batch and settle its messages; those that were taken from us meanwhile come again."""
        items = [item for item in items if self._source.holds(_mark(item))]
        if not items:
            return
        newest = {item.queue: _mark(item) for item in items}  # of each queue
        end_ms = items[0].came_ms + limits.CONSUME_RETRY_S * 1000
        begun = self._clock.monotonic()
        self.tally.oldest_ms = items[0].came_ms
        try:
            self._write([item.envelope for item in items], newest.values(), end_ms)
        except (StoreUnavailable, QueueUnavailable) as error:
            log.warning("%d messages are given back: %s", len(items), error)
            self.tally.given_back += len(items)
            settle = self._source.give_back
        else:
            samples = sum(len(item.envelope) for item in items)
            took_s = self._clock.monotonic() - begun
            self.tally.wrote(messages=len(items), samples=samples, fill=fill, took_s=took_s)
            settle = self._source.acknowledge
        for mark in newest.values():
            settle(mark)

    def _write(self, envelopes: list[Envelope], marks: Collection[Mark], end_ms: int) -> None:
        """Make the envelopes durable, or dead letters; raises an ``…Unavailable`` when neither is sure."""
        try:
            self._commit(envelopes, marks, end_ms)
        except (StoreUnavailable, QueueUnavailable):
            raise
        except Exception as error:
            log.exception("a batch of %d messages cannot be written", len(envelopes))
            if len(envelopes) == 1:
                self._bury(envelopes[0], f"cannot be written: {error!r}")
                return
            for envelope in envelopes:
                self._write([envelope], marks, end_ms)

    def _commit(self, envelopes: list[Envelope], marks: Collection[Mark], end_ms: int) -> None:
        batch = self._patiently(lambda: self._writer.prepare(envelopes), marks, end_ms)

        def put() -> None:
            nonlocal batch
            try:
                self._writer.commit(batch)
            except StoreUnavailable as error:
                if error.rest is not None:
                    batch = replace(batch, steps=tuple(error.rest))
                raise

        self._patiently(put, marks, end_ms)

    def _patiently(self, act: Callable[[], T], marks: Collection[Mark], end_ms: int) -> T:
        """What ``act`` answers, asked again while the store does not, until ``end_ms``."""
        wait_s = 0.1
        while True:
            try:
                return act()
            except StoreUnavailable as error:
                self._pause(wait_s, marks, end_ms, error)
                wait_s = min(2 * wait_s, limits.CONSUME_BACK_OFF_S)

    def _pause(self, wait_s: float, marks: Collection[Mark], end_ms: int, error: StoreUnavailable) -> None:
        """Wait before the next try, or raise ``error`` when there is to be none."""
        gone = not any(map(self._source.holds, marks))
        if gone or self._stopping.is_set() or self._now_ms() + 1000 * wait_s > end_ms:
            raise error
        log.warning("the store does not answer, next try in %.1f s: %s", wait_s, error)
        self.tally.retries += 1
        self._wait(wait_s)

    def _bury_delivery(self, delivery: Delivery, cause: str) -> None:
        try:
            self._publish_dead(delivery.body, cause, delivery.queue, delivery.message_id)
            self._source.acknowledge(delivery.mark, multiple=False)
        except QueueUnavailable:  # the broker can do it alone, but without the cause
            log.warning("a dead letter lost its cause: %s", cause)
            self._source.reject(delivery.mark)

    def _bury(self, envelope: Envelope, cause: str) -> None:
        self._publish_dead(envelope.to_bytes(), cause, "", envelope.message_id.hex())

    def _publish_dead(self, body: bytes, cause: str, origin: str, message_id: str) -> None:
        self.tally.dead += 1
        headers = {topology.CAUSE: cause[:1000], topology.ORIGIN: origin}
        self._grave.publish(topology.DEAD, "", body, timeout_s=BURY_S, message_id=message_id, headers=headers)

    def _now_ms(self) -> int:
        return round(self._clock.monotonic() * 1000)

    @property
    def _source(self) -> Source:
        assert self.source is not None, "BUG: a consumer without its source"
        return self.source


def _mark(item: Item) -> Mark:
    return Mark(item.generation, item.queue, item.tag)


class Service:
    """A consumer with its connections and its thread; with a port, its metrics too."""

    consumer = Consumer

    def __init__(self, amqp_url: str, store_url: str, metrics_port: int | None = None) -> None:
        address = Address.parse(amqp_url)
        self._backend = open_backend(store_url)
        self._grave = Publisher(address)
        self._door: Door | None = None
        self._consumer = self.consumer(Writer(self._backend, Distribution()), self._grave, lines=self._accept)
        self._receiver = Receiver(address, self._consumer.take)
        self._consumer.source = self._receiver
        self._thread = threading.Thread(target=self._consumer.run, name="consumer", daemon=True)
        self.gauges = None if metrics_port is None else Gauges(metrics_port, self.text)

    def text(self) -> str:
        """Its metrics, as Prometheus reads them."""
        return text(self._consumer.tally, round(SystemClock().monotonic() * 1000), self._receiver.depths)

    def _accept(self, delivery: Delivery) -> Envelope:
        """The envelope of an agent's lines.

        The first ones make the door: a worker may start while the store is down, and the door's models cannot be
        loaded before Django's apps, as this module is; so it is loaded by name.
        """
        if self._door is None:
            acceptor = Acceptor(take_process(self._backend), SystemClock())
            self._door = import_module("ingest.lines").LineDoor(acceptor, SystemClock())
        return self._door.accept(delivery)

    def start(self) -> None:
        """Begin to receive."""
        self._thread.start()
        self._receiver.open()

    def stop(self) -> None:
        """Write what is at hand within ``CONSUME_STOP_S``; everything else is given back."""
        self._consumer.stop()
        self._thread.join(limits.CONSUME_STOP_S)
        self._receiver.close()
        self._grave.close()
        if self.gauges is not None:
            self.gauges.close()


class ConsumerStep(bootsteps.StartStopStep):  # type: ignore[misc]
    """Starts and stops the service with the worker."""

    requires = {"celery.worker.components:Pool"}  # the pool forks before there are threads
    service = Service

    def __init__(self, worker: object, **options: object) -> None:
        super().__init__(worker, **options)
        self._service: Service | None = None

    def start(self, worker: object) -> None:
        """See the class."""
        port = settings.SPM_WORKER_METRICS_PORT or None
        self._service = self.service(settings.SPM_AMQP_URL, settings.SPM_STORE_URL, port)
        self._service.start()

    def stop(self, worker: object) -> None:
        """See the class."""
        service, self._service = self._service, None
        if service is not None:
            service.stop()

    terminate = stop
