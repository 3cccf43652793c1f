"""The web server killed with -9 while it is being posted to; senders send again under the same id.

Pass: what is acknowledged in the end is everything, each value is read once, no message stands under more stamps than
it was sent, and of the process that ended in order exactly as many stamps are stored as it announced. Many senders send
at once, so that most kills end a process within a batch of joined bodies. Long form:
``bin/test --proof r5_``; ``SPM_PROOF_REQUESTS`` and ``SPM_PROOF_KILLS`` set another size.
"""

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from ingest.transport.topology import Address
from spm.store.backends import open_backend
from spm.store.ledger import watermarks
from spm.store.ledger.outcomes import read_outcomes
from tests.chaos.line.posts import Posts, stored
from tests.chaos.line.thin_line import APP, Line
from tests.servers.processes import wait_until
from tests.support.stored import copies

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]
REQUESTS, KILLS = 2_000, 4
SENDERS = 32
PAUSED = 500  # about so many are answered while the killer waits
PROOF_REQUESTS = int(os.environ.get("SPM_PROOF_REQUESTS", "1000000"))
PROOF_KILLS = int(os.environ.get("SPM_PROOF_KILLS", "100"))


class Direct(Line):
    """A web server that commits to its store itself; there is no broker and no worker."""

    def __post_init__(self) -> None:
        self.backend = open_backend(self.store_url)

    def close(self) -> None:
        self.web.stop(30)
        for nursery in self.nurseries:
            nursery.close()
        self.backend.close()

    def _environment(self) -> dict[str, str]:
        return {**Line._environment(self), "SPM_TRANSPORT": "direct"}


@pytest.fixture
def line(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Line]:
    kind = request.param
    if kind == "direct":
        line_: Line = Direct(tmp_path, f"lmdb://{tmp_path}/store", "amqp://unused")
    else:
        url = request.getfixturevalue("own_rabbitmq").new_vhost(tmp_path.name)
        line_ = Line(tmp_path, f"lmdb://{tmp_path}/store", f"{url}?partitions=4")
    yield line_
    line_.close()


@pytest.mark.parametrize(
    ("line", "requests", "kills"),
    [
        pytest.param("direct", REQUESTS, KILLS, marks=pytest.mark.slow, id="direct"),
        pytest.param("direct", PROOF_REQUESTS, PROOF_KILLS, marks=pytest.mark.proof, id="direct, a million"),
        pytest.param(
            "amqp", PROOF_REQUESTS, PROOF_KILLS, marks=[pytest.mark.proof, pytest.mark.real], id="amqp, a million"
        ),
    ],
    indirect=["line"],
)
def test_r5_senders_that_send_again_lose_and_double_nothing(
    line: Line, requests: int, kills: int, request: pytest.FixtureRequest, figure: Callable[[str], None]
) -> None:
    token = line.token()
    line.start_web()
    if Address.parse(line.amqp_url).url != "amqp://unused":
        line.start_worker()
    posts, killed = Posts(line.port, token, SENDERS), list[int]()
    posts.again(lambda number: not posts.over.is_set())
    reporter = _reported(posts, killed, requests)
    chance = random.Random(1)
    while len(posts.acked) < requests or len(killed) < kills:
        _answered(posts, 1)
        time.sleep(chance.uniform(0.1, 1.5))
        _answered(posts, int(chance.uniform(0, 2) * (requests / kills - PAUSED)))
        line.web.kill_all()
        killed.append(len(posts.acked))
        line.start_web()
    _answered(posts, 50)
    posts.over.set()
    posts.join()
    reporter.set()
    line.web.stop(30)
    if "own_rabbitmq" in request.fixturenames:
        line.settle(request.getfixturevalue("own_rabbitmq"))
    count = len(posts.acked)
    assert sorted(posts.acked) == stored(line.backend, APP, max(posts.acked)).tolist()
    _counted(line, posts)
    doubt = f"{len(posts.tries):,} requests in doubt, sent {sum(posts.tries.values()):,} times"
    figure(f"{count:,} requests, {len(killed)} kills; {doubt}")


def _answered(posts: Posts, more: int) -> None:
    """Wait until so many more messages are acknowledged."""
    wanted = len(posts.acked) + more
    assert wait_until(lambda: len(posts.acked) >= wanted, 240 + more / 20), "the web server does not answer"


def _reported(posts: Posts, killed: list[int], requests: int) -> threading.Event:
    """Progress every ten seconds, until the event is set."""
    over = threading.Event()

    def tell() -> None:
        while not over.wait(10):
            print(f"{len(posts.acked)} of {requests} requests acknowledged, {len(killed)} kills", flush=True)

    threading.Thread(target=tell, daemon=True).start()
    return over


def _counted(line: Line, posts: Posts) -> None:
    """Stamps: no more than tries of each message, and as many as were announced of each process that ended in order."""
    for name, stamps in copies(line.backend, APP).items():
        number = int.from_bytes(name, "big")
        assert len(stamps) <= posts.tries.get(number, 1), f"message {number} stands under {len(stamps)} stamps"
    outcomes = read_outcomes(line.backend, APP, 0)
    ended = {process: row.newest for process, row in watermarks.read(line.backend, APP).items()}
    announcements = {
        process: announcement
        for process, announcement in ended.items()
        if announcement is not None and announcement.ended
    }
    assert announcements, "the last web server ended in order"
    for process, announcement in announcements.items():
        of_it = outcomes.process == process
        assert (announcement.messages, announcement.open_messages) == (int(np.count_nonzero(of_it)), 0)
