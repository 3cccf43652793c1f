"""Broker, gateway and store killed and started again under one worker process, which needs no restart itself."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import permutations

import pytest

from spm.wire import Envelope
from tests.chaos.line.thin_line import Line
from tests.servers.java.hbase import HBase
from tests.servers.processes import wait_until
from tests.servers.rabbitmq import RabbitMQ
from tests.support.fleet import Fleet
from tests.support.messages import LONG_AGO_MS, RECENT_MS
from tests.support.stored import samples, sent

pytestmark = [pytest.mark.real, pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(600)]
START_MS = RECENT_MS


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory, own_hbase: HBase, own_rabbitmq: RabbitMQ) -> Iterator[Line]:
    amqp_url = own_rabbitmq.new_vhost("restarts") + "?partitions=2"
    line_ = Line(tmp_path_factory.mktemp("line"), f"{own_hbase.url}/restarts", amqp_url)
    yield line_
    line_.close()


def stamps_of(envelopes: Sequence[Envelope]) -> set[tuple[int, int, int]]:
    return {(e.stamp.ms, e.stamp.process, e.stamp.sequence) for e in envelopes}


def bodies(offset_ms: int) -> list[bytes]:
    """400 bodies of 10 samples, half of them of long ago, of times that no other offset below ten seconds has."""
    starts = START_MS + offset_ms, START_MS + offset_ms - LONG_AGO_MS
    fleets = [Fleet.make(hosts=40, steps=5, start_ms=start) for start in starts]
    hosts = [range(h, h + 1) for h in range(40)]
    return [fleet.lines(range(s, s + 1), host) for s in range(5) for host in hosts for fleet in fleets]


ORDERS = list(permutations(("rabbitmq", "thrift", "store")))


@pytest.mark.seed("A34", compares="what was acknowledged with what is stored, servers killed and started in any order")
@pytest.mark.parametrize(
    "order",
    [
        pytest.param(order, id=", ".join(order), marks=[] if number in (0, 5) else pytest.mark.proof)
        for number, order in enumerate(ORDERS)
    ],
)
def test_a34_servers_killed_together_and_started_in_any_order_lose_nothing_and_the_worker_lives_on(
    line: Line, own_hbase: HBase, own_rabbitmq: RabbitMQ, figure: Callable[[str], None], order: Sequence[str]
) -> None:
    worker = line.worker(line.workers) if line.workers else line.start_worker()
    born, resent = worker.pid(), line.resent
    messages = line.accept(bodies(len(line.sent)))
    line.publish(messages[:100])
    assert wait_until(lambda: stamps_of(messages[:100]) <= line.stored(), 60)
    sender = threading.Thread(target=line.publish, args=(messages[100:],))
    own_rabbitmq.kill()
    sender.start()
    own_hbase.kill()
    begun = time.monotonic()
    start = {"rabbitmq": own_rabbitmq.start, "thrift": own_hbase.start_gateway, "store": own_hbase.start_master}
    for name in order:
        start[name]()
    own_hbase.start()
    back_s = time.monotonic() - begun
    sender.join()
    line.drain(own_rabbitmq)
    figure(f"{', '.join(order)}: all is stored {time.monotonic() - begun - back_s:.1f} s after the last one is up")
    assert worker.pid() == born
    assert line.resent > resent, "the kills hit nothing"
    assert samples(line.backend, START_MS - LONG_AGO_MS - 1, START_MS + 3_000_000) == sent(line.sent)


def test_a_worker_that_is_asked_to_end_stores_or_gives_back_what_it_holds(line: Line, own_rabbitmq: RabbitMQ) -> None:
    worker = line.worker(line.workers)
    line.publish(line.accept(bodies(1 + len(line.sent))))
    worker.stop(40)
    assert "Warm shutdown" in worker.log.read_text()
    line.start_worker()
    line.drain(own_rabbitmq)
