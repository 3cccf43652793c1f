"""A day on the embedded store, all its life: compacted, retracted, purged, sealed, expired, dropped, erased."""

from pathlib import Path

from rollups.check.fsck import fsck
from rollups.delete.delete_app import delete_app
from rollups.delete.erase_retracted import erase_retracted
from rollups.delete.purge import TABLES, every_shard, purge
from spm.store import keys
from spm.store.backends.lmdb import LmdbBackend
from tests.model.world import APP, World
from tests.rollups.delete.expiry import HOURS, LATER, expire_app
from tests.rollups.delete.test_erase_retracted import merged


def rows(world: World) -> dict[str, int]:
    """Rows of each table of data."""
    ranges = [(t, keys.app_range(b, APP)) for t in TABLES for b in every_shard(world.store, APP)]
    counts = dict.fromkeys(TABLES, 0)
    for table, (start, stop) in ranges:
        counts[table] += sum(1 for _ in world.store.scan(table, start, stop))
    return {table: count for table, count in counts.items() if count}


def check(world: World) -> None:
    """A check finds nothing."""
    assert fsck(world.store, APP, now_ms=LATER).findings == []


def test_a_day_lives_and_goes_on_the_embedded_store(tmp_path: Path) -> None:
    world = merged(LmdbBackend(str(tmp_path)))
    number = world.retract(source="bad")
    world.model.purge(number)
    assert erase_retracted(world.store, APP, number, now_ms=world.clock.now_ms()).errors == []
    world.roll(now_ms=LATER)
    check(world)
    assert world.answer() == world.truth
    expire_app(world)
    purge(world.store, APP, keep=0)
    for hour in HOURS:
        world.model.seal(hour)
    assert (world.hours(), world.days()) == (world.recount(), world.model.days())
    check(world)
    expire_app(world, raw=1, hour=1)
    assert world.days() == world.model.days()
    check(world)
    expire_app(world, raw=1, hour=1, day=1)
    assert world.days().keys() == {name for name in world.model.days() if name[1] * 24 not in HOURS}
    check(world)
    delete_app(world.store, APP)
    assert rows(world) == {}
