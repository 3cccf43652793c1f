"""What every transport promises, shown on each: direct, and AMQP on a real RabbitMQ with a consumer behind it."""

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from ingest.transport import open_transport
from ingest.transport.base import OutcomeCallback, Submission, Transport, weight_of
from ingest.worker.connections import ConsumerService
from spm.errors import Refused, SpmError
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


def submission(transport: Transport, envelope: Envelope, outcome: OutcomeCallback) -> Submission:
    """A message that has its room."""
    weight = weight_of(envelope)
    transport.reserve(envelope.app, envelope.source, weight)
    return Submission(envelope, weight, outcome)


def test_messages_that_are_submitted_together_are_each_stored_and_reported_once(
    transport: Transport, store: Backend
) -> None:
    outcomes = dict[int, list[bool]]()
    for first in range(0, 60, 20):
        messages = [
            submission(transport, of(message(1, source=f"host{i % 5}"), i), outcomes.setdefault(i, []).append)
            for i in range(first, first + 20)
        ]
        troubles = transport.submit(messages)
        assert len(troubles) == 20
    assert wait_until(lambda: all(outcomes.values()), 20)
    assert wait_until(lambda: len(stamps(store)) == 60, 20)
    assert set(stamps(store).values()) == {1}
    assert outcomes == {i: [True] for i in range(60)}
    assert [trouble() for trouble in troubles] == [None] * 20


def test_submitting_nothing_is_no_error(transport: Transport) -> None:
    assert transport.submit([]) == []


def test_a_fault_of_what_is_called_with_an_outcome_harms_no_other_message(transport: Transport, store: Backend) -> None:
    outcomes = list[int]()

    def called(number: int, stored: bool) -> None:
        outcomes.append(number)
        if number == 1:
            raise ZeroDivisionError

    transport.submit([submission(transport, of(message(1), i), partial(called, i)) for i in range(4)])
    assert wait_until(lambda: len(outcomes) == 4, 20)
    transport.publish(of(message(1), 9), 20)
    assert wait_until(lambda: len(stamps(store)) == 5, 20)
    assert sorted(outcomes) == [0, 1, 2, 3]


def test_what_is_submitted_before_the_end_is_stored(transport: Transport, store: Backend) -> None:
    outcomes = list[bool]()
    transport.submit([submission(transport, of(message(1), i), outcomes.append) for i in range(10)])
    transport.close()
    assert outcomes == [True] * 10
    with pytest.raises(SpmError):
        transport.reserve(1, "host", 1)
    assert wait_until(lambda: len(stamps(store)) == 10, 20)
