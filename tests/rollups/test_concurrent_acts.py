"""Claims about acts that meet: retention, moves, retractions and purges of the same hours."""

from collections.abc import Callable

import pytest

from ingest.writer import Writer
from rollups.decide.retention import RetentionPeriods
from rollups.delete.expire import seal_hours
from rollups.manifest import cells
from rollups.move.redistribute import close_epoch
from rollups.run.local import LocalExecutor
from spm.limits import HOUR_MS
from spm.store import epochs
from spm.store.backends.base import Backend
from spm.store.manifest import EXPIRED, SEALED
from tests.model.world import APP, DAY, NEXT_DAY, SPREAD, World
from tests.rollups.delete.expiry import HOUR, HOURS, filled
from tests.rollups.delete.test_erase_retracted import BAD, good, merged, right, stored


def moved_in_between(world: World) -> None:
    """More data of an hour comes by another distribution, retention looks, then all of it is moved."""
    epochs.open_epoch(world.store, APP, function="byte", shards=16, spread=16)
    world.writer = Writer(world.store, SPREAD)
    world.send((0, 5 * HOUR_MS + 7, 99.0), (2, 5 * HOUR_MS + 9, 77.0))
    world.retain(RetentionPeriods(1), days_later=1)
    world.roll()
    world.migrate()
    assert close_epoch(world.store, APP, 0).closed
    world.roll(sweep=True)
    world.retain(RetentionPeriods(1), days_later=1)
    world.roll(sweep=True)


def test_days_of_what_was_sealed_around_a_move_are_right_when_their_hours_are_gone() -> None:
    world = filled()
    moved_in_between(world)
    assert world.days() == world.model.days()
    world.retain(RetentionPeriods(1, 1), days_later=2)
    assert {world.manifest().seal(hour) for hour in HOURS} == {EXPIRED}
    assert world.days() == world.model.days()


def test_hours_of_a_metric_in_two_shards_stay_as_no_days_stand_for_them() -> None:
    world = filled()
    run = cells.take_run(world.store)
    others = [hour for hour in HOURS if hour != HOUR + 5]
    seal_hours(world.driver(), LocalExecutor(world.store), APP, DAY, others, now_ms=NEXT_DAY, run=run)
    world.seals()
    moved_in_between(world)
    world.retain(RetentionPeriods(1, 1), days_later=2)
    assert {world.manifest().seal(hour) for hour in HOURS} == {SEALED}
    assert world.days() == world.model.days()


def test_a_purge_whose_publish_was_taken_for_lost_deletes_what_it_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer did not come, and somebody else changed the day before it could look."""
    world = merged()
    number, wanted = world.retract(source="bad"), good(world)
    swap, swaps = cells.swap, list[bytes]()

    def lost(
        store: Backend, key: bytes, expected: bytes | None, value: bytes, landed: Callable[[bytes | None], bool]
    ) -> tuple[bool, bytes | None, bool]:
        done = swap(store, key, expected, value, landed)
        swaps.append(key)
        if swaps.count(key) > 1:
            return done
        world.send((0, 77, 7.0), source="good")
        world.roll()
        return False, cells.read_cell(store, "manifest", key), False

    with monkeypatch.context() as patched:
        patched.setattr(cells, "swap", lost)
        world.erase_retracted(number)
    assert [v for v in stored(world) if v[2] == BAD] == []
    assert set(wanted) <= set(stored(world))
    right(world)
