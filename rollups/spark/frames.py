"""The frames of Spark's jobs: each function selects its columns at entry and exit, and its schema is tested.

Enter by ``one_partition_each``, a frame of tasks with a partition for each; ``recounted`` and ``in_force``, the hourly
aggregates counted again and as stored, whose ``mismatches`` an fsck reports; ``listed_rows`` and ``references``, from
which ``superseded_rows`` selects the rows that nobody needs. Numbers come from the kernels of a run; floats travel as
their bits, so that equal means equal.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, reduce
from itertools import islice

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from rollups.compute import source
from rollups.compute import task as compute_task
from rollups.compute.source import PackPlace
from rollups.decide import superseded
from rollups.decide.plan import MergeKind
from rollups.decide.work import HourShardTask, PackTask, decode_hours
from rollups.delete import listing, purge
from spm import limits
from spm.errors import CorruptBlock, IntegrityError
from spm.limits import DAY_HOURS
from spm.store.backends import open_backend
from spm.store.backends.base import Backend
from spm.store.rollup.aggregates import COLUMNS, Aggregates

TASKS = "task binary"
_KEYS = ("app", "shard", "hour", "metric", "series")
_NUMBERS = tuple(name for name, _ in COLUMNS)
HOURS = "app long, shard int, hour int, metric long, series long, " + ", ".join(f"{n} long" for n in _NUMBERS)
MISMATCHES = "app long, shard int, hour int, metric long, series long, differs string"
LISTED = "table string, shard int, hour int, number long, rows long, size_bytes long"
REFERENCES = "what string, shard int, hour int, number long"  # what a manifest says of a place; `sealed`: of an hour
SUPERSEDED = f"{LISTED}, reason string"

KEYS = "table string, shard int, hour int, number long, key binary"

_PLACE = [("shard", pa.int32()), ("hour", pa.int32()), ("number", pa.int64())]
_LISTED = pa.schema([("table", pa.string()), *_PLACE, ("rows", pa.int64()), ("size_bytes", pa.int64())])
_REFERENCES = pa.schema([("what", pa.string()), *_PLACE])
_KEYS_OF = pa.schema([("table", pa.string()), *_PLACE, ("key", pa.binary())])
_HOURS = pa.schema(
    [
        ("app", pa.int64()),
        ("shard", pa.int32()),
        ("hour", pa.int32()),
        ("metric", pa.int64()),
        ("series", pa.int64()),
        *((name, pa.int64()) for name in _NUMBERS),
    ]
)

Batches = Iterator[pa.RecordBatch]


def one_partition_each(session: SparkSession, tasks: Sequence[bytes]) -> DataFrame:
    """``TASKS`` with a row per partition. It is built from Arrow: plain rows would start another Python daemon."""
    places = session.range(0, len(tasks), 1, max(1, len(tasks))).select(F.col("id").alias("number"))
    table = {"number": pa.array(range(len(tasks)), pa.int64()), "task": pa.array(tasks, pa.binary())}
    numbered = session.createDataFrame(pa.table(table))
    return places.join(F.broadcast(numbered), on="number", how="inner").select("task")


# --- hours, counted again and as stored -------------------------------------------------------------------------------


def recounted(session: SparkSession, url: str, tasks_to_count: Sequence[HourShardTask]) -> DataFrame:
    """``HOURS`` as a run would count them now, from raw samples; nothing is written. Damage fails the job."""
    tasks = [msgspec.structs.replace(task, kind=MergeKind.RECOUNT, wants_hours=True) for task in tasks_to_count]
    frame = one_partition_each(session, [msgspec.msgpack.encode(task) for task in tasks])
    return frame.mapInArrow(_recount(url), HOURS).select(*_KEYS, *_NUMBERS)


def in_force(session: SparkSession, url: str, packs: Sequence[PackTask]) -> DataFrame:
    """``HOURS`` of packs, as readers find them. Damage fails the job."""
    frame = one_partition_each(session, [msgspec.msgpack.encode(pack) for pack in packs])
    return frame.mapInArrow(_read_in_force(url), HOURS).select(*_KEYS, *_NUMBERS)


def mismatches(counted: DataFrame, stored: DataFrame) -> DataFrame:
    """``MISMATCHES``: series and hours that only one of the two ``HOURS`` has, or of which an aggregate differs."""
    ours = counted.select(*_KEYS, F.struct(*_NUMBERS).alias("ours"))
    theirs = stored.select(*_KEYS, F.struct(*_NUMBERS).alias("theirs"))
    only_ours, only_theirs = F.col("theirs").isNull(), F.col("ours").isNull()
    other = [F.when(F.col(f"ours.{n}") != F.col(f"theirs.{n}"), F.lit(n)) for n in _NUMBERS]
    differs = F.when(only_ours, "missing").when(only_theirs, "surplus").otherwise(F.concat_ws(" ", *other))
    joined = ours.join(theirs, on=list(_KEYS), how="full_outer").select(*_KEYS, differs.alias("differs"))
    return joined.where(F.col("differs") != "")


def _recount(url: str) -> Callable[[Batches], Batches]:
    def stage(batches: Batches) -> Iterator[pa.RecordBatch]:
        store = store_of_worker(url, os.getpid())
        retracted = compute_task.RetractedSeries(store)
        for raw in tasks_of(batches):
            task = msgspec.msgpack.decode(raw, type=HourShardTask)
            result = compute_task.compact_hour_shard(store, task, number=0, retracted=retracted)
            if result.hours is None:
                raise IntegrityError(result.reason)
            for metric, rows in decode_hours(result.hours).items():
                yield _hours_batch(task.app, task.shard, np.full(len(rows), task.hour), metric, rows)

    return stage


def _read_in_force(url: str) -> Callable[[Batches], Batches]:
    def stage(batches: Batches) -> Iterator[pa.RecordBatch]:
        store = store_of_worker(url, os.getpid())
        for raw in tasks_of(batches):
            task = msgspec.msgpack.decode(raw, type=PackTask)
            place = PackPlace("hours", task.app, task.shard, task.day, task.day * DAY_HOURS)
            if task.old is None:
                raise CorruptBlock("a pack without a generation", got=place)
            for metric, steps in source.read_pack(store, place, task.old):
                rows = np.isin(steps.step, task.old_hours)
                yield _hours_batch(task.app, task.shard, steps.step[rows], metric, steps.rows.take(rows))

    return stage


def _hours_batch(app: int, shard: int, hours: np.ndarray, metric: int, rows: Aggregates) -> pa.RecordBatch:
    size = len(rows)
    columns = [
        np.full(size, app, np.int64),
        np.full(size, shard, np.int32),
        hours.astype(np.int32),
        np.full(size, metric, np.uint64).view(np.int64),
        rows.series.view(np.int64),
        *(np.ascontiguousarray(getattr(rows, name)).view(np.int64) for name in _NUMBERS),
    ]
    return pa.RecordBatch.from_arrays([pa.array(c) for c in columns], schema=_HOURS)


# --- purge lists ------------------------------------------------------------------------------------------------------


def listed_rows(session: SparkSession, url: str, app: int, tables: Iterable[str], shards: Sequence[int]) -> DataFrame:
    """``LISTED`` of an app: how many rows each place of each table has; the deletion measures sizes."""
    tasks = [msgspec.msgpack.encode((app, table, shard)) for table in tables for shard in shards]
    return one_partition_each(session, tasks).mapInArrow(_count_rows(url), LISTED)


def _count_rows(url: str) -> Callable[[Batches], Batches]:
    def stage(batches: Batches) -> Iterator[pa.RecordBatch]:
        store = store_of_worker(url, os.getpid())
        for raw in tasks_of(batches):
            app, table, shard = msgspec.msgpack.decode(raw, type=tuple[int, str, int])
            counts = listing.count_rows(store, table, app, shard)
            rows = ((table, b, hour, signed(number), count, 0) for (b, hour, number), count in counts.items())
            yield from _batches_of(rows, _LISTED)

    return stage


def references(
    session: SparkSession, url: str, app: int, days: Iterable[int], shards: Sequence[int], keep: int
) -> DataFrame:
    """``REFERENCES`` that a purge would go by; a day whose manifest is damaged says nothing."""
    tasks = [msgspec.msgpack.encode((app, day, tuple(shards), keep)) for day in days]
    return one_partition_each(session, tasks).mapInArrow(_read_references(url), REFERENCES)


def _read_references(url: str) -> Callable[[Batches], Batches]:
    def stage(batches: Batches) -> Iterator[pa.RecordBatch]:
        store = store_of_worker(url, os.getpid())
        for raw in tasks_of(batches):
            app, day, shards, keep = msgspec.msgpack.decode(raw, type=tuple[int, int, tuple[int, ...], int])
            with suppress(CorruptBlock):
                yield from _batches_of(
                    reference_rows(purge.read_references(store, app, day, shards, keep=keep)), _REFERENCES
                )

    return stage


def reference_rows(references: superseded.References) -> Iterator[tuple[str, int, int, int]]:
    """Turns references into rows of ``REFERENCES``."""
    yield from (("named", shard, hour, signed(number)) for shard, hour, number in references.named)
    yield from (("parent", shard, hour, signed(number)) for shard, hour, number in references.parents)
    yield from (("sealed", 0, hour, 0) for hour in references.sealed)
    yield from (
        ("covered", *place, signed(batch)) for place, batches in references.covered.items() for batch in batches
    )


def keys_of(
    session: SparkSession, url: str, app: int, places: Mapping[tuple[str, int], Sequence[superseded.Place]]
) -> DataFrame:
    """``KEYS`` of the rows at these places, given by table and shard."""
    tasks = [msgspec.msgpack.encode((app, *where, tuple(each))) for where, each in places.items()]
    return one_partition_each(session, tasks).mapInArrow(_keys(url), KEYS)


def _keys(url: str) -> Callable[[Batches], Batches]:
    def stage(batches: Batches) -> Iterator[pa.RecordBatch]:
        store = store_of_worker(url, os.getpid())
        for raw in tasks_of(batches):
            app, table, shard, places = msgspec.msgpack.decode(
                raw, type=tuple[int, str, int, frozenset[superseded.Place]]
            )
            rows = listing.keys_at(store, table, app, shard, places)
            yield from _batches_of(((table, b, s, signed(n), key) for (b, s, n), key in rows), _KEYS_OF)

    return stage


def signed(number: int) -> int:
    """Converts a generation or batch to Spark's signed long."""
    return number - (1 << 64) if number >> 63 else number


