"""Percentiles over any stretch of time and any group of series, within 1 % of the true values, from mergeable sketches.

Windows are cut into segments: whole UTC days and whole hours, whose sketches are stored, and edges, whose sketches are
made from samples. A window is a range of segments, a group a set of series, and the sketch of both is the merge of
theirs. Enter by ``of_groups``; ``of_series`` is the same without groups, for the evaluator.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from spm.arrays import F64, I64
from spm.clock import SystemClock
from spm.limits import DAY_HOURS, HOUR_MS
from spm.query.request.batches import Matcher, Segments, SketchBatch, Tick, nothing
from spm.query.request.budget import Budget, QueryLimits
from spm.query.request.provenance import Basis
from spm.query.rolled.trimmed_windows import Gone, read_left
from spm.query.storage import Storage
from spm.store.rollup import sketch
from spm.store.rollup.sketch import Sketches

_DAY_MS = DAY_HOURS * HOUR_MS
_BUCKETS_AT_ONCE = 2_000_000  # of the sketches that are merged in one go: 24 MB


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Values [G, T] for each q, NaN where there is nothing; ``labels`` of the groups."""

    labels: Sequence[dict[str, str]]
    values: list[F64]
    basis: Basis


def segments(starts: I64, ends: I64) -> Segments:
    """The segments of windows start < ts <= end (ms)."""
    cut = np.unique(np.concatenate([starts, ends]))
    first, last = int(cut[0]), int(cut[-1])
    hours = np.arange(-(-first // HOUR_MS), last // HOUR_MS + 1) * HOUR_MS
    days = np.arange(-(-first // _DAY_MS), last // _DAY_MS)
    whole = np.setdiff1d(days, cut[cut % _DAY_MS != 0] // _DAY_MS)
    kept = hours[(hours % _DAY_MS == 0) | ~np.isin(hours // _DAY_MS, whole)]
    borders = np.unique(np.concatenate([cut, kept]))
    return Segments(borders, np.searchsorted(borders, starts), np.searchsorted(borders, ends))


def sketched(
    starts: I64, ends: I64, gone: Gone, read: Callable[[Segments], SketchBatch]
) -> tuple[Segments, SketchBatch]:
    """The sketches of windows as far as they are left (`remains`), and their segments: none where too much is gone."""
    windows, cuts, found = read_left(starts, ends, gone, segments, read, SketchBatch.empty())
    return cuts, replace(found, basis=windows.told(found.basis))


def of_groups(
    storage: Storage,
    matchers: Sequence[Matcher],
    starts: I64,
    ends: I64,
    *,
    qs: Sequence[float],
    by: Sequence[str],
    budget: Budget | None = None,
) -> Percentiles:
    """Percentiles of all samples of each group within each window; groups are series alike in the labels ``by``."""
    used = budget or Budget(QueryLimits(), SystemClock())
    cuts, found = sketched(
        starts, ends, Gone(), lambda wanted: storage.select_sketches(matchers, wanted, tick=used.tick)
    )
    used.series(len(found.labels), "the selector")
    used.samples(len(found.row))
    names = [tuple((name, labels[name]) for name in by if name in labels) for labels in found.labels]
    groups = sorted(set(names))
    number = {group: i for i, group in enumerate(groups)}
    used.cells(len(groups) * len(qs), len(starts), "the answer")
    group_of = np.array([number[name] for name in names], np.int64)
    values = [np.full((len(groups), len(starts)), np.nan) for _ in qs]
    for at, merged in _merged(found, group_of, len(groups), cuts, used.tick):
        for table, q in zip(values, qs, strict=True):
            table.ravel()[at] = sketch.quantile(merged, q)
    return Percentiles([dict(group) for group in groups], values, found.basis)


def of_series(found: SketchBatch, cuts: Segments, qs: F64, tick: Tick = nothing) -> tuple[F64, npt.NDArray[np.bool_]]:
    """(values, presence) [S, T] of each series within each window; ``qs`` has one q per window."""
    shape = len(found.labels), len(cuts.low)
    values, present = np.full(shape, np.nan), np.zeros(shape, np.bool_)
    for at, merged in _merged(found, np.arange(shape[0]), shape[0], cuts, tick):
        wanted = qs[at % shape[1]]
        for q in np.unique(wanted):
            mine = np.isnan(wanted) if np.isnan(q) else wanted == q
            values.ravel()[at[mine]] = sketch.quantile(merged.take(mine), float(q))
        present.ravel()[at] = True
    return values, present


def _merged(
    found: SketchBatch, group_of: I64, groups: int, cuts: Segments, tick: Tick
) -> Iterator[tuple[I64, Sketches]]:
    """(group * windows + window, merged sketch) for all that hold anything, some windows at a time.

    Windows may overlap, so that an entry goes into many of them: only so many are joined at once as memory allows.
    """
    count = len(cuts.low)
    order = np.argsort(found.segment, kind="stable")
    begin = np.searchsorted(found.segment[order], cuts.low)
    end = np.searchsorted(found.segment[order], cuts.high)
    sizes = np.concatenate([[0], np.cumsum(np.diff(found.sketches.starts)[order])])
    weight = np.cumsum(sizes[end] - sizes[begin])
    part_of = weight // _BUCKETS_AT_ONCE
    for part in np.unique(part_of):
        tick()
        windows = np.flatnonzero((part_of == part) & (end > begin))
        if not len(windows):
            continue
        lengths = end[windows] - begin[windows]
        owner = np.repeat(windows, lengths)
        within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        entries = order[np.repeat(begin[windows], lengths) + within]
        code = group_of[found.row[entries]] * count + owner
        sort = np.argsort(code, kind="stable")
        heads = np.concatenate([np.flatnonzero(np.diff(code[sort], prepend=-1)), [len(sort)]])
        yield code[sort][heads[:-1]], sketch.merge_groups(found.sketches.take(entries[sort]), heads)
