"""Publishing and receiving on a real RabbitMQ that is blocked, filled, killed and started again."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import cycle

import pytest

from ingest.transport import topology
from ingest.transport.amqp import AmqpTransport, Publisher
from ingest.transport.amqp_receive import Receiver
from ingest.transport.delivery import Delivery
from ingest.transport.help_calls import HelpSignal
from ingest.transport.topology import Address
from spm import limits
from spm.clock import SystemClock
from spm.errors import LimitExceeded, QueueUnavailable, Refused
from spm.wire import Envelope
from tests.servers.amqp_look import depth_of, letters
from tests.servers.processes import stopped, wait_until
from tests.servers.rabbitmq import RabbitMQ
from tests.support.messages import message

pytestmark = pytest.mark.real


@contextmanager
def opened(url: str) -> Iterator[AmqpTransport]:
    transport = AmqpTransport(Address.parse(url))
    try:
        yield transport
    finally:
        transport.close()


@contextmanager
def received(url: str) -> Iterator[tuple[Receiver, list[Delivery]]]:
    """A receiver and the list of what it has been given."""
    got: list[Delivery] = []
    receiver = Receiver(Address.parse(url), got.append)
    receiver.open()
    try:
        yield receiver, got
    finally:
        receiver.close()


def drained(url: str, count: int) -> list[Delivery]:
    """``count`` messages from the work queues, acknowledged."""
    with received(url) as (receiver, got):
        assert wait_until(lambda: len(got) >= count, 10), f"{len(got)} of {count}"
        for delivery in got:
            receiver.acknowledge(delivery.ack_handle, multiple=False)
        time.sleep(0.2)
        return list(got)


def test_a_message_comes_out_as_it_went_in(amqp_vhost: str) -> None:
    with opened(amqp_vhost) as transport:
        transport.publish(message(7), 10)
    [delivery] = drained(amqp_vhost, 1)
    assert delivery.body == message(7).to_bytes()
    assert delivery.message_id == message(7).message_id.hex()


def test_messages_of_one_source_stay_in_order(amqp_vhost: str) -> None:
    with opened(amqp_vhost) as transport:
        for number in range(50):
            transport.publish(message(number), 10)
    assert [d.body for d in drained(amqp_vhost, 50)] == [message(n).to_bytes() for n in range(50)]


def test_large_bodies_go_to_a_queue_of_their_own(amqp_vhost: str) -> None:
    with opened(amqp_vhost) as transport:
        transport.publish(message(1, samples=10_000), 10)
    assert [d.queue for d in drained(amqp_vhost, 1)] == ["spm.metrics.bulk"]


def of_long_ago(number: int, samples: int = 3) -> Envelope:
    """A message with samples of two days and an hour before its stamp."""
    live = message(number, samples=samples)
    return replace(live, ts=live.ts - (limits.LIVE_HOURS + 1) * limits.HOUR_MS)


def test_samples_of_long_ago_go_to_queues_of_their_own_by_their_size(amqp_vhost: str) -> None:
    with opened(amqp_vhost) as transport:
        transport.publish(of_long_ago(1), 10)
        transport.publish(of_long_ago(2, samples=20_000), 10)
        transport.publish(message(3), 10)
    queues = {d.message_id[-1]: d.queue for d in drained(amqp_vhost, 3)}
    assert (queues.pop("1"), queues.pop("2")) == ("spm.metrics.past", "spm.metrics.past.bulk")
    assert queues["3"].removeprefix("spm.metrics.").isdecimal()


def test_samples_of_long_ago_go_the_way_of_live_ones_while_their_queue_is_full(
    amqp_vhost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would hold the room of all messages until somebody has read that queue."""
    whole, queues = dict(topology.work_arguments()), cycle(Address.parse(amqp_vhost).queues())

    def arguments() -> dict[str, object]:
        return whole | ({"x-max-length-bytes": 2_000} if next(queues).key == topology.PAST else {})

    monkeypatch.setattr(topology, "work_arguments", arguments)
    with opened(amqp_vhost) as transport:
        for number in range(12):
            transport.publish(of_long_ago(number), 10)
        transport.publish(message(12), 10)
    assert 0 < depth_of(amqp_vhost, "spm.metrics.past") < 12
    assert {int(d.message_id, 16) for d in drained(amqp_vhost, 13)} == set(range(13))


