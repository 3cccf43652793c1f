"""A20, A22, A29: ranges of writes are taken out and put back, old data is one row a day, shards change under way."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollups.crash_points import ignore_point
from rollups.decide.retention import RetentionPeriods
from rollups.move import redistribute
from spm.limits import HOUR_MS
from spm.query.request.batches import Matcher
from spm.query.request.provenance import DAYS
from spm.store import epochs
from spm.store.backends.memory import MemoryBackend
from tests.model.world import APP, START, World
from tests.support.faults import Faulty

Note = Callable[[str], None]
WRITES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(1, 3), st.sampled_from(["a", "b"])),
    min_size=1,
    max_size=10,
)


def fill(world: World, writes: list[tuple[int, int, int, str]]) -> list[int]:
    """Each write in a message of its own; their stamps."""
    for number, (series, hour, ms, source) in enumerate(writes):
        world.send((series, hour * HOUR_MS + ms, float(number)), source=source)
    return sorted(version.stamp[0] for version in world.model.versions)


def seen(world: World) -> tuple[object, ...]:
    """All that can be asked for."""
    return world.answer(), world.hours(), world.days()


@pytest.mark.seed("A20", compares="answers before, in and after retractions of random ranges and series")
@given(
    WRITES,
    st.tuples(st.integers(0, 9), st.integers(0, 9)),
    st.sampled_from(["", "a", "b"]),
    st.none() | st.integers(0, 3),
    st.booleans(),
    st.booleans(),
)
def test_a20_any_range_is_taken_out_and_put_back_before_or_after_compaction(
    writes: list[tuple[int, int, int, str]],
    bounds: tuple[int, int],
    source: str,
    series: int | None,
    compacted: bool,
    again: bool,
) -> None:
    """Undo brings back equal answers, byte for byte; bounds inside a compacted hour are exact, nothing is rounded."""
    world = World()
    stamps = fill(world, writes)
    if compacted:
        world.roll()
    before = seen(world)
    low, high = sorted(stamps[bound % len(stamps)] for bound in bounds)
    number = world.retract(write_from=low, write_to=high, source=source, series=series)
    assert seen(world) == (world.model.raw(), world.model.hours(), world.model.days())
    if again:
        world.roll()
        assert seen(world) == (world.model.raw(), world.model.hours(), world.model.days())
    world.undo(number)
    assert seen(world) == before
    world.roll()
    assert seen(world) == before


@pytest.mark.seed("A20", compares="hours compacted again after a retraction of one hour, among 5 and among 20 hours")
def test_a20_a_retraction_costs_what_it_touches(figure: Note) -> None:
    acts = []
    for hours in (5, 20):
        world = World()
        for hour in range(hours):
            world.send((0, hour * HOUR_MS + 1, 1.0))
        world.roll()
        world.retract(data_from=START + 2 * HOUR_MS, data_to=START + 3 * HOUR_MS)
        acts.append(sum(day.hour_shards for day in world.roll().days))
        assert world.hours() == world.recount()
    assert acts == [1, 1]
    figure("1 hour compacted again of 5 and of 20")


@pytest.mark.seed("A22", compares="rows of days read for a year-old month, and its daily answers, with the model")
def test_a22_old_data_is_one_record_per_series_and_day(figure: Note) -> None:
    world = World(store := Faulty(MemoryBackend()))
    for hour in (0, 5, 23):
        world.send((0, hour * HOUR_MS + 1, float(hour)), (1, hour * HOUR_MS + 2, 1.0))
    before = world.days()
    world.roll()
    world.retain(RetentionPeriods(raw_days=1, hour_days=2), days_later=4)
    assert world.answer() == {}
    assert world.hours() == {}
    assert world.days() == before == world.model.days()
    assert world.resolutions() == {DAYS}
    reader = world.fresh()
    reader.select([Matcher("n", "=", "0")], START, START + 1)
    store.calls.clear()
    world.days(reader)
    assert [call for call in store.calls if call in ("get chunks", "get hours", "get log")] == []
    figure("1 row of days, 0 of hours, 0 of samples")


SPREADS = [("byte", 16, 16), ("hash", 8, 8), ("byte", 12, 12), ("hash", 16, 3)]


@pytest.mark.seed("A29", compares="every answer at every point while shards change four times under writes")
def test_a29_shards_change_on_a_running_system_without_a_wrong_answer(figure: Note) -> None:
    world, looks = World(), 0
    fill(world, [(n % 4, n % 3, n % 3 + 1, "a") for n in range(8)])
    world.roll()

    def look(point: str) -> None:
        nonlocal looks
        ignore_point(point)
        looks += 1
        assert seen(world) == (world.model.raw(), world.model.hours(), world.model.days())

    for number, (strategy, shards, spread) in enumerate(SPREADS):
        old = world.spread().newest.number
        epochs.open_epoch(world.store, APP, function=strategy, shards=shards, spread=spread)
        world.send((number, number + 1, 5.0), (3, HOUR_MS + number + 5, 6.0))
        world.roll(minor=True, at=look)
        world.migrate(look)
        world.roll(at=look)
        world.migrate(look)
        assert redistribute.close_epoch(world.store, APP, old, look).closed
        world.clock.advance(2_000)
        assert world.answer(world.readers) == world.truth
    assert world.spread().has_one_live_epoch
    figure(f"4 changes, {looks} looks, 0 wrong answers")


@pytest.mark.seed("HUT8", compares="answers after a series is taken out, before any data and with data")
def test_hut8_taking_out_before_there_is_data_with_data_and_new_writes_after_it() -> None:
    """Deleting a key is a retraction of its series up to now: others stay, and what is sent later starts fresh."""
    world = World()
    world.retract(series=0)
    assert world.answer() == {}
    world.send((0, 1, 1.0), (1, 1, 2.0))
    assert world.answer() == world.truth == {(0, START + 1): 1.0, (1, START + 1): 2.0}
    world.retract(series=0)
    assert world.answer() == world.truth == {(1, START + 1): 2.0}
    world.roll()
    world.send((0, 1, 3.0))
    assert world.answer() == world.truth == {(0, START + 1): 3.0, (1, START + 1): 2.0}
    world.roll()
    assert world.hours() == world.recount()


@pytest.mark.seed("HUT9", compares="what is left after going back to t2, to t1, and taking out [t0, t3]")
@pytest.mark.parametrize("job", [False, True], ids=["read at once", "after a run each time"])
def test_hut9_back_to_a_time_to_an_earlier_one_and_a_range_taken_out(job: bool) -> None:
    """Going back to a time is a retraction of all writes since; an open-ended one ends now."""
    world = World()

    def burst(first: int) -> int:
        for n in range(3):
            world.send((0, first + n, float(first + n)))
        return world.clock.now_ms()

    def answers() -> set[float]:
        if job:
            world.roll()
        assert world.answer() == world.truth
        assert world.hours() == world.recount()
        return set(world.answer().values())

    t0 = world.clock.now_ms() + 1
    t1, t2, _ = burst(10), burst(20), burst(30)
    world.retract(write_from=t2 + 1)
    assert answers() == {10, 11, 12, 20, 21, 22}
    world.retract(write_from=t1 + 1)
    assert answers() == {10, 11, 12}
    t3 = burst(40)
    burst(50)
    world.retract(write_from=t0, write_to=t3)
    assert answers() == {50, 51, 52}
    world.retract(write_from=t0)
    assert answers() == set()


@pytest.mark.seed("HUT13", compares="a retraction with bounds inside a compacted hour, with the writes around it")
def test_hut13_a_bound_inside_a_merged_group_is_exact() -> None:
    """The old table merged write times away and had to round or refuse; here every version keeps its stamp."""
    world = World()
    for n in range(6):
        world.send((0, 1, float(n)), (1, n + 1, float(n)))
    world.roll()
    stamps = sorted({version.stamp[0] for version in world.model.versions})
    world.retract(write_from=stamps[2], write_to=stamps[5])
    assert world.answer() == world.truth
    assert world.truth[0, START + 1] == 1.0
    assert sorted(ts - START for series, ts in world.truth if series == 1) == [1, 2]


@pytest.mark.seed("A20", compares="answers as of earlier, of a reader that lives on, after a retraction was purged")
def test_a20_what_was_deleted_for_good_is_in_no_answer_of_any_moment() -> None:
    """A cached tail holds deleted versions while records of other hours of the same batches are pending."""
    world = World()
    world.send((0, 1, 1.0), source="wrong")
    then = world.clock.now_ms()
    world.clock.advance(2_000)
    number = world.retract(source="wrong")
    for n in range(4):
        world.send((0, 5 + n, 1.0), (0, 25 * HOUR_MS + n, 1.0))
    assert world.answer(world.readers.asof(then)) == {(0, START + 1): 1.0}
    world.erase_retracted(number)
    world.clock.advance(2_000)
    for reader in (world.readers, world.fresh()):
        assert world.answer(reader.asof(then)) == world.model.raw(then) == {}
        assert world.answer(reader) == world.truth
