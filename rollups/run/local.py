"""Runs tasks in this process: for minor runs inside a Celery worker, for small machines, and for tests.

``Executor`` is the interface by which a driver has its tasks run; the one for Spark is in ``rollups.spark.job``.
Between ``compact`` and ``pack`` an executor stores the hourly aggregates; ``forget`` releases them.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from rollups.compute import task as compute_task
from rollups.crash_points import Hook, ignore_point
from rollups.decide.work import CompactionResult, DaysTask, HourShardTask, PackResult, PackTask, generation_number
from spm.errors import SpmError
from spm.store.backends.base import Backend

ReportProgress = Callable[[int, int], None]  # hour shards and samples done since the last call


class TasksFailed(SpmError):
    """All tasks of a run failed together, so that nothing of them is published. Run again."""


class Executor(Protocol):
    """Runs the tasks of a driver. Results come without ``hours``, in any order. All methods raise ``TasksFailed``."""

    name: str
    note: str  # what people should know of it, or ""

    def compact(self, run: int, tasks: Sequence[HourShardTask], done: ReportProgress) -> list[CompactionResult]:
        """Compacts hour shards, and stores their aggregates for ``pack``."""

    def pack(self, run: int, tasks: Sequence[PackTask]) -> list[PackResult]:
        """Writes packs of hours from the aggregates of ``compact``."""

    def build_days(self, run: int, tasks: Sequence[DaysTask]) -> list[PackResult]:
        """Writes packs of days from hours in force."""

    def forget(self) -> None:
        """Releases the aggregates of ``compact``."""


class LocalExecutor:
    """Runs one task after the other, with the driver's own store."""

    def __init__(self, store: Backend, at: Hook = ignore_point, *, name: str = "local", note: str = "") -> None:
        self.name, self.note = name, note
        self._store, self._at = store, at
        self._attempts = itertools.count(1)
        self._hours: dict[tuple[int, int, int], bytes] = {}

    def compact(self, run: int, tasks: Sequence[HourShardTask], done: ReportProgress) -> list[CompactionResult]:
        results, retracted = [], compute_task.RetractedSeries(self._store)
        for task in tasks:
            result = compute_task.compact_hour_shard(
                self._store, task, number=self._number(run), at=self._at, retracted=retracted
            )
            if result.hours is not None:
                self._hours[result.app, result.shard, result.hour] = result.hours
            results.append(msgspec.structs.replace(result, hours=None))
            done(1, result.samples)
        return results

    def pack(self, run: int, tasks: Sequence[PackTask]) -> list[PackResult]:
        packed = []
        for task in tasks:
            encoded = {hour: self._hours.get((task.app, task.shard, hour)) for hour in task.new_hours}
            hours = {hour: raw for hour, raw in encoded.items() if raw is not None}
            packed.append(compute_task.pack_hours(self._store, task, hours, number=self._number(run), at=self._at))
        return packed

    def build_days(self, run: int, tasks: Sequence[DaysTask]) -> list[PackResult]:
        return [compute_task.build_days(self._store, task, number=self._number(run), at=self._at) for task in tasks]

    def forget(self) -> None:
        self._hours.clear()

    def _number(self, run: int) -> int:
        return generation_number(run, next(self._attempts))
