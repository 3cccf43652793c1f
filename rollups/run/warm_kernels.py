"""Runs small tasks in memory, so that a process has loaded all compiled kernels before it forks workers.

A list of kernels kept by hand would go stale; running the tasks themselves cannot. Enter by ``warm_up``.
"""

import numpy as np

from rollups.compute import task as compute_task
from rollups.decide.plan import MergeKind
from rollups.decide.work import CompactionResult, DaySource, DaysTask, HourShardTask, PackTask
from spm.limits import DAY_HOURS, HOUR_MS
from spm.store import keys
from spm.store.backends.base import Backend
from spm.store.backends.memory import MemoryBackend
from spm.store.encoding.blocks import LogBlock, Messages
from spm.store.manifest import Replay, first_day_of

_APP, _SHARD, _MONTH, _STEPS = 1, 0, 600, 40
_DAY = first_day_of(_MONTH)
_BATCHES = (Replay(1, 1), Replay(2, 2))


def warm_up() -> None:
    """Compacts two hours, merges each again with a late batch, and builds hours and a day of them."""
    store = MemoryBackend()
    hours = (_DAY * DAY_HOURS, _DAY * DAY_HOURS + 1)
    store.put([("log", [_block(hour, batch) for hour in hours for batch in _BATCHES])])
    results = {hour: _compact(store, hour, number) for number, hour in enumerate(hours, 1)}
    pack = PackTask(
        _APP,
        _SHARD,
        _DAY,
        None,
        (),
        {hour: result.generation.number for hour, result in results.items() if result.generation},
    )
    hour_rows = {hour: result.hours for hour, result in results.items() if result.hours is not None}
    pack_result = compute_task.pack_hours(store, pack, hour_rows, number=11)
    assert pack_result.generation is not None, f"BUG: {pack_result.reason}"
    days = DaysTask(_APP, _SHARD, _MONTH, None, (), (DaySource(_DAY, pack_result.generation, hours),))
    days_result = compute_task.build_days(store, days, number=12)
    assert days_result.generation is not None, f"BUG: {days_result.reason}"


def _compact(store: Backend, hour: int, number: int) -> CompactionResult:
    """Writes a minor run's generation, then merges it with a batch that is replayed."""
    task = HourShardTask(_APP, _SHARD, hour, MergeKind.MINOR, (), (), _BATCHES, 2 * _STEPS, False)
    minor = compute_task.compact_hour_shard(store, task, number=20 + number)
    assert minor.generation is not None, f"BUG: {minor.reason}"
    full = HourShardTask(_APP, _SHARD, hour, MergeKind.FULL, (minor.generation,), _BATCHES[:1], (), 2 * _STEPS, True)
    result = compute_task.compact_hour_shard(store, full, number=30 + number)
    assert result.hours is not None, f"BUG: {result.reason}"
    return result


def _block(hour: int, batch: Replay) -> tuple[bytes, dict[bytes, bytes]]:
    """A block of two series as a batch writes it: out of order, with integers, fractions and NaN."""
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
