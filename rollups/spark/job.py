"""The PySpark job: compaction and packing as two stages of small rows; the samples never enter the JVM.

Stage 1 (``compact``): one row per group of units goes through ``mapInArrow``; its task reads the store itself and hands
Spark one row per unit (``COMPACTED``). Stage 2 (``pack``): those rows grouped by (app, shard, day), joined with the
driver's pack tasks, become rows of `hours`. Every attempt of a task writes under its own generation, taken from Spark's
attempt id, so that retries and speculation are harmless (rule 13). Enter by ``SparkExecutor``.
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
from rollups.check.comparison import Asked, Difference
from rollups.compute import task as compute_task
from rollups.crash_points import Hook
from rollups.decide.work import ATTEMPT_BITS, Compacted, DaysTask, Packed, PackTask, UnitTask, generation_number
from rollups.run.local import Done
from rollups.spark import frames
from rollups.spark.frames import Batches, store_of_worker, tasks_of
from rollups.spark.session import failing
from spm import limits
from spm.limits import DAY_HOURS

# The contracts of the stages: what a task gets and what it gives, column by column.
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
_POLL_S = 0.5  # how often progress is looked at


def points_of_worker() -> Hook:
    """What ``SPM_CRASH_AT`` asks of a worker process."""
    return crash_points.from_environment(os.environ)


class SparkExecutor:
    """Runs a driver's tasks on a Spark session, against the store at ``url``."""

    name = "spark"

    def __init__(self, session: SparkSession, url: str, hook: Callable[[], Hook] = points_of_worker) -> None:
        """``hook`` is called in each task for what to do at its points."""
        self._session, self._url, self._hook = session, url, hook
        self._compacted: DataFrame | None = None

    def compact(self, run: int, tasks: Sequence[UnitTask], done: Done) -> list[Compacted]:
        """Stage 1. Its rows stay cached for stage 2, which uses one only if its generation is that reported here."""
        self.forget()
        groups = balanced(tasks, self._session.sparkContext.defaultParallelism * limits.ROLL_GROUPS_PER_CORE)
        units, samples = self._session.sparkContext.accumulator(0), self._session.sparkContext.accumulator(0)
        frame = frames.one_each(self._session, [msgspec.msgpack.encode(group) for group in groups])

        def count(result: Compacted) -> None:
            units.add(1)
            samples.add(result.samples)

        self._compacted = frame.mapInArrow(compact_groups(self._url, run, count, self._hook), COMPACTED).persist()
        results = _polled(self._results, lambda: (units.value, samples.value), done)
        return [msgspec.msgpack.decode(raw, type=Compacted) for raw in results]

    def _results(self) -> list[bytes]:
        assert self._compacted is not None, "BUG: nothing was compacted"
        return results_of(self._compacted)

    def pack(self, run: int, tasks: Sequence[PackTask]) -> list[Packed]:
        """Stage 2."""
        if not tasks or self._compacted is None:
            return []
        rows = [(task.app, task.shard, task.day, msgspec.msgpack.encode(task)) for task in tasks]
        plans = self._session.createDataFrame(pa.table(list(zip(*rows, strict=True)), schema=_PACKS))
        counted = self._compacted.where(F.col("hours").isNotNull())
        mine = counted.select("app", "shard", "day", "hour", "generation", "hours").join(
            F.broadcast(plans), on=["app", "shard", "day"], how="inner"
        )
        packed = mine.groupBy("app", "shard", "day").applyInArrow(pack_group(self._url, run, self._hook), PACKED)
        return [msgspec.msgpack.decode(raw, type=Packed) for raw in results_of(packed)]

    def build_days(self, run: int, tasks: Sequence[DaysTask]) -> list[Packed]:
        """One task per (shard, month)."""
        frame = frames.one_each(self._session, [msgspec.msgpack.encode(task) for task in tasks])
        built = frame.mapInArrow(build_months(self._url, run, self._hook), PACKED)
        return [msgspec.msgpack.decode(raw, type=Packed) for raw in results_of(built)]

    def forget(self) -> None:
        """Let Spark drop the cached rows of stage 1."""
        if self._compacted is not None:
            self._compacted.unpersist()
            self._compacted = None


def balanced(tasks: Sequence[UnitTask], count: int) -> list[list[UnitTask]]:
    """The tasks in at most ``count`` groups of about equal weight, the heaviest first into the lightest group."""
    groups: list[list[UnitTask]] = [[] for _ in range(min(count, len(tasks)))]
    weights = [0] * len(groups)
    for task in sorted(tasks, key=lambda t: (-t.samples, t.app, t.hour, t.shard)):
        lightest = min(range(len(groups)), key=weights.__getitem__)
        groups[lightest].append(task)
        weights[lightest] += task.samples + 1
    return groups