def test_a_body_over_the_limit_is_refused(amqp_vhost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "AMQP_BODY_BYTES_MAX", len(message(1).to_bytes()) - 1)
    with opened(amqp_vhost) as transport, pytest.raises(LimitExceeded, match="too large"):
        transport.publish(message(1), 10)


def test_a_body_over_the_broker_s_own_limit_does_not_keep_the_others_from_being_published(
    own_rabbitmq: RabbitMQ,
) -> None:
    own_rabbitmq.control("eval", "application:set_env(rabbit, max_message_size, 20000).")
    try:
        with opened(own_rabbitmq.url) as transport:
            outcomes: list[bool] = []
            with pytest.raises(QueueUnavailable):
                transport.publish(message(1, samples=1000), 10, outcomes.append)
            assert wait_until(lambda: _published(transport), 20)
            assert outcomes == [False]
            with pytest.raises(LimitExceeded, match="too large"):
                transport.publish(message(1, samples=1000), 10)
    finally:
        own_rabbitmq.control("eval", "application:set_env(rabbit, max_message_size, 67108864).")
    drained(own_rabbitmq.url, 1)


def test_what_a_killed_broker_had_not_confirmed_is_published_without_its_sender(own_rabbitmq: RabbitMQ) -> None:
    outcomes: list[bool] = []
    with opened(own_rabbitmq.url) as transport:
        transport.publish(message(1), 10)
        with stopped(own_rabbitmq.process_id()):
            with pytest.raises(QueueUnavailable):
                transport.publish(message(2), 0.5, outcomes.append)
            own_rabbitmq.kill()
        own_rabbitmq.start()
        assert wait_until(lambda: outcomes == [True], 30)
    assert message(2).to_bytes() in {d.body for d in drained(own_rabbitmq.url, 2)}


def test_a_message_without_a_queue_is_no_success(amqp_vhost: str) -> None:
    publisher = Publisher(Address.parse(amqp_vhost))
    with pytest.raises(QueueUnavailable, match="no queue for it"):
        publisher.publish(topology.EXCHANGE, "nowhere", b"body", timeout_s=5, message_id="1")
    publisher.close()


def test_a_full_queue_refuses_and_the_sender_is_told(amqp_vhost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "AMQP_QUEUE_BYTES_MAX", 2_000)
    with opened(amqp_vhost) as transport:
        while _published(transport):
            pass
        with pytest.raises(QueueUnavailable, match="refused"):
            transport.publish(message(1), 10)


@pytest.mark.timed
def test_publishing_fails_within_a_second_while_the_broker_is_out_of_memory(own_rabbitmq: RabbitMQ) -> None:
    with opened(own_rabbitmq.url) as transport:
        transport.publish(message(1), 10)
        own_rabbitmq.control("set_vm_memory_high_watermark", "absolute", "1MB")
        try:
            assert wait_until(lambda: "memory" in own_rabbitmq.control("eval", "rabbit_alarm:get_alarms()."), 10)
            begun = time.monotonic()
            with pytest.raises(QueueUnavailable):
                transport.publish(message(2), 20)
            assert time.monotonic() - begun < 1
        finally:
            own_rabbitmq.control("set_vm_memory_high_watermark", "absolute", "1GB")
        assert wait_until(lambda: _published(transport), 20)
    drained(own_rabbitmq.url, 2)


def _published(transport: AmqpTransport) -> bool:
    try:
        transport.publish(message(3), 5)
    except QueueUnavailable:
        return False
    return True


def test_a_killed_broker_loses_nothing_confirmed_and_the_same_transport_publishes_again(own_rabbitmq: RabbitMQ) -> None:
    with opened(own_rabbitmq.url) as transport:
        for number in range(100):
            transport.publish(message(number), 10)
        own_rabbitmq.kill()
        with pytest.raises(QueueUnavailable):
            transport.publish(message(100), 5)
        own_rabbitmq.start()
        assert wait_until(lambda: _published(transport), 20)
    confirmed = {message(n).to_bytes() for n in range(100)}
    assert confirmed <= {d.body for d in drained(own_rabbitmq.url, 101)}


