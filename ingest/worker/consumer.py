"""From the queue into the store: what a Celery worker does besides its tasks when the transport is AMQP.

One thread turns deliveries into batches (``batch.Batcher`` decides), writes each with ``write.Writer`` and acknowledges
it once its commit record is durable:

1. A body that cannot be read becomes a dead letter with its cause; the others gather. Lines that an agent sent past the
   front door are accepted here (``lines``). What was under way when workers ended, several times, is first tried in a
   process of its own (``trial``).
2. A due batch is prepared once and put; while the store does not answer, the same bytes are put again with growing
   pauses, without what is confirmed already, for ``CONSUME_RETRY_S`` at most; then the messages are given back.
3. A batch that cannot be written for another reason is written by halves; a message that fails alone is a dead letter.
4. A connection that is lost, or a queue that moves to another worker, takes with it what was not written yet: it is
   delivered again. What was written and not acknowledged is written a second time, which readers merge.
5. Dead letters come back from their own queue, and are kept in the store (``dead_queue``). Those that the broker gave
   up for the number of their deliveries alone, and that a trial survives, are written after all.

Its connections and threads: ``consume``.
"""

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Protocol, TypeVar

from django.db import DatabaseError

from ingest.routing import LINES_TYPE, SOURCE_HEADER
from ingest.transport import topology
from ingest.transport.delivery import Delivery, Mark
from ingest.worker.batch import Batcher, Item
from ingest.worker.dead_queue import Dead, cause_of, too_often
from ingest.worker.inbox import Idle, Inbox
from ingest.worker.metrics import Tally
from ingest.writer import Writer
from spm import limits
from spm.clock import Clock, SystemClock
from spm.envelope_batch import Envelopes, samples_in
from spm.errors import CorruptBlock, Explained, QueueUnavailable, StoreUnavailable
from spm.wire import Envelope

log = logging.getLogger(__name__)

T = TypeVar("T")
BURY_S = 10.0
WAKE, LOOK_S = 32, 0.05  # while a batch gathers, the writing thread is woken for so many deliveries, or looks so often


class Source(Protocol):
    """Where deliveries come from and are settled: ``amqp_receive.Receiver``, or a test's."""

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

    def accept(self, delivery: Delivery) -> Envelope | None: ...
    def whose(self, delivery: Delivery) -> int | None: ...
    def settled(self, envelope: Envelope) -> None: ...
    def retire(self) -> None: ...


