"""Collectors at work: one that hangs, fails or talks too much costs its own points, and is counted."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from ingest.agent.collect.threads import Batch, Crew
from ingest.agent.lines import Point, bodies
from spm import limits
from spm.clock import FakeClock

Collect = Callable[[], Sequence[Point]]


def good() -> Sequence[Point]:
    return [Point("good", {"v": 1})]


def bad() -> Sequence[Point]:
    raise RuntimeError("driver")


@pytest.fixture
def crew() -> Iterator[Callable[..., Crew]]:
    made: list[Crew] = []

    def make(**collectors: Collect) -> Crew:
        made.append(Crew(collectors, FakeClock()))
        return made[-1]

    yield make
    for each in made:
        each.end()


def told(batches: Sequence[Batch]) -> dict[str, dict[str, float]]:
    """What the crew says of each collector."""
    return {p.tags["collector"]: dict(p.fields) for _, points in batches for p in points if "collector" in p.tags}


def names(batches: Sequence[Batch]) -> list[tuple[int, str]]:
    """(time, measurement) of all other points."""
    return [(at, p.measurement) for at, points in batches for p in points if "collector" not in p.tags]


def test_a_collector_that_hangs_stops_no_other_and_its_late_points_keep_their_time(crew: Callable[..., Crew]) -> None:
    release = threading.Event()

    def slow() -> Sequence[Point]:
        release.wait(10)
        return [Point("slow", {"v": 1})]

    own = crew(slow=slow, good=good)
    began = time.monotonic()
    first = own.look(1_000, 0.1)
    second = own.look(2_000, 0.1)
    assert time.monotonic() - began < 5
    assert (names(first), names(second)) == ([(1_000, "good")], [(2_000, "good")])
    assert told(second)["slow"]["overdue"] == 1
    release.set()
    third = own.look(3_000, 5)
    while (1_000, "slow") not in names(third) and time.monotonic() - began < 10:
        third = [*third, *own.look(4_000, 5)]
    assert (1_000, "slow") in names(third)


def test_a_collector_that_fails_is_counted_and_tried_more_and_more_seldom(crew: Callable[..., Crew]) -> None:
    tried: list[int] = []

    def failing() -> Sequence[Point]:
        tried.append(1)
        raise RuntimeError("driver")

    own = crew(failing=failing, good=good)
    looks = [own.look(n, 5) for n in range(40)]
    assert len([each for each in looks if names(each)]) == 40
    assert 5 <= len(tried) <= 9
    last = told(looks[-1])
    assert (last["failing"]["up"], last["failing"]["failures"]) == (0, len(tried))
    assert last["good"]["up"] == 1
    assert own.failures == len(tried)


def test_one_that_works_again_is_asked_every_time(crew: Callable[..., Crew]) -> None:
    broken = [True]
    own = crew(some=lambda: bad() if broken[0] else good())
    for n in range(limits.AGENT_REST_AFTER):
        own.look(n, 5)
    broken[0] = False
    found = [names(own.look(n, 5)) for n in range(10, 16)]
    assert [len(each) for each in found] == [0, 1, 1, 1, 1, 1]


def test_what_is_no_point_or_too_much_is_left_out_and_counted(crew: Callable[..., Crew]) -> None:
    most = limits.AGENT_POINTS_MAX
    own = crew(odd=lambda: [None, "x", *good()], much=lambda: [Point("p", {"v": n}) for n in range(most + 7)])
    found = own.look(1, 10)
    assert len(names(found)) == 1 + most
    assert (told(found)["odd"]["left_out"], told(found)["much"]["left_out"]) == (2, 7)


def test_collectors_that_are_off_do_not_look_by_name_or_kind(crew: Callable[..., Crew]) -> None:
    own = crew(cpu=good)
    own.add("redis:a", good)
    own.add("redis:b", good)
    own.silence(frozenset({"cpu", "redis:a"}))
    assert (own.names(), len(names(own.look(1, 5)))) == (["redis:b"], 1)
    own.silence(frozenset({"redis"}))
    assert own.names() == ["cpu"]
    own.silence(frozenset())
    assert len(own.names()) == 3


def test_a_crew_has_a_bound_and_ends(crew: Callable[..., Crew], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "AGENT_TARGETS_MAX", 3)
    own = crew(a=good)
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


def test_a_look_that_says_much_becomes_several_bodies_and_loses_nothing() -> None:
    points = [Point("p", {"v": n}, {"tag": "x" * 200}) for n in range(10_000)]
    found = list(bodies([(5, points)], tags={"host": "h"}))
    assert len(found) > 1
    assert max(len(body) for body, _ in found) <= limits.AGENT_BODY_BYTES_MAX
    assert sum(samples for _, samples in found) == 10_000
    assert sum(body.count(b"\n") + 1 for body, _ in found) == 10_000


def test_a_line_no_server_takes_is_left_out() -> None:
    monster = Point("p", {f"f{n}": n for n in range(limits.LINE_BYTES_MAX // 5)})
    assert list(bodies([(5, [monster, Point("q", {"v": 1})])], tags={})) == [(b"q v=1i 5", 1)]


def test_whole_numbers_no_server_holds_are_written_as_floats() -> None:
    [(body, _)] = bodies([(5, [Point("p", {"a": 1 << 63, "b": True, "c": (1 << 63) - 1})])], tags={})
    assert body == b"p a=9.223372036854776e+18,b=1i,c=9223372036854775807i 5"