# --- inside the tasks -------------------------------------------------------------------------------------------------


def compact_groups(
    url: str, run: int, count: Callable[[Compacted], None], hook: Callable[[], Hook]
) -> Callable[[Batches], Batches]:
    """Stage 1's function: a group of unit tasks in, a row per unit out."""

    def stage(batches: Batches) -> Iterator[pa.RecordBatch]:
        store, at = store_of_worker(url, os.getpid()), hook()
        chosen = compute_task.Chosen(store)
        for raw in tasks_of(batches):
            for task in msgspec.msgpack.decode(raw, type=list[UnitTask]):
                made = compute_task.compact_unit(store, task, number=_number(run), at=at, chosen=chosen)
                count(made)
                yield _compacted_row(made)

    return stage


def _compacted_row(made: Compacted) -> pa.RecordBatch:
    number = made.made.number if made.made else 0
    result = msgspec.msgpack.encode(msgspec.structs.replace(made, hours=None))
    day = made.hour // DAY_HOURS
    row = [made.app, made.shard, day, made.hour, frames.signed(number), made.samples, result, made.hours]
    return _record(row, _COMPACTED)


def pack_group(url: str, run: int, hook: Callable[[], Hook]) -> Callable[[pa.Table], pa.Table]:
    """Stage 2's function: the hours of one (app, shard, day) in, the report of its pack out."""

    def stage(table: pa.Table) -> pa.Table:
        task = msgspec.msgpack.decode(table.column("task")[0].as_py(), type=PackTask)
        rows = zip(*(table.column(n).to_pylist() for n in ("hour", "generation", "hours")), strict=True)
        hours = {
            hour: hour_rows for hour, number, hour_rows in rows if frames.signed(task.made.get(hour, -1)) == number
        }
        at = hook()
        packed = compute_task.pack_hours(store_of_worker(url, os.getpid()), task, hours, number=_number(run), at=at)
        return pa.Table.from_batches([_packed_row(packed)])

    return stage


def build_months(url: str, run: int, hook: Callable[[], Hook]) -> Callable[[Batches], Batches]:
    """The function of days: a month's task in, its report out."""

    def stage(batches: Batches) -> Iterator[pa.RecordBatch]:
        store, at = store_of_worker(url, os.getpid()), hook()
        for raw in tasks_of(batches):
            task = msgspec.msgpack.decode(raw, type=DaysTask)
            yield _packed_row(compute_task.build_days(store, task, number=_number(run), at=at))

    return stage


def _packed_row(packed: Packed) -> pa.RecordBatch:
    row = [packed.app, packed.shard, packed.period, msgspec.msgpack.encode(packed)]
    return _record(row, _PACKED)


def _record(row: Sequence[object], schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([v], f.type) for v, f in zip(row, schema, strict=True)], schema=schema)


def _number(run: int) -> int:
    """This attempt's generation number. Spark never gives an attempt id twice within a session, and a run has one."""
    context = TaskContext.get()
    assert context is not None, "BUG: not inside a Spark task"
    return generation_number(run, (context.taskAttemptId() + 1) % (1 << ATTEMPT_BITS))


def differing(session: SparkSession, url: str, question: Asked) -> list[Difference]:
    """Hours in force that a recount says otherwise, the first ``FSCK_DIFFERENCES_MAX`` of them in order."""
    if not question.units:
        return []
    counted = frames.recounted(session, url, question.units)
    found = frames.mismatches(counted, frames.in_force(session, url, question.packs))
    first = found.orderBy("shard", "hour", "metric", "series").limit(limits.FSCK_DIFFERENCES_MAX)
    with failing():
        rows = first.select("shard", "hour", "metric", "series", "differs").collect()
    return [Difference(r.shard, r.hour, r.metric % (1 << 64), r.series % (1 << 64), r.differs) for r in rows]


def results_of(frame: DataFrame) -> list[bytes]:
    """The reports of a stage; this runs it."""
    with failing():
        return [bytes(row.result) for row in frame.select("result").collect()]


def _polled(act: Callable[[], list[bytes]], seen: Callable[[], tuple[int, int]], done: Done) -> list[bytes]:
    """Run a blocking Spark action and report progress from its accumulators meanwhile."""
    found: list[list[bytes]] = []
    failed: list[Exception] = []

    def work() -> None:
        try:
            found.append(act())
        except Exception as error:
            failed.append(error)

    thread = Thread(target=work, name="spark action")
    thread.start()
    before = (0, 0)
    while thread.is_alive():
        thread.join(_POLL_S)
        now = seen()
        if now != before:
            done(now[0] - before[0], now[1] - before[1])
            before = now
    if failed:
        raise failed[0]
    return found[0]
