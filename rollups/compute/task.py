"""Runs one task: compacts an hour shard, packs hours or builds days. Spark, Celery and tests run this code.

Enter by ``compact_hour_shard``, ``pack_hours`` and ``build_days``. Each depends on its task's exact inputs alone,
writes under the number it is given and changes nothing else, so that any attempt may be killed, repeated or raced. A
task with missing inputs is given up with a reason. No Spark, no Django, no Celery here.
"""

from collections.abc import Mapping

import numpy as np

from rollups.compute import sink, source
from rollups.compute.source import PackPlace
from rollups.crash_points import Hook, ignore_point
from rollups.decide.plan import MergeKind
from rollups.decide.work import (
    CompactionResult,
    DaysTask,
    HourShardTask,
    PackResult,
    PackTask,
    decode_hours,
    encode_hours,
    placement_of,
)
from spm import limits
from spm.errors import CorruptBlock, IntegrityError, LimitExceeded, StoreUnavailable
from spm.limits import DAY_HOURS
from spm.store import dictionary, epochs
from spm.store.backends.base import Backend
from spm.store.manifest import Generation, first_day_of, named_sources
from spm.store.rollup import aggregates
from spm.store.rollup.aggregates import Aggregates
from spm.store.versions import generations
from spm.store.versions.generations import HourShard
from spm.store.versions.merge import Piece, merge_emptying, narrow, pick
from spm.store.versions.retractions import Retraction
from spm.store.versions.visibility import Pairs, SeriesOf, Visibility

# Errors of a task's inputs or of the store: the task is given up, the rest of the run goes on.
_TASK_ERRORS = (IntegrityError, CorruptBlock, LimitExceeded, StoreUnavailable)


class RetractedSeries:
    """The series that the matchers of retractions select, read from the dictionary once per run and task.

    A run's blocks name only series that were registered before its plan, so the selection of the first hour shard is
    right for all of them; the next run reads the dictionary again.
    """

    def __init__(self, store: Backend) -> None:
        self._store = store
        self._pairs: dict[tuple[int, int], Pairs] = {}

    def of_app(self, app: int) -> SeriesOf:
        """The series of one app's retractions."""
        return lambda retraction: self._look(app, retraction)

    def _look(self, app: int, retraction: Retraction) -> Pairs:
        key = app, retraction.number
        if key not in self._pairs:
            if sum(len(series) for series, _ in self._pairs.values()) > limits.SERIES_KNOWN_MAX:
                self._pairs.clear()
            self._pairs[key] = dictionary.matching(self._store, app, retraction.matchers)
        return self._pairs[key]


def compact_hour_shard(
    store: Backend,
    task: HourShardTask,
    *,
    number: int,
    at: Hook = ignore_point,
    retracted: RetractedSeries | None = None,
) -> CompactionResult:
    """Merges the task's inputs into generation ``number``, and aggregates the samples that win."""
    try:
        return _compact(store, task, number, at, retracted or RetractedSeries(store))
    except _TASK_ERRORS as error:
        return CompactionResult(task.app, task.shard, task.hour, reason=f"{type(error).__name__}: {error}")


def _compact(
    store: Backend, task: HourShardTask, number: int, at: Hook, retracted: RetractedSeries
) -> CompactionResult:
    merge_input = source.read_hour_shard(store, task)
    at("blocks read")
    piece = _without_abandoned(task, merge_emptying(merge_input.pieces))
    generation, size = None, 0
    if task.kind != MergeKind.RECOUNT:
        hour_shard = HourShard(task.shard, task.app, task.hour)
        pages = generations.paginate(
            hour_shard, number, piece, parents=merge_input.parents, batches=merge_input.batches
        )
        generation, size = pages.generation, sink.write_hour_shard(store, pages, at)
    stamps = piece.messages.ms
    return CompactionResult(
        app=task.app,
        shard=task.shard,
        hour=task.hour,
        generation=generation,
        samples=len(piece),
        size_bytes=size,
        stamp_min_ms=int(stamps.min()) if len(stamps) else 0,
        stamp_max_ms=int(stamps.max()) if len(stamps) else 0,
        sources=named_sources(piece.messages.sources),
        hours=aggregate_hour(piece, Visibility(task.retractions, retracted.of_app(task.app)))
        if task.wants_hours
        else None,
        merged=merge_input.merged,
    )


