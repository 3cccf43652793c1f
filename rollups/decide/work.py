"""What is handed to a task and what comes back: small values that travel between the driver and its tasks.

A task names its inputs exactly (generations, batches), so that every attempt of it reads the same. Results are small:
which generation was made, how large it is, and the hourly aggregates of the unit as bytes. Enter by ``UnitTask``.
"""

from collections.abc import Mapping

import msgspec
import numpy as np

from rollups.decide.plan import Kind, Moved
from spm.arrays import U64
from spm.store.keys import Distribution, Epoch
from spm.store.manifest import Generation, Replay
from spm.store.rollup import rows as rollup_rows
from spm.store.rollup.aggregates import COLUMNS, Aggregates
from spm.store.rollup.sketch import Sketches
from spm.store.versions.retractions import Retraction

ATTEMPT_BITS = 24  # of a generation: run:40 ‖ attempt:24
RUN_MAX = 1 << 40


class UnitTask(msgspec.Struct, frozen=True, array_like=True):
    """Compact one unit: from these generations, replayed and pending batches. ``hours``: aggregates are wanted too."""

    app: int
    shard: int
    hour: int
    kind: Kind
    generations: tuple[Generation, ...]  # in force; a minor run does not read them
    replay: tuple[Replay, ...]
    fresh: tuple[Replay, ...]
    samples: int  # pending ones: how heavy the task is
    hours: bool
    retractions: tuple[Retraction, ...] = ()  # in force, that may hide something of it: hours leave that out
    moved: tuple[Moved, ...] = ()
    place: Epoch | None = None  # of a redistribution: only metrics that it puts in this shard are kept
    epochs: tuple[Epoch, ...] = ()  # where one is closed: what lies where only that one put it is left out


class Part(msgspec.Struct, frozen=True, array_like=True):
    """One generation that was merged into another: its samples and their sources."""

    number: int
    samples: int
    sources: tuple[str, ...]


class Compacted(msgspec.Struct, frozen=True, array_like=True):
    """What became of it; ``reason`` says why it was given up. ``hours`` is for the pack alone (``encode_hours``)."""

    app: int
    shard: int
    hour: int
    made: Generation | None = None  # None for a recount, which makes only hours
    samples: int = 0
    size_bytes: int = 0
    stamp_min_ms: int = 0
    stamp_max_ms: int = 0
    sources: tuple[str, ...] = ()
    hours: bytes | None = None  # None: none wanted
    reason: str = ""
    parts: tuple[Part, ...] = ()  # the generations that were merged


class PackTask(msgspec.Struct, frozen=True, array_like=True):
    """Write one (shard, day) of hours: hours kept of the pack in force, and new ones by what made them."""

    app: int
    shard: int
    day: int
    old: Generation | None
    kept: tuple[int, ...]
    made: dict[int, int]  # hour -> generation number of the result to use; 0 for a recount
    form: int = rollup_rows.FORM  # what the rows may be called: an older one if older rows are kept


class DayOfHours(msgspec.Struct, frozen=True, array_like=True):
    """One day to be made from the hours of a pack of hours."""

    day: int
    hour_rows: Generation
    hours: tuple[int, ...]


class DaysTask(msgspec.Struct, frozen=True, array_like=True):
    """Write one (shard, month) of days: kept days of the row in force, and new ones from hours."""

    app: int
    shard: int
    month: int
    old: Generation | None
    kept: tuple[int, ...]
    days: tuple[DayOfHours, ...]
    form: int = rollup_rows.FORM


class Packed(msgspec.Struct, frozen=True, array_like=True):
    """A pack of hours or days that was written; ``period``: its day or month."""

    app: int
    shard: int
    period: int
    made: Generation | None = None
    rows: int = 0
    size_bytes: int = 0
    reason: str = ""


def generation_number(run: int, attempt: int) -> int:
    """A number no other attempt of any run has (rule 13)."""
    assert 0 < run < RUN_MAX, f"BUG: run {run}"
    assert 0 <= attempt < 1 << ATTEMPT_BITS, f"BUG: attempt {attempt}"
    return run << ATTEMPT_BITS | attempt


def run_of(generation: int) -> int:
    """The run that made a generation."""
    return generation >> ATTEMPT_BITS


def distribution_of(task: UnitTask) -> Distribution | None:
    """The distribution by which a task leaves something out; ``None``: by none."""
    return Distribution(task.epochs) if task.epochs else None


def encode_hours(metrics: U64, rows: Aggregates) -> bytes:
    """One hour's aggregates as bytes: ids, columns and sketches, one after the other. For the way to the pack only."""
    sketch = rows.sketch
    columns = [metrics, rows.series, *(getattr(rows, name) for name, _ in COLUMNS)]
    columns += [sketch.starts, sketch.keys, sketch.counts]
    return msgspec.msgpack.encode([np.ascontiguousarray(c).tobytes() for c in columns])


def decode_hours(raw: bytes) -> Mapping[int, Aggregates]:
    """The aggregates of each metric id. They were sorted by (metric, series)."""
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
