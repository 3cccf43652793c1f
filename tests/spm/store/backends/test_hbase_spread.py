"""What distributed keys cost on a real HBase: calls to its gateway, counted, and writes to many regions and to one."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from thriftpy2.thrift import TClient

from ingest.accept.stamper import Stamper
from ingest.writer import Writer
from spm.clock import FakeClock, SystemClock
from spm.limits import HOUR_MS
from spm.store import keys
from spm.store.backends import open_backend
from spm.store.backends.base import Backend
from spm.store.keys import HASH, PlacementEpoch, PlacementTable
from tests.model.world import APP, START, parsed
from tests.servers.java.hbase import HBase

pytestmark = pytest.mark.real
Note = Callable[[str], None]


@pytest.fixture
def store(hbase_url: str, tmp_path: Path) -> Iterator[Backend]:
    """A store with tables of its own."""
    store = open_backend(f"{hbase_url}/{tmp_path.name}")
    yield store
    store.close()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Every call to the gateway from now on, by its name."""
    counted, send = Counter[str](), TClient._req

    def counting(client: Any, name: str, *arguments: Any, **named: Any) -> Any:
        counted[name] += 1
        return send(client, name, *arguments, **named)

    monkeypatch.setattr(TClient, "_req", counting)
    return counted


@pytest.mark.seed("A18", compares="calls to HBase's gateway while 10 and while 10,000 known samples are written")
def test_ten_thousand_samples_cost_as_many_calls_as_ten(store: Backend, calls: Counter[str], figure: Note) -> None:
    writer, acceptor = Writer(store, PlacementTable()), Stamper(1, FakeClock(START + HOUR_MS))

    def written(count: int) -> dict[str, int]:
        calls.clear()
        samples = [(i % 5, i + 1, 1.0) for i in range(count)]
        writer.write([acceptor.stamp_message(app=APP, source="a", parsed=parsed(samples), message_id=bytes(16))])
        return dict(calls)

    written(10)  # the series become known, the tables are made
    few, many = written(10), written(10_000)
    assert few == many
    assert sum(n for name, n in many.items() if name != "mutateRows") <= 1, "it reads only the placement table, once"
    figure(f"{sum(many.values())} calls for 10 and for 10,000 samples: {many}")


@pytest.mark.seed("A28", compares="calls to HBase's gateway for one row, for 1 to 256 shards, with one")
def test_a_row_is_got_by_one_call_for_every_number_of_shards(store: Backend, calls: Counter[str], figure: Note) -> None:
    rng = np.random.default_rng(28)
    epochs = [PlacementEpoch(0, HASH, shards, shards) for shards in range(1, 257)]
    metrics = rng.integers(0, 2**64, len(epochs), np.uint64)

    def key(epoch: PlacementEpoch, metric: int) -> bytes:
        [shard] = epoch.place(APP, np.array([metric], np.uint64)).tolist()
        return keys.chunk(shard, APP, metric, 472_000, epoch.shards, 0)

    names = [key(epoch, metric) for epoch, metric in zip(epochs, metrics.tolist(), strict=True)]
    store.put([("chunks", [(name, {b"v": b"%d" % i}) for i, name in enumerate(names)])])
    calls.clear()
    for i, (epoch, metric) in enumerate(zip(epochs, metrics.tolist(), strict=True)):
        assert store.get("chunks", [key(epoch, metric)]) == [{b"v": b"%d" % i}]
    assert sum(calls.values()) == len(epochs)
    figure(f"{sum(calls.values())} calls for {len(epochs)} rows, each by another number of shards")


ROWS = int(os.environ.get("SPM_REGION_ROWS", "20000"))
ROUNDS = 6


@pytest.mark.timed
@pytest.mark.proof
@pytest.mark.seed("A26", compares="rows a second written into 16 regions with those into one, by turns, on one server")
def test_many_regions_take_as_many_writes_as_one(hbase: HBase, tmp_path: Path, figure: Note) -> None:
    """``bin/test --proof many_regions``. One server has all regions here: they share its cores, so equal is the aim.

    With a server for each, regions write side by side; what spreading itself costs is what is measured.
    """
    hbase.make_tables(tmp_path.name)  # cut at every shard
    store, clock = open_backend(f"{hbase.url}/{tmp_path.name}"), SystemClock()
    rng = np.random.default_rng(26)

    def rows_a_second(shards: int, number: int) -> float:
        metrics = rng.integers(0, 2**64, ROWS, np.uint64)
        placed = PlacementEpoch(0, HASH, 16, shards).place(APP, metrics).tolist()
        rows = [
            (keys.LogKey(shard, APP, 472_000 + number, 1_699_300_000_000 + i, i).to_bytes(), {b"v": rng.bytes(100)})
            for i, shard in enumerate(placed)
        ]
        begun = clock.monotonic()
        for at in range(0, ROWS, 1_000):
            store.put([("log", rows[at : at + 1_000])])
        return ROWS / (clock.monotonic() - begun)

    durations: dict[int, list[float]] = {1: [], 16: []}
    for number in range(ROUNDS):
        for shards in durations:
            durations[shards].append(rows_a_second(shards, number))
        print({shards: f"{rates[-1]:,.0f} rows/s" for shards, rates in durations.items()}, flush=True)
    one, many = (float(np.median(rates[1:])) for rates in durations.values())  # the first round warms the servers
    store.close()
    figure(f"{many:,.0f} rows/s into 16 regions, {one:,.0f} into one: {many / one:.2f}")
    assert many >= 0.8 * one