@pytest.mark.timed
def test_a_broker_that_hangs_is_unavailable_when_the_time_is_up(own_rabbitmq: RabbitMQ) -> None:
    node = own_rabbitmq.process_id()
    with opened(own_rabbitmq.url) as transport:
        transport.publish(message(1), 10)
        with stopped(node):
            begun = time.monotonic()
            with pytest.raises(QueueUnavailable, match="no confirm"):
                transport.publish(message(2), 1)
            assert time.monotonic() - begun < 2
    drained(own_rabbitmq.url, 1)


def test_a_receiver_goes_on_after_the_broker_was_started_again(own_rabbitmq: RabbitMQ) -> None:
    with opened(own_rabbitmq.url) as transport, received(own_rabbitmq.url) as (receiver, got):
        transport.publish(message(1), 10)
        assert wait_until(lambda: len(got) == 1, 10)
        own_rabbitmq.kill()
        own_rabbitmq.start()
        assert wait_until(lambda: len(got) == 2, 30)  # it was not acknowledged
        assert got[0].generation != got[1].generation
        assert got[0].body == got[1].body
        receiver.acknowledge(got[0].ack_handle)  # of the old connection, where tags were others
        receiver.renew("to see whether it is still there")
        assert wait_until(lambda: len(got) == 3, 60)
        receiver.acknowledge(got[2].ack_handle)
        assert wait_until(lambda: _published(transport), 20)
        assert wait_until(lambda: len(got) == 4, 10)
        receiver.acknowledge(got[3].ack_handle)
        time.sleep(0.2)


def test_a_queue_that_lost_its_leader_does_not_keep_the_others_from_being_consumed(
    own_rabbitmq: RabbitMQ,
) -> None:
    url = own_rabbitmq.new_vhost("leaderless") + "?partitions=1"
    with opened(url) as transport:
        transport.publish(message(1), 10)
    own_rabbitmq.control("eval", "sys:suspend('leaderless_spm.metrics.bulk').")
    with opened(url) as transport, received(url) as (receiver, got):
        transport.publish(message(2), 10)
        assert wait_until(lambda: [d.body for d in got] == [message(n).to_bytes() for n in (1, 2)], 30)
        receiver.acknowledge(got[1].ack_handle)
        assert wait_until(lambda: own_rabbitmq.messages("leaderless") == 0, 30), "an answer is heard"
    own_rabbitmq.control("eval", "sys:resume('leaderless_spm.metrics.bulk').")


def test_a_failure_in_the_connection_s_own_thread_makes_another_connection(amqp_vhost: str) -> None:
    generations: list[int] = []

    def deliver(delivery: Delivery) -> None:
        generations.append(delivery.generation)
        if len(generations) == 1:
            raise ZeroDivisionError

    receiver = Receiver(Address.parse(amqp_vhost), deliver)
    receiver.open()
    with opened(amqp_vhost) as transport:
        transport.publish(message(1), 10)
    assert wait_until(lambda: len(generations) == 2, 20)
    assert generations[0] != generations[1]
    receiver.close()


def held_of(amqp_vhost: str, workers: int = 1) -> int:
    """How many messages the last of these workers may hold of a queue."""
    queues = [*Address.parse(amqp_vhost).queues(), topology.DEAD_LETTER_QUEUE]
    mine = topology.share(queues, range(workers), workers - 1)
    return max(topology.prefetch(queue for queue in queues if queue.name in mine).values())


def waiting(amqp_vhost: str, key: str) -> list[bytes]:
    """Messages that wait in one queue: twice as many as one of two workers may hold."""
    address = Address.parse(amqp_vhost)
    source = next(f"h{n}" for n in range(999) if address.route(1, f"h{n}", 1) == key)
    messages = [message(number, source=source) for number in range(2 * held_of(amqp_vhost, 2))]
    with opened(amqp_vhost) as transport:
        for each in messages:
            transport.publish(each, 10)
    return [each.to_bytes() for each in messages]


@pytest.fixture
def backlog(amqp_vhost: str) -> list[bytes]:
    """Messages that wait in the queue which a second worker takes over."""
    return waiting(amqp_vhost, "001")


