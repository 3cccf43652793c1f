"""Broker, gateway and store killed and started again under one worker process, which needs no restart itself."""

import threading
from collections.abc import Iterator

import pytest

from tests.chaos.line import Line
from tests.fleet import Fleet
from tests.stack.hbase import HBase
from tests.stack.processes import wait_until
from tests.stack.rabbitmq import RabbitMQ
from tests.stack.stored import samples, sent

pytestmark = [pytest.mark.real, pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(600)]
START_MS = 1_767_222_000_000


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory, own_hbase: HBase, own_rabbitmq: RabbitMQ) -> Iterator[Line]:
    amqp_url = own_rabbitmq.new_vhost("restarts") + "?partitions=2"
    made = Line(tmp_path_factory.mktemp("line"), f"{own_hbase.url}/restarts", amqp_url)
    yield made
    made.close()


def bodies(first_host: int) -> list[bytes]:
    """400 bodies of 10 samples."""
    fleet = Fleet.make(hosts=40, steps=10, start_ms=START_MS + first_host)
    return [fleet.lines(range(s, s + 1), range(h, h + 1)) for s in range(10) for h in range(40)]


@pytest.mark.seed("A34", compares="what was acknowledged with what is stored, after kills of every server")
def test_nothing_is_lost_and_the_worker_lives_on_when_everything_else_is_killed(
    line: Line, own_hbase: HBase, own_rabbitmq: RabbitMQ
) -> None:
    worker = line.start_worker()
    born = worker.pid()
    messages = line.accept(bodies(0))
    line.publish(messages[:100])
    assert wait_until(lambda: bool(line.stored()), 60)
    sender = threading.Thread(target=line.publish, args=(messages[100:],))
    own_rabbitmq.kill()
    sender.start()
    own_rabbitmq.start()
    own_hbase.process("thrift").kill()
    own_hbase.start()
    own_hbase.kill()
    own_hbase.start()
    sender.join()
    line.drain(own_rabbitmq)
    assert worker.pid() == born
    assert line.resent > 0, "the kills hit nothing"
    assert samples(line.backend, START_MS - 1, START_MS + 200_000) == sent(line.sent)


def test_a_worker_that_is_asked_to_end_stores_or_gives_back_what_it_holds(line: Line, own_rabbitmq: RabbitMQ) -> None:
    worker = line.worker(line.workers)
    line.publish(line.accept(bodies(1)))
    worker.stop(40)
    assert "Warm shutdown" in worker.log.read_text()
    line.start_worker()
    line.drain(own_rabbitmq)
