"""Claims about purging: no answer changes, what is superseded goes, and what a roll back may need stays."""

import pytest

from rollups.purge import purge
from rollups.rollback import roll_back
from spm.limits import HOUR_MS
from spm.store import keys
from tests.rollups.world import APP, Crash, World, crash_at, days_in_force, whole_day


def filled() -> World:
    """Three runs over the same hours, the last two with late data."""
    world = World()
    world.send((0, 1, 1.0), (1, HOUR_MS + 1, 2.0))
    world.roll()
    world.send((0, 2, 3.0))
    world.roll()
    world.send((0, 3, 4.0))
    world.roll()
    return world


def rows(world: World, table: str) -> int:
    """Rows of the app in a table."""
    return sum(1 for b in world.distribution.all(APP) for _ in world.store.scan(table, *keys.app_range(b, APP)))


def clean(world: World, keep: int = 0) -> dict[str, int]:
    """Purge the whole app."""
    return purge(world.store, APP, world.distribution.all(APP), keep=keep).rows


def right(world: World) -> None:
    """Raw, hours and days are as they must be."""
    assert world.answer() == world.truth
    assert world.hours() == world.recount()
    assert days_in_force(world) == whole_day(world)


def test_a_purge_without_history_leaves_one_generation_and_no_block() -> None:
    world = filled()
    clean(world)
    right(world)
    assert rows(world, "log") == 0
    units = len(world.manifest().entries)
    packs = len(world.manifest().hours)
    assert rows(world, "timelines") == units
    assert rows(world, "inputs") == units + 2 * packs  # a pack of hours and one of days per bucket
    assert rows(world, "hours") == rows(world, "days") == 2


def test_a_second_purge_finds_nothing() -> None:
    world = filled()
    clean(world)
    assert set(clean(world).values()) == {0}


def test_what_a_kept_history_needs_stays() -> None:
    world = filled()
    run = max(entry.history[-1].run for entry in world.manifest().entries.values())
    clean(world, keep=1)
    roll_back(world.store, run, [APP])
    assert world.answer() == world.truth
    assert world.hours() == world.recount()


def test_blocks_that_wait_for_a_run_stay() -> None:
    world = filled()
    world.send((0, 4, 9.0))
    clean(world)
    assert rows(world, "log") == 1
    world.roll()
    right(world)


def test_blocks_on_the_replay_list_stay() -> None:
    world = filled()
    run = max(entry.history[-1].run for entry in world.manifest().entries.values())
    roll_back(world.store, run, [APP])
    clean(world)
    assert world.answer() == world.truth
    world.roll()
    right(world)


def test_a_pending_cell_whose_block_was_purged_is_settled_by_the_next_run() -> None:
    """A run died between its flip and its last step; a purge then took the blocks, which the chunks hold."""
    world = World()
    world.send((0, 1, 1.0))
    with pytest.raises(Crash):
        world.roll(at=crash_at("flipped"))
    clean(world)
    assert rows(world, "log") == 0
    assert world.answer() == world.truth
    report = world.roll()
    assert report.troubles == []
    assert world.pending_rows() == 0
    right(world)


@pytest.mark.parametrize("point", ["purge listed", "purge fenced", "purge deleting"])
def test_a_purge_killed_anywhere_changes_no_answer(point: str) -> None:
    world = filled()
    with pytest.raises(Crash):
        purge(world.store, APP, world.distribution.all(APP), keep=0, at=crash_at(point))
    right(world)
    clean(world)
    right(world)
    assert rows(world, "log") == 0


def test_rows_of_a_crashed_run_go() -> None:
    world = filled()
    world.send((0, 5, 6.0))
    before = rows(world, "chunks")
    with pytest.raises(Crash):
        world.roll(at=crash_at("compacted"))
    assert rows(world, "chunks") > before
    clean(world)
    assert rows(world, "chunks") == len(world.manifest().entries)
    world.roll()
    right(world)


def test_a_dry_run_counts_and_deletes_nothing() -> None:
    world = filled()
    would = purge(world.store, APP, world.distribution.all(APP), keep=0, dry_run=True)
    before = world.manifest()
    assert would.rows["chunks"] > 0
    assert world.manifest() == before
    assert clean(world) == would.rows


def test_a_purge_without_any_run_deletes_nothing() -> None:
    world = World()
    world.send((0, 1, 1.0))
    with pytest.raises(Crash):
        world.roll(at=crash_at("compacted"))
    clean(world)
    assert world.answer() == world.truth
