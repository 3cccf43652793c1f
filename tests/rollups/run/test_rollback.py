"""Claims about rolling back: every answer stays, the state before comes back, and what cannot be undone is refused."""

import pytest

from rollups.delete.purge import purge
from rollups.run.rollback import entries_to_roll_back, roll_back
from spm.errors import Refused
from spm.limits import HISTORY_MAX, HOUR_MS
from spm.store.manifest import OPEN, SEALED, SEALING, Entry, Generation, Manifest, PreviousState, State
from tests.model.world import APP, Crash, World, crash_at


def filled() -> World:
    """Samples in three hours of two days."""
    world = World()
    world.send((0, 1, 1.0), (1, HOUR_MS + 1, 2.0), (2, 25 * HOUR_MS, 3.0))
    return world


def states(world: World) -> dict[tuple[int, int], State]:
    """The state in force by hour shard."""
    return {unit: entry.state for day in (19_600, 19_601) for unit, entry in world.manifest(day).entries.items()}


def test_a_roll_back_changes_no_answer() -> None:
    world = filled()
    run = world.roll().run
    roll_back(world.store, run, [APP])
    assert world.answer() == world.truth
    assert world.hours() == world.recount()


def test_a_roll_back_restores_the_generations_of_before_a_full_merge() -> None:
    world = World()
    world.send((0, 1, 1.0))
    world.roll(minor=True)
    world.send((0, 2, 2.0))
    world.roll(minor=True)
    before = states(world)
    roll_back(world.store, world.roll().run, [APP])
    assert states(world) == before
    assert world.answer() == world.truth


def test_batches_that_only_the_rolled_back_generation_held_are_replayed() -> None:
    world = filled()
    roll_back(world.store, world.roll().run, [APP])
    assert {len(entry.replay) for entry in states(world).values()} == {1}
    assert world.pending_rows() == 0
    world.roll()
    assert {len(entry.replay) for entry in states(world).values()} == {0}
    assert world.answer() == world.truth


def test_runs_are_rolled_back_newest_first() -> None:
    world = filled()
    first = world.roll(minor=True).run
    world.send((0, 2, 5.0))
    second = world.roll(minor=True).run
    with pytest.raises(Refused, match="later runs"):
        roll_back(world.store, first, [APP])
    roll_back(world.store, second, [APP])
    roll_back(world.store, first, [APP])
    assert world.answer() == world.truth
    assert {len(state.generations) for state in states(world).values()} == {0}


def test_a_roll_back_below_the_history_is_refused() -> None:
    world = World()
    runs = []
    for i in range(HISTORY_MAX + 1):
        world.send((0, 1 + i, 1.0))
        runs.append(world.roll(minor=True).run)
    for run in reversed(runs[1:]):
        roll_back(world.store, run, [APP])
    with pytest.raises(Refused, match="no history"):
        roll_back(world.store, runs[0], [APP])
    assert world.answer() == world.truth


def test_a_roll_back_of_a_purged_history_is_refused() -> None:
    world = filled()
    run = world.roll().run
    purge(world.store, APP, world.placement.all_shards(APP), keep=0)
    with pytest.raises(Refused, match="no history"):
        roll_back(world.store, run, [APP])


@pytest.mark.parametrize("point", ["roll back noted", "rolled back"])
def test_a_roll_back_killed_between_two_days_is_finished_by_the_next(point: str) -> None:
    world = filled()
    run = world.roll().run
    with pytest.raises(Crash):
        roll_back(world.store, run, [APP], at=crash_at(point))
    assert world.answer() == world.truth
    roll_back(world.store, run, [APP])
    assert {len(state.generations) for state in states(world).values()} == {0}
    assert world.answer() == world.truth


def test_an_unknown_run_is_refused() -> None:
    with pytest.raises(Refused, match="no history"):
        roll_back(filled().store, 77, [APP])


def test_a_run_is_rolled_back_in_its_own_units_only() -> None:
    world = filled()
    world.roll()
    world.send((0, 2, 2.0))
    second = world.roll().run
    roll_back(world.store, second, [APP])
    replayed = [state for state in states(world).values() if state.replay]
    assert len(replayed) == 1
    assert world.answer() == world.truth


def test_a_minor_run_takes_in_the_batches_that_a_roll_back_left() -> None:
    world = World()
    world.send((0, 1, 1.0))
    world.roll(minor=True)
    world.send((0, 2, 2.0))
    roll_back(world.store, world.roll(minor=True).run, [APP])
    world.send((0, 3, 3.0))
    world.roll(minor=True)
    [state] = states(world).values()
    assert (len(state.generations), state.replay) == (2, ())
    assert world.answer() == world.truth


def test_the_replay_list_grows_with_each_run_that_is_taken_back() -> None:
    world = World()
    runs = []
    for i in range(3):
        world.send((0, 1 + i, float(i)))
        runs.append(world.roll(minor=True).run)
    for taken, run in enumerate(reversed(runs), 1):
        roll_back(world.store, run, [APP])
        assert {len(state.replay) for state in states(world).values()} == {taken}
        assert world.answer() == world.truth


ONE, TWO = State((Generation(1),)), State((Generation(2),))
PAIR = ((4, 9), (5, 9))


def moved(later: bool, seal: int = OPEN) -> Manifest:
    """A run 3 that moved an hour from shard 4 to shard 5; ``later``: run 8 stands on one of the two."""
    first = PreviousState(3, ONE, PAIR)
    second = Entry(TWO, (first, PreviousState(8, TWO)) if later else (first,))
    return Manifest(1, 0, {(4, 9): Entry(TWO, (first,)), (5, 9): second}, seals={9: seal} if seal else {})


def test_a_run_that_moved_data_is_rolled_back_in_all_its_units_or_not_at_all() -> None:
    assert entries_to_roll_back(moved(later=False), 3) == list(PAIR)
    with pytest.raises(Refused, match="moved data"):
        entries_to_roll_back(moved(later=True), 3)


@pytest.mark.parametrize("seal", [SEALING, SEALED])
def test_a_sealed_hour_is_not_rolled_back(seal: int) -> None:
    with pytest.raises(Refused, match="sealed"):
        entries_to_roll_back(moved(later=False, seal=seal), 3)
