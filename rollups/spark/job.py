"""Runs compaction and packing on Spark as two stages of small rows; the samples never enter the JVM.

Stage 1 (``compact``): one row per group of hour shards goes through ``mapInArrow``; its task reads the store itself and
returns one row per hour shard (``COMPACTED``). Stage 2 (``pack``): those rows, grouped by (app, shard, day) and joined
with the driver's pack tasks, become rows of `hours`. Every attempt of a task writes under its own generation, derived
from Spark's attempt id, so that retries and speculation are harmless (PROTOCOL 13). Enter by ``SparkExecutor``.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from threading import Thread

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rollups import crash_points
from rollups.check.comparison import RecountRequest, SeriesDifference
from rollups.compute import task as compute_task
from rollups.crash_points import Hook
from rollups.decide.work import (
    ATTEMPT_BITS,
    CompactionResult,
    DaysTask,
    HourShardTask,
    PackResult,
    PackTask,
    generation_number,
)
from rollups.run.local import ReportProgress
from rollups.spark import frames
from rollups.spark.frames import Batches, store_of_worker, tasks_of
from rollups.spark.session import translate_errors
from spm import limits
from spm.limits import DAY_HOURS

# The contracts of the stages: the columns of their results.
COMPACTED = "app long, shard int, day int, hour int, generation long, samples long, result binary, hours binary"
PACKED = "app long, shard int, period int, result binary"

_COMPACTED = pa.schema(
    [
        ("app", pa.int64()),
        ("shard", pa.int32()),
        ("day", pa.int32()),
        ("hour", pa.int32()),
        ("generation", pa.int64()),
        ("samples", pa.int64()),
        ("result", pa.binary()),
        ("hours", pa.binary()),
    ]
)
_PACKS = pa.schema([("app", pa.int64()), ("shard", pa.int32()), ("day", pa.int32()), ("task", pa.binary())])
_PACKED = pa.schema([("app", pa.int64()), ("shard", pa.int32()), ("period", pa.int32()), ("result", pa.binary())])
_POLL_S = 0.5  # how often progress is read


def points_of_worker() -> Hook:
    """The hook that ``SPM_CRASH_AT`` configures in a worker process."""
    return crash_points.from_environment(os.environ)


class SparkExecutor:
    """Runs a driver's tasks on a Spark session, against the store at ``url``."""

    name, note = "spark", ""

    def __init__(self, session: SparkSession, url: str, hook: Callable[[], Hook] = points_of_worker) -> None:
        """``hook`` is called in each task; it returns the hook for the task's crash points."""
        self._session, self._url, self._hook = session, url, hook
        self._compacted: DataFrame | None = None

    def compact(self, run: int, tasks: Sequence[HourShardTask], done: ReportProgress) -> list[CompactionResult]:
        """Runs stage 1. Stage 2 uses its cached rows, but only those of the generation that is reported here."""
        self.forget()
        groups = balance_tasks(tasks, self._session.sparkContext.defaultParallelism * limits.ROLL_GROUPS_PER_CORE)
        hour_shards, samples = self._session.sparkContext.accumulator(0), self._session.sparkContext.accumulator(0)
        frame = frames.one_partition_each(self._session, [msgspec.msgpack.encode(group) for group in groups])

        def count(result: CompactionResult) -> None:
            hour_shards.add(1)
            samples.add(result.samples)

        self._compacted = frame.mapInArrow(compact_groups(self._url, run, count, self._hook), COMPACTED).persist()
        results = _run_with_progress(self._results, lambda: (hour_shards.value, samples.value), done)
        return [msgspec.msgpack.decode(raw, type=CompactionResult) for raw in results]

    def _results(self) -> list[bytes]:
        assert self._compacted is not None, "BUG: nothing was compacted"
        return results_of(self._compacted)

    def pack(self, run: int, tasks: Sequence[PackTask]) -> list[PackResult]:
        """Runs stage 2."""
        if not tasks or self._compacted is None:
            return []
        rows = [(task.app, task.shard, task.day, msgspec.msgpack.encode(task)) for task in tasks]
        plans = self._session.createDataFrame(pa.table(list(zip(*rows, strict=True)), schema=_PACKS))
        counted = self._compacted.where(F.col("hours").isNotNull())
        rows_to_pack = counted.select("app", "shard", "day", "hour", "generation", "hours").join(
            F.broadcast(plans), on=["app", "shard", "day"], how="inner"
        )
        packed = rows_to_pack.groupBy("app", "shard", "day").applyInArrow(
            pack_group(self._url, run, self._hook), PACKED
        )
        return [msgspec.msgpack.decode(raw, type=PackResult) for raw in results_of(packed)]

    def build_days(self, run: int, tasks: Sequence[DaysTask]) -> list[PackResult]:
        """Runs one task per (shard, month)."""
        frame = frames.one_partition_each(self._session, [msgspec.msgpack.encode(task) for task in tasks])
        built = frame.mapInArrow(build_months(self._url, run, self._hook), PACKED)
        return [msgspec.msgpack.decode(raw, type=PackResult) for raw in results_of(built)]

    def forget(self) -> None:
        """Drops the cached rows of stage 1."""
        if self._compacted is not None:
            self._compacted.unpersist()
            self._compacted = None