class Consumer:
    """Writes what is delivered. ``take`` is for the connection's thread; everything else happens in ``run``'s.

    ``letters`` keeps deliveries of the queue of dead letters; ``trial`` says why a delivery must not be handled here.
    """

    def __init__(
        self,
        writer: Writer,
        grave: Grave,
        *,
        clock: Clock | None = None,
        batcher: Batcher | None = None,
        wait: Callable[[float], object] | None = None,
        door: Door | None = None,
        letters: Callable[[Collection[Dead]], None] | None = None,
        trial: Callable[[Delivery], str | None] | None = None,
    ) -> None:
        self._writer, self._grave, self._door = writer, grave, door
        self._letters, self._trial = letters, trial
        self._clock = clock or SystemClock()
        self._batcher = Batcher() if batcher is None else batcher
        self.tally = Tally()
        self._inbox = Inbox()
        self.idle = Idle(self._clock)
        self._dead: list[Delivery] = []
        self._stopping = threading.Event()
        self._wait = wait or self._stopping.wait
        self.source: Source | None = None

    def take(self, delivery: Delivery) -> None:
        """Queue a delivery for the writing thread. Prefetch bounds how many there are."""
        self._inbox.put(delivery)

    def stop(self) -> None:
        """Have ``run`` write what is at hand, and return."""
        self._stopping.set()
        self._inbox.close()

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
        self._dead = []
        self._drop(self._batcher.take())
        self._source.renew("the consumer failed")
        self._wait(limits.CONSUME_RENEW_S)

    def step(self) -> None:
        """Wait for a delivery or for a batch to be due; take all that has come, and write what is due."""
        wait_ms = self._batcher.wait_ms(self._now_ms())
        with self.idle.waiting():
            if wait_ms is None:
                self._inbox.wait(1, None)
            else:
                self._inbox.wait(WAKE, min(wait_ms / 1000, LOOK_S))
        while not self._batcher.full() and (delivery := self._inbox.take()) is not None:
            self._gather(delivery)
        self._keep_letters()
        fill = self._batcher.fill()
        self._store(self._batcher.take_due(self._now_ms()), fill)
        oldest = self._batcher.oldest()
        self.tally.oldest_ms = None if oldest is None else oldest.delivery.came_ms

    def _gather(self, delivery: Delivery) -> None:
        """Put a delivery where it belongs: among the batch's messages, or among the dead."""
        self.tally.redelivered += delivery.redelivered
        if delivery.queue == topology.DEAD:
            self._dead.append(delivery)
            return
        try:
            item = self._tried(delivery) if delivery.tries >= limits.CONSUME_SUSPECT_TRIES else self._open(delivery)
        except StoreUnavailable:
            raise
        except Exception as error:
            self._bury_delivery(delivery, _fault(error))
        else:
            if item is None:
                self._source.acknowledge(delivery.mark, multiple=False)
            else:
                self._batcher.add(item)

    def _tried(self, delivery: Delivery) -> Item | None:
        cause = None if self._trial is None else self._trial(delivery)
        if cause is not None:
            raise CorruptBlock(cause)
        return self._open(delivery)

    def _open(self, delivery: Delivery) -> Item | None:
        """What is to be written of a delivery, whose whole body is looked at with the batch; ``None``: nothing."""
        if not _by_agent(delivery) or self._door is None:
            assert delivery.exchange != topology.AGENTS, "BUG: what an agent sent is taken for our own message"
            return Item(delivery, delivery.body, samples_in(delivery.body))
        end_ms = delivery.came_ms + limits.CONSUME_RETRY_S * 1000
        door = self._door
        envelope = self._patiently(lambda: _asked(door.accept, delivery), [delivery.mark], end_ms)
        return None if envelope is None else Item(delivery, envelope.to_bytes(), len(envelope), envelope)

    def _store(self, items: list[Item], fill: float = 0.0) -> None:
        """Write a batch and settle its messages; those that were taken from us meanwhile come again."""
        items, envelopes = self._read(self._ours(items))
        if not items:
            return
        newest = {item.delivery.queue: item.delivery for item in items}  # of each queue
        marks = [delivery.mark for delivery in newest.values()]
        end_ms = items[0].delivery.came_ms + limits.CONSUME_RETRY_S * 1000
        begun = self._clock.monotonic()
        self.tally.oldest_ms = items[0].delivery.came_ms
        try:
            self._write(envelopes, marks, end_ms)
        except (StoreUnavailable, QueueUnavailable) as error:
            log.warning("%d messages are given back: %s", len(items), error)
            self.tally.given_back += len(items)
            self._drop(items)
            settle = self._source.give_back
        else:
            self.tally.wrote(
                messages=len(items), samples=len(envelopes.ts), fill=fill, took_s=self._clock.monotonic() - begun
            )
            self._settled(items)
            settle = self._source.acknowledge
        for mark in marks:
            settle(mark)

    def _ours(self, items: list[Item]) -> list[Item]:
        """Those that can still be settled."""
        channels = {(item.delivery.generation, item.delivery.queue): item.delivery for item in items}
        lost = {channel for channel, delivery in channels.items() if not self._source.holds(delivery.mark)}
        if not lost:
            return items
        gone = [item for item in items if (item.delivery.generation, item.delivery.queue) in lost]
        self._drop(gone)
        return [item for item in items if (item.delivery.generation, item.delivery.queue) not in lost]

    def _read(self, items: list[Item]) -> tuple[list[Item], Envelopes]:
        """The items as columns; those whose body is damaged become dead letters."""
        try:
            return items, Envelopes.read([item.body for item in items])
        except CorruptBlock:
            fine = [item for item in items if self._is_fine(item)]
            return fine, Envelopes.read([item.body for item in fine])

    def _is_fine(self, item: Item) -> bool:
        try:
            Envelope.from_bytes(item.body)
        except CorruptBlock as error:
            self._bury_delivery(item.delivery, str(error))
            return False
        return True

    def _drop(self, items: Collection[Item]) -> None:
        """They come again. What was stamped here is then stamped again, by another process: this one lost it."""
        if self._door is not None and any(item.accepted for item in items):
            self._door.retire()

    def _settled(self, items: Collection[Item]) -> None:
        for item in items:
            if item.accepted is not None and self._door is not None:
                self._door.settled(item.accepted)

    def _write(self, envelopes: Envelopes, marks: Collection[Mark], end_ms: int) -> None:
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
            for half in envelopes.halves():
                self._write(half, marks, end_ms)

    def _commit(self, envelopes: Envelopes, marks: Collection[Mark], end_ms: int) -> None:
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

    def _keep_letters(self) -> None:
        """Keep what has come from the queue of dead letters, and write what should not be there."""
        dead, self._dead = [d for d in self._dead if self._source.holds(d.mark)], []
        keep = self._letters
        if not dead or keep is None:
            return
        newest = dead[-1].mark
        try:
            end_ms = dead[0].came_ms + limits.CONSUME_RETRY_S * 1000
            letters, items = self._parted(dead)
            if letters:  # first: done twice, it writes the same rows
                self._patiently(lambda: _asked(keep, letters), [newest], end_ms)
            self._revive(items, newest, end_ms)
        except (StoreUnavailable, QueueUnavailable) as error:
            log.warning("%d dead letters are given back: %s", len(dead), error)
            self._source.give_back(newest)
        else:
            self.tally.letters += len(letters)
            self._source.acknowledge(newest)

    def _parted(self, dead: list[Delivery]) -> tuple[list[Dead], list[Item]]:
        """What stays dead, with its causes; and what died of the number of its deliveries alone."""
        letters: list[Dead] = []
        found: list[Item] = []
        for delivery in dead:
            sent = None if self._trial is None else too_often(delivery)
            if sent is None:
                letters.append((delivery, cause_of(delivery)))
                continue
            try:
                item = self._tried(sent)
                if item is not None:
                    Envelope.from_bytes(item.body)  # all of it: here a letter can still say what is wrong
                    found.append(item)
            except StoreUnavailable:
                self._drop(found)
                raise
            except Exception as error:
                letters.append((delivery, _fault(error)))
        return letters, found

    def _revive(self, items: list[Item], newest: Mark, end_ms: int) -> None:
        """Write what was taken from the dead; all that came with it is settled together, afterwards."""
        if not items:
            return
        try:
            self._write(Envelopes.read([item.body for item in items]), [newest], end_ms)
        except (StoreUnavailable, QueueUnavailable):
            self._drop(items)
            raise
        self._settled(items)
        log.info("%d dead letters were delivered too often, and are stored after all", len(items))

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
        with self.idle.waiting():  # nobody could help
            self._wait(wait_s)

    def _bury_delivery(self, delivery: Delivery, cause: str) -> None:
        try:
            self._publish_dead(delivery.body, cause, delivery.message_id, self._origin(delivery), delivery.key)
            self._source.acknowledge(delivery.mark, multiple=False)
        except (QueueUnavailable, StoreUnavailable):  # the broker can do it alone, but without the cause
            log.warning("a dead letter lost its cause: %s", cause)
            self._source.reject(delivery.mark)

    def _origin(self, delivery: Delivery) -> dict[str, str]:
        """What a dead letter tells of a delivery besides its cause: of one that nobody has stamped, whose it is."""
        told = {topology.ORIGIN: delivery.queue}
        if not _by_agent(delivery):
            return told
        app = None if self._door is None else _asked(self._door.whose, delivery)
        source = str(delivery.headers.get(SOURCE_HEADER) or "")
        return told | {
            topology.APP: str(app or 0),
            topology.TYPE: delivery.content_type,
            topology.ENCODING: delivery.encoding,
            SOURCE_HEADER: source,
        }

    def _bury(self, envelope: Envelope, cause: str) -> None:
        self._publish_dead(envelope.to_bytes(), cause, envelope.message_id.hex(), {}, "")

    def _publish_dead(self, body: bytes, cause: str, message_id: str, told: dict[str, str], key: str) -> None:
        self.tally.dead += 1
        headers = {topology.CAUSE: cause[:1000], topology.AT_MS: str(self._clock.now_ms()), **told}
        self._grave.publish(topology.DEAD, key, body, timeout_s=BURY_S, message_id=message_id, headers=headers)

    def _now_ms(self) -> int:
        return round(self._clock.monotonic() * 1000)

    @property
    def _source(self) -> Source:
        assert self.source is not None, "BUG: a consumer without its source"
        return self.source


def _by_agent(delivery: Delivery) -> bool:
    """Whether nobody of us has stamped it."""
    return delivery.content_type == LINES_TYPE or delivery.exchange == topology.AGENTS


def _fault(error: Exception) -> str:
    """Why a body cannot be read, for its letter."""
    if isinstance(error, Explained):
        return str(error)
    log.error("a body cannot be read", exc_info=error)
    return f"cannot be read: {error!r}"


A = TypeVar("A")


def _asked(act: Callable[[A], T], of: A) -> T:
    """What a part answers that asks the database; without that, nobody can say now whose a token is."""
    try:
        return act(of)
    except DatabaseError as error:
        raise StoreUnavailable(f"the database does not answer: {error}") from error
