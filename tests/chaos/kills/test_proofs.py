"""The long forms: one kind of process killed many times, and all kinds at once, with a ledger of millions of samples.

``bin/test --proof r2_``, ``r3_``, ``r6_``. The environment names sizes (samples, kills, seconds); the defaults are the
full ones. Each says at its beginning how long it will take, and what it does while it runs.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.chaos.kills.storm import START_MS, Storm, storm_on
from tests.chaos.line.agents import Agents, message_of_either_kind
from tests.chaos.line.checker import ACKED, Sent
from tests.servers.java.cluster import Cluster
from tests.servers.rabbitmq import RabbitMQ

pytestmark = [pytest.mark.real, pytest.mark.chaos, pytest.mark.proof]
Size = Callable[[str, int], int]
THREADS, FIELDS = 8, 200
TURN_S = {"rabbitmq": 9, "thrift": 6, "region server": 14}  # seconds of a kill, the start, and a moment of work
CHECK_S = 12 / 1e6  # of a sample, at the end: a last run, and the ledger
UP_S = 120  # for the servers
EVERYTHING = (*["worker"] * 6, *["web"] * 3, *["run"] * 2, "rabbitmq", "thrift", "region server")


@pytest.fixture
def storm(tmp_path: Path, cluster: Cluster, own_rabbitmq: RabbitMQ) -> Iterator[Storm]:
    with storm_on(tmp_path, cluster, own_rabbitmq, cut=True) as storm_:
        yield storm_


def killed_while_agents_send(storm: Storm, names: Sequence[str], *, kills: int, samples: int) -> list[Sent]:
    """The log of at least so many samples, sent while each of ``names`` is killed in turn, ``kills`` in all."""
    lasts_s = kills * sum(TURN_S[name] for name in names) / len(names)
    messages = samples // FIELDS
    print(f"  about {(UP_S + lasts_s + CHECK_S * samples) / 60:,.0f} minutes; {messages:,} messages", flush=True)
    agents = agents_of(storm, lasts_s * THREADS / messages)
    workers = [storm.line.start_worker(), storm.line.start_worker()]
    killer = storm.watched(lambda: storm.kill_in_turn(names, -(-kills // len(names))))
    log = agents.send_until(
        lambda sent: sent >= messages and not killer.is_alive(),
        lambda n: message_of_either_kind(n, START_MS, FIELDS),
        THREADS,
    )
    storm.joined([killer])
    storm.line.settle(storm.rabbitmq)
    assert all(worker.alive() for worker in workers), "nobody killed a worker"
    report(storm, log, agents)
    return log


def agents_of(storm: Storm, every_s: float) -> Agents:
    """Agents of which each thread sends a message ``every_s`` seconds, and the web server that answers them."""
    token = storm.line.token()
    return Agents(storm.line.start_web(), token, max(0.0, every_s - 0.02))


def report(storm: Storm, log: Sequence[Sent], agents: Agents) -> None:
    outcomes = Counter(one.outcome for one in log)
    print(f"  {dict(storm.kills)}; {dict(outcomes)}; {agents.refused_for_now} times 503; checking", flush=True)
    assert outcomes[ACKED] > 0.5 * len(log)


def test_r2_broker_killed_again_and_again_loses_nothing_acknowledged(storm: Storm, size: Size) -> None:
    kills = size("R2_KILLS", 50)
    log = killed_while_agents_send(storm, ["rabbitmq"], kills=kills, samples=size("R2_SAMPLES", 20_000_000))
    assert storm.kills["rabbitmq"] >= kills
    assert storm.judge(log) == []


def test_r3_region_servers_and_gateway_killed_again_and_again_lose_nothing(storm: Storm, size: Size) -> None:
    kills, names = size("R3_KILLS", 50), ["region server", "thrift"]
    log = killed_while_agents_send(storm, names, kills=kills, samples=size("R3_SAMPLES", 10_000_000))
    assert sum(storm.kills.values()) >= kills
    assert storm.judge(log) == []


def test_r6_everything_killed_at_once_for_an_hour_leaves_the_ledger_exact(storm: Storm, size: Size) -> None:
    """A kill every five seconds: workers, web server, runs (some on Spark), broker, gateway, region servers."""
    seconds, samples, every_s = size("R6_S", 3_600), size("R6_SAMPLES", 10_000_000), size("R6_EVERY_S", 5)
    print(f"  about {(UP_S + seconds + CHECK_S * samples) / 60:,.0f} minutes", flush=True)
    messages = samples // FIELDS
    agents = agents_of(storm, seconds * THREADS / messages)
    for _ in range(2):
        storm.line.start_worker()
    killer = storm.watched(lambda: storm.kill_at_random(EVERYTHING, every_s, seconds))
    runs = storm.watched(lambda: storm.roll_again_and_again(lambda: not killer.is_alive(), spark_every=4))
    log = agents.send_until(
        lambda sent: sent >= messages and not killer.is_alive(),
        lambda n: message_of_either_kind(n, START_MS, FIELDS),
        THREADS,
    )
    storm.joined([killer, runs])
    storm.line.settle(storm.rabbitmq)
    report(storm, log, agents)
    assert sum(storm.kills.values()) >= 0.95 * seconds / every_s
    assert storm.judge(log) == []
