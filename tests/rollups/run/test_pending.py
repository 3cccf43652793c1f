"""Beat's look at what waits reads what came since the last one; each answer equals that of a look without memory."""

from collections.abc import Callable

import pytest

from rollups.decide.start import PendingColumns
from rollups.run.pending import PendingReader
from spm.limits import HOUR_MS
from spm.store import keys
from tests.model.world import APP, NEXT_DAY, World
from tests.rollups.run.test_cost import Counting
from tests.support.faults import flip

HOURS = 5  # of each body


def send(world: World, bodies: int) -> None:
    for _ in range(bodies):
        world.send(*((0, hour * HOUR_MS + world.clock.now_ms() % 1000, 1.0) for hour in range(1, HOURS + 1)))


def look(world: World, reader: PendingReader, runs: int = 0) -> list[tuple[int, ...]]:
    """What a look finds: (shard, ingest ms, hour, samples) of each cell."""
    shards = world.spread().all_shards(APP)
    names = [name for shard in shards for name, _ in world.store.scan("pending", *keys.app_range(shard, APP))]
    if isinstance(world.store, Counting):
        world.store.read.clear()
    cells: PendingColumns = reader.read(world.store, APP, names, shards, runs=runs)
    records = zip(cells.shard[cells.record], cells.ingest_ms[cells.record], cells.hour, cells.samples, strict=True)
    return sorted(tuple(map(int, each)) for each in records)


def fresh(world: World) -> list[tuple[int, ...]]:
    return look(world, PendingReader())


@pytest.mark.parametrize("pending", [3, 30])
def test_a_look_reads_the_records_that_are_new_however_many_wait(pending: int) -> None:
    world, reader = World(Counting()), PendingReader()
    send(world, pending)
    assert len(look(world, reader)) == HOURS * pending
    send(world, 2)
    cells, read = look(world, reader), world.store.read["pending"]  # type: ignore[attr-defined]
    assert read == 2
    assert cells == fresh(world)
    assert look(world, reader) == cells
    assert world.store.read["pending"] == 0  # type: ignore[attr-defined]


def first_hour_settled(world: World) -> int:
    """A run has settled one cell of every record, and begun as number 1."""
    for shard in world.spread().all_shards(APP):
        for name, row in list(world.store.scan("pending", *keys.app_range(shard, APP))):
            world.store.delete("pending", [(name, [min(row)])])
    return 1


def one_record_gone(world: World) -> int:
    [name, *_] = [
        name
        for shard in world.spread().all_shards(APP)
        for name, _ in world.store.scan("pending", *keys.app_range(shard, APP))
    ]
    world.store.delete("pending", [(name, None)])
    return 0


def all_gone_and_more_come(world: World) -> int:
    world.roll(now_ms=NEXT_DAY)
    send(world, 1)
    return 0


CHANGES: dict[str, Callable[[World], int]] = {
    "a run settled a part of each record": first_hour_settled,
    "a record is gone": one_record_gone,
    "a run settled all": all_gone_and_more_come,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_what_is_settled_is_forgotten(change: Callable[[World], int]) -> None:
    world, reader = World(), PendingReader()
    send(world, 3)
    before = look(world, reader)
    runs = change(world)
    assert look(world, reader, runs) == fresh(world) != before


def test_another_store_has_records_of_its_own() -> None:
    one, other, reader = World(), World(), PendingReader()
    send(one, 2)
    other.send((0, HOUR_MS + 1, 1.0))
    look(one, reader)
    assert look(other, reader) == fresh(other)


def test_a_damaged_cell_is_left_out_until_it_is_whole_again() -> None:
    world, reader = World(), PendingReader()
    send(world, 3)
    before = fresh(world)
    [(name, row), *_] = [
        item
        for shard in world.spread().all_shards(APP)
        for item in world.store.scan("pending", *keys.app_range(shard, APP))
    ]
    flip(world.store, "pending", name, min(row))
    assert len(look(world, reader)) == len(look(world, reader)) == len(before) - 1
    world.store.put([("pending", [(name, row)])])
    assert look(world, reader) == before


def test_more_records_than_are_remembered_are_read_each_time() -> None:
    world, reader = World(Counting()), PendingReader(weight_max=10)
    send(world, 3)
    assert look(world, reader) == look(world, reader) == fresh(world)
