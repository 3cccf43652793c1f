"""How full the batches of real workers are at a low rate: of six as full as of two, which then do all the work."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spm import limits
from spm.store.keys import PlacementTable
from spm.store.ledger import commit_records
from tests.chaos.kills.storm import consumes
from tests.chaos.line.thin_line import APP, Line
from tests.servers.processes import wait_until
from tests.support.messages import message, recent

pytestmark = [pytest.mark.real, pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(600)]
WORKERS, SOURCES, MESSAGES, EVERY_S = (1, 2, 6), 40, 240, 0.05


@pytest.fixture
def line(tmp_path: Path, amqp_vhost: str) -> Iterator[Line]:
    line_ = Line(tmp_path, f"lmdb://{tmp_path}/store", amqp_vhost)
    yield line_
    line_.close()


def batches(line: Line) -> int:
    """The batches that wait for a run."""
    shards = list(PlacementTable().all_shards(APP))
    return len({each.key.batch for each in commit_records.scan(line.backend, APP, shards)})


def fill_of(line: Line, first: int) -> float:
    """Messages a batch, of messages that come evenly."""
    before = batches(line)
    for number in range(first, first + MESSAGES):
        each = line.restamped(recent(message(number // SOURCES, source=f"host{number % SOURCES}")))
        line.transport.publish(each, 30)
        line.sent.append(each)
        time.sleep(EVERY_S)
    assert wait_until(lambda: len(line.stored()) >= len(line.sent), 60), line.said()
    return MESSAGES / (batches(line) - before)


@pytest.mark.seed("A7", compares="messages a batch of one, two and six real workers at a low rate")
def test_a7_batches_of_many_real_workers_are_as_full_as_those_of_two(line: Line, figure: Callable[[str], None]) -> None:
    fills: dict[int, float] = {}
    for workers in WORKERS:
        running = [line.start_worker() for _ in range(workers - line.workers)]
        assert wait_until(lambda started=running: all(map(consumes, started)), 120), line.said()  # type: ignore[misc]
        time.sleep((limits.AMQP_LOOKS_SETTLED + 3) * limits.AMQP_LOOK_S)
        fills[workers] = fill_of(line, len(line.sent))
    figure("; ".join(f"{workers} workers: {fill:.1f} messages a batch" for workers, fill in fills.items()))
    assert fills[6] > 0.8 * fills[2]
    assert fills[2] > 0.4 * fills[1]
