"""How long each part of the line takes to be back after a kill -9, and how fast what has waited is stored.

``bin/test --proof r10_``: ``SPM_R10_TIMES`` kills of worker and web server, some of broker, gateway and store, and a
backlog of ``SPM_R10_SAMPLES``. Processes are started as a supervisor starts them, from nothing. Queries are asked all
the while the store is up, and each must be answered.
"""

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from tests.chaos.kills.storm import START_MS, consumes
from tests.chaos.line.agents import HOSTS, Agents, Message
from tests.chaos.line.thin_line import APP, Line
from tests.servers.java.hbase import HBase
from tests.servers.processes import wait_until
from tests.servers.rabbitmq import RabbitMQ
from tests.support.messages import message, recent
from tests.support.stored import copies

pytestmark = [pytest.mark.real, pytest.mark.chaos, pytest.mark.proof]
WORKER_S, WEB_S, TIMES_INGEST = 5.0, 3.0, 2.0
SOURCES, FIELDS = 16, 1_000
WARM_UP_S = 60
EACH_S = {"worker": 9, "web": 5, "others": 25}  # seconds of one kill, all told


@pytest.fixture
def line(tmp_path: Path, own_hbase: HBase, own_rabbitmq: RabbitMQ) -> Iterator[Line]:
    line_ = Line(tmp_path, f"{own_hbase.url}/{tmp_path.name}", own_rabbitmq.new_vhost(tmp_path.name) + "?partitions=8")
    yield line_
    line_.close()


