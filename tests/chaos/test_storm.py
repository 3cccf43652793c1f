"""200,000 samples over HTTP while every process of the full stack is killed with -9, again and again.

HBase lies on HDFS with two region servers; agents push to the web server, which publishes to RabbitMQ, whence two
workers write. One thread kills workers, another the broker, the gateway, a region server and the web server in turn. In
the end the ledger is exact, and so are the hours that a run builds from it.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from spm.clock import SystemClock
from spm.query.cache import PageCache
from spm.query.storage import AppStorage
from spm.store.keys import Distribution
from tests.chaos.agents import FIELDS, HOSTS, Agents, Message
from tests.chaos.ledger import ACKED, Sent, violations, wrong_hours
from tests.chaos.line import APP, Line
from tests.conftest import missing_service
from tests.stack.cluster import REGIONS, Cluster
from tests.stack.processes import Process, wait_until
from tests.stack.rabbitmq import RabbitMQ
from tests.stack.stored import copies, samples

pytestmark = [pytest.mark.real, pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(900)]
MESSAGES = 2_000  # of 100 samples
WORKER_KILLS, OTHER_KILLS = 20, 3
START_MS = 1_767_222_000_000 - 50_000  # the messages cross an hour
PACE_S = 0.2  # of each of four threads: the sending lasts as long as the storm


@dataclass(slots=True)
class Storm:
    """The stack and what was done to it."""

    line: Line
    cluster: Cluster
    rabbitmq: RabbitMQ
    kills: Counter[str] = field(default_factory=Counter)
    over: threading.Event = field(default_factory=threading.Event)
    failure: BaseException | None = None

    def watched(self, act: Callable[[], None]) -> threading.Thread:
        """A thread whose failure is the test's."""

        def run() -> None:
            try:
                act()
            except BaseException as error:
                self.failure = error

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def kill_workers(self) -> None:
        """One worker after the other, each once it consumes; another one starts at once."""
        working = [self.line.start_worker(), self.line.start_worker()]
        while self.kills["worker"] < WORKER_KILLS:
            victim = working.pop(0)
            assert wait_until(lambda worker=victim: _consumes(worker), 120), victim.log.read_text()[-2000:]  # type: ignore[misc]
            time.sleep(0.5)
            victim.kill()
            self.kills["worker"] += 1
            working.append(self.line.start_worker())

    def kill_others(self) -> None:
        """Broker, gateway, region server and web server in turn, each back before the next one goes."""
        for turn in range(OTHER_KILLS):
            self._kill("rabbitmq", self.rabbitmq.kill, self.rabbitmq.start)
            self._kill("thrift", self.cluster.process("thrift").kill, self.cluster.start_gateway)
            region = REGIONS[turn % len(REGIONS)]
            again = lambda name=region: self.cluster.start_region(name)  # noqa: E731
            self._kill("region server", self.cluster.process(region).kill, again)
            self._kill("web", self.line.web.kill_all, self.line.start_web)

    def _kill(self, name: str, kill: Callable[[], object], start: Callable[[], object]) -> None:
        time.sleep(2)
        kill()
        self.kills[name] += 1
        start()


def _consumes(worker: Process) -> bool:
    return worker.log.exists() and " ready." in worker.log.read_text(errors="replace")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    if reason := made.missing():
        missing_service(reason)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory, cluster: Cluster, own_rabbitmq: RabbitMQ) -> Iterator[Line]:
    folder: Path = tmp_path_factory.mktemp("line")
    made = Line(folder, f"{cluster.url}/storm", own_rabbitmq.new_vhost("storm") + "?partitions=4")
    yield made
    made.close()


@pytest.fixture(scope="module")
def storm(line: Line, cluster: Cluster, own_rabbitmq: RabbitMQ) -> tuple[Storm, list[Sent], Agents]:
    made = Storm(line, cluster, own_rabbitmq)
    token = line.token()
    agents = Agents(line.start_web(), token, PACE_S)
    killers = [made.watched(made.kill_workers), made.watched(made.kill_others)]
    log = agents.send([Message(number, START_MS) for number in range(MESSAGES)])
    for thread in killers:
        thread.join()
    if made.failure is not None:
        raise made.failure
    line.settle(own_rabbitmq)
    return made, log, agents


def test_everything_was_killed_and_nearly_everything_acknowledged(storm: tuple[Storm, list[Sent], Agents]) -> None:
    made, log, agents = storm
    assert made.kills["worker"] >= WORKER_KILLS
    assert {made.kills[name] for name in ("rabbitmq", "thrift", "region server", "web")} == {OTHER_KILLS}
    outcomes = Counter(one.outcome for one in log)
    assert outcomes[ACKED] >= 0.8 * MESSAGES
    assert sum(one.stamps_max > 1 for one in log) > 0, "the kills hit nothing"
    print(f"\n{dict(made.kills)}, {dict(outcomes)}, {agents.refused_for_now} answers of 503")


def test_the_ledger_is_exact(storm: tuple[Storm, list[Sent], Agents]) -> None:
    made, log, _ = storm
    stored = samples(made.line.backend, START_MS - 1, START_MS + 1000 * MESSAGES // HOSTS, app=APP)
    assert len(stored) >= 0.8 * MESSAGES * FIELDS
    assert violations(log, stored, copies(made.line.backend, APP)) == []


def test_the_hours_are_exact_after_a_run(storm: tuple[Storm, list[Sent], Agents]) -> None:
    line = storm[0].line
    before = samples(line.backend, START_MS - 1, START_MS + 1000 * MESSAGES // HOSTS, app=APP)
    line.manage("roll", "--local", "--app", str(APP), "--now", str(START_MS + 86_400_000))
    after = samples(line.backend, START_MS - 1, START_MS + 1000 * MESSAGES // HOSTS, app=APP)
    assert after == before
    storage = AppStorage(line.backend, APP, distribution=Distribution(), clock=SystemClock(), cache=PageCache())
    assert wrong_hours(storage, after) == []
