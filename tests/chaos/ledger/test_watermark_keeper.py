"""Marks are kept by beat and workers on HBase and RabbitMQ while agents push, and the keeper dies in the middle."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spm.clock import SystemClock
from spm.store.ledger import watermarks
from spm.store.ledger.balance import read_balance
from tests.chaos.faults import mortal_keeper
from tests.chaos.ledger.balance import Watch, disagreements
from tests.chaos.line.agents import Agents, message_of_either_kind
from tests.chaos.line.checker import Sent, violations
from tests.chaos.line.thin_line import APP, Line
from tests.servers.processes import Process, wait_until
from tests.support.messages import LONG_AGO_MS, RECENT_MS
from tests.support.stored import copies, samples

START_MS = RECENT_MS
FIELDS = 20
BEAT = ("celery", "-A", "tests.chaos.faults.mortal_keeper", "beat", "--loglevel", "INFO", "--schedule")
WAIT_S = 180


@pytest.fixture
def line(tmp_path: Path, hbase_url: str, amqp_vhost: str) -> Iterator[Line]:
    """A line whose marks nobody moves but its own workers, every second."""
    line_ = Line(tmp_path, f"{hbase_url}/keeper", amqp_vhost, step="tests.chaos.faults.mortal_keeper:MortalKeeper")
    beat = Process("beat", tmp_path)
    try:
        yield line_
    finally:
        beat.stop(30)
        line_.close()


def low_water_mark(line: Line) -> int:
    """Messages up to all marks, and those that records name: of a process that ended without a last word."""
    known = watermarks.read(line.backend, APP).values()
    return sum(m.watermark.totals.messages + sum(each.totals.messages for each in m.adoptions) for m in known)


def at_rest(line: Line) -> bool:
    """Whether nothing is on its way, and everything that came to its end is held."""
    messages = read_balance(line.backend, APP, SystemClock().now_ms()).messages
    return messages.waiting == 0 and messages.settled == low_water_mark(line)


@pytest.mark.real
@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_beat_and_workers_move_marks_while_agents_push_and_the_keeper_is_killed_in_the_middle(
    line: Line, figure: Callable[[str], None]
) -> None:
    token = line.token()
    agents = Agents(line.start_web(), token, 0.02)
    line.fork(Process("beat", line.folder), (*BEAT, str(line.folder / "schedule")), line.folder)
    watch, over, log = Watch(line.backend, APP, keeps=False), threading.Event(), list[Sent]()
    looking = threading.Thread(target=watch.run)
    sending = threading.Thread(
        target=lambda: log.extend(
            agents.send_until(lambda _: over.is_set(), lambda n: message_of_either_kind(n, START_MS, FIELDS))
        )
    )
    looking.start()
    sending.start()
    moved = [0]
    try:
        for point in mortal_keeper.POINTS:
            worker = line.start_worker()
            assert wait_until(lambda: low_water_mark(line) > moved[-1], WAIT_S), line.said()
            mortal_keeper.stop_file(line.folder, point).touch()
            assert worker.wait(WAIT_S), f"no mark was about to move: {line.said()}"
            moved.append(low_water_mark(line))
        line.start_worker()
        assert wait_until(lambda: low_water_mark(line) > moved[-1], WAIT_S), line.said()
    finally:
        over.set()
        sending.join()
        watch.stopping.set()
        looking.join()
    line.web.stop(WAIT_S)
    assert wait_until(lambda: at_rest(line), WAIT_S), f"nobody moves the last marks: {line.said()}"
    balance, stored = watch.look(), copies(line.backend)
    assert balance is not None
    assert watch.wrong == []
    assert disagreements(log, stored, balance) == []
    assert (
        violations(
            log, samples(line.backend, START_MS - LONG_AGO_MS - 1, START_MS + 1000 * (1 + len(log)), app=APP), stored
        )
        == []
    )
    figure(f"{watch.looks} looks; marks at {moved[1:]} messages, at last {low_water_mark(line)}; 2 keepers killed")
