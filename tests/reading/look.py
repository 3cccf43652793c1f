"""A reader over a store, and its answers in the plain shape that ``tests.store.rows.plain`` has."""

import numpy as np

from spm.clock import FakeClock
from spm.query.cache import PageCache
from spm.query.select import METRIC_NAME, Matcher
from spm.query.storage import AppStorage
from spm.store.backends.base import Backend
from spm.store.keys import Distribution
from spm.wire import canonical
from tests.store.rows import APP, START

EVERY = [Matcher(METRIC_NAME, "=~", ".+")]
NOW = START + 3 * 3_600_000


def reader(backend: Backend, *, clock: FakeClock | None = None, app: int = APP, spread: int = 1) -> AppStorage:
    """A reading process that has just started."""
    distribution = Distribution(spread=spread)
    return AppStorage(backend, app, distribution=distribution, clock=clock or FakeClock(NOW), cache=PageCache())


def look(storage: AppStorage, start: int = 0, end: int = 2 * START) -> dict[tuple[bytes, int], int]:
    """(canonical form, ts) -> bits of every sample in the answer; each must be there once, in the order of time."""
    batch = storage.select(EVERY, start, end)
    found: dict[tuple[bytes, int], int] = {}
    for i, labels in enumerate(batch.labels):
        name = canonical(labels[METRIC_NAME], {k: v for k, v in labels.items() if k != METRIC_NAME})
        part = slice(int(batch.offsets[i]), int(batch.offsets[i + 1]))
        assert (np.diff(batch.ts[part]) > 0).all()
        bits = batch.values[part].view(np.int64)
        found.update({(name, int(t)): int(v) for t, v in zip(batch.ts[part], bits, strict=True)})
    return found