def _batches_of(rows: Iterator[tuple[object, ...]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    while part := list(islice(rows, limits.PURGE_ROWS_PER_CALL)):
        columns = zip(*part, strict=True)
        yield pa.RecordBatch.from_arrays(
            [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
        )


def superseded_rows(listed: DataFrame, references: DataFrame) -> DataFrame:
    """``SUPERSEDED``: the rows of a listing (``LISTED``) that go by the ``REFERENCES``, as ``deletion_reason`` decides.

    ``REFERENCES`` are `named` places (in force or in history), `parent` places (their inputs), `covered` batches
    (inside them) and `sealed` hours (whose shard and number mean nothing).
    """
    place = ["shard", "hour", "number"]
    rows = listed.select("table", *place, "rows", "size_bytes")
    references = references.select("what", *place)
    named, parents, covered = (
        references.where(F.col("what") == w).select(*place).distinct() for w in ("named", "parent", "covered")
    )
    sealed = references.where(F.col("what") == "sealed").select("hour").distinct()
    blocks = rows.where(F.col("table") == "log")
    unnamed = rows.where(F.col("table") != "log").join(named, on=place, how="left_anti")
    over = unnamed.join(sealed, on="hour", how="left_semi").where(F.col("table").isin("chunks", "timelines"))
    unnamed_parents = unnamed.join(parents, on=place, how="left_semi")
    orphans = unnamed.join(parents, on=place, how="left_anti")
    open_blocks = blocks.join(sealed, on="hour", how="left_anti")
    parts = [
        _with_reason(superseded.SUPERSEDED, unnamed_parents),
        _with_reason(superseded.EXPIRED, over.join(parents, on=place, how="left_anti")),
        _with_reason(
            superseded.ORPHAN, orphans.join(over.select("table", *place), on=["table", *place], how="left_anti")
        ),
        _with_reason(superseded.EXPIRED, blocks.join(sealed, on="hour", how="left_semi")),
        _with_reason(superseded.COVERED, open_blocks.join(covered, on=place, how="left_semi")),
    ]
    return reduce(DataFrame.unionByName, parts)


def _with_reason(reason: str, rows: DataFrame) -> DataFrame:
    column: Column = F.lit(reason).alias("reason")
    return rows.select("table", "shard", "hour", "number", "rows", "size_bytes", column)


# --- inside the tasks -------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def store_of_worker(url: str, pid: int) -> Backend:
    """The store of a worker process, opened once per process: a forked worker must not use its parent's."""
    return open_backend(url)


def tasks_of(batches: Batches) -> Iterator[bytes]:
    """Yields the column of tasks."""
    for batch in batches:
        yield from batch.column(batch.schema.get_field_index("task")).to_pylist()
