"""A43: a second site gets every write; when the first one dies, clients go on there and notice nothing."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from rollups.check.fsck import fsck
from spm.errors import StoreUnavailable
from spm.limits import HOUR_MS
from spm.store import keys
from spm.store.backends import open_backend
from spm.store.backends.base import Backend
from tests.conftest import missing_service
from tests.model.world import APP, NEXT_DAY, World
from tests.servers.java import replication
from tests.servers.java.hbase import HBase
from tests.servers.processes import wait_until

pytestmark = [pytest.mark.real, pytest.mark.chaos, pytest.mark.slow]
PREFIX, HOLDS_S, GOES_ON_S = "site", 120, 120
LAST = b"\xff" * 64


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[tuple[HBase, HBase]]:
    """Two private clusters, each with a ZooKeeper and data of its own."""
    first, second = HBase(tmp_path / "first"), HBase(tmp_path / "second")
    if reason := first.missing() or replication.missing():
        missing_service(reason)
    try:
        first.start()
        second.start()
        yield first, second
    finally:
        first.discard()
        second.discard()


def rows(store: Backend) -> dict[str, list[tuple[bytes, dict[bytes, bytes]]]]:
    """All rows of all tables."""
    return {table: [(key, dict(cells)) for key, cells in store.scan(table, b"", LAST)] for table in keys.TABLES}


def port_of(site: HBase) -> int:
    return urlsplit(site.url).port or 0


def written(world: World) -> None:
    """What a store lives through: samples, a run, late samples, another run, a retraction, samples that no run saw."""
    world.send(*((n, n * 60_000, float(n)) for n in range(30)))
    world.roll()
    world.send((1, 90_000, 7.0), (2, HOUR_MS + 1, 8.0))
    world.roll()
    world.retract(series=4)
    world.send((0, 2 * HOUR_MS, 9.0))


@pytest.mark.seed("A43", compares="answers at the second site, after the first is killed, with what was acknowledged")
def test_a43_clients_go_on_at_a_second_site_when_the_first_one_dies(
    sites: tuple[HBase, HBase], figure: Callable[[str], None]
) -> None:
    """Answers, runs, retractions and the check of all rows go on there, by the client that was connected before."""
    first, second = sites
    for table, backend in ((table, open_backend(f"{first.url}/{PREFIX}")) for table in keys.TABLES):
        list(backend.scan(table, b"", b"\0"))  # made at its first use
    replication.replicate(first, second, PREFIX)
    switch = replication.Switch(port_of(first))
    try:
        world = World(open_backend(f"hbase://127.0.0.1:{switch.port}/{PREFIX}"))
        written(world)
        sites_rows = [open_backend(f"{site.url}/{PREFIX}") for site in sites]
        there, began = rows(sites_rows[0]), time.monotonic()
        assert wait_until(lambda: rows(sites_rows[1]) == there, HOLDS_S), "the second site does not hold all rows"
        lag_s = time.monotonic() - began

        first.kill()
        switch.lead_to(port_of(second))
        began = time.monotonic()
        assert wait_until(lambda: _answers(world), GOES_ON_S), "the client does not go on"
        gap_s = time.monotonic() - began
        written(world)
        assert world.answer() == world.truth
        assert fsck(world.store, APP, now_ms=NEXT_DAY).findings == []
    finally:
        switch.close()
    count = sum(map(len, there.values()))
    figure(f"{count} rows there {lag_s:.1f} s after the last write; answers again {gap_s:.1f} s after the kill, 0 lost")


def _answers(world: World) -> bool:
    try:
        return world.answer() == world.truth
    except StoreUnavailable:
        return False
