"""What a real broker gives up for the number of its deliveries: tried, and stored; poison among it stays dead."""

import sys
import threading
from collections.abc import Iterator, Sequence

import pika
import pytest

from ingest.accounting import dead_letter_review
from ingest.routing import AGENTS
from ingest.transport import topology
from ingest.transport.amqp import AmqpTransport, Publisher
from ingest.transport.amqp_receive import Receiver
from ingest.transport.delivery import Delivery
from ingest.transport.topology import Address
from ingest.worker.batch import Batcher, Bounds
from ingest.worker.consumer import Consumer
from ingest.worker.dead_queue import DeadLetterRecorder
from ingest.worker.poison_sandbox import PoisonSandbox
from spm import limits
from spm.clock import SystemClock
from spm.store.backends.memory import MemoryBackend
from spm.store.keys import PlacementTable
from spm.store.ledger import dead_letters
from spm.wire import Envelope
from tests.chaos.faults.consumers import UNWRITABLE, FailingWriter
from tests.servers.amqp_look import letters as waiting
from tests.servers.processes import wait_until
from tests.support.messages import message
from tests.support.stored import stamps

pytestmark = pytest.mark.real
APP = 1
WAIT_S = 60


class FakeAcceptor:
    """An acceptor that knows one token and stamps what comes with it."""

    def __init__(self) -> None:
        self.heard: list[Envelope] = []

    def accept_many(self, deliveries: Sequence[Delivery]) -> list[Envelope | Exception | None]:
        assert [(each.exchange, each.key, each.body) for each in deliveries] == [(AGENTS, "spm_good.h", b"cpu v=1")]
        return [message(100, source="h")]

    def app_of(self, delivery: Delivery) -> int | None:
        return APP if delivery.key.startswith("spm_good.") else None

    def confirm(self, envelope: Envelope) -> None:
        self.heard.append(envelope)

    def retire(self) -> None:
        raise AssertionError("BUG: nothing was lost")


@pytest.fixture
def address(amqp_vhost: str, monkeypatch: pytest.MonkeyPatch) -> Address:
    """Queues that give a message up at its third delivery."""
    monkeypatch.setattr(limits, "AMQP_DELIVERY_LIMIT", 2)
    return Address.parse(amqp_vhost.replace("partitions=4", "partitions=1&agents=1"))


@pytest.fixture
def publisher(address: Address) -> Iterator[Publisher]:
    publisher = Publisher(address)
    assert publisher._up.wait(WAIT_S), "no connection"
    yield publisher
    publisher.close()


@pytest.fixture
def sandbox() -> Iterator[PoisonSandbox]:
    sandbox = PoisonSandbox((sys.executable, "-m", "tests.chaos.faults.cursed"))
    yield sandbox
    sandbox.close()


def refuse(address: Address, queue: str, count: int) -> None:
    """Take each of ``count`` messages as often as the broker lets anybody, and settle none."""
    connection = pika.BlockingConnection(pika.URLParameters(address.url))
    channel = connection.channel()
    left = count * (limits.AMQP_DELIVERY_LIMIT + 1)
    for method, _, _ in channel.consume(queue, inactivity_timeout=WAIT_S):
        assert method is not None, f"{left} deliveries of {queue} never came"
        channel.basic_nack(method.delivery_tag, requeue=True)
        left -= 1
        if not left:
            break
    connection.close()


def test_a_broker_s_delivery_limit_kills_no_good_message_and_spares_no_poison(
    address: Address, publisher: Publisher, sandbox: PoisonSandbox
) -> None:
    good = [message(number) for number in range(3)]
    deadly, unwritable = message(3, source="curse: kill"), message(4, source=UNWRITABLE)
    transport = AmqpTransport(address)
    assert transport._publisher._up.wait(WAIT_S), "no connection"
    for each in (*good[:2], deadly, unwritable):
        transport.publish(each, WAIT_S)
    publisher.publish(topology.EXCHANGE, "000", message(5).to_bytes()[:-1] + b"x", timeout_s=WAIT_S, message_id="5")
    transport.publish(good[2], WAIT_S)
    transport.close()
    publisher.publish(AGENTS, "spm_good.h", b"cpu v=1", timeout_s=WAIT_S, message_id="6")
    refuse(address, address.queues()[0].name, 7)
    assert wait_until(lambda: len(waiting(address.url, topology.DEAD)) == 7, WAIT_S), "the broker has not given them up"

    store, acceptor, clock = MemoryBackend(), FakeAcceptor(), SystemClock()
    consumer = Consumer(
        FailingWriter(store, PlacementTable()),
        publisher,
        batcher=Batcher(Bounds(messages=1)),
        acceptor=acceptor,
        record_dead_letters=DeadLetterRecorder(store, acceptor.app_of, clock).record,
        sandbox=sandbox.try_delivery,
    )
    receiver = Receiver(address, consumer.take, dead_letters=True)
    consumer.connect(receiver)
    thread = threading.Thread(target=consumer.run)
    thread.start()
    receiver.open()
    try:
        wanted = {(e.stamp.ms, e.stamp.process, e.stamp.sequence) for e in (*good, message(100))}
        assert wait_until(lambda: set(stamps(store, APP)) == wanted, WAIT_S), stamps(store, APP)
        assert wait_until(lambda: len(dead_letter_review.list_dead_letters(store, APP, count=9)) == 2, WAIT_S)
    finally:
        consumer.stop()
        thread.join(WAIT_S)
        receiver.close()
    causes = {each.source: each.cause for each in dead_letter_review.list_dead_letters(store, APP, count=9)}
    assert causes.keys() == {"curse: kill", UNWRITABLE}
    assert "the process that tried it (signal 9)" in causes["curse: kill"]
    assert "cannot be written: ZeroDivisionError" in causes[UNWRITABLE]
    [torn] = dead_letter_review.list_dead_letters(store, dead_letters.UNKNOWN_APP, count=9)
    assert "checksum" in torn.cause
    assert [each.stamp for each in acceptor.heard] == [message(100).stamp]
    assert waiting(address.url, topology.DEAD) == []
