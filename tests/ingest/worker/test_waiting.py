"""Messages of an app that cannot be written for now wait elsewhere, and nobody else's behind them."""

from pathlib import Path

import pytest
from msgspec.structs import replace as altered

from ingest.routing import LINES_TYPE
from ingest.transport import topology
from ingest.transport.amqp import AmqpTransport
from ingest.transport.topology import Address
from ingest.worker.batch import Batcher, Bounds
from ingest.worker.connections import ConsumerService
from ingest.worker.consumer import Consumer
from ingest.worker.forwarding import Forwarder
from ingest.writer import Writer
from spm import limits
from spm.clock import FakeClock
from spm.store import epochs
from spm.store.backends import open_backend
from spm.store.backends.base import Backend
from spm.store.keys import PlacementTable
from tests.ingest.worker.test_consumer import FakeAcceptor, Notes, Store, delivery
from tests.servers.processes import wait_until
from tests.support.messages import message
from tests.support.stored import stamps

ADDRESS = Address("amqp://", 4)
HEALTHY, DAMAGED = 1, 2
BAD_CELL = b"damaged bytes"


def damage(store: Backend) -> None:
    """Make the app's placement row unreadable."""
    assert store.check_and_put("config", epochs.row_key(DAMAGED), epochs.COLUMN, None, BAD_CELL)


def mend(store: Backend) -> None:
    assert store.check_and_put(
        "config", epochs.row_key(DAMAGED), epochs.COLUMN, BAD_CELL, epochs.encode(PlacementTable())
    )


def worker_of(
    store: Store, notes: Notes, clock: FakeClock, messages: int = 4, acceptor: FakeAcceptor | None = None
) -> Consumer:
    worker = Consumer(
        Writer(store, PlacementTable()),
        notes,
        clock=clock,
        batcher=Batcher(Bounds(messages=messages)),
        wait=clock.sleep,
        acceptor=acceptor,
        forwarder=Forwarder(notes, ADDRESS, passes_past=False),
    )
    worker.connect(notes)
    return worker


BODIES = [message(n, app=app).to_bytes() for n, app in enumerate((HEALTHY, DAMAGED, HEALTHY, DAMAGED), 1)]


def test_messages_of_a_damaged_app_wait_in_their_queue_and_those_of_others_are_stored() -> None:
    store, notes = Store(), Notes()
    damage(store)
    worker = worker_of(store, notes, FakeClock())
    for tag, body in enumerate(BODIES, 1):
        worker.take(altered(delivery(tag, body), key="003"))
    worker.step()
    assert notes.waiting == [("003", BODIES[1], "id"), ("003", BODIES[3], "id")]
    assert len(stamps(store)) == 2
    assert (notes.stored, notes.given_back, notes.dead) == ([(4, True)], [], [])
    mend(store)
    worker = worker_of(store, notes, FakeClock(), messages=2)
    for tag, (key, body, _) in enumerate(notes.waiting, 5):
        worker.take(altered(delivery(tag, body), key=key))
    worker.step()
    assert len(stamps(store, DAMAGED)) == 2


def test_an_agent_s_message_waits_as_it_was_stamped_under_a_key_of_ours() -> None:
    store, notes, stamped = Store(), Notes(), message(1, app=DAMAGED)
    damage(store)
    acceptor = FakeAcceptor([stamped])
    worker = worker_of(store, notes, FakeClock(), messages=1, acceptor=acceptor)
    worker.take(altered(delivery(1, body=b"cpu v=1"), content_type=LINES_TYPE, key="token.host"))
    worker.step()
    key = ADDRESS.route(DAMAGED, stamped.source, 100)
    assert notes.waiting == [(key, stamped.to_bytes(), stamped.message_id.hex())]
    assert (acceptor.settled_, acceptor.retired, notes.stored) == ([stamped], 0, [(1, True)])


def test_what_the_queue_of_waiting_messages_does_not_take_is_given_back_after_a_pause() -> None:
    store, notes, clock = Store(), Notes(publisher_open=False), FakeClock()
    damage(store)
    worker = worker_of(store, notes, clock)
    for tag, body in enumerate(BODIES, 1):
        worker.take(altered(delivery(tag, body), key="003"))
    before_s = clock.monotonic()
    worker.step()
    assert (notes.stored, notes.given_back) == ([], [4])
    assert clock.monotonic() - before_s >= limits.CONSUME_RENEW_S


@pytest.mark.real
def test_others_go_on_while_an_app_is_damaged_and_its_messages_are_stored_once_it_is_mended(
    amqp_vhost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them than a worker holds of its queue, in which those of the others are, too."""
    monkeypatch.setattr(topology, "WAIT_MS", 1_000)
    store_url = f"lmdb://{tmp_path}/store"
    backend, address = open_backend(store_url), Address.parse(amqp_vhost)
    queue = address.route(DAMAGED, "host", 100)
    neighbour = next(name for name in map(str, range(1_000)) if address.route(HEALTHY, name, 100) == queue)
    damage(backend)
    service, transport = ConsumerService(amqp_vhost, store_url), AmqpTransport(address)
    service.start()
    try:
        many = range(1, 2 * limits.CONSUME_UNACKED_MAX // address.partitions)
        for number in many:
            transport.publish(message(number, app=DAMAGED, samples=1), 10)
        for number in range(1, 4):
            transport.publish(message(number, app=HEALTHY, source=neighbour), 10)
        assert wait_until(lambda: len(stamps(backend)) == 3, 30)
        mend(backend)
        assert wait_until(lambda: len(stamps(backend, DAMAGED)) == len(many), 60)
        assert set(stamps(backend, DAMAGED).values()) == {1}
    finally:
        transport.close()
        service.stop()
        backend.close()
