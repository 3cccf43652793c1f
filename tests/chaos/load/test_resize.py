"""Workers come and go under load, 2 → 3 → 1, and nobody pauses: sources stay in order, nothing is lost or doubled."""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from spm.clock import SystemClock
from tests.chaos.line.checker import ACKED, Sent, violations
from tests.chaos.line.thin_line import Line
from tests.servers.processes import wait_until
from tests.servers.rabbitmq import RabbitMQ
from tests.support.messages import message, recent
from tests.support.stored import copies, samples, sent

pytestmark = [pytest.mark.real, pytest.mark.chaos, pytest.mark.slow]
SOURCES, EACH = 24, 250


@pytest.fixture
def line(tmp_path: Path, hbase_url: str, rabbitmq: RabbitMQ) -> Iterator[Line]:
    line_ = Line(tmp_path, f"{hbase_url}/{tmp_path.name}", rabbitmq.new_vhost("resize") + "?partitions=8&calm=32")
    line_.step = "tests.chaos.faults.consumers:Noting"
    yield line_
    line_.close()


# What comes again is stored again, later: only the first time counts, since readers merge what is written twice.
def noted(line: Line) -> dict[str, list[int]]:
    """Per source, the numbers of its messages in the order in which each was stored first, by the workers' notes."""
    rows = [row.split() for file in line.folder.glob("stored-*") for row in file.read_text().splitlines()]
    order: dict[str, dict[int, None]] = defaultdict(dict)
    for _, source, name in sorted(rows, key=lambda row: int(row[0])):
        order[source].setdefault(int(name, 16), None)
    return {source: list(numbers) for source, numbers in order.items()}


@pytest.mark.seed("A9", compares="the order in which each source's messages are stored first, and the ledger")
def test_sources_stay_in_order_while_workers_come_and_go(line: Line, rabbitmq: RabbitMQ) -> None:
    messages = (recent(message(number, source=f"host{number % SOURCES}")) for number in range(SOURCES * EACH))
    envelopes = [line.restamped(each) for each in messages]
    by_source = [envelopes[n::SOURCES] for n in range(SOURCES)]
    line.start_worker()
    second = line.start_worker()
    assert wait_until(lambda: all(" ready." in line.worker(n).log.read_text() for n in (1, 2)), 120)
    senders = [threading.Thread(target=line.publish_in_order, args=(part, 0.12)) for part in by_source]
    for sender in senders:
        sender.start()
    time.sleep(6)
    third = line.start_worker()
    assert wait_until(lambda: len(list(line.folder.glob("stored-*"))) == 3, 60), "the third worker has no share"
    time.sleep(3)
    second.stop(40)
    third.kill()
    for sender in senders:
        sender.join()
    line.settle(rabbitmq)
    notes = noted(line)
    assert {source: sorted(numbers) for source, numbers in notes.items()} == notes
    assert sum(map(len, notes.values())) == len(envelopes)
    log = [Sent(e.message_id, tuple(sent([e])), ACKED) for e in envelopes]
    first, last = int(envelopes[0].ts.min()), int(envelopes[-1].ts.max())
    assert violations(log, samples(line.backend, first - 1, last), copies(line.backend)) == []


@pytest.mark.timed
def test_a_worker_ends_within_ten_seconds_although_the_store_does_not_answer(line: Line, rabbitmq: RabbitMQ) -> None:
    line.store_url = "hbase://127.0.0.1:1/nowhere"
    worker = line.start_worker()
    assert wait_until(lambda: " ready." in worker.log.read_text(), 120)
    line.publish([line.restamped(recent(message(number))) for number in range(50)])
    assert wait_until(lambda: "does not answer" in worker.log.read_text(), 60)
    begun = SystemClock().monotonic()
    worker.stop(40)
    assert SystemClock().monotonic() - begun < 10
    assert "Warm shutdown" in worker.log.read_text()
