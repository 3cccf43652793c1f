"""Sketches of segments, from the levels of one view: whole days and hours as they are stored, edges from samples.

Enter by ``gathered``. The percentiles made of them are ``percentiles``' affair.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from spm import limits
from spm.arrays import BOOL, F64, I64
from spm.errors import QueryTooLarge
from spm.limits import DAY_HOURS, HOUR_MS
from spm.query.request.batches import Segments
from spm.query.rolled.resolutions import Levels, Part
from spm.store.encoding import kernels
from spm.store.rollup import sketch
from spm.store.rollup.rows import SKETCH
from spm.store.rollup.sketch import Sketches
from spm.store.versions.merge import Winners

COLUMNS = ("min", SKETCH)  # an hour whose least value is a number and that has no sketch was written without
_DAY_MS = DAY_HOURS * HOUR_MS
_Found = tuple[I64, I64, Sketches]  # row among the chosen, segment, sketch


class _Collected:
    """Entries, and how many buckets they have by now."""

    def __init__(self) -> None:
        self._parts: list[_Found] = []
        self._size = 0

    def add(self, rows: I64, segment: I64, found: Sketches) -> None:
        self._size += len(found.keys) + len(found)
        if self._size > limits.QUERY_BUCKETS_MAX:
            raise QueryTooLarge(
                f"percentiles over this range need more than {limits.QUERY_BUCKETS_MAX} buckets of sketches: "
                "ask for less time or fewer series"
            )
        self._parts.append((rows, segment, found))

    def whole(self) -> _Found:
        none = np.empty(0, np.int64)
        rows = np.concatenate([none, *(part[0] for part in self._parts)])
        segment = np.concatenate([none, *(part[1] for part in self._parts)])
        return rows, segment, sketch.concat([Sketches.empty(), *(part[2] for part in self._parts)])


def gathered(levels: Levels, cuts: Segments) -> _Found:
    """The sketches of the chosen series in all segments that any window needs."""
    starts, widths, needed = cuts.borders[:-1], np.diff(cuts.borders), cuts.needed
    of_days = needed & (widths == _DAY_MS) & (starts % _DAY_MS == 0)
    of_hours = needed & (widths == HOUR_MS) & (starts % HOUR_MS == 0)
    found = _Collected()
    parts, left = levels.days((starts[of_days] // _DAY_MS).tolist())
    _add(found, parts, cuts, _DAY_MS)
    inner = [hour for day in left for hour in range(day * DAY_HOURS, (day + 1) * DAY_HOURS)]
    _add(found, levels.hours([*(starts[of_hours] // HOUR_MS).tolist(), *inner]), cuts, HOUR_MS)
    _add_edges(found, levels, cuts, needed & ~of_days & ~of_hours)
    return found.whole()


def _add(found: _Collected, parts: Iterable[Part], cuts: Segments, step_ms: int) -> None:
    """Whole hours and days; a day that is made of its hours has several entries."""
    for part in parts:
        segment = np.searchsorted(cuts.borders, part.steps * step_ms, side="right") - 1
        found.add(part.rows, segment, part.values.sketch)


def _add_edges(found: _Collected, levels: Levels, cuts: Segments, edges: BOOL) -> None:
    """Segments that are parts of an hour, from its samples."""
    for rows, segment, heads, _, values in edge_runs(levels, cuts, edges):
        found.add(rows, segment, sketch.of_winners(heads, values))


def edge_runs(levels: Levels, cuts: Segments, edges: BOOL) -> Iterator[tuple[I64, I64, I64, I64, F64]]:
    """Samples of segments that are parts of an hour: run i is heads[i]:heads[i + 1], of a row within a segment.

    Gives (rows, segments, heads, times, values), a few hours at a time. What has expired is told to the ground.
    """
    hours = set((cuts.borders[:-1][edges] // HOUR_MS).tolist())
    if not hours:
        return
    for hour in levels.scan.sealed(min(hours), max(hours)):
        if hour in hours:
            levels.scan.ground.expired(hour, hours=False)
    for hour, shards in levels.scan.units(min(hours), max(hours)):
        for picked in levels.scan.hour(hour, shards, levels.asked) if hour in hours else ():
            yield _edges_of(levels, cuts, edges, picked)


def _edges_of(levels: Levels, cuts: Segments, edges: BOOL, picked: Winners) -> tuple[I64, I64, I64, I64, F64]:
    owner = kernels.spread(picked.counts, len(picked.ts)).astype(np.int64)
    segment = np.searchsorted(cuts.borders, picked.ts, side="left") - 1
    inside = (segment >= 0) & (segment < len(edges))
    inside[inside] = edges[segment[inside]]
    owner, segment, ts, values = owner[inside], segment[inside], picked.ts[inside], picked.values[inside]
    changes = (np.diff(owner, prepend=-1) != 0) | (np.diff(segment, prepend=-1) != 0)
    heads = np.flatnonzero(changes)
    rows = levels.chosen.rows(picked.series, picked.metrics).astype(np.int64)
    return rows[owner[heads]], segment[heads], np.concatenate([heads, [len(owner)]]), ts, values
