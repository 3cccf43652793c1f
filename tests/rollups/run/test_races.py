"""Claims about two drivers at once: the slower one rebases its work where that is sound, and else drops it."""

from collections.abc import Callable

import pytest

from rollups.delete.purge import purge
from rollups.run.rollback import roll_back
from spm.errors import StoreUnavailable
from spm.limits import HOUR_MS
from spm.store.backends.memory import MemoryBackend
from tests.model.world import APP, DAY, World, days_in_force, meanwhile, whole_day


def settled(world: World) -> None:
    """All is right now, and after one more run."""
    for _ in range(2):
        assert world.answer() == world.truth
        assert world.hours() == world.recount()
        world.roll()
    assert world.pending_rows() == 0
    assert days_in_force(world) == whole_day(world)


def test_a_minor_run_that_lost_to_one_of_other_hours_is_rebased() -> None:
    world = World()
    world.send((0, 1, 1.0))

    def other() -> None:
        world.send((0, HOUR_MS + 1, 2.0))
        world.roll(minor=True)

    report = world.roll(minor=True, at=meanwhile("compacted", other))
    assert [day.published for day in report.days] == [True]
    assert len(world.manifest().entries) == 2
    settled(world)


def test_two_full_merges_of_one_unit_leave_one_generation_in_force() -> None:
    world = World()
    world.send((0, 1, 1.0))
    world.roll()
    world.send((0, 2, 2.0))
    report = world.roll(at=meanwhile("compacted", world.roll))
    assert [day.published for day in report.days] == [False]
    [entry] = world.manifest().entries.values()
    assert len(entry.state.generations) == 1
    settled(world)


def test_a_full_merge_is_not_rebased_onto_an_entry_whose_generations_are_gone() -> None:
    """Without that rule the rolled-back generation would come back into force inside the merge."""
    world = World()
    world.send((0, 1, 1.0))
    first = world.roll(minor=True).run
    world.send((0, 2, 2.0))
    report = world.roll(at=meanwhile("compacted", lambda: roll_back(world.store, first, [APP])))
    assert [day.published for day in report.days] == [False]
    [entry] = world.manifest().entries.values()
    assert entry.state.generations == ()
    settled(world)


def test_no_publish_crosses_the_fence_of_a_purge() -> None:
    """The purge has listed and may be deleting the very rows that the run would name."""
    world = World()
    world.send((0, 1, 1.0))
    world.roll(minor=True)
    world.send((0, 2, 2.0))
    shards = world.placement.all_shards(APP)
    report = world.roll(minor=True, at=meanwhile("compacted", lambda: purge(world.store, APP, shards)))
    assert [day.published for day in report.days] == [False]
    settled(world)


def test_no_month_is_flipped_across_a_purge() -> None:
    """The purge has deleted the very rows of days that the run would name."""
    world = World()
    world.send((0, 1, 1.0))
    shards = world.placement.all_shards(APP)
    report = world.roll(at=meanwhile("days written", lambda: purge(world.store, APP, shards)))
    assert report.months == 0
    settled(world)


def test_hours_after_a_rebase_keep_the_fingerprint_of_what_they_were_made_of() -> None:
    world = World()
    world.send((0, 1, 1.0))

    def late() -> None:
        world.send((0, 2, 2.0))
        world.roll(minor=True)

    report = world.roll(at=meanwhile("compacted", late))
    assert [day.published for day in report.days] == [True]
    assert world.hours() == world.recount()
    settled(world)


def test_a_pack_that_another_run_has_changed_is_not_overwritten() -> None:
    world = World()
    world.send((0, 1, 1.0))

    def other() -> None:
        world.send((0, HOUR_MS + 1, 2.0))
        world.roll()

    world.roll(at=meanwhile("compacted", other))
    [pack] = world.manifest().hours.values()
    assert set(pack.hours) == {DAY * 24, DAY * 24 + 1}
    settled(world)


def test_replayed_batches_are_taken_once_by_one_of_two_minor_runs() -> None:
    world = World()
    world.send((0, 1, 1.0))
    run = world.roll(minor=True).run
    roll_back(world.store, run, [APP])
    world.send((0, 2, 2.0))
    report = world.roll(minor=True, at=meanwhile("compacted", lambda: world.roll(minor=True)))
    assert [day.published for day in report.days] == [False]
    settled(world)


class Unsure(MemoryBackend):
    """A store whose check-and-puts on manifests time out: ``land`` says whether they go in all the same."""

    land = True
    unsure = False
    sent = 0

    def check_and_put(self, table: str, key: bytes, column: bytes, expected: bytes | None, value: bytes) -> bool:
        if table != "manifest" or not self.unsure:
            return super().check_and_put(table, key, column, expected, value)
        self.sent += 1
        if self.land:
            super().check_and_put(table, key, column, expected, value)
        raise StoreUnavailable("timed out")


@pytest.mark.parametrize("land", [True, False], ids=["landed", "lost"])
def test_a_publish_of_unknown_outcome_is_looked_up(land: bool) -> None:
    store = Unsure()
    world = World(store)
    world.send((0, 1, 1.0))
    store.land, store.unsure = land, True
    report = world.roll(minor=True)
    store.unsure = False
    assert [day.published for day in report.days] == [land]
    assert store.sent == 1  # what may still go in is not raced by a second try
    assert world.pending_rows() == (0 if land else 1)
    settled(world)


def test_a_publish_that_succeeded_unseen_before_a_later_one_is_not_repeated() -> None:
    """The store applied our call without an answer, and another run published before our second try."""
    world = World(Slow())
    world.send((0, 1, 1.0))

    def other() -> None:
        world.send((0, 2, 2.0))
        world.roll(minor=True)

    assert isinstance(world.store, Slow)
    world.store.after_first = other
    report = world.roll(minor=True)
    assert [day.published for day in report.days] == [True]
    [entry] = world.manifest().entries.values()
    assert len({g.number for g in entry.state.generations}) == len(entry.state.generations) == 2
    settled(world)


class Slow(MemoryBackend):
    """A store that repeats a check-and-put whose first answer got lost, and so says False to one that went in."""

    after_first: Callable[[], None] | None = None

    def check_and_put(self, table: str, key: bytes, column: bytes, expected: bytes | None, value: bytes) -> bool:
        first = super().check_and_put(table, key, column, expected, value)
        if table != "manifest" or self.after_first is None:
            return first
        act, self.after_first = self.after_first, None
        act()
        return super().check_and_put(table, key, column, expected, value)
