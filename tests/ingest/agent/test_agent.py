"""The agent between machine, spool and server: nothing is lost, nothing is sent forever, everything is counted."""

import logging
import re
from collections.abc import Callable, Sequence

import pytest

from ingest.agent.agent import Agent
from ingest.agent.collect.host.own_metrics import Counters, SelfCollector
from ingest.agent.collect.threads import CollectorThreads
from ingest.agent.lines import Point
from ingest.agent.server.push import open_push
from ingest.agent.spool.spool import Spool
from spm import limits
from spm.clock import FakeClock
from spm.message_ids import split
from tests.ingest.agent.conftest import FakeServer

START_MS = 1_700_000_000_000


class Bench:
    """An agent with one collector that counts its calls."""

    def __init__(self, spool: Spool, url: str) -> None:
        self.clock, self.counters, self.spool = FakeClock(START_MS), Counters(), spool
        self.collections = 0
        self.collectors = CollectorThreads({"broken": self._broken, "good": self._good}, self.clock)
        self.agent = Agent(
            collectors=self.collectors,
            spool=spool,
            push=open_push(url, token="t", source="h"),
            clock=self.clock,
            labels={"host": "h"},
            counters=self.counters,
        )
        self.is_broken = False

    def looks_at_itself(self) -> None:
        self.collectors.add("itself", SelfCollector(self.counters))

    def _broken(self) -> Sequence[Point]:
        if self.is_broken:
            raise RuntimeError("driver")
        return []

    def _good(self) -> Sequence[Point]:
        self.collections += 1
        return [Point("looks", {"count": self.collections})]

    def collect(self, times: int = 1) -> None:
        for _ in range(times):
            self.agent.collect()
            self.clock.advance(10_000)

    def push_all(self) -> list[float | None]:
        waits: list[float | None] = []
        while (wait := self.agent.push()) is not None and len(waits) < 100:
            waits.append(wait)
        return waits


@pytest.fixture
def bench(open_spool: Callable[..., Spool], server: FakeServer) -> Bench:
    return Bench(open_spool(), server.url)


def test_each_collection_is_one_message_with_its_own_time(bench: Bench, server: FakeServer) -> None:
    bench.collect(2)
    bench.push_all()
    assert [request.text.splitlines()[0] for request in server.requests] == [
        f"looks,host=h count=1i {START_MS}",
        f"looks,host=h count=2i {START_MS + 10_000}",
    ]
    assert len(set(server.ids)) == 2


def test_an_absent_server_costs_nothing_but_time(bench: Bench, server: FakeServer) -> None:
    server.script = [503] * 5
    bench.collect(3)
    waits = bench.push_all()
    assert [request.text.split()[1] for request in server.requests[-3:]] == ["count=1i", "count=2i", "count=3i"]
    assert len(set(server.ids)) == 3
    assert len([wait for wait in waits if wait]) == 5
    assert (bench.counters.sent, bench.counters.dropped_messages_total, bench.counters.push_failures) == (3, 0, 5)


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 503])
def test_pauses_grow_while_pushes_fail(bench: Bench, server: FakeServer, status: int) -> None:
    server.script = [status] * 12
    bench.collect()
    waits = [bench.agent.push() or 0.0 for _ in range(12)]
    for failures, wait in enumerate(waits):
        expected = min(2.0**failures, limits.AGENT_BACKOFF_MAX_S)
        assert expected * 0.69 <= wait <= expected * 1.31
    assert len(set(server.ids)) == 1


def test_a_message_that_the_server_rejects_is_dropped_counted_and_explained(
    bench: Bench, server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.script, server.answer = [400], b'{"error": "line 1: no value"}'
    bench.collect(2)
    with caplog.at_level(logging.ERROR, "spm.agent"):
        bench.push_all()
    assert "line 1: no value" in caplog.text
    assert (bench.counters.sent, bench.counters.refused) == (1, 1)
    assert (bench.counters.dropped_messages_total, bench.counters.dropped_samples_total) == (
        1,
        1 + 2 * 6,
    )
    assert len(server.requests) == 2


def test_a_broken_collector_does_not_stop_the_others(bench: Bench, server: FakeServer) -> None:
    bench.is_broken = True
    bench.collect()
    bench.push_all()
    assert server.requests[0].text.startswith("looks,host=h count=1i")
    assert bench.counters.errors == 1


def test_a_restart_sends_what_waited_under_the_same_ids(open_spool: Callable[..., Spool], server: FakeServer) -> None:
    first = Bench(open_spool(), server.url)
    server.script = [503]
    first.collect(3)
    first.agent.push()
    second = Bench(open_spool(), server.url)
    second.collect()
    second.push_all()
    assert server.ids[0] == server.ids[1]
    assert len(server.ids) == 5
    assert second.counters.sequence == 4


def test_the_token_never_gets_into_the_log(bench: Bench, server: FakeServer, caplog: pytest.LogCaptureFixture) -> None:
    server.script = [401]
    with caplog.at_level(logging.DEBUG):
        bench.collect()
        bench.push_all()
    assert "Bearer" not in caplog.text


@pytest.mark.seed("A31", compares="what an agent says of its drops after an outage, with the numbers its server missed")
def test_the_agent_reports_what_an_outage_cost(open_spool: Callable[..., Spool], server: FakeServer) -> None:
    bench = Bench(open_spool(bytes_max=8_000), server.url)
    bench.looks_at_itself()
    bench.collect()
    bench.push_all()
    server.script = [503]
    bench.collect(100)
    bench.push_all()
    bench.collect()
    bench.push_all()
    got = [split(bytes.fromhex(name)) for name in dict.fromkeys(server.ids)]
    sequences = [number for _, number in filter(None, got)]
    missing = max(sequences) - min(sequences) + 1 - len(sequences)
    counters = dict(re.findall(r"(dropped_\w+_total)=(\d+)i", server.requests[-1].text))
    assert missing == int(counters["dropped_messages_total"]) > 0
    assert int(counters["dropped_samples_total"]) > missing, "each look holds more than one value"
