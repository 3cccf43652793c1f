"""Reads the sketches of segments from one view: of whole days and hours as stored, of edges from samples.

Never makes percentiles: ``percentiles`` does. Enter by ``read_sketches``.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from spm import limits
from spm.arrays import BOOL, F64, I64
from spm.errors import QueryTooLarge
from spm.limits import DAY_HOURS, HOUR_MS
from spm.query.request.batches import Segments
from spm.query.rolled.resolutions import AggregatePart, RollupReader
from spm.store.encoding import kernels
from spm.store.rollup import sketch
from spm.store.rollup.rows import SKETCH
from spm.store.rollup.sketch import Sketches
from spm.store.versions.merge import Winners

COLUMNS = ("min", SKETCH)  # an hour with a minimum and without a sketch was written without sketches
_DAY_MS = DAY_HOURS * HOUR_MS
_SegmentSketches = tuple[I64, I64, Sketches]  # row in the selection, segment, sketch


class _SketchCollection:
    """Collects sketches, and bounds the buckets they have together."""

    def __init__(self) -> None:
        self._parts: list[_SegmentSketches] = []
        self._size = 0

    def add(self, rows: I64, segment: I64, sketches: Sketches) -> None:
        self._size += len(sketches.keys) + len(sketches)
        if self._size > limits.QUERY_BUCKETS_MAX:
            raise QueryTooLarge(
                f"percentiles over this range need more than {limits.QUERY_BUCKETS_MAX} buckets of sketches: "
                "ask for less time or fewer series"
            )
        self._parts.append((rows, segment, sketches))

    def joined(self) -> _SegmentSketches:
        none = np.empty(0, np.int64)
        rows = np.concatenate([none, *(part[0] for part in self._parts)])
        segment = np.concatenate([none, *(part[1] for part in self._parts)])
        return rows, segment, sketch.concat([Sketches.empty(), *(part[2] for part in self._parts)])


def read_sketches(rollups: RollupReader, segments: Segments) -> _SegmentSketches:
    """The sketches of the selected series in all segments that any window needs."""
    starts, widths, needed = segments.borders[:-1], np.diff(segments.borders), segments.needed
    of_days = needed & (widths == _DAY_MS) & (starts % _DAY_MS == 0)
    of_hours = needed & (widths == HOUR_MS) & (starts % HOUR_MS == 0)
    collection = _SketchCollection()
    parts, remaining = rollups.read_days((starts[of_days] // _DAY_MS).tolist())
    _add_stored(collection, parts, segments, _DAY_MS)
    hours = [hour for day in remaining for hour in range(day * DAY_HOURS, (day + 1) * DAY_HOURS)]
    _add_stored(collection, rollups.read_hours([*(starts[of_hours] // HOUR_MS).tolist(), *hours]), segments, HOUR_MS)
    _add_edges(collection, rollups, segments, needed & ~of_days & ~of_hours)
    return collection.joined()


def _add_stored(
    collection: _SketchCollection, parts: Iterable[AggregatePart], segments: Segments, step_ms: int
) -> None:
    """Add whole hours and days; a day that is made of its hours has several entries."""
    for part in parts:
        segment = np.searchsorted(segments.borders, part.steps * step_ms, side="right") - 1
        collection.add(part.rows, segment, part.values.sketch)


def _add_edges(collection: _SketchCollection, rollups: RollupReader, segments: Segments, edges: BOOL) -> None:
    """Add segments that are parts of an hour, from its samples."""
    for rows, segment, heads, _, values in read_edges(rollups, segments, edges):
        collection.add(rows, segment, sketch.of_winners(heads, values))


def read_edges(rollups: RollupReader, segments: Segments, edges: BOOL) -> Iterator[tuple[I64, I64, I64, I64, F64]]:
    """Samples of segments that are parts of an hour: run i is heads[i]:heads[i + 1], of a row within a segment.

    Gives (rows, segments, heads, times, values), a few hours at a time. Notes expired hours in the provenance.
    """
    hours = set((segments.borders[:-1][edges] // HOUR_MS).tolist())
    if not hours:
        return
    view = rollups.view
    for hour in view.sealed_hours(min(hours), max(hours)):
        if hour in hours:
            view.provenance.add_expired(hour, hours=False)
    for hour, shards in view.stored_hours(min(hours), max(hours)):
        for winners in view.winners(hour, shards, rollups.plan) if hour in hours else ():
            yield _edges_of(rollups, segments, edges, winners)


def _edges_of(
    rollups: RollupReader, segments: Segments, edges: BOOL, winners: Winners
) -> tuple[I64, I64, I64, I64, F64]:
    owner = kernels.spread(winners.counts, len(winners.ts)).astype(np.int64)
    segment = np.searchsorted(segments.borders, winners.ts, side="left") - 1
    inside = (segment >= 0) & (segment < len(edges))
    inside[inside] = edges[segment[inside]]
    owner, segment, ts, values = owner[inside], segment[inside], winners.ts[inside], winners.values[inside]
    changes = (np.diff(owner, prepend=-1) != 0) | (np.diff(segment, prepend=-1) != 0)
    heads = np.flatnonzero(changes)
    rows = rollups.selection.rows(winners.series, winners.metrics).astype(np.int64)
    return rows[owner[heads]], segment[heads], np.concatenate([heads, [len(owner)]]), ts, values
