"""Consumers with one fault each: that the ledger checker finds them is what makes its silence worth something.

Chosen by ``SPM_CONSUMER_STEP``, like the real one. ``Noting`` has no fault: it writes down what it stores, when.
``Stopping`` freezes at a named point of a write, as a machine does that is suspended; ``Cursed`` dies of some bodies.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ingest.transport.delivery import Delivery
from ingest.worker.batch import Item
from ingest.worker.connections import ConsumerService, ConsumerStep
from ingest.worker.consumer import Consumer
from ingest.worker.delivery_reader import DeliveryReader
from ingest.writer import WriteBatch, Writer
from spm import limits
from spm.clock import random_u64
from spm.envelope_batch import Envelopes
from spm.store.backends import open_backend
from spm.store.dictionary import COLUMN
from spm.store.keys import PlacementTable
from spm.wire import Envelope, Stamp
from tests.chaos.faults.cursed import suffer

ACKNOWLEDGED_S = 2  # until the connection's thread has surely sent what is acknowledged
WRITE_S = 60  # how long a faulty consumer waits between its two acts, to be killed there


class AcksFirst(Consumer):
    """Acknowledges, then writes."""

    def _store(self, items: list[Item], fill: float = 0.0) -> None:
        for item in items:
            self._source.acknowledge(item.delivery.ack_handle, multiple=False)
        if items:
            time.sleep(ACKNOWLEDGED_S)
            _wait_to_be_killed()
        super()._store(items, fill)


class _RestampingReader(DeliveryReader):
    def _open_many(self, deliveries: Sequence[Delivery]) -> list[Item | Exception | None]:
        return [self._restamped(result) for result in super()._open_many(deliveries)]

    @staticmethod
    def _restamped(item: Item | Exception | None) -> Item:
        assert isinstance(item, Item)
        envelope = Envelope.from_bytes(item.body)
        again = replace(envelope, stamp=Stamp(envelope.stamp.ms, random_u64() >> 33, 0))
        return Item(item.delivery, again.to_bytes(), item.samples)


class Restamps(Consumer):
    """Gives every delivery a stamp of its own, and takes its time to acknowledge."""

    reader_class = _RestampingReader

    def _write(self, items, envelopes, handles, end_ms):  # type: ignore[no-untyped-def]
        written = super()._write(items, envelopes, handles, end_ms)
        _wait_to_be_killed()
        return written


def _wait_to_be_killed() -> None:
    """Once, the first worker is as slow as the fault needs, and says so."""
    said = Path(os.environ["SPM_DATA"], "fault")
    if not said.exists():
        said.touch()
        time.sleep(WRITE_S)


class Notes(Consumer):
    """Writes down, before it acknowledges, which messages it has stored, in their order: "time source id" a line."""

    def _write(self, items, envelopes, handles, end_ms):  # type: ignore[no-untyped-def]
        written = super()._write(items, envelopes, handles, end_ms)
        now = time.monotonic_ns()
        lines = "".join(f"{now} {e.source} {e.message_id.hex()}\n" for e in written)
        with Path(os.environ["SPM_DATA"], f"stored-{os.getpid()}").open("ab", buffering=0) as out:
            out.write(lines.encode())  # in one call: a kill leaves no half of a line
        return written


class _AckingFirst(ConsumerService):
    consumer = AcksFirst


class _Restamping(ConsumerService):
    consumer = Restamps


class _Noting(ConsumerService):
    consumer = Notes


class AckBeforeWrite(ConsumerStep):
    """See ``AcksFirst``."""

    service = _AckingFirst


class RestampOnRedelivery(ConsumerStep):
    """See ``Restamps``."""

    service = _Restamping


class Noting(ConsumerStep):
    """See ``Notes``."""

    service = _Noting


POINTS = ("before-the-first-row", "between-rows", "after-the-last-row")


def stop_at(point: str) -> None:
    """Freeze here, if that is asked for by a file of this name and nobody else has done it.

    The signal goes to this very thread: one to the process stops it a moment later, and by then this thread may be in
    the midst of LMDB's commit, whose lock all other processes would wait for as long as the freeze lasts.
    """
    stop_file, done = (Path(os.environ["SPM_DATA"], f"{how}-{point}") for how in ("stop", "stopped"))
    try:
        stop_file.rename(done)
    except FileNotFoundError:
        return
    done.write_text(str(os.getpid()))
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


class StoppingWriter(Writer):
    """Writes as the real one does, and freezes at the point that a test names."""

    def commit(self, batch: WriteBatch) -> None:
        stop_at("before-the-first-row")
        self._backend.put_new("series", COLUMN, batch.series.rows, batch.steps[:1])
        stop_at("between-rows")
        super().commit(batch)
        stop_at("after-the-last-row")


def write_with(service: ConsumerService, writer: Writer) -> None:
    """Have both consumers write by this writer: the samples of most tests are of long ago."""
    for consumer in (service._consumer, service._past_consumer):
        consumer._batch_writer._writer = writer


class _Stopping(ConsumerService):
    def __init__(self, amqp_url: str, store_url: str, metrics_port: int | None = None, **more: Any) -> None:
        limits.AMQP_HEARTBEAT_S = 2
        super().__init__(amqp_url, store_url, metrics_port, **more)
        write_with(self, StoppingWriter(open_backend(store_url), PlacementTable()))


class Stopping(ConsumerStep):
    """See ``StoppingWriter``; the broker notices a frozen worker after some seconds."""

    service = _Stopping


UNWRITABLE = "unwritable"  # the source of messages that this writer cannot write


class FailingWriter(Writer):
    """Cannot write messages of one source."""

    def prepare(self, envelopes: Sequence[Envelope] | Envelopes) -> WriteBatch:
        if UNWRITABLE in {e.source for e in envelopes}:
            raise ZeroDivisionError("a fault on purpose")
        return super().prepare(envelopes)


class _DyingReader(DeliveryReader):
    def _open_many(self, deliveries: Sequence[Delivery]) -> list[Item | Exception | None]:
        for delivery in deliveries:
            suffer(delivery.body)
        return super()._open_many(deliveries)


class Dies(Consumer):
    """Ends with its process when it reads a cursed body."""

    reader_class = _DyingReader


class _Dying(ConsumerService):
    consumer = Dies
    sandbox_command = (sys.executable, "-m", "tests.chaos.faults.cursed")

    def __init__(self, amqp_url: str, store_url: str, metrics_port: int | None = None, **more: Any) -> None:
        super().__init__(amqp_url, store_url, metrics_port, **more)
        write_with(self, FailingWriter(open_backend(store_url), PlacementTable()))


class Cursed(ConsumerStep):
    """See ``Dies``."""

    service = _Dying
