"""A run's tasks in miniature, in memory: whoever forks workers has all compiled kernels loaded before.

A hand-kept list of kernels would go stale; the way through the tasks themselves cannot. Enter by ``rehearse``.
"""

import numpy as np

from rollups.compute import task as compute_task
from rollups.decide.plan import Kind
from rollups.decide.work import Compacted, DayOfHours, DaysTask, PackTask, UnitTask
from spm.limits import DAY_HOURS, HOUR_MS
from spm.store import keys
from spm.store.backends.base import Backend
from spm.store.backends.memory import MemoryBackend
from spm.store.encoding.blocks import LogBlock, Messages
from spm.store.manifest import Replay, first_day_of

_APP, _SHARD, _MONTH, _STEPS = 1, 0, 600, 40
_DAY = first_day_of(_MONTH)
_BATCHES = (Replay(1, 1), Replay(2, 2))


def rehearse() -> None:
    """Compact two hours, merge one of them again with what came late, and make hours and a day of them."""
    store = MemoryBackend()
    hours = (_DAY * DAY_HOURS, _DAY * DAY_HOURS + 1)
    store.put([("log", [_block(hour, batch) for hour in hours for batch in _BATCHES])])
    made = {hour: _compacted(store, hour, number) for number, hour in enumerate(hours, 1)}
    pack = PackTask(_APP, _SHARD, _DAY, None, (), {hour: done.made.number for hour, done in made.items() if done.made})
    hour_rows = {hour: done.hours for hour, done in made.items() if done.hours is not None}
    packed = compute_task.pack_hours(store, pack, hour_rows, number=11)
    assert packed.made is not None, f"BUG: {packed.reason}"
    days = DaysTask(_APP, _SHARD, _MONTH, None, (), (DayOfHours(_DAY, packed.made, hours),))
    built = compute_task.build_days(store, days, number=12)
    assert built.made is not None, f"BUG: {built.reason}"


def _compacted(store: Backend, hour: int, number: int) -> Compacted:
    """A minor run's generation, and then a full merge of it with a batch that is read again."""
    task = UnitTask(_APP, _SHARD, hour, Kind.MINOR, (), (), _BATCHES, 2 * _STEPS, False)
    minor = compute_task.compact_unit(store, task, number=20 + number)
    assert minor.made is not None, f"BUG: {minor.reason}"
    full = UnitTask(_APP, _SHARD, hour, Kind.FULL, (minor.made,), _BATCHES[:1], (), 2 * _STEPS, True)
    done = compute_task.compact_unit(store, full, number=30 + number)
    assert done.hours is not None, f"BUG: {done.reason}"
    return done


def _block(hour: int, batch: Replay) -> tuple[bytes, dict[bytes, bytes]]:
    """A block of two series out of order, of whole, broken and missing numbers, as a batch leaves it."""
    late = batch.batch - 1
    ts = hour * HOUR_MS + 1 + late + 1000 * np.roll(np.arange(_STEPS, dtype=np.int64), late)
    values = np.where(np.arange(_STEPS) % 7 == 3, np.nan, np.arange(_STEPS) * (0.1, np.pi)[late] + late)
    none = np.zeros(1, np.int64)
    messages = Messages(none + batch.ingest_ms, none + 1, none, none.astype(np.int32), ("rehearsal",))
    block = LogBlock(
        messages,
        np.array([1, 2], np.uint64),
        np.array([1, 1], np.uint64),
        np.full(2, _STEPS, np.int32),
        np.zeros(2 * _STEPS, np.int32),
        np.tile(ts, 2),
        np.concatenate([values, np.arange(_STEPS) * 1.0]),
    )
    return keys.LogKey(_SHARD, _APP, hour, batch.ingest_ms, batch.batch).to_bytes(), block.to_cells()
