"""What a fleet's data must look like when read back, computed with numpy from what was sent, and nothing else."""

import numpy as np

from spm.limits import DAY_HOURS, HOUR_MS
from spm.query.reader import AppStorage
from spm.query.request.batches import Matcher, SeriesBatch
from spm.query.storage import Storage
from tests.support.fleet import FIELDS, Fleet


def assert_raw_equal(storage: Storage, fleet: Fleet) -> int:
    """Every sample of the fleet is read back bit for bit, once, and no other; returns how many were compared."""
    compared = 0
    first, last = int(fleet.ts.min()) - 1, int(fleet.ts.max())
    for number, field in enumerate(FIELDS):
        batch = storage.select([Matcher("__name__", "=", f"cpu_{field}")], first, last)
        assert len(batch.labels) == fleet.hosts
        for row, host in enumerate(_hosts(batch)):
            part = slice(int(batch.offsets[row]), int(batch.offsets[row + 1]))
            assert np.array_equal(batch.ts[part], fleet.ts[:, host])
            assert batch.values[part].tobytes() == fleet.values[:, host, number].tobytes()
            compared += part.stop - part.start
    return compared


def _hosts(batch: SeriesBatch) -> list[int]:
    return [int(labels["hostname"].removeprefix("host_")) for labels in batch.labels]


def assert_hours_equal(storage: AppStorage, fleet: Fleet) -> int:
    """count, sum, min, max, first and last of every series and hour equal a recount; returns how many hours."""
    hours = (fleet.ts - 1) // HOUR_MS
    first, last = int(hours.min()), int(hours.max())
    checked = 0
    for number, field in enumerate(FIELDS):
        batch = storage.select_hours([Matcher("__name__", "=", f"cpu_{field}")], first, last)
        for row, labels in enumerate(batch.labels):
            host = int(labels["hostname"].removeprefix("host_"))
            for column, hour in enumerate(range(first, last + 1)):
                values = fleet.values[hours[:, host] == hour, host, number]
                got = [getattr(batch, n)[row, column] for n in ("count", "sum", "min", "max", "first", "last")]
                assert got == ([len(values), values.sum(), values.min(), values.max(), values[0], values[-1]])
                checked += 1
    return checked


def days_of(fleet: Fleet) -> list[int]:
    """The days (since the epoch, left-open) that the fleet touches."""
    return sorted({int(d) for d in np.unique((fleet.ts - 1) // (DAY_HOURS * HOUR_MS))})