def _without_abandoned(task: HourShardTask, piece: Piece) -> Piece:
    """The piece without copies that only a closed epoch has placed in this shard (PROTOCOL 22)."""
    placement = placement_of(task)
    if placement is None:
        return piece
    abandoned = epochs.in_closed_epoch_only(placement, task.app, task.shard, piece.metrics)
    return piece if abandoned is None else narrow(piece, ~abandoned)


def aggregate_hour(piece: Piece, visibility: Visibility) -> bytes:
    """Aggregates a merged piece's visible winners by (metric, series), as bytes for the pack."""
    won = pick(piece, visibility.visible_rows(piece))
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(won.counts, dtype=np.int64)])
    rows = aggregates.aggregate_all(won.series, starts, won.ts, won.values)
    has_samples = rows.count > 0
    return encode_hours(won.metrics[has_samples], rows.take(has_samples))


def pack_hours(
    store: Backend, task: PackTask, hours: Mapping[int, bytes], *, number: int, at: Hook = ignore_point
) -> PackResult:
    """Writes a day's hours: those kept from the old pack, and new ones from ``hours`` (hour → ``encode_hours``)."""
    place = PackPlace("hours", task.app, task.shard, task.day, task.day * DAY_HOURS)
    try:
        if hours.keys() != task.new_hours.keys():
            raise IntegrityError(f"hours of {len(task.new_hours.keys() - hours.keys())} hour(s) of {place} are missing")
        metrics = _read_steps(store, place, task.old, task.old_hours)
        for hour, raw in sorted(hours.items()):
            for metric, rows in decode_hours(raw).items():
                metrics.setdefault(metric, []).append((hour, rows))
        return _write(store, place, metrics, task, number, at, "hours written")
    except _TASK_ERRORS as error:
        return PackResult(task.app, task.shard, task.day, reason=f"{type(error).__name__}: {error}")


def build_days(store: Backend, task: DaysTask, *, number: int, at: Hook = ignore_point) -> PackResult:
    """Writes a month's days: those kept from the old pack, and new ones merged from packs of hours, never from raw."""
    place = PackPlace("days", task.app, task.shard, task.month, first_day_of(task.month) * DAY_HOURS)
    try:
        metrics = _read_steps(store, place, task.old, task.old_days)
        for day in task.days:
            hours = PackPlace("hours", task.app, task.shard, day.day, day.day * DAY_HOURS)
            for metric, steps in source.read_pack(store, hours, day.hour_rows):
                rows = steps.rows.take(np.isin(steps.step, day.hours))
                if len(rows):
                    metrics.setdefault(metric, []).append((day.day, aggregates.merge_rows(rows)))
        return _write(store, place, metrics, task, number, at, "days written")
    except _TASK_ERRORS as error:
        return PackResult(task.app, task.shard, task.month, reason=f"{type(error).__name__}: {error}")


_StepsByMetric = dict[int, list[tuple[int, Aggregates]]]


def _read_steps(
    store: Backend, place: PackPlace, old: Generation | None, steps_to_keep: tuple[int, ...]
) -> _StepsByMetric:
    """Reads the steps to keep of the pack in force, by metric."""
    metrics: _StepsByMetric = {}
    if old is None or not steps_to_keep:
        return metrics
    for metric, steps in source.read_pack(store, place, old):
        for step in steps_to_keep:
            rows = steps.at(step)
            if len(rows):
                metrics.setdefault(metric, []).append((step, rows))
    return metrics


def _write(
    store: Backend,
    place: PackPlace,
    metrics: _StepsByMetric,
    task: PackTask | DaysTask,
    number: int,
    at: Hook,
    point: str,
) -> PackResult:
    old = task.old.number if task.old else 0
    generation, rows, size = sink.write_pack(store, place, metrics, number=number, old=old, form=task.form)
    at(point)
    return PackResult(place.app, place.shard, place.period, generation, rows, size)
