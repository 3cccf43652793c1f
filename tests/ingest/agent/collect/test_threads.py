"""Threads of collectors: one that hangs, fails or returns too much costs its own points, and is counted."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from ingest.agent.collect.threads import Batch, CollectorThreads
from ingest.agent.lines import Point, split_bodies
from spm import limits
from spm.clock import FakeClock

Collect = Callable[[], Sequence[Point]]


def good() -> Sequence[Point]:
    return [Point("good", {"v": 1})]


def bad() -> Sequence[Point]:
    raise RuntimeError("driver")


@pytest.fixture
def collectors() -> Iterator[Callable[..., CollectorThreads]]:
    created: list[CollectorThreads] = []

    def make(**collectors: Collect) -> CollectorThreads:
        created.append(CollectorThreads(collectors, FakeClock()))
        return created[-1]

    yield make
    for each in created:
        each.end()


def health_fields(batches: Sequence[Batch]) -> dict[str, dict[str, float]]:
    """Returns the fields of ``agent_collector`` of each collector."""
    return {p.labels["collector"]: dict(p.fields) for _, points in batches for p in points if "collector" in p.labels}


def names(batches: Sequence[Batch]) -> list[tuple[int, str]]:
    """Returns (time, measurement) of all other points."""
    return [(at, p.measurement) for at, points in batches for p in points if "collector" not in p.labels]


@pytest.mark.timed
def test_a_collector_that_hangs_stops_no_other_and_its_late_points_keep_their_time(
    collectors: Callable[..., CollectorThreads],
) -> None:
    release = threading.Event()

    def slow() -> Sequence[Point]:
        release.wait(10)
        return [Point("slow", {"v": 1})]

    own = collectors(slow=slow, good=good)
    began = time.monotonic()
    first = own.collect(1_000, 0.1)
    second = own.collect(2_000, 0.1)
    assert time.monotonic() - began < 5
    assert (names(first), names(second)) == ([(1_000, "good")], [(2_000, "good")])
    assert health_fields(second)["slow"]["overdue"] == 1
    release.set()
    third = own.collect(3_000, 5)
    while (1_000, "slow") not in names(third) and time.monotonic() - began < 10:
        third = [*third, *own.collect(4_000, 5)]
    assert (1_000, "slow") in names(third)


def test_a_collector_that_fails_is_counted_and_tried_more_and_more_seldom(
    collectors: Callable[..., CollectorThreads],
) -> None:
    tried: list[int] = []

    def failing() -> Sequence[Point]:
        tried.append(1)
        raise RuntimeError("driver")

    own = collectors(failing=failing, good=good)
    collections = [own.collect(n, 5) for n in range(40)]
    assert len([each for each in collections if names(each)]) == 40
    assert 5 <= len(tried) <= 9
    last = health_fields(collections[-1])
    assert (last["failing"]["up"], last["failing"]["failures"]) == (0, len(tried))
    assert last["good"]["up"] == 1
    assert own.failures == len(tried)


def test_a_collector_that_works_again_runs_every_time(collectors: Callable[..., CollectorThreads]) -> None:
    broken = [True]
    own = collectors(some=lambda: bad() if broken[0] else good())
    for n in range(limits.AGENT_REST_AFTER):
        own.collect(n, 5)
    broken[0] = False
    result = [names(own.collect(n, 5)) for n in range(10, 16)]
    assert [len(each) for each in result] == [0, 1, 1, 1, 1, 1]


def test_results_that_are_no_points_or_too_many_are_left_out_and_counted(
    collectors: Callable[..., CollectorThreads],
) -> None:
    most = limits.AGENT_POINTS_MAX
    own = collectors(odd=lambda: [None, "x", *good()], much=lambda: [Point("p", {"v": n}) for n in range(most + 7)])
    result = own.collect(1, 10)
    assert len(names(result)) == 1 + most
    assert (health_fields(result)["odd"]["left_out"], health_fields(result)["much"]["left_out"]) == (2, 7)


def test_collectors_are_turned_off_by_name_or_kind(collectors: Callable[..., CollectorThreads]) -> None:
    own = collectors(cpu=good)
    own.add("redis:a", good)
    own.add("redis:b", good)
    own.set_off(frozenset({"cpu", "redis:a"}))
    assert (own.names(), len(names(own.collect(1, 5)))) == (["redis:b"], 1)
    own.set_off(frozenset({"redis"}))
    assert own.names() == ["cpu"]
    own.set_off(frozenset())
    assert len(own.names()) == 3


@pytest.mark.timed
def test_the_collectors_have_a_bound_and_end(
    collectors: Callable[..., CollectorThreads], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "AGENT_TARGETS_MAX", 3)
    own = collectors(a=good)
    before = threading.active_count()
    for n in range(10):
        own.add(f"redis:{n}", good)
    assert len(own.names()) == 3
    own.end()
    deadline = time.monotonic() + 5
    while threading.active_count() >= before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() < before
    assert own.names() == []


def test_a_large_collection_becomes_several_bodies_and_loses_nothing() -> None:
    points = [Point("p", {"v": n}, {"tag": "x" * 200}) for n in range(10_000)]
    result = list(split_bodies([(5, points)], labels={"host": "h"}))
    assert len(result) > 1
    assert max(len(body) for body, _ in result) <= limits.AGENT_BODY_BYTES_MAX
    assert sum(samples for _, samples in result) == 10_000
    assert sum(body.count(b"\n") + 1 for body, _ in result) == 10_000


def test_a_line_over_the_limit_is_left_out() -> None:
    monster = Point("p", {f"f{n}": n for n in range(limits.LINE_BYTES_MAX // 5)})
    assert list(split_bodies([(5, [monster, Point("q", {"v": 1})])], labels={})) == [(b"q v=1i 5", 1)]


def test_integers_beyond_64_bits_are_written_as_floats() -> None:
    [(body, _)] = split_bodies([(5, [Point("p", {"a": 1 << 63, "b": True, "c": (1 << 63) - 1})])], labels={})
    assert body == b"p a=9.223372036854776e+18,b=1i,c=9223372036854775807i 5"
