"""What every transport promises, shown on each: direct, and AMQP on a real RabbitMQ with a consumer behind it."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest.transport import open_transport
from ingest.transport.base import Transport
from ingest.worker.connections import ConsumerService
from spm.errors import Refused
from spm.store.backends import open_backend
from spm.store.backends.base import Backend
from spm.wire import Envelope, Stamp
from tests.servers.processes import wait_until
from tests.support.messages import message
from tests.support.stored import stamps


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Backend]:
    backend = open_backend(f"lmdb://{tmp_path}/store")
    yield backend
    backend.close()


@pytest.fixture(params=["direct", pytest.param("amqp", marks=pytest.mark.real)])
def transport(request: pytest.FixtureRequest, tmp_path: Path, store: Backend) -> Iterator[Transport]:
    url = f"lmdb://{tmp_path}/store"
    if request.param == "direct":
        transport = open_transport("direct", store_url=url)
        yield transport
        transport.close()
        return
    amqp_url = request.getfixturevalue("amqp_vhost")
    service = ConsumerService(amqp_url, url)
    service.start()
    transport = open_transport("amqp", store_url=url, amqp_url=amqp_url)
    yield transport
    transport.close()
    service.stop()


def of(envelope: Envelope, number: int) -> Envelope:
    """The same message under another stamp."""
    return Envelope(
        envelope.app,
        envelope.source,
        Stamp(envelope.stamp.ms, 1, number),
        envelope.message_id,
        envelope.series,
        envelope.series_index,
        envelope.ts,
        envelope.values,
    )


def test_a_published_message_is_stored_once(transport: Transport, store: Backend) -> None:
    envelope = message(1)
    transport.publish(envelope, 10)
    assert wait_until(lambda: bool(stamps(store)), 10)
    assert stamps(store) == {(envelope.stamp.ms, 1, 0): 1}


def test_messages_of_many_threads_are_all_stored_each_once(transport: Transport, store: Backend) -> None:
    def work(thread: int) -> None:
        for i in range(20):
            transport.publish(of(message(1, source=f"host{thread}"), 20 * thread + i), 20)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wait_until(lambda: len(stamps(store)) == 160, 20)
    assert set(stamps(store).values()) == {1}


def test_an_empty_message_is_no_error(transport: Transport) -> None:
    transport.publish(message(1, samples=0), 10)


def test_a_large_message_arrives(transport: Transport, store: Backend) -> None:
    transport.publish(message(1, samples=20_000), 20)
    assert wait_until(lambda: bool(stamps(store)), 20)


def test_an_unknown_transport_is_refused() -> None:
    with pytest.raises(Refused, match="unknown transport"):
        open_transport("pigeon", store_url="memory://")
