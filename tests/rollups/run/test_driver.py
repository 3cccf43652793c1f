"""Claims about runs: no reader sees a difference, whatever is killed, repeated, late or sent twice."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rollups.crash_points import POINTS, ignore_point
from spm.limits import GENERATIONS_MAX, HOUR_MS
from spm.store import keys
from spm.store.backends.base import Backend
from spm.store.backends.lmdb import LmdbBackend
from spm.store.backends.memory import MemoryBackend
from spm.store.ledger import commit_records
from tests.model.world import APP, DAY, START, Crash, World, crash_at, days_in_force, parsed, whole_day

RUN_POINTS = [*POINTS[: POINTS.index("month published") + 1], "agenda written"]  # every plain full run comes by


@pytest.fixture(params=["memory", "lmdb"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """A world on each store that runs here."""
    store: Backend = MemoryBackend() if request.param == "memory" else LmdbBackend(str(tmp_path), map_bytes=1 << 28)
    yield World(store)
    store.close()


def fill(world: World) -> None:
    """Three series over four hours, in messages of a minute, with one correction and one value sent twice."""
    for minute in range(0, 240, 20):
        world.send(*((series, minute * 60_000 + 1 + series, float(minute % 7 + series)) for series in range(3)))
    world.send((0, 1, 99.0))
    world.send((0, 1, 99.0), source="other")


def test_reads_are_equal_before_during_and_after_a_run(world: World) -> None:
    fill(world)
    seen: list[str] = []

    def look(point: str) -> None:
        ignore_point(point)
        seen.append(point)
        assert world.answer() == world.truth

    world.roll(at=look)
    assert world.answer() == world.truth
    assert {"planned", "pages written", "published", "ledger written", "unpended", "month published"} <= set(seen)


def test_a_reader_with_caches_follows_a_run(world: World) -> None:
    fill(world)
    assert world.answer(world.readers) == world.truth
    world.roll()
    world.send((5, 9 * HOUR_MS, 1.0))
    world.clock.advance(2_000)  # the cached tail's age
    assert world.answer(world.readers) == world.truth


@pytest.mark.parametrize("point", RUN_POINTS)
def test_a_run_killed_anywhere_changes_no_answer_and_the_next_one_does_its_work(world: World, point: str) -> None:
    fill(world)
    with pytest.raises(Crash):
        world.roll(at=crash_at(point))
    assert world.answer() == world.truth
    assert world.hours() == world.recount()
    world.roll()
    assert world.answer() == world.truth
    assert world.pending_rows() == 0
    assert {len(e.state.generations) for e in world.manifest().entries.values()} == {1}


def test_pages_are_durable_before_the_inputs_that_list_them(world: World) -> None:
    fill(world)
    with pytest.raises(Crash):
        world.roll(at=crash_at("pages written"))
    answer = {
        t: [k for b in world.placement.all_shards(APP) for k, _ in world.store.scan(t, *keys.app_range(b, APP))]
        for t in ("chunks", "timelines", "inputs")
    }
    assert [bool(answer[t]) for t in ("chunks", "timelines", "inputs")] == [True, True, False]


def test_a_run_takes_exactly_the_pending_cells_of_its_plan(world: World) -> None:
    fill(world)

    def late(point: str) -> None:
        if point == "compacted":
            world.send((1, 2, 7.0))

    world.roll(at=late)
    assert world.pending_rows() == 1
    assert world.answer() == world.truth


@pytest.mark.seed("A24", compares="hours after late samples, at once and after the next run, with a recount")
def test_late_data_corrects_hours_at_once_and_the_next_run_rebuilds_them(world: World) -> None:
    fill(world)
    world.roll()
    world.send((0, 30 * 60_000, 50.0), (1, 3 * HOUR_MS, -5.0))
    assert world.hours() == world.recount()
    world.roll()
    assert world.hours() == world.recount()
    assert world.answer() == world.truth


def test_a_message_written_twice_is_counted_once_and_accounted_once(world: World) -> None:
    envelope = world.send((0, 1, 4.0), (0, 2, 5.0))
    world.roll()
    world.store_again(envelope)
    world.roll()
    assert world.answer() == world.truth
    assert world.hours() == world.recount()
    assert accounted(world) == 4  # two batches of one stamp: a count groups them by stamp


def accounted(world: World) -> int:
    """Return the number of samples in all ledger rows."""
    rows = world.store.scan("ledger", *keys.ledger_range(APP))
    return sum(commit_records.decode_ledger_row(cells[b"v"])[0].sample_count for _, cells in rows)


def test_hours_equal_a_numpy_recount(world: World) -> None:
    fill(world)
    world.roll()
    assert world.hours() == world.recount()
    packs = world.manifest().hours
    hours = {hour for pack in packs.values() for hour in pack.hours}
    assert hours == {DAY * 24 + h for h in range(4)}


def test_days_are_built_from_hours_and_equal_the_whole_days_aggregates(world: World) -> None:
    fill(world)
    assert world.roll().months == 1
    assert days_in_force(world) == whole_day(world)
    world.send((1, 5 * HOUR_MS, 1000.0))
    world.roll()
    assert days_in_force(world) == whole_day(world)


def test_hours_and_days_are_written_for_closed_hours_only(world: World) -> None:
    fill(world)
    world.roll(now_ms=START + 2 * HOUR_MS + 10 * 60_000)
    assert {hour for pack in world.manifest().hours.values() for hour in pack.hours} == {DAY * 24, DAY * 24 + 1}
    assert world.hours() == world.recount()
    assert days_in_force(world) == {}


def test_minor_runs_add_generations_and_the_ninth_merges_them(world: World) -> None:
    counts = []
    for i in range(GENERATIONS_MAX + 1):
        world.send((0, 10 + i, float(i)))
        world.roll(minor=True)
        [entry] = world.manifest().entries.values()
        counts.append(len(entry.state.generations))
    assert counts == [*range(1, GENERATIONS_MAX + 1), 1]
    assert world.answer() == world.truth


def test_a_full_run_merges_what_minor_runs_left(world: World) -> None:
    for i in range(3):
        world.send((0, 10 + i, float(i)))
        world.roll(minor=True)
    world.roll()
    [entry] = world.manifest().entries.values()
    assert len(entry.state.generations) == 1
    assert world.hours() == world.recount()


def test_a_second_run_finds_nothing_to_do(world: World) -> None:
    fill(world)
    world.roll()
    before = world.manifest()
    assert world.roll().days == ()
    assert world.manifest() == before


def test_odd_bits_survive_a_run(world: World) -> None:
    patterns = [0x7FF0000000000002, 0x7FF8000000000001, 0x8000000000000000, 0x7FF0000000000000, 0xFFF0000000000000]
    values = np.array(patterns, np.uint64).view(np.float64)
    plain = parsed([(1, 200 + i, 0.0) for i in range(len(values))])
    world.store_again(
        world.acceptor.stamp_message(app=APP, source="odd", parsed=replace(plain, values=values), message_id=bytes(16))
    )
    world.roll()
    answer = world.answer()
    got = np.array([answer[1, START + 200 + i] for i in range(len(values))])
    assert got.view(np.uint64).tolist() == patterns


def test_a_unit_with_a_missing_block_is_given_up_and_the_others_go_on(world: World) -> None:
    world.send((0, 1, 1.0), (0, 2 * HOUR_MS, 2.0))
    [victim, *_] = [
        k for b in world.placement.all_shards(APP) for k, _ in world.store.scan("log", *keys.app_range(b, APP))
    ]
    world.store.delete("log", [(victim, None)])
    report = world.roll()
    assert len(report.errors) == 1
    assert "missing" in report.errors[0]
    assert world.pending_rows() == 1
    assert len(world.manifest().entries) == 1
