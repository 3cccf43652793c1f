"""RabbitMQ out of memory or disk while many senders push: a quick "come again", nothing piles up, nothing is lost.

While the alarm is on every sender is answered 503 with Retry-After within a second, and the web server has no more
threads than before; it heals by itself. In the end everything that was stamped is stored, also what its sender was sent
away with: the process announced as many messages as are settled. Once in continuous integration, twenty alarms as
``bin/test --proof r13_`` (``SPM_PROOF_ALARMS`` for another number).
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from spm.store.ledger import watermarks
from spm.store.ledger.outcomes import read_outcomes
from tests.chaos.line.posts import Answer, Posts, stored
from tests.chaos.line.thin_line import APP, Line
from tests.servers.processes import wait_until
from tests.servers.rabbitmq import RabbitMQ

pytestmark = [pytest.mark.real, pytest.mark.chaos, pytest.mark.timeout(1800)]
ALARMS = int(os.environ.get("SPM_PROOF_ALARMS", "20"))
SENDERS = 24  # more than the server has threads
ON_S = 3.0
TURNS = {  # what takes the broker's room, and gives it back
    "memory": (
        ("set_vm_memory_high_watermark", "absolute", "1MB"),
        ("set_vm_memory_high_watermark", "absolute", "1GB"),
    ),
    "disk": (("set_disk_free_limit", "900000GB"), ("set_disk_free_limit", "50MB")),
}


@pytest.fixture
def line(tmp_path: Path, own_rabbitmq: RabbitMQ) -> Iterator[Line]:
    url = own_rabbitmq.new_vhost(tmp_path.name)
    line_ = Line(tmp_path, f"lmdb://{tmp_path}/store", f"{url}?partitions=4")
    yield line_
    line_.close()


@pytest.mark.parametrize(
    "alarms",
    [
        pytest.param(["memory"], marks=pytest.mark.slow, id="once"),
        pytest.param([list(TURNS)[n % 2] for n in range(ALARMS)], marks=pytest.mark.proof, id="many alarms"),
    ],
)
def test_r13_senders_are_sent_away_at_once_and_everything_stamped_is_stored(
    line: Line, own_rabbitmq: RabbitMQ, alarms: list[str]
) -> None:
    token = line.token()
    line.start_web()
    line.start_worker()
    posts = Posts(line.port, token, threads=SENDERS)
    posts.once(pause_s=0.05)
    assert wait_until(lambda: sum(a.status == 204 for a in posts.answers) > 50, 60)
    for number, kind in enumerate(alarms):
        _alarm(line, own_rabbitmq, posts, kind)
        print(f"alarm {number + 1} of {len(alarms)} ({kind}): {len(posts.answers)} answers", flush=True)
    posts.over.set()
    posts.join()
    line.settle(own_rabbitmq)
    acked = {a.number for a in posts.answers if a.status == 204}
    stored_numbers = stored(line.backend, APP, max(a.number for a in posts.answers)).tolist()
    assert len(stored_numbers) == len(set(stored_numbers))
    assert acked <= set(stored_numbers)
    late = len(set(stored_numbers) - acked)
    line.web.stop(30)
    _counted(line)
    print(f"{len(acked)} acknowledged, {late} stored after their sender had been sent away")


def _alarm(line: Line, broker: RabbitMQ, posts: Posts, kind: str) -> None:
    """One alarm, and what senders were told meanwhile."""
    on, off = TURNS[kind]
    web = psutil.Process(line.web.pid()).children()[0]
    threads = web.num_threads()
    broker.control(*on)
    try:
        assert wait_until(lambda: kind in broker.control("eval", "rabbit_alarm:get_alarms()."), 10)
        assert wait_until(lambda: {a.status for a in posts.answers[-SENDERS:]} == {503}, 10)
        begun = time.monotonic()
        time.sleep(ON_S)
        ended = time.monotonic()
        assert web.num_threads() <= threads + 1
    finally:
        broker.control(*off)
    answered = [a for a in posts.answers if begun < a.at < ended]
    assert len(answered) > SENDERS, "senders waited"
    assert {(a.status, a.again_s is not None) for a in answered} == {(503, True)}
    slow = max(answered, key=lambda a: a.took_s)
    assert slow.took_s < 1, slow
    assert wait_until(lambda: _well(posts.answers), 30), "it does not heal"


def _well(answers: list[Answer]) -> bool:
    return {a.status for a in answers[-SENDERS:]} == {204}


def _counted(line: Line) -> None:
    """Of the web server, which has ended in order, as many stamps are settled as it announced."""
    outcomes = read_outcomes(line.backend, APP, 0)
    announcements = {process: row.newest for process, row in watermarks.read(line.backend, APP).items()}
    [(process, announcement)] = [
        (process, announcement) for process, announcement in announcements.items() if announcement is not None
    ]
    assert (announcement.ended, announcement.open_messages) == (True, 0)
    assert announcement.messages == int(np.count_nonzero(outcomes.process == process))
