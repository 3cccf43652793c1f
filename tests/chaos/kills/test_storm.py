"""140,000 samples over HTTP while every process of the full stack is killed with -9, again and again.

HBase lies on HDFS with two region servers; agents push to the web server, which publishes to RabbitMQ, whence two
workers write. One thread kills workers, another the broker, the gateway, a region server and the web server in turn. In
the end the ledger is exact, and so are the hours that a run builds from it. ``bin/test --proof r6_`` lasts an hour.
"""

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.chaos.kills.storm import START_MS, Storm, storm_on
from tests.chaos.line.agents import FIELDS, HOSTS, Agents, message_of_either_kind
from tests.chaos.line.checker import ACKED, Sent, violations, wrong_hours
from tests.chaos.line.thin_line import APP
from tests.servers.java.cluster import Cluster
from tests.servers.rabbitmq import RabbitMQ
from tests.support.messages import LONG_AGO_MS
from tests.support.stored import copies, reader, samples

pytestmark = [pytest.mark.real, pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(900)]
MESSAGES = 1_400  # of 100 samples
WORKER_KILLS, OTHER_KILLS = 14, 2
OTHERS = ("rabbitmq", "thrift", "region server", "web")
PACE_S = 0.1  # of each of four threads: the sending lasts as long as the storm
END_MS = START_MS + 1000 * MESSAGES // HOSTS
Outcome = tuple[Storm, list[Sent], Agents]


@pytest.fixture(scope="module")
def storm(tmp_path_factory: pytest.TempPathFactory, cluster: Cluster, own_rabbitmq: RabbitMQ) -> Iterator[Storm]:
    with storm_on(tmp_path_factory.mktemp("storm"), cluster, own_rabbitmq) as storm_:
        yield storm_


@pytest.fixture(scope="module")
def over(storm: Storm) -> Outcome:
    token = storm.line.token()
    agents = Agents(storm.line.start_web(), token, PACE_S)
    killers = [
        storm.watched(lambda: storm.kill_workers(WORKER_KILLS)),
        storm.watched(lambda: storm.kill_in_turn(OTHERS, OTHER_KILLS)),
    ]
    log = agents.send([message_of_either_kind(number, START_MS) for number in range(MESSAGES)])
    storm.joined(killers)
    storm.line.settle(storm.rabbitmq)
    return storm, log, agents


def test_everything_was_killed_and_nearly_everything_acknowledged(over: Outcome) -> None:
    storm, log, agents = over
    assert storm.kills["worker"] >= WORKER_KILLS
    assert {storm.kills[name] for name in OTHERS} == {OTHER_KILLS}
    outcomes = Counter(one.outcome for one in log)
    assert outcomes[ACKED] >= 0.8 * MESSAGES
    assert sum(one.stamps_max > 1 for one in log) > 0, "the kills hit nothing"
    print(f"\n{dict(storm.kills)}, {dict(outcomes)}, {agents.refused_for_now} answers of 503")


@pytest.mark.seed("A3", compares="what was acknowledged with what is stored, after 22 kills")
def test_the_ledger_is_exact(over: Outcome) -> None:
    storm, log, _ = over
    stored = samples(storm.line.backend, START_MS - LONG_AGO_MS - 1, END_MS, app=APP)
    assert len(stored) >= 0.8 * MESSAGES * FIELDS
    assert violations(log, stored, copies(storm.line.backend, APP)) == []


def test_the_hours_are_exact_after_a_run(over: Outcome) -> None:
    line = over[0].line
    before = samples(line.backend, START_MS - LONG_AGO_MS - 1, END_MS, app=APP)
    line.manage("roll", "--local", "--app", str(APP), "--now", str(START_MS + 86_400_000))
    after = samples(line.backend, START_MS - LONG_AGO_MS - 1, END_MS, app=APP)
    assert after == before
    assert wrong_hours(reader(line.backend, APP), after) == []
