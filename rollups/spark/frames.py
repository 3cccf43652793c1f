"""Frames that Spark's jobs are made of: each function selects its columns at entry and exit, and its schema is tested.

Enter by ``one_each``, a frame of tasks with a partition for each; ``recounted`` and ``in_force``, the hourly aggregates
counted anew and as they stand, whose ``mismatches`` an fsck reports; ``listed`` and ``words``, of which ``purge_list``
makes what nobody needs any more. Numbers are made by the same kernels as in a run; floats travel as their bits, so that
equal means equal.
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
from rollups.compute.source import Place
from rollups.decide import superseded
from rollups.decide.plan import Kind
from rollups.decide.work import PackTask, UnitTask, decode_hours
from rollups.delete import listing, purge
from spm import limits
from spm.errors import CorruptBlock, IntegrityError
from spm.limits import DAY_HOURS
from spm.store.backends import open_backend
from spm.store.backends.base import Backend
from spm.store.manifest import Generation
from spm.store.rollup.aggregates import COLUMNS, Aggregates

TASKS = "task binary"
_KEYS = ("app", "shard", "hour", "metric", "series")
_NUMBERS = tuple(name for name, _ in COLUMNS)
HOURS = "app long, shard int, hour int, metric long, series long, " + ", ".join(f"{n} long" for n in _NUMBERS)
MISMATCHES = "app long, shard int, hour int, metric long, series long, differs string"
LISTED = "table string, shard int, hour int, number long, rows long, size_bytes long"
WORDS = "what string, shard int, hour int, number long"  # a manifest's word on a place; `sealed`: on an hour
DOOMED = f"{LISTED}, reason string"

KEYS = "table string, shard int, hour int, number long, key binary"

_PLACE = [("shard", pa.int32()), ("hour", pa.int32()), ("number", pa.int64())]
_LISTED = pa.schema([("table", pa.string()), *_PLACE, ("rows", pa.int64()), ("size_bytes", pa.int64())])
_WORDS = pa.schema([("what", pa.string()), *_PLACE])
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


def one_each(session: SparkSession, tasks: Sequence[bytes]) -> DataFrame:
    """``TASKS`` with a row per partition. From Arrow, since plain rows would start a Python daemon of their own."""
    places = session.range(0, len(tasks), 1, max(1, len(tasks))).select(F.col("id").alias("number"))
    table = {"number": pa.array(range(len(tasks)), pa.int64()), "task": pa.array(tasks, pa.binary())}
    numbered = session.createDataFrame(pa.table(table))
    return places.join(F.broadcast(numbered), on="number", how="inner").select("task")


# --- hours, counted anew and as they stand ----------------------------------------------------------------------------


def recounted(session: SparkSession, url: str, units: Sequence[UnitTask]) -> DataFrame:
    """``HOURS`` of units as a run would count them now, from raw; nothing is written. Damage fails the job."""
    tasks = [msgspec.structs.replace(unit, kind=Kind.RECOUNT, hours=True) for unit in units]
    frame = one_each(session, [msgspec.msgpack.encode(task) for task in tasks])
    return frame.mapInArrow(_recount(url), HOURS).select(*_KEYS, *_NUMBERS)


def in_force(session: SparkSession, url: str, packs: Sequence[PackTask]) -> DataFrame:
    """``HOURS`` of the hours kept of packs, as readers find them. Damage fails the job."""
    frame = one_each(session, [msgspec.msgpack.encode(pack) for pack in packs])
    return frame.mapInArrow(_standing(url), HOURS).select(*_KEYS, *_NUMBERS)


def mismatches(counted: DataFrame, standing: DataFrame) -> DataFrame:
    """``MISMATCHES``: series and hours that only one of the two ``HOURS`` has, or of which an aggregate differs."""
    ours = counted.select(*_KEYS, F.struct(*_NUMBERS).alias("ours"))
    theirs = standing.select(*_KEYS, F.struct(*_NUMBERS).alias("theirs"))
    only_ours, only_theirs = F.col("theirs").isNull(), F.col("ours").isNull()
    other = [F.when(F.col(f"ours.{n}") != F.col(f"theirs.{n}"), F.lit(n)) for n in _NUMBERS]
    differs = F.when(only_ours, "missing").when(only_theirs, "surplus").otherwise(F.concat_ws(" ", *other))
    joined = ours.join(theirs, on=list(_KEYS), how="full_outer").select(*_KEYS, differs.alias("differs"))
    return joined.where(F.col("differs") != "")


def _recount(url: str) -> Callable[[Batches], Batches]:
    def stage(batches: Batches) -> Iterator[pa.RecordBatch]:
        store = store_of_worker(url, os.getpid())
        chosen = compute_task.Chosen(store)
        for raw in tasks_of(batches):
            task = msgspec.msgpack.decode(raw, type=UnitTask)
            made = compute_task.compact_unit(store, task, number=0, chosen=chosen)
            if made.hours is None:
                raise IntegrityError(made.reason)
            for metric, rows in decode_hours(made.hours).items():
                yield _hours_batch(task.app, task.shard, np.full(len(rows), task.hour), metric, rows)

    return stage


def _standing(url: str) -> Callable[[Batches], Batches]:
    def stage(batches: Batches) -> Iterator[pa.RecordBatch]:
        store = store_of_worker(url, os.getpid())
        for raw in tasks_of(batches):
            task = msgspec.msgpack.decode(raw, type=PackTask)
            place = Place("hours", task.app, task.shard, task.day, task.day * DAY_HOURS)
            if task.old is None:
                raise CorruptBlock("a pack without a generation", got=place)
            for metric, steps in source.read_pack(store, place, task.old):
                rows = np.isin(steps.step, task.kept)
                yield _hours_batch(task.app, task.shard, steps.step[rows], metric, steps.rows.take(rows))

    return stage


def standing_pack(app: int, shard: int, day: int, generation: Generation, hours: Iterable[int]) -> PackTask:
    """The task of reading hours of a pack in force."""
    return PackTask(app, shard, day, generation, tuple(hours), {})


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


def listed(session: SparkSession, url: str, app: int, tables: Iterable[str], shards: Sequence[int]) -> DataFrame:
    """``LISTED`` of an app: how many rows lie at each place of each table; sizes are left to who deletes."""
    tasks = [msgspec.msgpack.encode((app, table, shard)) for table in tables for shard in shards]
    return one_each(session, tasks).mapInArrow(_counts(url), LISTED)


def _counts(url: str) -> Callable[[Batches], Batches]:
    def stage(batches: Batches) -> Iterator[pa.RecordBatch]:
        store = store_of_worker(url, os.getpid())
        for raw in tasks_of(batches):
            app, table, shard = msgspec.msgpack.decode(raw, type=tuple[int, str, int])
            found = listing.counts(store, table, app, shard)
            rows = ((table, b, hour, signed(number), count, 0) for (b, hour, number), count in found.items())
            yield from _batches_of(rows, _LISTED)

    return stage


def words(
    session: SparkSession, url: str, app: int, days: Iterable[int], shards: Sequence[int], keep: int
) -> DataFrame:
    """``WORDS`` that a purge would go by; a day whose manifest is damaged says nothing."""
    tasks = [msgspec.msgpack.encode((app, day, tuple(shards), keep)) for day in days]
    return one_each(session, tasks).mapInArrow(_words(url), WORDS)


def _words(url: str) -> Callable[[Batches], Batches]:
    def stage(batches: Batches) -> Iterator[pa.RecordBatch]:
        store = store_of_worker(url, os.getpid())
        for raw in tasks_of(batches):
            app, day, shards, keep = msgspec.msgpack.decode(raw, type=tuple[int, int, tuple[int, ...], int])
            with suppress(CorruptBlock):
                yield from _batches_of(told(purge.word(store, app, day, shards, keep=keep)), _WORDS)

    return stage


def told(word: superseded.Word) -> Iterator[tuple[str, int, int, int]]:
    """A word as rows of ``WORDS``."""
    yield from (("named", shard, hour, signed(number)) for shard, hour, number in word.named)
    yield from (("parent", shard, hour, signed(number)) for shard, hour, number in word.parents)
    yield from (("sealed", 0, hour, 0) for hour in word.sealed)
    yield from (("held", *unit, signed(batch)) for unit, batches in word.held.items() for batch in batches)


def keys_of(
    session: SparkSession, url: str, app: int, places: Mapping[tuple[str, int], Sequence[superseded.Place]]
) -> DataFrame:
    """``KEYS`` of the rows at these places, given by table and shard."""
    tasks = [msgspec.msgpack.encode((app, *where, tuple(each))) for where, each in places.items()]
    return one_each(session, tasks).mapInArrow(_keys(url), KEYS)


def _keys(url: str) -> Callable[[Batches], Batches]:
    def stage(batches: Batches) -> Iterator[pa.RecordBatch]:
        store = store_of_worker(url, os.getpid())
        for raw in tasks_of(batches):
            app, table, shard, places = msgspec.msgpack.decode(
                raw, type=tuple[int, str, int, frozenset[superseded.Place]]
            )
            found = listing.keys_at(store, table, app, shard, places)
            yield from _batches_of(((table, b, s, signed(n), key) for (b, s, n), key in found), _KEYS_OF)

    return stage


def signed(number: int) -> int:
    """A generation or batch as Spark's signed long."""
    return number - (1 << 64) if number >> 63 else number


