"""What one task does: compact a unit, pack hours, build days. The same code in Spark, in Celery and in tests.

Enter by ``compact_unit``, ``pack_hours`` and ``build_days``. Each is a function of its task's exact inputs, writes
under the number it is given and touches nothing else, so that any attempt may be killed, repeated or raced. A unit
whose inputs are not all there is given up with a reason. No Spark, no Django, no Celery here.
"""

from collections.abc import Mapping

import numpy as np

from rollups.compute import sink, source
from rollups.compute.source import Place
from rollups.crash_points import Hook, nowhere
from rollups.decide.plan import Kind
from rollups.decide.work import (
    Compacted,
    DaysTask,
    Packed,
    PackTask,
    UnitTask,
    decode_hours,
    distribution_of,
    encode_hours,
)
from spm import limits
from spm.errors import CorruptBlock, IntegrityError, StoreUnavailable
from spm.limits import DAY_HOURS
from spm.store import dictionary, epochs
from spm.store.backends.base import Backend
from spm.store.manifest import Generation, first_day_of
from spm.store.rollup import aggregates
from spm.store.rollup.aggregates import Aggregates
from spm.store.versions import generations
from spm.store.versions.generations import HourShardData
from spm.store.versions.merge import Piece, merge, narrow, pick
from spm.store.versions.retractions import Retraction
from spm.store.versions.visibility import Pairs, SeriesOf, Visibility

# What may happen to a task's inputs or to the store: the unit is given up, the rest of the run goes on.
_TROUBLE = (IntegrityError, CorruptBlock, StoreUnavailable)


class Chosen:
    """Which series the matchers of retractions select, asked of the dictionary once each: one per run and task.

    A run's blocks name only series that were registered before its plan, so what is found at the first unit is right
    for all of them; the next run asks anew.
    """

    def __init__(self, store: Backend) -> None:
        self._store = store
        self._found: dict[tuple[int, int], Pairs] = {}

    def of(self, app: int) -> SeriesOf:
        """The series of one app's retractions."""
        return lambda retraction: self._look(app, retraction)

    def _look(self, app: int, retraction: Retraction) -> Pairs:
        key = app, retraction.number
        if key not in self._found:
            if sum(len(series) for series, _ in self._found.values()) > limits.SERIES_KNOWN_MAX:
                self._found.clear()
            self._found[key] = dictionary.matching(self._store, app, retraction.matchers)
        return self._found[key]


def compact_unit(
    store: Backend, task: UnitTask, *, number: int, at: Hook = nowhere, chosen: Chosen | None = None
) -> Compacted:
    """Merge what the task names into generation ``number``; the aggregates of the unit's winners on the way."""
    try:
        return _compact(store, task, number, at, chosen or Chosen(store))
    except _TROUBLE as trouble:
        return Compacted(task.app, task.shard, task.hour, reason=f"{type(trouble).__name__}: {trouble}")


def _compact(store: Backend, task: UnitTask, number: int, at: Hook, chosen: Chosen) -> Compacted:
    found = source.read_unit(store, task)
    at("blocks read")
    piece = _in_place(task, merge(found.pieces))
    made, size = None, 0
    if task.kind != Kind.RECOUNT:
        unit = HourShardData(task.shard, task.app, task.hour)
        pages = generations.paginate(unit, number, piece, parents=found.parents, batches=found.batches)
        made, size = pages.generation, sink.write_unit(store, pages, at)
    stamps = piece.messages.ms
    return Compacted(
        app=task.app,
        shard=task.shard,
        hour=task.hour,
        made=made,
        samples=len(piece),
        size_bytes=size,
        stamp_min_ms=int(stamps.min()) if len(stamps) else 0,
        stamp_max_ms=int(stamps.max()) if len(stamps) else 0,
        sources=piece.messages.sources,
        hours=hours_of(piece, Visibility(task.retractions, chosen.of(task.app))) if task.hours else None,
        parts=found.parts,
    )


def _in_place(task: UnitTask, piece: Piece) -> Piece:
    """The piece without copies that a closed epoch alone put in this shard (rule 22)."""
    spread = distribution_of(task)
    left = None if spread is None else epochs.abandoned(spread, task.app, task.shard, piece.metrics)
    return piece if left is None else narrow(piece, ~left)


def hours_of(piece: Piece, lens: Visibility) -> bytes:
    """The aggregates of a merged piece's visible winners, by (metric, series), as bytes for the pack."""
    won = pick(piece, lens.kept(piece))
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(won.counts, dtype=np.int64)])
    rows = aggregates.every(won.series, starts, won.ts, won.values)
    counted = rows.count > 0
    return encode_hours(won.metrics[counted], rows.take(counted))


def pack_hours(
    store: Backend, task: PackTask, hours: Mapping[int, bytes], *, number: int, at: Hook = nowhere
) -> Packed:
    """Write a day's hours: what is kept of the old pack, and new hours from ``hours`` (hour → ``encode_hours``)."""
    place = Place("hours", task.app, task.shard, task.day, task.day * DAY_HOURS)
    try:
        if hours.keys() != task.made.keys():
            raise IntegrityError(f"hours of {len(task.made.keys() - hours.keys())} hour(s) of {place} are missing")
        metrics = _kept(store, place, task.old, task.kept)
        for hour, raw in sorted(hours.items()):
            for metric, rows in decode_hours(raw).items():
                metrics.setdefault(metric, []).append((hour, rows))
        return _write(store, place, metrics, task, number, at, "hours written")
    except _TROUBLE as trouble:
        return Packed(task.app, task.shard, task.day, reason=f"{type(trouble).__name__}: {trouble}")


def build_days(store: Backend, task: DaysTask, *, number: int, at: Hook = nowhere) -> Packed:
    """Write a month's days: what is kept of the old ones, and new ones merged from packs of hours, never from raw."""
    place = Place("days", task.app, task.shard, task.month, first_day_of(task.month) * DAY_HOURS)
    try:
        metrics = _kept(store, place, task.old, task.kept)
        for day in task.days:
            hours = Place("hours", task.app, task.shard, day.day, day.day * DAY_HOURS)
            for metric, steps in source.read_pack(store, hours, day.hour_rows):
                rows = steps.rows.take(np.isin(steps.step, day.hours))
                if len(rows):
                    metrics.setdefault(metric, []).append((day.day, aggregates.merge_rows(rows)))
        return _write(store, place, metrics, task, number, at, "days written")
    except _TROUBLE as trouble:
        return Packed(task.app, task.shard, task.month, reason=f"{type(trouble).__name__}: {trouble}")


_Metrics = dict[int, list[tuple[int, Aggregates]]]


def _kept(store: Backend, place: Place, old: Generation | None, kept: tuple[int, ...]) -> _Metrics:
    """The steps of the pack in force that stay, by metric."""
    metrics: _Metrics = {}
    if old is None or not kept:
        return metrics
    for metric, steps in source.read_pack(store, place, old):
        for step in kept:
            rows = steps.at(step)
            if len(rows):
                metrics.setdefault(metric, []).append((step, rows))
    return metrics


def _write(
    store: Backend, place: Place, metrics: _Metrics, task: PackTask | DaysTask, number: int, at: Hook, point: str
) -> Packed:
    old = task.old.number if task.old else 0
    generation, rows, size = sink.write_pack(store, place, metrics, number=number, old=old, form=task.form)
    at(point)
    return Packed(place.app, place.shard, place.period, generation, rows, size)
