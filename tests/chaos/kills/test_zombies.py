"""A worker that was frozen for longer than the broker waits, and then goes on writing: no answer ever changes by it.

The queues of a frozen worker are given away, and its messages are stored by another one. When it wakes, in the midst of
a write, it puts the same versions again. Nothing fences it off: there is nothing that it could do.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spm.clock import random_u64
from tests.chaos.faults.consumers import POINTS
from tests.chaos.kills.storm import START_MS, Storm, consumes
from tests.chaos.kills.test_proofs import CHECK_S, FIELDS, THREADS, agents_of, report, storm
from tests.chaos.line.agents import message_of_either_kind
from tests.chaos.line.checker import ACKED, Sent, violations
from tests.chaos.line.thin_line import Line
from tests.servers.processes import wait_until
from tests.support.messages import message, recent
from tests.support.stored import copies, samples, sent

__all__ = ["storm"]  # a fixture
pytestmark = [pytest.mark.real, pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(900)]
WORKERS = 4
FREEZE_S = 60


@pytest.fixture
def line(tmp_path: Path, amqp_vhost: str) -> Iterator[Line]:
    line_ = Line(tmp_path, f"lmdb://{tmp_path}/store", f"{amqp_vhost}&calm=32")
    line_.step = "tests.chaos.faults.consumers:Stopping"
    yield line_
    for point in POINTS:
        wake(tmp_path / f"stopped-{point}")
    line_.close()


def wake(stopped: Path) -> None:
    if stopped.exists():
        os.kill(int(stopped.read_text()), signal.SIGCONT)


@pytest.mark.seed("A3", compares="answers before and after three frozen workers wake in the midst of their writes")
def test_workers_that_wake_after_their_queues_were_given_away_change_no_answer(
    line: Line, figure: Callable[[str], None]
) -> None:
    envelopes = [line.restamped(recent(message(number, source=f"host{number % 24}"))) for number in range(600)]
    workers = [line.start_worker() for _ in range(WORKERS)]
    assert wait_until(lambda: all(map(consumes, workers)), 120)
    time.sleep(2)  # until each has its share
    for point in POINTS:
        (line.folder / f"stop-{point}").touch()
    line.publish(envelopes[:300])
    stopped = [line.folder / f"stopped-{point}" for point in POINTS]
    froze = wait_until(lambda: all(path.exists() for path in stopped), 60)
    assert froze, f"{[path.name for path in stopped if path.exists()]} alone froze\n{line.said()}"
    line.publish(envelopes[300:])
    wanted = {(e.stamp.ms, e.stamp.process, e.stamp.sequence) for e in envelopes}
    assert wait_until(lambda: wanted <= line.stored(), 90), "the queues of the frozen were not given away"
    first, last = min(int(e.ts.min()) for e in envelopes), max(int(e.ts.max()) for e in envelopes)
    before = samples(line.backend, first - 1, last)
    for path in stopped:
        wake(path)
    time.sleep(3)  # they write what they had in hand
    after = samples(line.backend, first - 1, last)
    assert after == before == sent(envelopes)
    log = [Sent(e.message_id, tuple(sent([e])), ACKED) for e in envelopes]
    assert violations(log, after, copies(line.backend)) == []
    figure(f"{len(stopped)} workers frozen at {', '.join(POINTS)}")


@pytest.mark.proof
def test_r7_workers_frozen_for_a_minute_again_and_again_change_no_answer(
    storm: Storm, size: Callable[[str, int], int]
) -> None:
    """Two of four at a time, frozen at any moment, while agents send."""
    freezes, freeze_s, wanted = size("R7_FREEZES", 100), size("R7_FREEZE_S", FREEZE_S), size("R7_SAMPLES", 2_000_000)
    seconds = freezes / 2 * (freeze_s + 5)
    print(f"  about {(120 + seconds + CHECK_S * wanted) / 60:,.0f} minutes", flush=True)
    messages = wanted // FIELDS
    agents = agents_of(storm, seconds * THREADS / messages)
    workers = [storm.line.start_worker() for _ in range(WORKERS)]
    assert wait_until(lambda: all(map(consumes, workers)), 120)

    def freeze() -> None:
        while storm.kills["worker frozen"] < freezes:
            time.sleep(5 * (random_u64() % 1000) / 1000)
            pair = [pid for n in (0, 1) if (pid := workers[(storm.kills["worker frozen"] + n) % WORKERS].pid())]
            for pid in pair:
                os.kill(pid, signal.SIGSTOP)
            time.sleep(freeze_s)
            for pid in pair:
                os.kill(pid, signal.SIGCONT)
            storm.kills["worker frozen"] += len(pair)
            print(f"  {dict(storm.kills)}", flush=True)

    freezing = storm.watched(freeze)
    log = agents.send_until(
        lambda count: count >= messages and not freezing.is_alive(),
        lambda n: message_of_either_kind(n, START_MS, FIELDS),
        THREADS,
    )
    storm.joined([freezing])
    storm.line.settle(storm.rabbitmq)
    report(storm, log, agents)
    assert all(worker.alive() for worker in workers)
    assert storm.judge(log) == []


@pytest.mark.proof
@pytest.mark.seed("A3", compares="what was acknowledged with what is stored, after hundreds of killed workers")
def test_r1_workers_killed_again_and_again_lose_and_double_nothing(
    storm: Storm, size: Callable[[str, int], int]
) -> None:
    kills, wanted = size("R1_KILLS", 500), size("R1_SAMPLES", 20_000_000)
    seconds = kills * 4.5
    print(f"  about {(120 + seconds + CHECK_S * wanted) / 60:,.0f} minutes", flush=True)
    messages = wanted // FIELDS
    agents = agents_of(storm, seconds * THREADS / messages)
    killing = storm.watched(lambda: storm.kill_workers(kills))
    log = agents.send_until(
        lambda count: count >= messages and not killing.is_alive(),
        lambda n: message_of_either_kind(n, START_MS, FIELDS),
        THREADS,
    )
    storm.joined([killing])
    storm.line.settle(storm.rabbitmq)
    report(storm, log, agents)
    assert storm.kills["worker"] >= kills
    assert storm.judge(log) == []
