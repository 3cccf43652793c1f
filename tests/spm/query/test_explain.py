"""Claims about `explain`: requested hours without data, the state as of a time, and shards."""

from collections.abc import Sequence
from typing import Any

import pytest

from rollups.delete.expire import RetentionPeriods
from spm.clock import FakeClock
from spm.limits import HOUR_MS
from spm.query.explain import explanation
from spm.query.promql.engine import Engine
from spm.query.request.provenance import moment
from tests.model.world import START, World


def a_world(*, until_hours: int = 40) -> World:
    return World(clock=FakeClock(START + until_hours * HOUR_MS))


def explained(world: World, expr: str, at_hour: int, asof_ms: int | None = None) -> dict[str, Any]:
    storage = world.fresh() if asof_ms is None else world.fresh().asof(asof_ms)
    result = Engine(storage).instant(expr, START + at_hour * HOUR_MS)
    return explanation(storage, result.provenance, world.clock.now_ms())


def starts(hours: Sequence[dict[str, Any]]) -> list[str]:
    return [each["start"][11:13] for each in hours]


@pytest.mark.parametrize("compacted", [False, True], ids=["before a run", "after it"])
def test_hours_without_senders_are_named_and_not_called_complete(compacted: bool) -> None:
    world = a_world()
    for source in ("a", "b"):
        world.send(*((0, hour * HOUR_MS + 600_000, 1.0) for hour in range(3)), source=source)
    if compacted:
        world.roll()
    world.clock.advance(2_000)
    last = explained(world, "count_over_time(m0[12h])", 12)["lastHours"]
    assert starts(last) == ["09", "10", "11"]
    assert [(each["complete"], each["sources"], each["sourcesSilentSince"]) for each in last] == [
        (False, 0, ["a", "b"])
    ] * 3
    assert [each["complete"] for each in explained(world, "count_over_time(m0[3h])", 3)["lastHours"]] == [True] * 3


def test_future_hours_are_not_explained() -> None:
    world = a_world(until_hours=2)
    world.send((0, 600_000, 1.0))
    world.clock.advance(2_000)
    assert starts(explained(world, "count_over_time(m0[12h])", 12)["lastHours"]) == ["00", "01", "02"]


def test_sources_of_the_last_hour_of_the_day_before_are_known_at_midnight() -> None:
    world = a_world()
    world.send((0, 23 * HOUR_MS + 600_000, 1.0), source="a")
    world.clock.advance(2_000)
    [first] = explained(world, "count_over_time(m0[1h])", 25)["lastHours"]
    assert (first["sourcesOfTheHourBefore"], first["sourcesSilentSince"]) == (1, ["a"])


def sent_twice(world: World) -> int:
    """Samples of two messages of one hour; the time between them."""
    world.send((0, 600_000, 1.0), source="early")
    world.clock.advance(10_000)
    between = world.clock.now_ms()
    world.clock.advance(10_000)
    world.send((0, 700_000, 5.0), (0, 800_000, 7.0), source="late")
    return between


@pytest.mark.parametrize("compacted", [False, True], ids=["before a run", "after it"])
def test_as_of_a_time_nothing_that_came_later_is_counted(compacted: bool) -> None:
    world = a_world()
    between = sent_twice(world)
    if compacted:
        world.roll()
        world.send((0, 900_000, 7.0), source="later")
    world.clock.advance(2_000)
    explanation_of = explained(world, "count_over_time(m0[1h])", 1, between)
    [unit], [hour] = explanation_of["units"], explanation_of["lastHours"]
    merged = [0, None, None]  # unknown for samples that runs have merged since
    apart = [1, moment(between - 10_000), 1]
    unit_values = [unit[name] for name in ("samplesNotCompacted", "newestAccepted", "sources")]
    assert unit_values == (merged if compacted else apart)
    assert (hour["sources"], hour["complete"]) == ((None, None) if compacted else (1, True))
    now = explained(world, "count_over_time(m0[1h])", 1)
    assert [each["sources"] for each in now["units"]] == [3 if compacted else 2]


def test_an_hour_shard_that_was_not_compacted_by_then_is_explained_exactly() -> None:
    world = a_world()
    before = world.clock.now_ms()
    world.clock.advance(1_000)
    world.send((0, 600_000, 1.0))
    world.roll()
    world.clock.advance(2_000)
    explanation_of = explained(world, "count_over_time(m0[1h])", 1, before)
    assert [(unit["sources"], unit["newestAccepted"]) for unit in explanation_of["units"]] == [(0, None)]


def test_only_shards_of_requested_metrics_are_named() -> None:
    world = a_world()
    world.send(*((series, 600_000, 1.0) for series in range(3)))
    world.roll()
    world.clock.advance(2_000)
    every = explained(world, 'count_over_time({__name__=~"m."}[1h])', 1)["units"]
    mine = [explained(world, f"count_over_time(m{number}[1h])", 1)["units"] for number in range(3)]
    assert [len(units) for units in mine] == [1, 1, 1]
    assert len({unit["shard"] for unit in every}) == len(every) == 2
    assert {units[0]["shard"] for units in mine} == {unit["shard"] for unit in every}


def test_the_sources_of_expired_days_are_unknown() -> None:
    world = a_world()
    world.send((0, 600_000, 1.0))
    world.roll()
    world.retain(RetentionPeriods(0, 0), days_later=40)
    world.clock.advance(2_000)
    explanation_of = explained(world, "count_over_time(m0[1d])", 24)
    assert [(unit["state"], unit["sources"]) for unit in explanation_of["units"]] == [("hours expired", None)]
