"""A heap of un-compacted samples in a store of its own, made through the writer, and the same in Parquet.

``build`` writes bodies of a fleet's reports as batches on LMDB; ``to_parquet`` writes the same samples as one row each,
for a plain Spark SQL job. Both take seconds for tens of millions of samples.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ingest.accept.stamper import Stamper
from ingest.writer import Writer
from spm.clock import FakeClock
from spm.limits import HOUR_MS
from spm.store.backends import open_backend
from spm.store.keys import PlacementTable
from spm.wire import Parsed, SeriesTable, canonical
from tests.support.fleet import FIELDS, STEP_MS, Fleet

APP = 7
START_MS = 1_767_225_600_000  # 2026-01-01T00:00Z
STEPS_AT_ONCE = 4_320  # 12 h of a fleet in memory
BODY_LINES = 10_000


def fleets(hosts: int, steps: int, jitter_ms: int, start_ms: int = START_MS) -> Iterator[Fleet]:
    """The fleet's reports, half a day at a time."""
    for number, at in enumerate(range(0, steps, STEPS_AT_ONCE)):
        size = min(STEPS_AT_ONCE, steps - at)
        yield Fleet.make(
            hosts=hosts, steps=size, start_ms=start_ms + at * STEP_MS, jitter_ms=jitter_ms, seed=number + 1
        )


def build(folder: Path, *, hosts: int, steps: int, jitter_ms: int = 0, start_ms: int = START_MS) -> int:
    """Fill a store on LMDB (or add to it); how many samples went in."""
    store = open_backend(f"lmdb://{folder}")
    acceptor, writer = Stamper(1, FakeClock(start_ms)), Writer(store, PlacementTable())
    series = _table(hosts)
    written = 0
    for fleet in fleets(hosts, steps, jitter_ms, start_ms):
        size = max(1, BODY_LINES // hosts)
        for at in range(0, fleet.steps, size):
            parsed = _parsed(series, fleet, slice(at, at + size))
            writer.write(
                [acceptor.stamp_message(app=APP, source="fleet", parsed=parsed, message_id=at.to_bytes(16, "big"))]
            )
            written += len(parsed.ts)
    store.close()
    return written


def to_parquet(folder: Path, *, hosts: int, steps: int, jitter_ms: int = 0) -> None:
    """The same samples as rows (series, ts, value), in the order in which they came."""
    folder.mkdir(parents=True, exist_ok=True)
    ids = _table(hosts).ids.view(np.int64)
    for number, fleet in enumerate(fleets(hosts, steps, jitter_ms)):
        table = {
            "series": np.tile(ids, fleet.steps),
            "ts": np.repeat(fleet.ts.ravel(), len(FIELDS)),
            "value": fleet.values.ravel(),
        }
        pq.write_table(pa.table(table), folder / f"part-{number:03}.parquet", compression="zstd")


def end_ms(steps: int) -> int:
    """When all hours of so many reports are closed."""
    return START_MS + steps * STEP_MS + 26 * HOUR_MS


def _table(hosts: int) -> SeriesTable:
    labels = [{"hostname": f"host_{h}", "region": f"eu-{h % 4}", "rack": str(h % 50)} for h in range(hosts)]
    return SeriesTable.from_canonical([canonical(f"cpu_{field}", of) for of in labels for field in FIELDS])


def _parsed(series: SeriesTable, fleet: Fleet, steps: slice) -> Parsed:
    ts = fleet.ts[steps]
    index = np.tile(np.arange(len(series), dtype=np.int32), len(ts))
    return Parsed(series, index, np.repeat(ts.ravel(), len(FIELDS)), fleet.values[steps].ravel())
