"""Claims about deletions whose scans return a row of another app: they delete nothing of it."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rollups.decide.retention import RetentionPeriods
from rollups.delete.delete_app import delete_app
from rollups.delete.purge import purge
from rollups.run.local import LocalExecutor
from spm.errors import IntegrityError
from spm.limits import HOUR_MS
from spm.store import epochs, keys
from spm.store.backends.base import Row
from spm.store.backends.memory import MemoryBackend
from tests.model.world import APP, NEXT_DAY, World, parsed

OTHER = 8
TABLES = ("chunks", "timelines", "inputs", "hours", "days", "log", "pending", "ledger", "series")


class Straying(MemoryBackend):
    """After a scan of the app in one table comes a row of another app, as a gateway that was started again gave."""

    table = ""
    stray: Row | None = None

    def scan(self, table: str, start: bytes, stop: bytes, **given: Any) -> Iterator[Row]:
        yield from super().scan(table, start, stop, **given)
        if self.stray and table == self.table and keys.app_of(table, start) == APP:
            yield self.stray


def two_apps() -> World:
    """Both apps have rows in every table: compacted ones, and others that wait for a run."""
    world = World(store=Straying())
    world.store.check_and_put("config", epochs.row_key(OTHER), epochs.COLUMN, None, epochs.encode(world.placement))
    for samples in ((0, 1, 1.0), (0, 2, 2.0)):
        world.send(samples)
        send_other(world, samples)
        world.driver().roll(LocalExecutor(world.store), [APP, OTHER], now_ms=NEXT_DAY)
    world.send((0, HOUR_MS + 1, 3.0))
    send_other(world, (0, HOUR_MS + 1, 3.0))
    return world


def send_other(world: World, sample: tuple[int, int, float]) -> None:
    world.clock.advance(1)
    message = world.acceptor.stamp_message(app=OTHER, source="h", parsed=parsed([sample]), message_id=bytes(16))
    world.writer.write([message])


def rows_of_other(world: World) -> dict[tuple[str, bytes], dict[bytes, bytes]]:
    return {
        (table, key): row
        for table in TABLES
        for start, stop in keys.app_ranges(table, OTHER)
        for key, row in MemoryBackend.scan(world.store, table, start, stop)  # type: ignore[arg-type]
    }


DELETIONS: dict[str, Callable[[World], object]] = {
    "purge": lambda world: purge(world.store, APP, keep=0),
    "retention": lambda world: world.retain(RetentionPeriods(1, 1, 1), days_later=9),
    "delete_app": lambda world: delete_app(world.store, APP),
}


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("deletion", DELETIONS)
def test_a_foreign_row_in_a_scan_is_never_deleted(deletion: str, table: str) -> None:
    world = two_apps()
    before = rows_of_other(world)
    assert isinstance(world.store, Straying)
    world.store.table = table
    world.store.stray = next((key, row) for (of, key), row in before.items() if of == table)
    with contextlib.suppress(IntegrityError):
        DELETIONS[deletion](world)
    assert rows_of_other(world) == before
