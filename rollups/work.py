"""What is handed to a task and what comes back: small values that travel between the driver and its tasks.

A task names its inputs exactly (generations, batches), so that every attempt of it reads the same. Results are small:
which generation was made, how large it is, and the hourly aggregates of the unit as bytes. Enter by ``UnitTask``.
"""

from collections.abc import Mapping

import msgspec
import numpy as np

from rollups.plan import Kind
from spm.store.aggregates import COLUMNS, Aggregates
from spm.store.manifest import Generation, Replay
from spm.wire import U64

ATTEMPT_BITS = 24  # of a generation: run:40 ‖ attempt:24
RUN_MAX = 1 << 40


class UnitTask(msgspec.Struct, frozen=True, array_like=True):
    """Compact one unit: from these generations, replayed and pending batches. ``hours``: aggregates are wanted too."""

    app: int
    bucket: int
    slot: int
    kind: Kind
    generations: tuple[Generation, ...]  # in force; a minor run does not read them
    replay: tuple[Replay, ...]
    fresh: tuple[Replay, ...]
    samples: int  # pending ones: how heavy the task is
    hours: bool


class Compacted(msgspec.Struct, frozen=True, array_like=True):
    """What became of it; ``reason`` says why it was given up. ``hours`` is for the pack alone (``encode_hours``)."""

    app: int
    bucket: int
    slot: int
    made: Generation | None = None  # None for a recount, which makes only hours
    samples: int = 0
    size_bytes: int = 0
    stamp_min_ms: int = 0
    stamp_max_ms: int = 0
    sources: tuple[str, ...] = ()
    hours: bytes | None = None  # None: none wanted
    reason: str = ""


class PackTask(msgspec.Struct, frozen=True, array_like=True):
    """Write one (bucket, day) of hours: slots kept of the pack in force, and new ones by what made them."""

    app: int
    bucket: int
    day: int
    old: Generation | None
    kept: tuple[int, ...]
    made: dict[int, int]  # slot -> generation number of the result to use; 0 for a recount


class DayOfHours(msgspec.Struct, frozen=True, array_like=True):
    """One day to be made from the slots of a pack of hours."""

    day: int
    hours: Generation
    slots: tuple[int, ...]


class DaysTask(msgspec.Struct, frozen=True, array_like=True):
    """Write one (bucket, month) of days: kept days of the row in force, and new ones from hours."""

    app: int
    bucket: int
    month: int
    old: Generation | None
    kept: tuple[int, ...]
    days: tuple[DayOfHours, ...]


class Packed(msgspec.Struct, frozen=True, array_like=True):
    """A pack of hours or days that was written; ``period``: its day or month."""

    app: int
    bucket: int
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


def encode_hours(metrics: U64, rows: Aggregates) -> bytes:
    """One slot's aggregates as bytes: 12 columns of 8 bytes a value, one after the other. For this machine only."""
    columns = [metrics, rows.series, *(getattr(rows, name) for name, _ in COLUMNS)]
    return b"".join(np.ascontiguousarray(c).tobytes() for c in columns)


def decode_hours(raw: bytes) -> Mapping[int, Aggregates]:
    """The aggregates of each metric id. They were sorted by (metric, series)."""
    if not raw:
        return {}
    table = np.frombuffer(raw, np.uint64).reshape(2 + len(COLUMNS), -1)
    names = {name: table[2 + i].view(kind) for i, (name, kind) in enumerate(COLUMNS)}
    rows = Aggregates(series=table[1], **names)
    heads = np.flatnonzero(np.diff(table[0], prepend=~table[0][:1]))
    ends = np.append(heads[1:], len(table[0]))
    return {int(table[0][a]): rows.take(np.arange(a, b)) for a, b in zip(heads, ends, strict=True)}
