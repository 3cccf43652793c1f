"""Runs tasks in this process: for minor runs inside a Celery worker, for small machines, and for tests.

``Executor`` is what a driver asks of whoever runs its tasks; Spark's is ``rollups.spark.job``. Between ``compact`` and
``pack`` an executor holds the hourly aggregates; ``forget`` lets go of them.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from rollups.compute import task as compute_task
from rollups.crash_points import Hook, nowhere
from rollups.decide.work import Compacted, DaysTask, Packed, PackTask, UnitTask, generation_number
from spm.errors import SpmError
from spm.store.backends.base import Backend

Done = Callable[[int, int], None]  # units and samples done since it was last called


class TasksFailed(SpmError):
    """The tasks of a run failed as a whole, so that nothing of them is put into force. Run again."""


class Executor(Protocol):
    """Who runs the tasks of a driver. Results come without their ``hours``, in any order. All raise ``TasksFailed``."""

    name: str

    def compact(self, run: int, tasks: Sequence[UnitTask], done: Done) -> list[Compacted]:
        """Compact units, and hold their hours for ``pack``."""

    def pack(self, run: int, tasks: Sequence[PackTask]) -> list[Packed]:
        """Write packs of hours from what ``compact`` left."""

    def build_days(self, run: int, tasks: Sequence[DaysTask]) -> list[Packed]:
        """Write packs of days from hours in force."""

    def forget(self) -> None:
        """Let go of what ``compact`` left."""


class LocalExecutor:
    """One task after the other, with the driver's own store."""

    name = "local"

    def __init__(self, store: Backend, at: Hook = nowhere) -> None:
        self._store, self._at = store, at
        self._attempts = itertools.count(1)
        self._hours: dict[tuple[int, int, int], bytes] = {}

    def compact(self, run: int, tasks: Sequence[UnitTask], done: Done) -> list[Compacted]:
        results, chosen = [], compute_task.Chosen(self._store)
        for task in tasks:
            made = compute_task.compact_unit(self._store, task, number=self._number(run), at=self._at, chosen=chosen)
            if made.hours is not None:
                self._hours[made.app, made.shard, made.hour] = made.hours
            results.append(msgspec.structs.replace(made, hours=None))
            done(1, made.samples)
        return results

    def pack(self, run: int, tasks: Sequence[PackTask]) -> list[Packed]:
        packed = []
        for task in tasks:
            held = {hour: self._hours.get((task.app, task.shard, hour)) for hour in task.made}
            hours = {hour: raw for hour, raw in held.items() if raw is not None}
            packed.append(compute_task.pack_hours(self._store, task, hours, number=self._number(run), at=self._at))
        return packed

    def build_days(self, run: int, tasks: Sequence[DaysTask]) -> list[Packed]:
        return [compute_task.build_days(self._store, task, number=self._number(run), at=self._at) for task in tasks]

    def forget(self) -> None:
        self._hours.clear()

    def _number(self, run: int) -> int:
        return generation_number(run, next(self._attempts))
