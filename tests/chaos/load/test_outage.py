"""The store is gone under load: senders notice nothing, a worker holds no more, and all is stored afterwards."""

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import numpy as np
import psutil
import pytest

from spm import limits
from spm.clock import SystemClock
from tests.chaos.line.agents import FIELDS, HOSTS, Agents, Message, message_of_either_kind
from tests.chaos.line.checker import ACKED, Sent, violations
from tests.chaos.line.thin_line import APP, Line
from tests.servers.java.hbase import HBase
from tests.servers.processes import wait_until
from tests.servers.rabbitmq import RabbitMQ
from tests.support.messages import LONG_AGO_MS, RECENT_MS
from tests.support.stored import copies, samples

START_MS = RECENT_MS
PACE_S = 0.05
SLOW_SERVER = 20  # of a machine that runs all servers and other tests besides
pytestmark = [pytest.mark.real, pytest.mark.chaos, pytest.mark.timeout(1_800)]


@pytest.fixture
def line(tmp_path: Path, own_hbase: HBase, own_rabbitmq: RabbitMQ) -> Iterator[Line]:
    line_ = Line(tmp_path, f"{own_hbase.url}/{tmp_path.name}", own_rabbitmq.new_vhost(tmp_path.name) + "?partitions=4")
    yield line_
    line_.close()


@pytest.mark.seed("A1", compares="answers, a worker's memory and the ledger with and without a store behind the queue")
@pytest.mark.seed("A5", compares="tries of a worker to write, while the store is gone, with its longest pauses")
@pytest.mark.parametrize(
    ("pause_s", "p99_ms"),
    [
        pytest.param(20, 50 * SLOW_SERVER, marks=pytest.mark.slow, id="for twenty seconds"),
        pytest.param(120, 50, marks=pytest.mark.proof, id="for two minutes"),
        pytest.param(600, 50, marks=pytest.mark.proof, id="for ten minutes"),
    ],
)
def test_a1_senders_are_answered_while_the_store_is_gone(
    line: Line,
    own_hbase: HBase,
    own_rabbitmq: RabbitMQ,
    figure: Callable[[str], None],
    pause_s: int,
    p99_ms: float,
) -> None:
    token = line.token()
    agents = Agents(line.start_web(), token, PACE_S, patient=True)
    worker = line.start_worker()
    warm = agents.send([message_of_either_kind(number, START_MS) for number in range(HOSTS)])
    assert wait_until(lambda: len(copies(line.backend)) == HOSTS, 60)
    before = psutil.Process(worker.pid()).memory_info().rss
    own_hbase.kill()
    numbers = range(HOSTS, HOSTS + round(4 * pause_s / (PACE_S + 0.02)))
    messages = [message_of_either_kind(number, START_MS) for number in numbers]
    log = [*warm, *_sent_during(agents, messages, own_hbase, pause_s)]
    line.settle(own_rabbitmq)
    assert {one.outcome for one in log} == {ACKED}
    assert sum(one.stamps_max > 1 for one in log[HOSTS:]) <= len(messages) // 100, "senders had to come again"
    p99, after = 1000 * float(np.quantile(agents.answered_s, 0.99)), psutil.Process(worker.pid()).memory_info().rss
    figure(
        f"store gone for {pause_s} s: {len(messages)} messages acknowledged, p99 {p99:.0f} ms; "
        f"worker {before / 1e6:.0f} → {after / 1e6:.0f} MB"
    )
    tries = worker.log.read_text(errors="replace").count("next try in")
    figure(f"{tries} tries of the worker in that time")
    assert tries <= 20 + 4 * pause_s / limits.CONSUME_BACK_OFF_S
    assert p99 < p99_ms
    assert after < 1.3 * before + 60_000_000
    stored = samples(line.backend, START_MS - LONG_AGO_MS - 1, START_MS + 1000 * (1 + len(log) // HOSTS), app=APP)
    assert len(stored) == len(log) * FIELDS
    assert violations(log, stored, copies(line.backend, APP)) == []


def _sent_during(agents: Agents, messages: list[Message], store: HBase, pause_s: int) -> list[Sent]:
    """Send while the store is away for ``pause_s``."""

    def come_back() -> None:
        SystemClock().sleep(pause_s)
        store.start()

    back = Thread(target=come_back)
    back.start()
    log = agents.send(messages)
    back.join()
    return log
