"""A10: aborted work is invisible, finished work is evicted, a tenant's end touches nobody else.

The queue of old had transactions and entries that were evicted when every consumer had done with them. Here work is a
batch (visible from its commit record on), a run (visible once it has published), and what they leave behind:
commit records go with the run that takes them, blocks and superseded generations with a purge, a tenant when it is
deleted.
"""

from collections import Counter
from collections.abc import Callable

import pytest

from ingest.writer import Writer
from rollups.delete.delete_app import delete_app
from rollups.delete.purge import purge
from spm.errors import StoreUnavailable
from spm.store import keys
from spm.store.backends.base import Backend
from tests.model.world import APP, Crash, World, crash_at, parsed
from tests.support.faults import Faulty

Note = Callable[[str], None]
WORK = ("log", "pending", "chunks", "timelines", "inputs", "hours", "days")  # tables that work fills and empties


def sizes(store: Backend, tables: tuple[str, ...] = WORK) -> Counter[str]:
    """Rows of each table."""
    return Counter({table: sum(1 for _ in store.scan(table, b"", b"\xff" * 40)) for table in tables})


@pytest.mark.seed("A10", compares="answers while a batch breaks off at each of its steps, and once it is written again")
@pytest.mark.parametrize("fails_at", range(5))
def test_a10_a_batch_that_breaks_off_before_its_commit_record_is_invisible(fails_at: int) -> None:
    world = World()
    world.send((0, 1, 1.0))
    before, store = world.answer(), Faulty(world.store, fails_at=fails_at)
    message = world.acceptor.stamp_message(app=APP, source="host", parsed=parsed([(9, 2, 2.0)]), message_id=bytes(16))
    with pytest.raises(StoreUnavailable):
        Writer(store, world.placement).write([message])
    assert "put pending" not in store.calls[:fails_at]
    assert world.answer() == before
    world.store_again(message)
    assert world.answer() == world.truth


def points(world: World) -> list[str]:
    """Every point at which a run may be killed, in the order of its visits."""
    seen: list[str] = []
    world.roll(at=seen.append)
    return list(dict.fromkeys(seen))


def fed() -> World:
    """Two hours of three series, a part of them rolled up before."""
    world = World()
    world.send(*[(n, 1 + n, float(n)) for n in range(3)])
    world.roll(minor=True)
    world.send(*[(n, 3_600_001 + n, float(n)) for n in range(3)])
    return world


@pytest.mark.seed("A10", compares="answers before and after a run that is killed anywhere; what it left, after a purge")
@pytest.mark.parametrize("point", points(fed()))
def test_a10_a_run_that_is_killed_shows_nothing_and_leaves_nothing(point: str) -> None:
    killed, calm = fed(), fed()
    with pytest.raises(Crash):
        killed.roll(at=crash_at(point))
    assert killed.answer() == killed.truth
    for world in (killed, calm):
        world.roll()
        world.roll(sweep=True)
        purge(world.store, APP, world.placement.all_shards(APP), keep=0)
    assert killed.answer() == killed.truth
    assert sizes(killed.store) == sizes(calm.store)


@pytest.mark.seed("A10", compares="rows of every table after ten rounds of data, runs and purges, with those after one")
def test_a10_finished_work_is_evicted_and_tables_return_to_their_size(figure: Note) -> None:
    world = World()
    after: list[Counter[str]] = []
    high: Counter[str] = Counter()
    for round_ in range(10):
        for message in range(5):
            world.send(*[(n, 1 + 10 * (5 * round_ + message) + n, float(n)) for n in range(3)])
        high |= sizes(world.store)
        world.roll()
        purge(world.store, APP, world.placement.all_shards(APP), keep=0)
        after.append(sizes(world.store))
    assert (after[-1]["pending"], after[-1]["log"]) == (0, 0)
    assert after[-1] == after[0]
    assert world.answer() == world.truth
    figure(
        f"{sum(high.values())} rows at most, {sum(after[0].values())} after round 1, {sum(after[-1].values())} after 10"
    )


@pytest.mark.seed("A10", compares="every byte of the other tenants before and after one of them is erased")
def test_a10_the_end_of_a_tenant_touches_only_its_own_rows(figure: Note) -> None:
    world = fed()
    others = (1, APP - 1, APP + 1, 1 << 31)
    for app in others:
        _accepted(world, app)
    world.roll()

    def bytes_of(app: int) -> dict[tuple[str, bytes], dict[bytes, bytes]]:
        return {
            (table, key): cells
            for table in keys.TABLES
            for start, stop in keys.app_ranges(table, app)
            for key, cells in world.store.scan(table, start, stop)
        }

    before = {app: bytes_of(app) for app in others}
    assert all(before.values())
    gone = delete_app(world.store, APP)
    assert gone.row_count > 0
    assert bytes_of(APP) == {}
    assert {app: bytes_of(app) for app in others} == before
    figure(f"{gone.row_count} rows gone, {sum(map(len, before.values()))} of {len(others)} others untouched")


def _accepted(world: World, app: int) -> None:
    samples = parsed([(n, 1 + n, float(n)) for n in range(3)])
    envelope = world.acceptor.stamp_message(app=app, source="host", parsed=samples, message_id=bytes(16))
    Writer(world.store, world.placement).write([envelope])