@dataclass(slots=True)
class Reader:
    """Somebody who asks for a chart five times a second."""

    port: int
    token: str
    answers: int = 0
    worst_s: float = 0.0
    failures: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.over.wait(0.2):
            begun = time.monotonic()
            try:
                self.ask()
                self.answers += 1
            except (OSError, http.client.HTTPException, AssertionError) as error:
                self.failures.append(repr(error))
            self.worst_s = max(self.worst_s, time.monotonic() - begun)

    def ask(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        query = f"/prometheus/api/v1/query?query=load_f0&time={START_MS // 1000 + 60}"
        connection.request("GET", query, headers={"Authorization": f"Bearer {self.token}"})
        answer = connection.getresponse()
        assert json.loads(answer.read())["status"] == "success", answer.status
        connection.close()


def test_r10_every_part_is_back_in_time_and_what_waited_is_stored_in_twice_its_time(
    line: Line, own_hbase: HBase, own_rabbitmq: RabbitMQ, size: Callable[[str, int], int]
) -> None:
    times, others, samples = size("R10_TIMES", 50), size("R10_OTHERS", 10), size("R10_SAMPLES", 1_000_000)
    about_s = WARM_UP_S + times * (EACH_S["worker"] + EACH_S["web"]) + 3 * others * EACH_S["others"] + samples / 10_000
    print(f"  about {about_s / 60:,.0f} minutes", flush=True)
    token = line.token()
    line.start_web()
    for _ in range(2):
        line.start_worker_from_nothing()
    assert wait_until(lambda: all(consumes(line.worker(n)) for n in (1, 2)), 120)
    taken = {"worker": [back_after_worker(line) for _ in range(times)]}
    report("worker", taken["worker"])
    taken["web"] = [back_after_web(line, token, n) for n in range(times)]
    report("web", taken["web"])
    for name, again in restarts(own_hbase, own_rabbitmq).items():
        report(name, [back_after(line, again) for _ in range(others)])
    ingest_s, drain_s, queries = backlog(line, token, samples // FIELDS)
    print(
        f"  backlog of {samples:,}: {ingest_s:.1f} s in, {drain_s:.1f} s out; {queries.answers} charts meanwhile, "
        f"the slowest in {queries.worst_s:.2f} s",
        flush=True,
    )
    assert p99(taken["worker"]) <= WORKER_S
    assert p99(taken["web"]) <= WEB_S
    assert drain_s <= TIMES_INGEST * ingest_s
    assert queries.failures == []
    assert queries.answers > 0


def p99(taken: Sequence[float]) -> float:
    return float(np.quantile(taken, 0.99))


def report(name: str, taken: Sequence[float]) -> None:
    print(f"  {name}: back in {np.median(taken):.2f} s, p99 {p99(taken):.2f} s, {len(taken)} kills", flush=True)


def restarts(hbase: HBase, rabbitmq: RabbitMQ) -> dict[str, Callable[[], object]]:
    """Kill and start of each server; none waits until it answers, but for the broker's own start."""

    def broker() -> None:
        rabbitmq.kill()
        rabbitmq.start()

    def gateway() -> None:
        hbase.process("thrift").kill()
        hbase.start_gateway()

    def store() -> None:
        hbase.process("master").kill()
        hbase.start_master()

    return {"broker": broker, "gateway": gateway, "store": store}


def back_after_worker(line: Line) -> float:
    """Kill the older of two workers, start another at once; seconds until all queues are read from again."""
    victim = next(w for n in range(1, line.workers + 1) if (w := line.worker(n)).alive())

    def again() -> None:
        victim.kill()
        line.start_worker_from_nothing()

    taken_s = back_after(line, again)
    newest = line.worker(line.workers)
    assert wait_until(lambda: consumes(newest), 120)
    time.sleep(2.5)  # it has its share of the queues before the next one dies
    return taken_s


def back_after(line: Line, again: Callable[[], object]) -> float:
    """Seconds from a kill until what is sent right after it is stored, from sources of every queue."""
    begun = time.monotonic()
    again()
    first = len(line.sent)
    probes = [line.restamped(recent(message(first + n, source=f"host{n}"))) for n in range(SOURCES)]
    line.publish(probes)
    ids = {probe.message_id for probe in probes}
    assert wait_until(lambda: ids <= known(line), 240), "what was sent is not stored"
    return time.monotonic() - begun


def known(line: Line) -> set[bytes]:
    """Ids of messages that are stored. It is asked ten times a second: looking takes CPU, too."""
    time.sleep(0.1)
    return set(copies(line.backend, APP))


def back_after_web(line: Line, token: str, number: int) -> float:
    """Seconds from the kill of the web server until it has accepted a message."""
    agent = Agents(f"http://127.0.0.1:{line.port}", token, 0.02, patient=True)
    begun = time.monotonic()
    line.web.kill_all()
    line.start_web_from_nothing()
    agent.send([Message(10_000_000 + number, START_MS, fields=1)], threads=1)
    return time.monotonic() - begun


def backlog(line: Line, token: str, messages: int) -> tuple[float, float, Reader]:
    """(seconds to accept them without a worker, seconds until one has begun and stored them, who read meanwhile)."""
    agents = Agents(f"http://127.0.0.1:{line.port}", token, 0.0, patient=True)
    agents.send([Message(number, START_MS, FIELDS) for number in range(HOSTS)])  # their series are known from now on
    first = {number.to_bytes(16, "big") for number in range(HOSTS)}
    assert wait_until(lambda: first <= known(line), 240), "the first messages are not stored"
    for number in range(1, line.workers + 1):
        line.worker(number).kill()
    reader = Reader(line.port, token)
    reading = threading.Thread(target=reader.run)
    reading.start()
    begun = time.monotonic()
    agents.send([Message(number, START_MS, FIELDS) for number in range(HOSTS, HOSTS + messages)])
    ingest_s = time.monotonic() - begun
    begun = time.monotonic()
    line.start_worker()
    wanted = {number.to_bytes(16, "big") for number in range(HOSTS, HOSTS + messages)}
    while not wanted <= copies(line.backend, APP).keys():
        assert time.monotonic() - begun < 600, "what has waited is not stored"
        time.sleep(0.2)  # looking costs CPU, too
    drain_s = time.monotonic() - begun
    reader.over.set()
    reading.join()
    return ingest_s, drain_s, reader
