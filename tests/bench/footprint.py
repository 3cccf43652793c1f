"""Bytes per value by table: a fleet's hour through the real writer and one full run, on a store in memory.

The shapes: bodies of 10,000 lines on a perfect grid; one message per host and step, off the grid by ±40 ms and accepted
1 to 29 ms later, written in batches of a second, or each alone; and the first with random floats, with walks of 32-bit
floats, and with ratios (thirds). "chunks + timelines + inputs" is what stays of raw data; `log`, `pending` and `ledger`
go with a purge or hold accounts. Columns are listed with their share, and the codec's own speed on the values.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ingest.writer import Writer
from rollups.run.driver import Driver
from rollups.run.local import LocalExecutor
from spm.clock import FakeClock
from spm.limits import HOUR_MS
from spm.store.backends.base import Backend
from spm.store.backends.memory import MemoryBackend
from spm.store.encoding import codec
from spm.store.keys import PlacementTable
from spm.wire import Envelope, SeriesTable, Stamp, canonical
from tests.bench import report
from tests.support.fleet import FIELDS, STEP_MS, Fleet
from tests.support.store_columns import column_sizes

APP = 1
START_MS = 1_767_225_600_000
DATA_TABLES = ("chunks", "timelines", "inputs")
TABLES = (*DATA_TABLES, "hours", "days", "log", "pending", "ledger", "series", "manifest")


@dataclass(frozen=True)
class Shape:
    """A kind of data, and how it comes."""

    name: str
    fleet: Fleet
    lines: int  # of one body; 1: one message per host and step
    window_ms: int = 1_000  # how old a batch of these may be; 0: each message is one

    def envelopes(self) -> Iterator[list[Envelope]]:
        """Batches of messages in the order of their acceptance."""
        return self._bodies() if self.lines > 1 else self._agents()

    def _bodies(self) -> Iterator[list[Envelope]]:
        steps = max(1, self.lines // self.fleet.hosts)
        for at in range(0, self.fleet.steps, steps):
            rows = slice(at, at + steps)
            last = int(self.fleet.ts[rows].max())
            yield [_envelope(self.fleet, rows, slice(0, self.fleet.hosts), "loader", Stamp(last + 7, 1, 0))]

    def _agents(self) -> Iterator[list[Envelope]]:
        random = np.random.default_rng(3)
        accepted = self.fleet.ts + random.integers(1, 30, self.fleet.ts.shape)
        order = np.argsort(accepted, axis=None, kind="stable")
        batch: list[Envelope] = []
        stamp = Stamp(0, 1, 0)
        for place in order.tolist():
            step, host = divmod(place, self.fleet.hosts)
            ms = int(accepted[step, host])
            if batch and ms >= batch[0].stamp.ms + self.window_ms:
                yield batch
                batch = []
            stamp = Stamp(ms, 1, stamp.sequence + 1 if ms == stamp.ms else 0)
            rows, hosts = slice(step, step + 1), slice(host, host + 1)
            batch.append(_envelope(self.fleet, rows, hosts, f"host_{host}", stamp))
        yield batch


def _envelope(fleet: Fleet, steps: slice, hosts: slice, source: str, stamp: Stamp) -> Envelope:
    """All values of these steps and hosts, as a parser of lines would give them."""
    numbers = range(*hosts.indices(fleet.hosts))
    forms = [canonical(f"cpu_{f}", {"hostname": f"host_{h}", "region": f"eu-{h % 4}"}) for h in numbers for f in FIELDS]
    values = fleet.values[steps, hosts]
    ts = np.repeat(fleet.ts[steps, hosts], len(FIELDS))
    index = np.tile(np.arange(len(forms), dtype=np.int32), len(values))
    number = np.random.default_rng((stamp.ms, stamp.sequence)).bytes(16)
    return Envelope(APP, source, stamp, number, SeriesTable.from_canonical(forms), index, ts, values.ravel(), 0)


def shapes(hosts: int = 100, hours: int = 1) -> list[Shape]:
    """The shapes: whole hours of hosts that report ten values every ten seconds."""
    steps = hours * HOUR_MS // STEP_MS
    grid = Fleet.make(hosts=hosts, steps=steps, start_ms=START_MS)
    jitter = Fleet.make(hosts=hosts, steps=steps, start_ms=START_MS, jitter_ms=40)
    within = replace(jitter, ts=np.clip(jitter.ts, START_MS + 1, START_MS + hours * HOUR_MS))
    noise = replace(grid, values=np.random.default_rng(5).normal(50, 10, grid.values.shape))
    walk = np.cumsum(np.random.default_rng(6).normal(0, 1, grid.values.shape), axis=0) + 50
    narrow = replace(grid, values=walk.astype(np.float32).astype(np.float64))
    ratios = replace(grid, values=np.round(100 * walk) / 3)
    return [
        Shape("whole numbers, grid, bodies of 10,000 lines", grid, 10_000),
        Shape("whole numbers, ±40 ms, a message per host and step", within, 1),
        Shape("the same, each message a batch", within, 1, 0),
        Shape("random floats, grid, bodies of 10,000 lines", noise, 10_000),
        Shape("32-bit floats, grid, bodies of 10,000 lines", narrow, 10_000),
        Shape("ratios, grid, bodies of 10,000 lines", ratios, 10_000),
    ]


def stored(shape: Shape) -> Backend:
    """A store that holds the shape, rolled up."""
    store = MemoryBackend()
    writer = Writer(store, PlacementTable())
    for batch in shape.envelopes():
        writer.write(batch)
    end = int(shape.fleet.ts.max()) + 24 * HOUR_MS
    report = Driver(store, FakeClock(end)).roll(LocalExecutor(store), [APP])
    assert report.samples == len(shape.fleet), report
    return store


def table_bytes(store: Backend) -> dict[str, int]:
    """Bytes of keys and cells of each table."""
    return {
        table: sum(
            len(key) + sum(len(name) + len(cell) for name, cell in cells.items())
            for key, cells in store.scan(table, b"", b"\xff" * 64)
        )
        for table in TABLES
    }


def column_bytes(store: Backend, tables: Sequence[str] = ("chunks", "timelines")) -> dict[str, int]:
    """Bytes of each column of these tables."""
    sizes: dict[str, int] = {}
    for table in tables:
        for _, cells in store.scan(table, b"", b"\xff" * 64):
            for raw in cells.values():
                for name, size in column_sizes(raw).items():
                    sizes[f"{table}.{name}"] = sizes.get(f"{table}.{name}", 0) + size
    return sizes


def footprint(hosts: int = 100) -> None:
    """Print the figures of all shapes."""
    for shape in shapes(hosts):
        store, values = stored(shape), len(shape.fleet)
        sizes = {table: size / values for table, size in table_bytes(store).items()}
        report.line(f"{shape.name}", kept=sum(sizes[table] for table in DATA_TABLES), **sizes)
        columns = {name: size / values for name, size in column_bytes(store).items()}
        report.line("  by column", **{name: share for name, share in columns.items() if share >= 0.0005})
        _speed(shape.fleet)


def _speed(fleet: Fleet) -> None:
    """How fast a run packs one column of values, and a query unpacks it, on one core."""
    column = np.ascontiguousarray(fleet.values.transpose(2, 1, 0)[0]).ravel()
    took = []
    for _ in range(5):
        began = time.perf_counter()
        encoded = codec.encode(column, dense=True)
        middle = time.perf_counter()
        codec.decode(encoded)
        took.append((middle - began, time.perf_counter() - middle))
    best = [min(times) for times in zip(*took, strict=True)]
    report.line("  values", pack_per_s=len(column) / best[0], unpack_per_s=len(column) / best[1])