def _batches_of(rows: Iterator[tuple[object, ...]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    while part := list(islice(rows, limits.PURGE_ROWS_PER_CALL)):
        columns = zip(*part, strict=True)
        yield pa.RecordBatch.from_arrays(
            [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
        )


def purge_list(listed: DataFrame, words: DataFrame) -> DataFrame:
    """``DOOMED``: what of a listing (``LISTED``) goes by the manifests' ``WORDS``, and why (``doomed.verdict``).

    ``WORDS`` are `named` (in force or in history), `parent` (what those were made of), `held` (batches inside them) and
    `sealed` hours (their shard and number mean nothing).
    """
    place = ["shard", "hour", "number"]
    found = listed.select("table", *place, "rows", "size_bytes")
    said = words.select("what", *place)
    named, parents, held = (
        said.where(F.col("what") == w).select(*place).distinct() for w in ("named", "parent", "held")
    )
    sealed = said.where(F.col("what") == "sealed").select("hour").distinct()
    blocks = found.where(F.col("table") == "log")
    unnamed = found.where(F.col("table") != "log").join(named, on=place, how="left_anti")
    over = unnamed.join(sealed, on="hour", how="left_semi").where(F.col("table").isin("chunks", "timelines"))
    kept_parents = unnamed.join(parents, on=place, how="left_semi")
    nobodys = unnamed.join(parents, on=place, how="left_anti")
    gone = [
        _because(superseded.SUPERSEDED, kept_parents),
        _because(superseded.EXPIRED, over.join(parents, on=place, how="left_anti")),
        _because(superseded.ORPHAN, nobodys.join(over.select("table", *place), on=["table", *place], how="left_anti")),
        _because(superseded.EXPIRED, blocks.join(sealed, on="hour", how="left_semi")),
        _because(
            superseded.COVERED, blocks.join(sealed, on="hour", how="left_anti").join(held, on=place, how="left_semi")
        ),
    ]
    return reduce(DataFrame.unionByName, gone)


def _because(reason: str, rows: DataFrame) -> DataFrame:
    told: Column = F.lit(reason).alias("reason")
    return rows.select("table", "shard", "hour", "number", "rows", "size_bytes", told)


# --- inside the tasks -------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def store_of_worker(url: str, pid: int) -> Backend:
    """The store of a worker process, opened once. Workers are forked: what a parent opened is not theirs."""
    return open_backend(url)


def tasks_of(batches: Batches) -> Iterator[bytes]:
    """The column of tasks."""
    for batch in batches:
        yield from batch.column(batch.schema.get_field_index("task")).to_pylist()
