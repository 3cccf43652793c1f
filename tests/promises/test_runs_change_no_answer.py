"""A19, A21, A23 to A25 and A33: runs change no answer, cost little to read, and count everything once."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollups.compute import task as compute_task
from rollups.crash_points import POINTS, ignore_point
from rollups.decide.day_result import hour_shard_task
from rollups.decide.plan import PlanContext
from rollups.decide.work import generation_number
from spm.limits import DAY_HOURS, HOUR_MS
from spm.query.request.batches import Matcher
from spm.store import keys
from spm.store.backends.memory import MemoryBackend
from spm.store.rollup.aggregates import COLUMNS
from spm.store.versions.generations import HourShard
from tests.model.world import APP, DAY, NEXT_DAY, START, Crash, World, crash_at, days_in_force, whole_day
from tests.support.faults import Faulty
from tests.support.store_columns import aggregate_rows, merge_aggregates

Note = Callable[[str], None]
WRITES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(1, 3), st.integers(-5, 5)), min_size=1, max_size=12
)  # series, hour, ms, value


def fill(world: World, writes: list[tuple[int, int, int, int]]) -> None:
    """Each write in a message of its own."""
    for series, hour, ms, value in writes:
        world.send((series, hour * HOUR_MS + ms, float(value)))


@pytest.mark.seed(
    "A19", compares="all samples and hours of a random history: before, at every point of, and after a run"
)
@given(WRITES, st.booleans())
def test_a19_answers_are_equal_at_every_point_of_a_run(writes: list[tuple[int, int, int, int]], minor: bool) -> None:
    world = World()
    fill(world, writes)
    before = world.answer(), world.hours()
    seen = 0

    def look(point: str) -> None:
        nonlocal seen
        ignore_point(point)
        seen += 1
        assert (world.answer(), world.hours()) == before

    world.roll(minor=minor, at=look)
    assert seen >= 8
    assert before == (world.answer(), world.hours()) == (world.truth, world.recount())


@pytest.mark.seed("A19", compares="answers after a kill at each point, and after the next run, with the model")
def test_a19_a_crash_in_a_run_changes_no_answer_though_its_rows_stay(figure: Note) -> None:
    """What a dead run has written is named by nobody; its inputs and its half of a generation stay where they are."""
    kills = 0
    for point in POINTS:
        world = World()
        fill(world, [(0, 0, 1, 1), (1, 1, 1, 2), (0, 0, 1, 3), (2, 2, 2, 4)])
        for times in (1, 2):
            try:
                world.roll(at=crash_at(point, times))
            except Crash:
                kills += 1
            assert (world.answer(), world.hours()) == (world.truth, world.recount())
        world.roll()
        assert (world.answer(), world.hours()) == (world.truth, world.recount())
    assert kills >= 12
    figure(f"{kills} kills, 0 differences")


@pytest.mark.seed("A21", compares="rows fetched for a month of hours of one series, with the 60 that are allowed")
def test_a21_a_chart_of_thirty_days_reads_sixty_rows_at_most(figure: Note) -> None:
    world = World(store := Faulty(MemoryBackend()))
    for day in range(30):
        world.send(*((0, day * DAY_HOURS * HOUR_MS + hour * HOUR_MS + 1, float(hour)) for hour in range(24)))
    world.roll(now_ms=NEXT_DAY + 30 * DAY_HOURS * HOUR_MS)
    reader = world.fresh()
    reader.select([Matcher("n", "=", "0")], START, START + 1)  # the dictionary is read
    world.clock.advance(31 * DAY_HOURS * HOUR_MS)
    store.calls.clear()
    fetched: list[str] = []
    inner_get = store.inner.get

    def counted(table: str, names: list[bytes], columns: object = None) -> object:
        fetched.extend([table] * len(names))
        return inner_get(table, names, columns)  # type: ignore[arg-type]

    store.inner.get = counted  # type: ignore[method-assign, assignment]
    batch = reader.select_hours([Matcher("n", "=", "0")], DAY * DAY_HOURS, (DAY + 30) * DAY_HOURS - 1)
    assert int(batch.count.sum()) == 30 * 24
    rollups = [table for table in fetched if table not in ("manifest", "series", "retractions", "config")]
    assert set(rollups) == {"hours"}
    assert len(rollups) <= 60
    figure(f"{len(rollups)} rollup rows for 720 hours")


@pytest.mark.seed("A23", compares="two attempts of one task: their aggregates, pages and what each says of itself")
@given(WRITES)
def test_a23_a_repeated_attempt_gives_identical_aggregates(writes: list[tuple[int, int, int, int]]) -> None:
    """Each attempt writes under its own generation; the driver names one of them, and the other is nobody's."""
    world = World()
    fill(world, writes)
    for day in world.driver().plan_app(APP, PlanContext(NEXT_DAY)).plans:
        for planned in day.hour_shards:
            task = hour_shard_task(day, planned)
            first, second = (
                compute_task.compact_hour_shard(world.store, task, number=generation_number(5, attempt))
                for attempt in (1, 2)
            )
            assert first.hours == second.hours
            assert (first.samples, first.stamp_max_ms, first.reason) == (second.samples, second.stamp_max_ms, "")
            hour_shard = HourShard(task.shard, task.app, task.hour)
            pages = [
                [c for k, c in world.store.scan(table, b"", b"\xff" * 64) if _generation(table, k) == number]
                for table in ("chunks", "timelines")
                for number in (generation_number(5, 1), generation_number(5, 2))
            ]
            assert pages[0] == pages[1], hour_shard
            assert pages[2] == pages[3], hour_shard
            world.store.delete("chunks", [(k, None) for k, _ in world.store.scan("chunks", b"", b"\xff" * 64)])
            world.store.delete("timelines", [(k, None) for k, _ in world.store.scan("timelines", b"", b"\xff" * 64)])
    assert world.answer() == world.truth


