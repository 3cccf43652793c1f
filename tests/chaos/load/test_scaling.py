"""What a worker costs and holds: CPU per value whatever the number of workers, memory whatever waits in the queues.

And how soon a message is seen. The long forms: ``bin/test --proof a6_`` with ``SPM_A6_MESSAGES``, ``bin/test --proof
a8_`` with ``SPM_A8_MESSAGES``, ``bin/test --proof a2_`` with ``SPM_A2_MESSAGES``.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import fmean

import pika
import psutil
import pytest

from ingest.transport.topology import EXCHANGE, Address
from spm import limits
from spm.wire import Envelope
from tests.chaos.kills.storm import consumes
from tests.chaos.line.thin_line import Line
from tests.servers.processes import Process, wait_until
from tests.servers.rabbitmq import RabbitMQ
from tests.support.messages import message, recent

pytestmark = [pytest.mark.real, pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(900)]
SOURCES, FIELDS = 64, 100  # sources enough that no queue has much more than its part
FIRST = 2 * SOURCES  # messages after which a worker knows its series, and has loaded its kernels
SENDERS = 32
STORED, FILLERS = 50_000, 4  # of a long queue so many messages are new, and stored; the rest waits behind them


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory, hbase_url: str, rabbitmq: RabbitMQ) -> Iterator[Line]:
    """All workers share the queues at all times."""
    folder = tmp_path_factory.mktemp("scaling")
    line_ = Line(folder, f"{hbase_url}/{folder.name}", rabbitmq.new_vhost(folder.name) + "?calm=32")
    yield line_
    line_.close()


def publish(line: Line, count: int, fields: int) -> list[Envelope]:
    """So many more messages, the sources by turns."""
    numbers = range(len(line.sent), len(line.sent) + count)
    messages = (recent(message(n // SOURCES, source=f"host{n % SOURCES}", samples=fields)) for n in numbers)
    envelopes = [line.restamped(each) for each in messages]
    with ThreadPoolExecutor(SENDERS) as pool:
        list(pool.map(lambda envelope: line.transport.publish(envelope, 60), envelopes))
    line.sent.extend(envelopes)
    return envelopes


def all_stored(line: Line) -> bool:
    return len(line.stored()) >= len(line.sent)


def started(line: Line, workers: int, fields: int) -> list[Process]:
    """So many workers, each with its share of the queues, and with all series of that share known to it."""
    running = [line.start_worker() for _ in range(workers)]
    assert wait_until(lambda: all(map(consumes, running)), 120)
    warm(line, fields)
    return running


def warm(line: Line, fields: int) -> None:
    for _ in range(2):  # the second time every queue is where it stays
        publish(line, FIRST, fields)
        assert wait_until(partial(all_stored, line), 300), line.said()


def about(minutes: float) -> None:
    print(f"  about {minutes:,.0f} minutes", flush=True)


def frozen(workers: Sequence[Process], act: Callable[[], object]) -> None:
    """Have something happen while no worker does anything."""
    micros = [pid for worker in workers if (pid := worker.pid()) is not None]
    for pid in micros:
        os.kill(pid, signal.SIGSTOP)
    act()
    for pid in micros:
        os.kill(pid, signal.SIGCONT)


def cpu_s(workers: Sequence[Process]) -> float:
    times = [psutil.Process(worker.pid()).cpu_times() for worker in workers]
    return sum(each.user + each.system for each in times)


def micros_per_value(line: Line, running: Sequence[Process], messages: int) -> float:
    """CPU of all workers together for what waits in the queues, per value."""
    time.sleep((limits.AMQP_LOOKS_SETTLED + 2) * limits.AMQP_LOOK_S)  # until every queue has the prefetch of its share
    warm(line, FIELDS)
    frozen(running, lambda: publish(line, messages, FIELDS))
    before = cpu_s(running)
    assert wait_until(partial(all_stored, line), 600), line.said()
    return (cpu_s(running) - before) * 1e6 / (messages * FIELDS)


@pytest.mark.seed("A8", compares="CPU per value of 1, 2 and 4 workers that share the queues")
@pytest.mark.parametrize(
    ("messages", "rounds", "at_most"),
    [
        pytest.param(3_000, 1, 2.5, id="small"),  # a third of a second of CPU, on a machine that does other things, too
        pytest.param(None, 3, 1.1, marks=pytest.mark.proof, id="as long as is asked for"),
    ],
)
def test_a8_a_value_costs_the_same_however_many_workers_there_are(
    line: Line,
    figure: Callable[[str], None],
    size: Callable[[str, int], int],
    messages: int | None,
    rounds: int,
    at_most: float,
) -> None:
    count = size("A8_MESSAGES", 20_000) if messages is None else messages
    about(rounds * (2 + count / 10_000))
    micros_of: dict[int, list[float]] = {4: [], 2: [], 1: []}
    for _ in range(rounds):  # by turns: what the machine does besides is in all of them
        running = started(line, max(micros_of), FIELDS)
        for workers, taken in micros_of.items():
            for worker in running[workers:]:
                worker.stop(30)
            running = running[:workers]
            taken.append(micros_per_value(line, running, count))
        running[0].stop(30)
    best = {workers: min(taken) for workers, taken in micros_of.items()}
    figure("; ".join(f"{workers} workers: {micros:.2f} µs of CPU per value" for workers, micros in best.items()))
    assert max(best.values()) <= at_most * best[1]


def fill(line: Line, rabbitmq: RabbitMQ, envelopes: Sequence[Envelope], count: int) -> None:
    """So many copies of messages behind the messages themselves: they wait as others do, and say nothing new."""
    address = Address.parse(line.amqp_url)
    bodies = [(address.route(one.app, one.source, 0), one.to_bytes()) for one in envelopes[:SOURCES]]

    def work(part: int) -> None:
        connection = pika.BlockingConnection(pika.URLParameters(address.url))
        channel = connection.channel()
        for number in range(part, count, FILLERS):
            key, body = bodies[number % len(bodies)]
            channel.basic_publish(EXCHANGE, key, body, pika.BasicProperties(delivery_mode=2, message_id=f"{number}"))
            if part == 0 and number % 200_000 == 0:
                print(f"  {number:,} of {count:,} wait", flush=True)
        connection.close()

    with ThreadPoolExecutor(FILLERS) as pool:
        list(pool.map(work, range(FILLERS)))
    assert wait_until(lambda: rabbitmq.messages(vhost_of(line)) >= count, 120), "the broker took not all"


def peak_of(line: Line, rabbitmq: RabbitMQ, worker: Process, messages: int) -> float:
    """Most memory, in bytes, that a worker has before so many small messages, until the first of them are stored.

    While the queues are filled it does nothing, for so long that the broker may give it up: it then begins anew.
    """
    own = min(messages, STORED)

    def all_wait() -> None:
        envelopes = publish(line, own, 10)
        if messages > own:
            fill(line, rabbitmq, envelopes, messages - own)

    frozen([worker], all_wait)
    process, peak, looked = psutil.Process(worker.pid()), 0.0, 0.0

    def done() -> bool:
        nonlocal peak, looked
        peak = max(peak, process.memory_info().rss)
        if time.monotonic() - looked < own / 20_000:  # to look is to read all that there is
            return False
        looked = time.monotonic()
        return all_stored(line)

    assert wait_until(done, 240 + own / 200), line.said()
    if messages > own:
        names = [queue.name for queue in Address.parse(line.amqp_url).queues()]
        frozen([worker], lambda: rabbitmq.purge(vhost_of(line), names))
    return peak


def vhost_of(line: Line) -> str:
    return Address.parse(line.amqp_url).url.rpartition("/")[2].replace("%2F", "/")


@pytest.mark.seed("A6", compares="most memory of a worker before a small and before a ten times longer queue")
@pytest.mark.parametrize(
    "messages",
    [
        pytest.param(2_500, id="small"),
        pytest.param(None, marks=pytest.mark.proof, id="as many as are asked for"),
    ],
)
def test_a6_a_worker_s_memory_does_not_depend_on_what_waits_for_it(
    line: Line,
    rabbitmq: RabbitMQ,
    figure: Callable[[str], None],
    size: Callable[[str, int], int],
    messages: int | None,
) -> None:
    count = size("A6_MESSAGES", 1_000_000) if messages is None else messages
    about(1 + 11 * count / 500_000)
    [worker] = started(line, 1, 10)
    few, many = peak_of(line, rabbitmq, worker, count), peak_of(line, rabbitmq, worker, 10 * count)
    worker.stop(30)
    figure(f"{count:,} messages wait: {few / 1e6:.0f} MB; {10 * count:,}: {many / 1e6:.0f} MB")
    assert many < 1.15 * few + 20_000_000


@pytest.mark.seed("A2", compares="the time from a message's confirm to its sight, through queue and store, with 5 s")
@pytest.mark.parametrize(
    ("messages", "at_most_s"),
    [
        pytest.param(8, 15, id="few"),  # on a machine that runs all servers and other tests besides
        pytest.param(None, 5, marks=pytest.mark.proof, id="as many as are asked for"),
    ],
)
def test_a2_a_message_is_seen_soon_although_it_is_alone(
    line: Line,
    figure: Callable[[str], None],
    size: Callable[[str, int], int],
    messages: int | None,
    at_most_s: float,
) -> None:
    """One after the other: each waits alone until its batch is due by age, and that adapts to such batches."""
    count = size("A2_MESSAGES", 200) if messages is None else messages
    about(1 + count / 20)
    [worker] = started(line, 1, 10)
    taken = []
    for _ in range(count):
        [envelope] = publish(line, 1, 10)
        begun = time.monotonic()
        wanted = (envelope.stamp.ms, envelope.stamp.process, envelope.stamp.sequence)
        assert wait_until(partial(seen, line, wanted), 60), line.said()
        taken.append(time.monotonic() - begun)
    worker.stop(30)
    figure(
        f"{len(taken)} messages: seen after {fmean(taken):.1f} s, the last after {max(taken):.1f} s; "
        f"a batch waits {limits.BATCH_AGE_MAX_MS / 1000} s at most"
    )
    assert max(taken) <= at_most_s


def seen(line: Line, stamp: tuple[int, int, int]) -> bool:
    return stamp in line.stored()
