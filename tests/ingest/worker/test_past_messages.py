"""Messages with samples of long ago: live ones wait for none of them, whichever way they came."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from msgspec.structs import replace as altered

from ingest.routing import LINES_TYPE
from ingest.transport import topology
from ingest.transport.amqp import AmqpTransport, Publisher
from ingest.transport.topology import Address
from ingest.worker.batch import Batcher, Bounds, Item, PastBatcher
from ingest.worker.connections import ConsumerService
from ingest.worker.consumer import Consumer
from ingest.worker.forwarding import Forwarder
from ingest.worker.inbox import Inbox
from ingest.writer import WriteBatch, Writer
from spm import limits
from spm.clock import FakeClock
from spm.envelope_batch import Envelopes
from spm.store.backends import open_backend
from spm.store.backends.base import Backend
from spm.store.keys import PlacementTable
from spm.wire import Envelope
from tests.ingest.worker.test_consumer import FakeAcceptor, Notes, Store, delivery
from tests.servers.amqp_look import depth_of
from tests.servers.processes import wait_until
from tests.support.messages import START_MS, message
from tests.support.stored import stamps


def of_long_ago(number: int, samples: int = 3) -> Envelope:
    """A message with samples of two days and an hour before its stamp."""
    live = message(number, samples=samples)
    return replace(live, ts=live.ts - (limits.LIVE_HOURS + 1) * limits.HOUR_MS)


def of_many_hours(number: int) -> Envelope:
    """A message with samples of a thousand hours."""
    past = of_long_ago(number, samples=1_000)
    return replace(past, ts=past.ts - np.arange(1_000) * limits.HOUR_MS)


def in_store(store: Backend) -> set[int]:
    """The numbers of the messages whose commit records are there."""
    return {(ms - START_MS - 501) // 10_000 for ms, _, _ in stamps(store)}


def worker_of(store: Store, notes: Notes, bounds: Bounds, acceptor: FakeAcceptor | None = None) -> Consumer:
    clock = FakeClock()
    worker = Consumer(
        Writer(store, PlacementTable()),
        notes,
        clock=clock,
        batcher=Batcher(bounds),
        wait=clock.sleep,
        acceptor=acceptor,
        forwarder=Forwarder(notes, Address("amqp://", 4), passes_past=True),
    )
    worker.connect(notes)
    return worker


def test_what_came_by_another_queue_is_passed_on_as_it_was_stamped_and_the_rest_is_stored() -> None:
    store, notes = Store(), Notes()
    worker = worker_of(store, notes, Bounds(messages=3))
    past = of_long_ago(2).to_bytes()
    for tag, body in ((1, None), (2, past), (3, None)):
        worker.take(delivery(tag, body))
    worker.step()
    assert notes.passed_on == [(topology.PAST, past, "id")]
    assert in_store(store) == {1, 3}
    assert (notes.stored, worker.tally.messages) == ([(3, True)], 2)


def test_a_large_one_is_passed_on_to_the_queue_of_large_ones() -> None:
    store, notes = Store(), Notes()
    worker = worker_of(store, notes, Bounds(messages=1))
    worker.take(delivery(1, of_long_ago(1, samples=20_000).to_bytes()))
    worker.step()
    assert [key for key, _, _ in notes.passed_on] == [topology.PAST_BULK]
    assert (store.puts, notes.stored) == ([], [(1, True)])


def test_of_an_app_that_sends_many_hours_the_further_ones_are_passed_on_to_another_queue() -> None:
    store, notes = Store(), Notes()
    worker = worker_of(store, notes, Bounds(messages=4))
    for tag, each in enumerate([*map(of_many_hours, (1, 2, 3)), replace(of_long_ago(4), app=2)], 1):
        worker.take(delivery(tag, each.to_bytes()))
    worker.step()
    keys = [key for key, _, _ in notes.passed_on]
    assert keys == [topology.PAST, topology.PAST_MANY, topology.PAST_MANY, topology.PAST]


def test_a_batch_of_long_ago_ends_with_the_message_that_makes_its_hours() -> None:
    batcher = PastBatcher()
    for number in (1, 2, 3):
        assert (batcher.room(), batcher.fill() < 1) == (1, True)
        body = (of_long_ago(1) if number < 3 else of_many_hours(1)).to_bytes()
        batcher.add(Item(delivery(number, body), body, 3))
    assert (batcher.room(), batcher.full(), len(batcher.take_due(0))) == (0, True, 3)
    assert batcher.room() == 1


def test_of_messages_of_long_ago_the_queues_take_turns() -> None:
    inbox = Inbox(by_turns=True)
    for tag, queue in ((1, "many"), (2, "many"), (3, "many"), (4, "past"), (5, "past")):
        inbox.put(altered(delivery(tag), queue=queue))
    taken = [inbox.take() for _ in range(6)]
    assert [None if each is None else each.tag for each in taken] == [1, 4, 2, 5, 3, None]


def test_what_the_queue_does_not_confirm_is_stored_where_it_is() -> None:
    store, notes = Store(), Notes(publisher_open=False)
    worker = worker_of(store, notes, Bounds(messages=2))
    for tag, each in ((1, of_long_ago(1)), (2, message(2))):
        worker.take(delivery(tag, each.to_bytes()))
    worker.step()
    assert in_store(store) == {1, 2}
    assert notes.stored == [(2, True)]


@pytest.mark.parametrize("is_open", [True, False], ids=["passed on", "stored here"])
def test_the_stamp_of_an_agent_s_message_is_confirmed_once_it_is_durable_in_either_place(is_open: bool) -> None:
    store, notes, past = Store(), Notes(publisher_open=is_open), of_long_ago(1)
    acceptor = FakeAcceptor([past])
    worker = worker_of(store, notes, Bounds(messages=1), acceptor)
    worker.take(altered(delivery(1, body=b"cpu v=1"), content_type=LINES_TYPE, key="k"))
    worker.step()
    assert notes.passed_on == ([(topology.PAST, past.to_bytes(), past.message_id.hex())] if is_open else [])
    assert (len(store.puts), acceptor.settled_, acceptor.retired, notes.stored) == (not is_open, [past], 0, [(1, True)])


class _SlowWriter(Writer):
    """A writer whose batches with samples of long ago wait, while it has others to prepare."""

    may_go_on = threading.Event()

    def prepare(self, envelopes: Sequence[Envelope] | Envelopes) -> WriteBatch:
        assert isinstance(envelopes, Envelopes)
        if int(envelopes.ts.min()) < int(envelopes.ms.min()) - limits.LIVE_HOURS * limits.HOUR_MS:
            assert self.may_go_on.wait(30)
        return super().prepare(envelopes)


@contextmanager
def running(
    url: str, store_url: str, monkeypatch: pytest.MonkeyPatch, writer: "type[_SlowWriter | _NotingWriter]"
) -> Iterator[AmqpTransport]:
    monkeypatch.setattr("ingest.worker.connections.Writer", writer)
    writer.may_go_on.clear()
    service, transport = ConsumerService(url, store_url), AmqpTransport(Address.parse(url))
    service.start()
    try:
        yield transport
    finally:
        writer.may_go_on.set()
        transport.close()
        service.stop()


@pytest.mark.real
@pytest.mark.parametrize("is_new", [True, False], ids=["by its own queue", "by the queue of its source"])
@pytest.mark.parametrize("samples", [3, 20_000], ids=["small", "large"])
def test_live_messages_of_any_source_wait_for_none_with_samples_of_long_ago(
    amqp_vhost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, samples: int, is_new: bool
) -> None:
    """More of them than a worker holds of their queue, so that none waits in a live one either."""
    store_url, past = f"lmdb://{tmp_path}/store", [of_long_ago(n, samples) for n in range(1, 10)]
    backend = open_backend(store_url)
    with running(amqp_vhost, store_url, monkeypatch, _SlowWriter) as transport:
        for each in past:
            if is_new:
                transport.publish(each, 10)
            else:
                _publish_as_before(amqp_vhost, each)
        for number in (11, 12, 13):
            transport.publish(message(number, samples=samples), 10)
        assert wait_until(lambda: in_store(backend) == {11, 12, 13}, 15)
        _SlowWriter.may_go_on.set()
        assert wait_until(lambda: in_store(backend) == {*range(1, 10), 11, 12, 13}, 15)
    backend.close()


class _NotingWriter(Writer):
    """A writer that notes of which app each message is; the first batch waits."""

    may_go_on = threading.Event()
    apps: ClassVar[list[int]] = []

    def prepare(self, envelopes: Sequence[Envelope] | Envelopes) -> WriteBatch:
        assert isinstance(envelopes, Envelopes)
        self.apps.extend(envelopes.app.tolist())
        assert self.may_go_on.wait(30)
        return super().prepare(envelopes)


@pytest.mark.real
def test_another_app_s_message_of_long_ago_waits_for_few_of_an_import(
    amqp_vhost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_url = f"lmdb://{tmp_path}/store"
    monkeypatch.setattr(_NotingWriter, "apps", [])
    with running(amqp_vhost, store_url, monkeypatch, _NotingWriter) as transport:
        for number in range(1, 41):
            transport.publish(of_many_hours(number), 10)
        transport.publish(replace(of_long_ago(41), app=2), 10)
        assert wait_until(lambda: depth_of(amqp_vhost, f"spm.metrics.{topology.PAST}") == 0, 15)
        _NotingWriter.may_go_on.set()
        assert wait_until(lambda: len(_NotingWriter.apps) == 41, 15)
    assert _NotingWriter.apps.index(2) < 10


def _publish_as_before(url: str, envelope: Envelope) -> None:
    """Publish a message as a process of an earlier version does, or an agent."""
    address, body = Address.parse(url), envelope.to_bytes()
    publisher = Publisher(address)
    key = address.route(envelope.app, envelope.source, len(body))
    publisher.publish(topology.EXCHANGE, key, body, timeout_s=10, message_id=envelope.message_id.hex())
    publisher.close()