@pytest.mark.seed("A9", compares="what a queue's next worker gets, with what its last one had not settled")
def test_a_queue_that_moves_gives_first_and_in_order_what_was_not_settled(
    amqp_vhost: str, backlog: list[bytes]
) -> None:
    """A consumer that is merely cancelled, as pika does before it closes a channel, leaves what it holds for later."""
    alone, of_two = held_of(amqp_vhost), held_of(amqp_vhost, 2)
    with received(amqp_vhost) as (_, first):
        assert wait_until(lambda: len(first) == alone, 20)
        with received(amqp_vhost) as (_, second):
            assert wait_until(lambda: len(second) == of_two, 20), "a second worker took nothing over"
        assert [delivery.body for delivery in second] == backlog[:of_two]
        assert wait_until(lambda: len(first) == 2 * alone, 20), "the first worker did not get it again"
        assert [delivery.body for delivery in first[alone:]] == backlog[:alone]


def test_a_queue_that_stays_gives_more_when_others_go_to_a_second_worker_and_again_in_order(amqp_vhost: str) -> None:
    """A worker holds as many messages of few queues as of many; its unsettled messages are delivered first."""
    backlog = waiting(amqp_vhost, "000")
    alone, of_two = held_of(amqp_vhost), held_of(amqp_vhost, 2)
    assert alone < of_two
    with received(amqp_vhost) as (receiver, first):
        assert wait_until(lambda: len(first) == alone, 20)
        receiver.acknowledge(first[9].ack_handle)
        with received(amqp_vhost) as (_, second):
            assert wait_until(lambda: len(first) == alone + 10 + of_two, 40), len(first)
        assert [delivery.body for delivery in first[alone + 10 :]] == backlog[10 : 10 + of_two]
        assert not second
        assert not receiver.holds(first[20].ack_handle), "it came again"
        assert receiver.holds(first[-1].ack_handle)


def test_a_worker_that_comes_and_goes_takes_nothing_from_the_queues_that_stay(amqp_vhost: str) -> None:
    """What a worker holds of them does not come again, so that it is not taken for what ends its workers."""
    waiting(amqp_vhost, "000")
    alone = held_of(amqp_vhost)
    with received(amqp_vhost) as (receiver, first):
        assert wait_until(lambda: len(first) == alone, 20)
        every = receiver.queues()
        for _ in range(2):
            with received(amqp_vhost):
                assert wait_until(lambda: len(receiver.queues()) < len(every), 20)
            assert wait_until(lambda: receiver.queues() == every, 20)
        assert len(first) == alone
        assert receiver.holds(first[0].ack_handle)


