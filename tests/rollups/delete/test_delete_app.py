"""Claims about deleting an app: all its bytes go, nobody else's do, and a second pass finishes what a crash began."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollups.crash_points import ignore_point
from rollups.delete.delete_app import DeletedRows, delete_app
from rollups.manifest import cells
from spm.store import epochs, keys
from spm.store.backends.base import Backend
from spm.store.backends.memory import MemoryBackend
from spm.store.ledger import dead_letters
from spm.store.ledger.dead_letters import DeadLetter
from spm.store.versions import retractions
from spm.store.versions.retractions import Retraction
from tests.model.world import APP, START, Crash, World, crash_at

NEIGHBOURS = [0, 1, 2, 0xFF, 0x0100, 0x0101, 0x01_0000, 0x0100_0000, 0x7FFF_FFFF, 0xFFFF_FF00, 0xFFFF_FFFE, 0xFFFF_FFFF]
APPS = st.sampled_from(NEIGHBOURS) | st.integers(0, 0xFFFF_FFFF)
DRAFT = Retraction(0, 1, 0, 0, 10, 0, 10, "host", (), "a test", "somebody")


def everything(store: Backend) -> dict[tuple[str, bytes], dict[bytes, bytes]]:
    """Every row of a store."""
    return {(table, key): row for table in keys.TABLES for key, row in store.scan(table, b"", b"\xff" * 64)}


def rows_of(app: int) -> Iterator[tuple[str, bytes]]:
    """Rows of an app in every table, with the smallest and largest values that a key can hold."""
    low, high = 0, keys.U64
    for shard in (0, 7, 255):
        for hour in (0, keys.U32):
            yield "log", keys.LogKey(shard, app, hour, low, high).to_bytes()
            yield "inputs", keys.inputs(shard, app, hour, high)
            yield "timelines", keys.timeline(shard, app, hour, high, 0xFFFF)
            yield "chunks", keys.chunk(shard, app, high, hour, low, 0)
            yield "hours", keys.hours(shard, app, low, hour, high, 0)
            yield "days", keys.days(shard, app, high, hour, high, 0xFFFF)
        yield "pending", keys.PendingKey(shard, app, high, low).to_bytes()
    for n in range(5):
        yield "series", keys.series(app, n, high)
        yield "manifest", keys.manifest(app, n)
        yield "manifest", keys.manifest_month(app, n)
        yield "ledger", keys.ledger(app, n, high, keys.U32)
        yield "marks", keys.watermark(app, n)
        yield "retractions", keys.retraction(app, n)
        yield "dead", keys.dead(app, n, bytes(16))

    yield "config", epochs.row_key(app)
    yield "config", b"agenda/%d" % app
    yield "config", b"quota/series/%d" % app
    yield "config", b"quota/rate/%d" % app


def put(store: Backend, rows: Iterator[tuple[str, bytes]]) -> None:
    """Rows with something in them."""
    store.put([(table, [(key, {b"v": b"bytes"})]) for table, key in rows])


@settings(max_examples=25, deadline=None)
@given(st.sets(APPS, min_size=2, max_size=5))
def test_a_deleted_app_leaves_nothing_and_takes_nobody_else_along(apps: set[int]) -> None:
    deleted, *others = sorted(apps, key=hash)
    store, rest = MemoryBackend(), MemoryBackend()
    put(store, rows_of(deleted))
    for app in others:
        put(store, rows_of(app))
        put(rest, rows_of(app))
    deletions = delete_app(store, deleted)
    assert everything(store) == everything(rest)
    rows = set(rows_of(deleted))
    assert (deletions.row_count, deletions.byte_count) == (len(rows), 5 * len(rows))


def lived() -> World:
    """An app that has had everything happen to it."""
    world = World()
    world.send((0, 1, 1.0), (1, 2, 2.0))
    world.roll()
    world.send((0, 5, 3.0))
    retractions.add(world.store, APP, DRAFT)
    epochs.open_epoch(world.store, APP, function="hash", shards=16, spread=4)
    world.store.put([dead_letters.step(APP, START, bytes(16), DeadLetter(dead_letters.MESSAGE, "cause", b"body"))])
    return world


def left(world: World) -> set[str]:
    """The tables that still hold something, beside the numbers given out to processes, runs and retractions."""
    return {table for table, key in everything(world.store) if key not in (b"processes", b"runs", b"retractions")}


def test_an_app_that_lived_is_gone_with_all_that_happened_to_it() -> None:
    world = lived()
    assert left(world) > {"series", "pending", "manifest", "ledger", "retractions", "dead", "config", "days"}
    delete_app(world.store, APP)
    assert left(world) == set()


def test_a_dry_run_tells_what_would_go_and_deletes_nothing() -> None:
    world = lived()
    before = everything(world.store)
    would = delete_app(world.store, APP, dry_run=True)
    assert everything(world.store) == before
    assert delete_app(world.store, APP) == would


@pytest.mark.parametrize("times", [1, 2, 5, 9])
def test_an_erasure_killed_anywhere_is_finished_by_the_next(times: int) -> None:
    world = lived()
    with pytest.raises(Crash):
        delete_app(world.store, APP, at=crash_at("deleting app", times))
    delete_app(world.store, APP)
    assert left(world) == set()


def test_no_run_starts_from_a_half_erased_app() -> None:
    """Pending records go first: nothing can be planned without them, so that no run publishes a manifest again."""
    world = lived()
    with pytest.raises(Crash):
        delete_app(world.store, APP, at=crash_at("deleting app", 3))
    report = world.roll()
    assert (report.days, report.months) == ((), 0)
    assert "manifest" not in left(world)


def test_what_came_in_during_an_erasure_goes_with_the_next() -> None:
    world = lived()
    once: list[str] = []

    def arrive(point: str) -> None:
        ignore_point(point)
        if len(once) < 4:
            once.append(point)
            world.send((1, 9, 9.0))

    delete_app(world.store, APP, at=arrive)
    delete_app(world.store, APP)
    assert left(world) <= {"series"}  # of a writer that thinks them registered already


def test_watchers_see_it_grow() -> None:
    world = lived()
    seen: list[DeletedRows] = []
    total = delete_app(world.store, APP, watch=seen.append)
    assert [e.row_count for e in seen] == sorted(e.row_count for e in seen)
    assert 0 < seen[0].row_count < total.row_count


def test_rows_are_deleted_by_portions_that_fit_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spm.limits.PURGE_ROWS_PER_CALL", 3)
    monkeypatch.setattr("spm.limits.PURGE_BYTES_PER_CALL", 11)
    store = MemoryBackend()
    put(store, rows_of(1))
    portions: list[int] = []
    delete_app(store, 1, watch=lambda so_far: portions.append(so_far.row_count))
    assert max(later - earlier for earlier, later in zip([0, *portions], portions, strict=False)) == 3
    assert everything(store) == {}


def test_run_numbers_are_not_given_again_after_an_erasure() -> None:
    """A generation of the erased app must never be taken for one of another."""
    world = lived()
    before = cells.take_run(world.store)
    delete_app(world.store, APP)
    assert cells.take_run(world.store) > before
