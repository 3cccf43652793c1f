"""Computes percentiles over any time range and group of series, within 1 % of the true values, from sketches.

Windows are cut into segments: whole UTC days and whole hours, whose sketches are stored, and edges, whose sketches are
made from samples. A window is a range of segments and a group a set of series: the sketch of a group within a window is
merged from those of its series within its segments. Enter by ``group_percentiles``; the evaluator, which needs no
groups, enters by ``series_percentiles``.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from spm.arrays import F64, I64
from spm.clock import SystemClock
from spm.limits import DAY_HOURS, HOUR_MS
from spm.query.request.batches import DeadlineCheck, Matcher, Segments, SketchBatch, no_deadline
from spm.query.request.budget import Budget, QueryLimits
from spm.query.request.provenance import Provenance
from spm.query.rolled.trimmed_windows import Expiry, read_trimmed
from spm.query.storage import Storage
from spm.store.rollup import sketch
from spm.store.rollup.sketch import Sketches

_DAY_MS = DAY_HOURS * HOUR_MS
_BUCKETS_AT_ONCE = 2_000_000  # of the sketches that are merged in one go: 24 MB


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Values [G, T] for each q, NaN where there is no sample; ``labels`` of the groups."""

    labels: Sequence[dict[str, str]]
    values: list[F64]
    provenance: Provenance


def window_segments(starts: I64, ends: I64) -> Segments:
    """Cut windows start < ts <= end (ms) into segments."""
    window_borders = np.unique(np.concatenate([starts, ends]))
    first, last = int(window_borders[0]), int(window_borders[-1])
    hours = np.arange(-(-first // HOUR_MS), last // HOUR_MS + 1) * HOUR_MS
    days = np.arange(-(-first // _DAY_MS), last // _DAY_MS)
    whole_days = np.setdiff1d(days, window_borders[window_borders % _DAY_MS != 0] // _DAY_MS)
    hour_borders = hours[(hours % _DAY_MS == 0) | ~np.isin(hours // _DAY_MS, whole_days)]
    borders = np.unique(np.concatenate([window_borders, hour_borders]))
    return Segments(borders, np.searchsorted(borders, starts), np.searchsorted(borders, ends))


def read_window_sketches(
    starts: I64, ends: I64, expiry: Expiry, read: Callable[[Segments], SketchBatch]
) -> tuple[Segments, SketchBatch]:
    """Read the segments and sketches of windows, trimmed to what has not expired; none where too much has expired."""
    windows, segments, batch = read_trimmed(starts, ends, expiry, window_segments, read, SketchBatch.empty())
    return segments, replace(batch, provenance=windows.with_expiry(batch.provenance))


def group_percentiles(
    storage: Storage,
    matchers: Sequence[Matcher],
    starts: I64,
    ends: I64,
    *,
    qs: Sequence[float],
    by: Sequence[str],
    budget: Budget | None = None,
) -> Percentiles:
    """Percentiles of all samples of each group within each window; the labels ``by`` of a group's series are equal."""
    budget = budget or Budget(QueryLimits(), SystemClock())
    check_deadline = budget.check_deadline

    def read(segments: Segments) -> SketchBatch:
        return storage.select_sketches(matchers, segments, check_deadline=check_deadline)

    segments, batch = read_window_sketches(starts, ends, Expiry(), read)
    budget.charge_series(len(batch.labels), "the selector")
    budget.charge_samples(len(batch.row))
    names = [tuple((name, labels[name]) for name in by if name in labels) for labels in batch.labels]
    groups = sorted(set(names))
    number = {group: i for i, group in enumerate(groups)}
    budget.check_cells(len(groups) * len(qs), len(starts), "the answer")
    group_of = np.array([number[name] for name in names], np.int64)
    values = [np.full((len(groups), len(starts)), np.nan) for _ in qs]
    for at, sketches in _merge_by_window(batch, group_of, len(groups), segments, check_deadline):
        for table, q in zip(values, qs, strict=True):
            table.ravel()[at] = sketch.quantile(sketches, q)
    return Percentiles([dict(group) for group in groups], values, batch.provenance)


def series_percentiles(
    batch: SketchBatch, segments: Segments, qs: F64, check_deadline: DeadlineCheck = no_deadline
) -> tuple[F64, npt.NDArray[np.bool_]]:
    """(values, presence) [S, T] of each series within each window; ``qs`` has one q per window."""
    shape = len(batch.labels), len(segments.low)
    values, present = np.full(shape, np.nan), np.zeros(shape, np.bool_)
    for at, sketches in _merge_by_window(batch, np.arange(shape[0]), shape[0], segments, check_deadline):
        window_qs = qs[at % shape[1]]
        for q in np.unique(window_qs):
            with_q = np.isnan(window_qs) if np.isnan(q) else window_qs == q
            values.ravel()[at[with_q]] = sketch.quantile(sketches.take(with_q), float(q))
        present.ravel()[at] = True
    return values, present


def _merge_by_window(
    batch: SketchBatch, group_of: I64, groups: int, segments: Segments, check_deadline: DeadlineCheck
) -> Iterator[tuple[I64, Sketches]]:
    """(group * windows + window, merged sketch) for all that have samples, some windows at a time.

    Windows may overlap, so one entry may go into many of them: only so many are merged at once as memory allows.
    """
    count = len(segments.low)
    order = np.argsort(batch.segment, kind="stable")
    begin = np.searchsorted(batch.segment[order], segments.low)
    end = np.searchsorted(batch.segment[order], segments.high)
    sizes = np.concatenate([[0], np.cumsum(np.diff(batch.sketches.starts)[order])])
    weight = np.cumsum(sizes[end] - sizes[begin])
    part_of = weight // _BUCKETS_AT_ONCE
    for part in np.unique(part_of):
        check_deadline()
        windows = np.flatnonzero((part_of == part) & (end > begin))
        if not len(windows):
            continue
        lengths = end[windows] - begin[windows]
        owner = np.repeat(windows, lengths)
        within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        entries = order[np.repeat(begin[windows], lengths) + within]
        code = group_of[batch.row[entries]] * count + owner
        sort = np.argsort(code, kind="stable")
        heads = np.concatenate([np.flatnonzero(np.diff(code[sort], prepend=-1)), [len(sort)]])
        yield code[sort][heads[:-1]], sketch.merge_groups(batch.sketches.take(entries[sort]), heads)
