"""Consumers with one fault each: that the ledger checker finds them is what makes its silence worth something.

Chosen by ``SPM_CONSUMER_STEP``, like the real one. ``Noting`` has no fault: it writes down what it stores, when.
"""

import os
import time
from dataclasses import replace
from pathlib import Path

from ingest.batch import Item
from ingest.consume import ConsumerStep, Service
from ingest.consumer import Consumer
from ingest.transport.delivery import Delivery
from spm.clock import random_u64
from spm.wire import Envelope, Stamp

WRITE_S = 60  # how long a faulty consumer waits between its two acts, to be killed there


class AcksFirst(Consumer):
    """Acknowledges, then writes."""

    def _store(self, items: list[Item], fill: float = 0.0) -> None:
        for item in items:
            self._source.acknowledge(item.delivery.mark, multiple=False)
        if items:
            _wait_to_be_killed()
        super()._store(items, fill)


class Restamps(Consumer):
    """Gives every delivery a stamp of its own, and takes its time to acknowledge."""

    def _open(self, delivery: Delivery) -> Item | None:
        item = super()._open(delivery)
        assert item is not None
        envelope = Envelope.from_bytes(item.body)
        again = replace(envelope, stamp=Stamp(envelope.stamp.ms, random_u64() >> 33, 0))
        return Item(delivery, again.to_bytes(), item.samples)

    def _write(self, envelopes, marks, end_ms):  # type: ignore[no-untyped-def]
        super()._write(envelopes, marks, end_ms)
        _wait_to_be_killed()


def _wait_to_be_killed() -> None:
    """Once, the first worker is as slow as the fault needs, and says so."""
    said = Path(os.environ["SPM_DATA"], "fault")
    if not said.exists():
        said.touch()
        time.sleep(WRITE_S)


class Notes(Consumer):
    """Writes down, before it acknowledges, which messages it has stored, in their order: "time source id" a line."""

    def _write(self, envelopes, marks, end_ms):  # type: ignore[no-untyped-def]
        super()._write(envelopes, marks, end_ms)
        now = time.monotonic_ns()
        lines = "".join(f"{now} {e.source} {e.message_id.hex()}\n" for e in envelopes)
        with Path(os.environ["SPM_DATA"], f"stored-{os.getpid()}").open("ab", buffering=0) as out:
            out.write(lines.encode())  # in one call: a kill leaves no half of a line


class _AckingFirst(Service):
    consumer = AcksFirst


class _Restamping(Service):
    consumer = Restamps


class _Noting(Service):
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