@pytest.mark.parametrize("leaves", [0, 2])
def test_workers_that_come_at_once_and_those_that_stay_share_all_queues(amqp_vhost: str, leaves: int) -> None:
    """More come within one look than it asks for seats above the highest that it knew."""
    count = 2 + limits.AMQP_SEATS_AHEAD
    address = Address.parse(f"{amqp_vhost}&calm=32".replace("partitions=4", "partitions=2"))
    workers, queues = [Receiver(address, lambda _: None) for _ in range(count + 1)], len(address.queues())

    def shares() -> list[int]:
        return sorted(len(worker.queues()) for worker in workers)

    def even(among: int) -> list[int]:
        return sorted(queues // among + (place < queues % among) for place in range(among))

    workers[0].open()
    assert wait_until(lambda: len(workers[0].queues()) == queues, 20)
    for worker in workers[1:]:
        worker.open()
    assert wait_until(lambda: shares() == even(count + 1), 20), shares()
    workers.pop(leaves).close()
    assert wait_until(lambda: shares() == even(count), 20), shares()
    for worker in workers:
        worker.close()


@pytest.mark.seed("A7", compares="workers that consume while nobody has much to do, with those after a call")
def test_idle_workers_leave_the_queues_to_a_few_until_one_of_them_calls(
    amqp_vhost: str, figure: Callable[[str], None]
) -> None:
    busy_from = [math.inf] * 4
    url = amqp_vhost.replace("partitions=4", "partitions=2")  # seven queues

    def worker_of(number: int) -> Receiver:
        calling = HelpSignal(lambda: min(time.monotonic(), busy_from[number]), SystemClock())
        return Receiver(Address.parse(url), lambda _: None, help_signal=calling)

    workers = [worker_of(number) for number in range(4)]

    def shares() -> list[int]:
        return sorted((len(worker.queues()) for worker in workers), reverse=True)

    for worker in workers:
        worker.open()
    assert wait_until(lambda: shares() == [4, 3, 0, 0], 20), shares()
    busy_from[next(n for n in range(4) if workers[n].queues())] = time.monotonic()
    begun = time.monotonic()
    assert wait_until(lambda: shares() == [2, 2, 2, 1], 20), shares()
    figure(f"4 workers: 2 consume; all of them {time.monotonic() - begun:.1f} s after one has nothing but work")
    for worker in workers:
        worker.close()


def test_what_is_given_back_comes_again_before_what_came_after_it(amqp_vhost: str, backlog: list[bytes]) -> None:
    unacked = held_of(amqp_vhost)
    with received(amqp_vhost) as (receiver, got):
        assert wait_until(lambda: len(got) == unacked, 20)
        receiver.acknowledge(got[4].ack_handle)
        receiver.give_back(got[9].ack_handle)
        assert not receiver.holds(got[20].ack_handle), "what came after it is not to be written first"
        assert wait_until(lambda: len(got) == 2 * unacked, 20)
        assert [delivery.body for delivery in got[unacked:]] == backlog[5 : 5 + unacked]


def test_what_is_given_back_too_often_is_a_dead_letter(amqp_vhost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "AMQP_DELIVERY_LIMIT", 2)
    with opened(amqp_vhost) as transport, received(amqp_vhost) as (receiver, got):
        transport.publish(message(1), 10)
        for seen in (1, 2, 3):
            assert wait_until(lambda n=seen: len(got) == n, 10)  # type: ignore[misc]
            receiver.give_back(got[-1].ack_handle)
        assert wait_until(lambda: _dead_letters(amqp_vhost) == [message(1).to_bytes()], 10)


def test_what_is_rejected_is_a_dead_letter(amqp_vhost: str) -> None:
    with opened(amqp_vhost) as transport, received(amqp_vhost) as (receiver, got):
        transport.publish(message(1), 10)
        assert wait_until(lambda: len(got) == 1, 10)
        receiver.reject(got[0].ack_handle)
        assert wait_until(lambda: _dead_letters(amqp_vhost) == [message(1).to_bytes()], 10)


def test_a_dead_letter_waits_in_its_queue_while_the_dead_letters_have_no_room(
    own_rabbitmq: RabbitMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_rabbitmq.control("eval", "application:set_env(rabbit, dead_letter_worker_publisher_confirm_timeout, 500).")
    url = own_rabbitmq.new_vhost("no-room") + "?partitions=1"
    monkeypatch.setattr(limits, "AMQP_QUEUE_BYTES_MAX", 2_000)
    publisher = Publisher(Address.parse(url))
    with pytest.raises(QueueUnavailable, match="refused"):
        _fill(publisher)
    with opened(url) as transport, received(url) as (receiver, got):
        transport.publish(message(1), 10)
        assert wait_until(lambda: len(got) == 1, 10)
        assert wait_until(lambda: depth_of(url, topology.DEAD) >= 4, 20)  # a queue says so some seconds later
        full = depth_of(url, topology.DEAD)
        receiver.reject(got[0].ack_handle)
        time.sleep(1)
        assert depth_of(url, topology.DEAD) == full
        own_rabbitmq.control("purge_queue", "-p", "no-room", topology.DEAD)
        assert wait_until(lambda: _dead_letters(url) == [message(1).to_bytes()], 20)
    publisher.close()


def _fill(publisher: Publisher) -> None:
    for _ in range(20):
        publisher.publish(topology.DEAD, "", b"x" * 500, timeout_s=5, message_id="1")


def _dead_letters(url: str) -> list[bytes]:
    return [letter.body for letter in letters(url, topology.DEAD)]


@pytest.mark.parametrize("given", ["0", "257", "-1", "many"])
def test_a_wrong_number_of_partitions_is_refused(given: str) -> None:
    with pytest.raises(Refused, match="partitions"):
        Address.parse(f"amqp://localhost/%2F?partitions={given}")


@pytest.mark.parametrize("given", ["0", "33", "-1", "many"])
def test_a_wrong_number_of_workers_in_calm_is_refused(given: str) -> None:
    with pytest.raises(Refused, match="calm"):
        Address.parse(f"amqp://localhost/%2F?calm={given}")