def _generation(table: str, key: bytes) -> int:
    return (keys.parse_chunk(key)[4]) if table == "chunks" else keys.parse_timeline(key)[3]


@pytest.mark.seed("A24", compares="hours and days after late samples: at once, and after the next run, with a recount")
@given(WRITES, WRITES)
def test_a24_late_samples_correct_hours_and_days(
    writes: list[tuple[int, int, int, int]], late: list[tuple[int, int, int, int]]
) -> None:
    world = World()
    fill(world, writes)
    world.roll()
    assert days_in_force(world) == whole_day(world)
    fill(world, late)
    assert world.hours() == world.recount()
    world.roll()
    assert world.hours() == world.recount()
    assert days_in_force(world) == whole_day(world)


@pytest.mark.seed("A25", compares="aggregates of groups of 2 to 12 hours merged step by step, with those of the whole")
@pytest.mark.parametrize("size", range(2, 13))
def test_a25_merges_in_groups_of_any_size_equal_the_whole(size: int) -> None:
    """Sum, square sum, min, max, count, first, last and increase merge; the winners are a merge of their own kind."""
    rng = np.random.default_rng(size)
    parts = []
    ts, values = np.arange(1, 241), rng.integers(-50, 50, 240).astype(np.float64)
    for rows in np.array_split(np.arange(240), 12):
        parts.append(aggregate_rows(np.ones(len(rows), np.uint64), ts[rows], values[rows]))
    while len(parts) > 1:
        parts = [merge_aggregates(parts[i : i + size]) for i in range(0, len(parts), size)]
    whole = aggregate_rows(np.ones(240, np.uint64), ts, values)
    for name, _ in COLUMNS:
        assert getattr(parts[0], name)[0] == getattr(whole, name)[0]


STEPS = st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=20)  # growth, whether reset before


@pytest.mark.seed("A33", compares="increase of a counter, per hour and day, with its growth, under replay and restarts")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS, st.randoms(use_true_random=False), st.sampled_from(POINTS[:10]))
def test_a33_the_increase_of_a_counter_is_exact_under_replay_restart_and_redelivery(
    figure: Note, steps: list[tuple[int, bool]], chance: object, point: str
) -> None:
    """Each value is sent, some are sent again (stamped again) and some written again (a redelivery), out of order."""
    world = World()
    counter, samples = 0, []
    for number, (growth, reset) in enumerate(steps):
        counter = growth if reset and number else counter + growth
        samples.append((0, number * 600_000 + 1, float(counter)))
    sent = [world.send(sample) for sample in samples]
    for again in chance.sample(range(len(samples)), k=len(samples) // 2):  # type: ignore[attr-defined]
        world.send(samples[again])
        world.store_again(sent[again])
        try:
            world.roll(minor=bool(again % 2), at=crash_at(point))
        except Crash:
            continue
    world.roll()
    values = [value for _, _, value in samples]
    grown = math.fsum(b if b < a else b - a for a, b in itertools.pairwise(values))
    assert days_in_force(world)[0]["increase"] == grown
    assert days_in_force(world)[0]["count"] == len(samples)
    assert world.hours() == world.recount()
    figure("exact, with half of the values sent and written again and a run killed at any of 10 points each time")
