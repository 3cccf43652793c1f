"""Claims about acts that meet: retention, moves, retractions and purges of the same hours."""

from ingest.write import Writer
from rollups import cells
from rollups.due import Keep
from rollups.local import LocalExecutor
from rollups.redistribute import close_epoch
from rollups.seal import seal_slots
from spm.limits import HOUR_MS
from spm.store import distribution
from spm.store.manifest import EXPIRED, SEALED
from tests.rollups.test_seal import SLOT, SLOTS, filled
from tests.rollups.world import APP, DAY, NEXT_DAY, SPREAD, World


def moved_in_between(world: World) -> None:
    """More data of an hour comes by another distribution, retention looks, then all of it is moved."""
    distribution.open_epoch(world.store, APP, strategy="byte", buckets=16, spread=16)
    world.writer = Writer(world.store, SPREAD)
    world.send((0, 5 * HOUR_MS + 7, 99.0), (2, 5 * HOUR_MS + 9, 77.0))
    world.retain(Keep(1), days_later=1)
    world.roll()
    world.migrate()
    assert close_epoch(world.store, APP, 0).closed
    world.roll(sweep=True)
    world.retain(Keep(1), days_later=1)
    world.roll(sweep=True)


def test_days_of_what_was_sealed_around_a_move_are_right_when_their_hours_are_gone() -> None:
    world = filled()
    moved_in_between(world)
    assert world.days() == world.model.days()
    world.retain(Keep(1, 1), days_later=2)
    assert {world.manifest().seal(slot) for slot in SLOTS} == {EXPIRED}
    assert world.days() == world.model.days()


def test_hours_of_a_metric_in_two_buckets_stay_as_no_days_stand_for_them() -> None:
    world = filled()
    run = cells.take_run(world.store)
    others = [slot for slot in SLOTS if slot != SLOT + 5]
    seal_slots(world.driver(), LocalExecutor(world.store), APP, DAY, others, now_ms=NEXT_DAY, run=run)
    world.seals()
    moved_in_between(world)
    world.retain(Keep(1, 1), days_later=2)
    assert {world.manifest().seal(slot) for slot in SLOTS} == {SEALED}
    assert world.days() == world.model.days()
