"""10⁵ samples through the real stack, its worker killed with -9 in the middle: what is read equals what was sent."""

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ingest.writer import Writer
from spm.clock import SystemClock
from spm.query.reader import AppStorage
from spm.query.view.decoded_rows import PageCache
from spm.store.backends import open_backend
from spm.store.keys import PlacementTable
from spm.wire import Envelope
from tests.chaos.line.thin_line import APP, GIVE_UP_S, Line
from tests.servers.processes import wait_until
from tests.servers.rabbitmq import RabbitMQ
from tests.support.fleet import Fleet
from tests.support.messages import RECENT_MS
from tests.support.recount import assert_hours_equal, assert_raw_equal
from tests.support.stored import samples, sent

pytestmark = [pytest.mark.real, pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(600)]
AHEAD = 100  # messages by which a worker shows that it consumes
PORTION = 500  # messages: the flow waits for the kill before its second half, however late that comes
START_MS = RECENT_MS - 3_000_000  # the fleet crosses an hour


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return Fleet.make(hosts=20, steps=500, start_ms=START_MS, jitter_ms=40)


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory, hbase_url: str, rabbitmq: RabbitMQ) -> Iterator[Line]:
    amqp_url = rabbitmq.new_vhost("thin-line") + "?partitions=4"
    line_ = Line(tmp_path_factory.mktemp("line"), f"{hbase_url}/thin_line", amqp_url)
    yield line_
    line_.close()


@pytest.fixture(scope="module")
def through_the_stack(line: Line, fleet: Fleet, rabbitmq: RabbitMQ) -> Line:
    """All messages sent; the first worker killed while they flow, and so while it holds some of them."""
    bodies = [fleet.lines(range(s, s + 1), range(h, h + 1)) for s in range(fleet.steps) for h in range(fleet.hosts)]
    messages = line.accept(bodies)
    first = line.start_worker()
    line.publish(messages[:AHEAD])
    assert wait_until(lambda: len(line.stored()) == AHEAD, 60), "the worker never came to work"
    killed = threading.Event()
    flow = threading.Thread(target=flowing, args=(line, messages, killed))
    flow.start()
    assert wait_until(lambda: len(line.stored()) > AHEAD, 60)
    first.kill()
    line.stored_at_kill = len(line.stored())
    killed.set()
    line.start_worker()
    flow.join()
    line.drain(rabbitmq)
    return line


def flowing(line: Line, messages: Sequence[Envelope], killed: threading.Event) -> None:
    """Publish all but those ahead; the second half once the worker was killed."""
    for at in range(AHEAD, len(messages), PORTION):
        assert at + PORTION < len(messages) // 2 or killed.wait(GIVE_UP_S), "nobody was killed"
        line.publish(messages[at : at + PORTION])


def test_the_kill_was_in_the_middle(through_the_stack: Line) -> None:
    assert AHEAD < through_the_stack.stored_at_kill < len(through_the_stack.sent) // 2


def test_what_is_read_equals_what_was_sent_as_a_multiset(through_the_stack: Line, fleet: Fleet) -> None:
    stored = samples(through_the_stack.backend, int(fleet.ts.min()) - 1, int(fleet.ts.max()))
    assert stored.total() == len(fleet) == 100_000
    assert stored == sent(through_the_stack.sent)


def test_the_embedded_store_answers_the_same_bits_for_the_same_messages(
    through_the_stack: Line, fleet: Fleet, tmp_path: Path
) -> None:
    embedded = open_backend(f"lmdb://{tmp_path}/store")
    writer = Writer(embedded, PlacementTable())
    for at in range(0, len(through_the_stack.sent), 100):
        writer.write(through_the_stack.sent[at : at + 100])
    first, last = int(fleet.ts.min()) - 1, int(fleet.ts.max())
    assert samples(embedded, first, last) == samples(through_the_stack.backend, first, last)
    embedded.close()


@pytest.mark.spark
def test_answers_are_the_same_before_and_after_a_run_of_spark_and_after_its_roll_back(
    through_the_stack: Line, fleet: Fleet
) -> None:
    line = through_the_stack
    line.migrate()
    line.manage("bootstrap")  # its app is the first, and so has the number of ours
    printed = line.manage("roll", "--app", str(APP))
    assert f"{len(fleet):,} samples" in printed
    assert line.stored() == set(), "a run takes the commit records of what it has compacted"
    assert_all_equal(line, fleet)
    run = printed.removeprefix("run ").partition(":")[0]
    assert "was rolled back" in line.manage("rollback", run)
    assert_all_equal(line, fleet)


def assert_all_equal(line: Line, fleet: Fleet) -> None:
    storage = AppStorage(line.backend, APP, placement=PlacementTable(), clock=SystemClock(), cache=PageCache())
    assert assert_raw_equal(storage, fleet) == len(fleet)
    assert assert_hours_equal(storage, fleet) == 2 * 20 * 10
