"""The tasks of a run and their results: small values that travel between the driver and its executor.

A task names its inputs exactly (generations, batches), so that every attempt reads the same rows. A result is small:
the number and size of the new generation, and the hourly aggregates as bytes. Enter by ``HourShardTask``.
"""

from collections.abc import Mapping

import msgspec
import numpy as np

from rollups.decide.plan import MergeKind, MoveSource
from spm.arrays import U64
from spm.store.keys import PlacementEpoch, PlacementTable
from spm.store.manifest import Generation, Replay
from spm.store.rollup import rows as rollup_rows
from spm.store.rollup.aggregates import COLUMNS, Aggregates
from spm.store.rollup.sketch import Sketches
from spm.store.versions.retractions import Retraction

ATTEMPT_BITS = 24  # of a generation: run:40 ‖ attempt:24
RUN_MAX = 1 << 40


class HourShardTask(msgspec.Struct, frozen=True, array_like=True):
    """Compacts one hour shard from these generations, replayed and pending batches."""

    app: int
    shard: int
    hour: int
    kind: MergeKind
    generations: tuple[Generation, ...]  # those in force; a minor run does not read them
    replay: tuple[Replay, ...]
    fresh: tuple[Replay, ...]
    samples: int  # pending ones: the weight of the task
    wants_hours: bool
    retractions: tuple[Retraction, ...] = ()  # in force, that may hide some of its samples: aggregates leave those out
    move_sources: tuple[MoveSource, ...] = ()
    epoch: PlacementEpoch | None = None  # of a redistribution: only metrics that it places in this shard are kept
    epochs: tuple[PlacementEpoch, ...] = ()  # if one is closed: samples that only that one placed here are left out


class MergedGeneration(msgspec.Struct, frozen=True, array_like=True):
    """A generation that was merged into another: its number of samples and their sources."""

    number: int
    samples: int
    sources: tuple[str, ...]


class CompactionResult(msgspec.Struct, frozen=True, array_like=True):
    """The result of an ``HourShardTask``; ``reason`` says why it was given up, ``hours`` is for the pack task alone."""

    app: int
    shard: int
    hour: int
    generation: Generation | None = None  # None for a recount, which writes only aggregates
    samples: int = 0
    size_bytes: int = 0
    stamp_min_ms: int = 0
    stamp_max_ms: int = 0
    sources: tuple[str, ...] = ()
    hours: bytes | None = None  # by ``encode_hours``
    reason: str = ""
    merged: tuple[MergedGeneration, ...] = ()  # the generations that were merged


class PackTask(msgspec.Struct, frozen=True, array_like=True):
    """Writes one (shard, day) of hours: some hours of the pack in force, and new ones from results of compaction."""

    app: int
    shard: int
    day: int
    old: Generation | None
    old_hours: tuple[int, ...]
    new_hours: dict[int, int]  # hour -> generation number of the result to use; 0 for a recount
    form: int = rollup_rows.FORM  # of the rows; an older form if older rows are kept


class DaySource(msgspec.Struct, frozen=True, array_like=True):
    """The hours from which one day is built."""

    day: int
    hour_rows: Generation
    hours: tuple[int, ...]


class DaysTask(msgspec.Struct, frozen=True, array_like=True):
    """Writes one (shard, month) of days: some days of the pack in force, and new ones from hours."""

    app: int
    shard: int
    month: int
    old: Generation | None
    old_days: tuple[int, ...]
    days: tuple[DaySource, ...]
    form: int = rollup_rows.FORM


class PackResult(msgspec.Struct, frozen=True, array_like=True):
    """The result of a ``PackTask`` or ``DaysTask``; ``period`` is its day or month, ``reason`` why it was given up."""

    app: int
    shard: int
    period: int
    generation: Generation | None = None
    rows: int = 0
    size_bytes: int = 0
    reason: str = ""


def generation_number(run: int, attempt: int) -> int:
    """A generation number that no other attempt of any run has (PROTOCOL 13)."""
    assert 0 < run < RUN_MAX, f"BUG: run {run}"
    assert 0 <= attempt < 1 << ATTEMPT_BITS, f"BUG: attempt {attempt}"
    return run << ATTEMPT_BITS | attempt


def placement_of(task: HourShardTask) -> PlacementTable | None:
    """The placement by which a task leaves samples out; ``None``: it leaves none out."""
    return PlacementTable(task.epochs) if task.epochs else None


def encode_hours(metrics: U64, rows: Aggregates) -> bytes:
    """Encodes one hour's aggregates: ids, columns and sketches in sequence. Only for transport to the pack task."""
    sketch = rows.sketch
    columns = [metrics, rows.series, *(getattr(rows, name) for name, _ in COLUMNS)]
    columns += [sketch.starts, sketch.keys, sketch.counts]
    return msgspec.msgpack.encode([np.ascontiguousarray(c).tobytes() for c in columns])


def decode_hours(raw: bytes) -> Mapping[int, Aggregates]:
    """Decodes the aggregates of each metric id; the rows are sorted by (metric, series)."""
    metric, series, *others = msgspec.msgpack.decode(raw, type=list[bytearray])
    metrics = np.frombuffer(metric, np.uint64)
    columns = {name: np.frombuffer(c, kind) for c, (name, kind) in zip(others[:-3], COLUMNS, strict=True)}
    kinds = (np.int64, np.int32, np.int64)
    sketch = Sketches(*(np.frombuffer(c, kind) for c, kind in zip(others[-3:], kinds, strict=True)))
    rows = Aggregates(series=np.frombuffer(series, np.uint64), **columns, sketch=sketch)
    if not len(metrics):
        return {}
    heads = np.flatnonzero(np.concatenate([[True], metrics[1:] != metrics[:-1]]))
    ends = np.append(heads[1:], len(metrics))
    return {int(metrics[a]): rows.take(np.arange(a, b)) for a, b in zip(heads, ends, strict=True)}