def balance_tasks(tasks: Sequence[HourShardTask], count: int) -> list[list[HourShardTask]]:
    """Puts the tasks into at most ``count`` groups of about equal weight: heaviest first, into the lightest group."""
    groups: list[list[HourShardTask]] = [[] for _ in range(min(count, len(tasks)))]
    weights = [0] * len(groups)
    for task in sorted(tasks, key=lambda t: (-t.samples, t.app, t.hour, t.shard)):
        lightest = min(range(len(groups)), key=weights.__getitem__)
        groups[lightest].append(task)
        weights[lightest] += task.samples + 1
    return groups


# --- inside the tasks -------------------------------------------------------------------------------------------------


def compact_groups(
    url: str, run: int, count: Callable[[CompactionResult], None], hook: Callable[[], Hook]
) -> Callable[[Batches], Batches]:
    """The function of stage 1: takes groups of tasks, yields a row per hour shard."""

    def stage(batches: Batches) -> Iterator[pa.RecordBatch]:
        store, at = store_of_worker(url, os.getpid()), hook()
        retracted = compute_task.RetractedSeries(store)
        for raw in tasks_of(batches):
            for task in msgspec.msgpack.decode(raw, type=list[HourShardTask]):
                result = compute_task.compact_hour_shard(store, task, number=_number(run), at=at, retracted=retracted)
                count(result)
                yield _compacted_row(result)

    return stage


def _compacted_row(result: CompactionResult) -> pa.RecordBatch:
    number = result.generation.number if result.generation else 0
    encoded = msgspec.msgpack.encode(msgspec.structs.replace(result, hours=None))
    day = result.hour // DAY_HOURS
    row = [result.app, result.shard, day, result.hour, frames.signed(number), result.samples, encoded, result.hours]
    return _record(row, _COMPACTED)


def pack_group(url: str, run: int, hook: Callable[[], Hook]) -> Callable[[pa.Table], pa.Table]:
    """The function of stage 2: takes the hours of one (app, shard, day), returns the result of its pack."""

    def stage(table: pa.Table) -> pa.Table:
        task = msgspec.msgpack.decode(table.column("task")[0].as_py(), type=PackTask)
        rows = zip(*(table.column(n).to_pylist() for n in ("hour", "generation", "hours")), strict=True)
        hours = {
            hour: hour_rows for hour, number, hour_rows in rows if frames.signed(task.new_hours.get(hour, -1)) == number
        }
        at = hook()
        packed = compute_task.pack_hours(store_of_worker(url, os.getpid()), task, hours, number=_number(run), at=at)
        return pa.Table.from_batches([_packed_row(packed)])

    return stage


def build_months(url: str, run: int, hook: Callable[[], Hook]) -> Callable[[Batches], Batches]:
    """The function that builds days: takes tasks of months, yields their results."""

    def stage(batches: Batches) -> Iterator[pa.RecordBatch]:
        store, at = store_of_worker(url, os.getpid()), hook()
        for raw in tasks_of(batches):
            task = msgspec.msgpack.decode(raw, type=DaysTask)
            yield _packed_row(compute_task.build_days(store, task, number=_number(run), at=at))

    return stage


def _packed_row(packed: PackResult) -> pa.RecordBatch:
    row = [packed.app, packed.shard, packed.period, msgspec.msgpack.encode(packed)]
    return _record(row, _PACKED)


def _record(row: Sequence[object], schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([v], f.type) for v, f in zip(row, schema, strict=True)], schema=schema)


def _number(run: int) -> int:
    """This attempt's generation number. Attempt ids are unique within a session, and a run has one session."""
    context = TaskContext.get()
    assert context is not None, "BUG: not inside a Spark task"
    return generation_number(run, (context.taskAttemptId() + 1) % (1 << ATTEMPT_BITS))


def find_differences(session: SparkSession, url: str, request: RecountRequest) -> list[SeriesDifference]:
    """The hours in force that differ from a recount, the first ``FSCK_DIFFERENCES_MAX`` of them in order."""
    if not request.tasks:
        return []
    counted = frames.recounted(session, url, request.tasks)
    mismatches = frames.mismatches(counted, frames.in_force(session, url, request.packs))
    first = mismatches.orderBy("shard", "hour", "metric", "series").limit(limits.FSCK_DIFFERENCES_MAX)
    with translate_errors():
        rows = first.select("shard", "hour", "metric", "series", "differs").collect()
    return [SeriesDifference(r.shard, r.hour, r.metric % (1 << 64), r.series % (1 << 64), r.differs) for r in rows]


def results_of(frame: DataFrame) -> list[bytes]:
    """Runs a stage and returns its results."""
    with translate_errors():
        return [bytes(row.result) for row in frame.select("result").collect()]


def _run_with_progress(
    act: Callable[[], list[bytes]], read_progress: Callable[[], tuple[int, int]], done: ReportProgress
) -> list[bytes]:
    """Runs a blocking Spark action, and reports progress from its accumulators meanwhile."""
    results: list[list[bytes]] = []
    errors: list[Exception] = []

    def work() -> None:
        try:
            results.append(act())
        except Exception as error:
            errors.append(error)

    thread = Thread(target=work, name="spark action")
    thread.start()
    before = (0, 0)
    while thread.is_alive():
        thread.join(_POLL_S)
        now = read_progress()
        if now != before:
            done(now[0] - before[0], now[1] - before[1])
            before = now
    if errors:
        raise errors[0]
    return results[0]
