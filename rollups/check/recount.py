"""Counts aggregates a second time by other means: plain numpy over versions, no kernel, no merge, no sketch.

Enter by ``recount_hour`` (an hour from all its versions) and ``recount_day`` (a day from its hours); ``differences``
lists every stored aggregate that differs: exactly for counts, times, extremes, first and last values and integers,
within ``TOLERANCE`` for sums of fractions, within the sketch's own accuracy for percentiles. Each row belongs to one
(metric, series). All functions are pure; ``fsck`` uses them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from spm.arrays import BOOL, F64, I64, U64
from spm.store.rollup import sketch
from spm.store.rollup.aggregates import COLUMNS, Aggregates, concatenate
from spm.store.versions.merge import Piece
from spm.store.versions.visibility import ALL_VISIBLE, Visibility

TOLERANCE = 1e-12  # of sums of the same numbers in another order, relative to the sum of their sizes
SKETCH = "sketch"
_WHOLE = 2.0**53
_STALE = np.uint64(0x7FF0_0000_0000_0002)
_EXACT = ("count", "min", "max", "first", "first_ts", "last", "last_ts")


@dataclass(frozen=True, slots=True)
class RecountedRows:
    """Aggregates sorted by (metric, series); ``values``: the samples of each row, ascending, without NaN.

    ``sizes`` has the number of values of each row. A day has no values: its sketch is compared with those of its hours.
    """

    metrics: U64
    rows: Aggregates
    scale: F64  # the sum of the absolute values: errors are relative to it
    whole_numbers: BOOL  # rows of integers so small that their sum is exact in any order
    values: F64 | None = None
    sizes: I64 | None = None

    def __len__(self) -> int:
        return len(self.metrics)


@dataclass(frozen=True, slots=True)
class AggregateDifference:
    """One stored aggregate of one series that differs from the recount."""

    metric: int
    series: int
    name: str
    stored: float
    counted: float

    def __str__(self) -> str:
        return f"{self.name} of series {self.series:016x} is {self.stored!r}, counted {self.counted!r}"


# --- an hour from its versions ----------------------------------------------------------------------------------------


def recount_hour(pieces: Sequence[Piece], visibility: Visibility = ALL_VISIBLE) -> RecountedRows:
    """Counts what the aggregates of an hour shard must be; ``pieces``: all its versions of pages and blocks, in order.

    1. the visible rows of all pieces, one under the other;
    2. sorted by (metric, series, ts, stamp, source), rows of equal ones in order of arrival, stale markers before all;
    3. the last of each (metric, series, ts) wins, unless it is a stale marker, which says that there is nothing;
    4. counted group by group.
    """
    parts = [_rows(piece, visibility) for piece in pieces]
    metric, series, ts, ms, process, sequence, source, bits = (
        np.concatenate([part[i] for part in parts]) if parts else np.empty(0, np.uint64) for i in range(8)
    )
    _, source = np.unique(source, return_inverse=True)
    order = np.lexsort((source, sequence, process, ms, bits != _STALE, ts, series, metric))
    metric, series, ts, bits = metric[order], series[order], ts[order].astype(np.int64), bits[order]
    last = np.ones(len(ts), np.bool_)
    last[:-1] = (metric[1:] != metric[:-1]) | (series[1:] != series[:-1]) | (ts[1:] != ts[:-1])
    wins = last & (bits != _STALE)
    return _count(metric[wins], series[wins], ts[wins], bits[wins])


def _rows(piece: Piece, visibility: Visibility) -> tuple[np.ndarray, ...]:
    visible = visibility.visible_rows(piece)
    rows = np.flatnonzero(visible) if visible is not None else np.arange(len(piece.ts))
    owner = np.repeat(np.arange(len(piece.series)), piece.counts)[rows]
    message = piece.message[rows]
    table = piece.messages
    names = np.array([name.encode() for name in table.sources] or [b""], object)
    return (
        piece.metrics[owner],
        piece.series[owner],
        piece.ts[rows],
        table.ms[message],
        table.process[message],
        table.sequence[message],
        names[table.source[message]],
        piece.values[rows].view(np.uint64),
    )


def _count(metric: U64, series: U64, ts: I64, bits: U64) -> RecountedRows:
    heads = _heads(metric, series)
    starts, ends = heads[:-1], heads[1:]
    values = bits.view(np.float64)
    numbers = ~np.isnan(values)
    fits = np.where(numbers, values, np.nan)
    grows = np.zeros(len(values))
    inner = np.ones(len(values), np.bool_)
    inner[starts] = False
    with np.errstate(invalid="ignore", over="ignore"):
        before = np.roll(values, 1)
        grows[inner & (values < before)] = before[inner & (values < before)]
        rows = Aggregates(
            series=series[starts],
            count=ends - starts,
            sum=_sums(values, starts),
            sumsq=_sums(values * values, starts),
            min=_reduced(np.fmin, fits, starts),
            max=_reduced(np.fmax, fits, starts),
            first=values[starts],
            first_ts=ts[starts],
            last=values[ends - 1],
            last_ts=ts[ends - 1],
            increase=np.where(ends - starts > 1, values[ends - 1] - values[starts] + _sums(grows, starts), 0.0),
        )
        scale = _sums(_sizes(values), starts) + _sums(_sizes(grows), starts)
        whole = (_sums(values != np.rint(values), starts) == 0) & (rows.sumsq < _WHOLE)
    owner = np.repeat(np.arange(len(starts)), ends - starts)[numbers]
    order = np.lexsort((values[numbers], owner))
    sizes = np.bincount(owner, minlength=len(starts)).astype(np.int64)
    return RecountedRows(metric[starts], rows, scale, whole, values[numbers][order], sizes)


def _heads(metric: U64, series: U64) -> I64:
    if not len(series):
        return np.zeros(1, np.int64)
    cuts = np.flatnonzero((metric[1:] != metric[:-1]) | (series[1:] != series[:-1])) + 1
    return np.concatenate([[0], cuts, [len(series)]]).astype(np.int64)


def _sums(values: F64, starts: I64) -> F64:
    return np.add.reduceat(values.astype(np.float64), starts) if len(starts) else np.empty(0)


def _reduced(by: np.ufunc, values: F64, starts: I64) -> F64:
    result: F64 = by.reduceat(values, starts) if len(starts) else np.empty(0)
    return result


# --- a day from its hours ---------------------------------------------------------------------------------------------


def recount_day(hours: Iterable[tuple[U64, Aggregates]]) -> RecountedRows:
    """Counts what the aggregates of a day must be from its hours, given as (metrics, rows) in the order of time."""
    parts_of_hours = list(hours)
    table = concatenate([rows for _, rows in parts_of_hours]) if parts_of_hours else Aggregates.empty()
    metric = np.concatenate([np.empty(0, np.uint64), *(m for m, _ in parts_of_hours)])
    order = np.lexsort((np.arange(len(metric)), table.series, metric))
    metric, rows = metric[order], table.take(order)
    heads = _heads(metric, rows.series)
    starts, ends = heads[:-1], heads[1:]
    inner = np.ones(len(metric), np.bool_)
    inner[starts] = False
    with np.errstate(invalid="ignore", over="ignore"):
        before = np.roll(rows.last, 1)
        border = np.where(rows.first < before, rows.first, rows.first - before)
        grown = rows.increase + np.where(inner, border, 0.0)
        day_rows = Aggregates(
            series=rows.series[starts],
            count=np.add.reduceat(rows.count, starts) if len(starts) else np.empty(0, np.int64),
            sum=_sums(rows.sum, starts),
            sumsq=_sums(rows.sumsq, starts),
            min=_reduced(np.fmin, rows.min, starts),
            max=_reduced(np.fmax, rows.max, starts),
            first=rows.first[starts],
            first_ts=rows.first_ts[starts],
            last=rows.last[ends - 1],
            last_ts=rows.last_ts[ends - 1],
            increase=_sums(grown, starts),
        )
        scale = _sums(_sizes(rows.sum), starts) + _sums(_sizes(grown) + _sizes(rows.last), starts)
        parts = [rows.sum, rows.sumsq, grown]
        whole = np.all([_sums(part != np.rint(part), starts) == 0 for part in parts], axis=0) & (
            day_rows.sumsq < _WHOLE
        )
    if len(rows.sketch) == len(rows):
        day_rows = replace(day_rows, sketch=_joined_sketches(rows, np.repeat(np.arange(len(starts)), ends - starts)))
    return RecountedRows(metric[starts], day_rows, scale, whole)


def _joined_sketches(rows: Aggregates, owner: I64) -> sketch.Sketches:
    """Adds up the sketch buckets of each row's parts by key; a row of which a part lacks its sketch gets none."""
    group = np.repeat(owner, np.diff(rows.sketch.starts))
    total = int(owner[-1]) + 1 if len(owner) else 0
    width = np.int64(2 * sketch.INFINITE + 2)
    names, where = np.unique(group * width + rows.sketch.keys + sketch.INFINITE, return_inverse=True)
    counts = np.zeros(len(names), np.int64)
    np.add.at(counts, where, rows.sketch.counts)
    sizes = np.bincount(names // width, minlength=total)
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    keys = (names % width - sketch.INFINITE).astype(np.int32)
    lacking = np.bincount(owner, weights=~rows.has_sketch, minlength=total) > 0
    return sketch.Sketches(starts, keys, counts).without(lacking)


# --- comparing --------------------------------------------------------------------------------------------------------


def differences(metrics: U64, stored: Aggregates, counted: RecountedRows) -> list[AggregateDifference]:
    """Lists every stored aggregate that differs from the recount; ``metrics`` and ``stored`` may be in any order."""
    order = np.lexsort((stored.series, metrics))
    metrics, stored = metrics[order], stored.take(order)
    result = _of_other_series(metrics, stored, counted)
    if result:
        return result
    for name, _ in COLUMNS:
        was, now = getattr(stored, name), getattr(counted.rows, name)
        wrong = _differ(name, was, now, counted)
        result += [_difference(metrics, stored, name, i, was[i], now[i]) for i in np.flatnonzero(wrong).tolist()]
    wrong = _wrong_sketches(stored, counted)
    result += [_difference(metrics, stored, SKETCH, i, np.nan, np.nan) for i in np.flatnonzero(wrong).tolist()]
    return result


def _difference(metrics: U64, stored: Aggregates, name: str, i: int, was: float, now: float) -> AggregateDifference:
    return AggregateDifference(int(metrics[i]), int(stored.series[i]), name, float(was), float(now))


def _of_other_series(metrics: U64, stored: Aggregates, counted: RecountedRows) -> list[AggregateDifference]:
    """Lists series that are only stored, or only counted."""
    was = dict(zip(zip(metrics.tolist(), stored.series.tolist(), strict=True), stored.count.tolist(), strict=True))
    names = zip(counted.metrics.tolist(), counted.rows.series.tolist(), strict=True)
    now = dict(zip(names, counted.rows.count.tolist(), strict=True))
    different = sorted(was.keys() ^ now.keys())
    result = [AggregateDifference(m, s, "count", was.get((m, s), 0), now.get((m, s), 0)) for m, s in different]
    if not result and len(was) != len(metrics):
        result.append(AggregateDifference(0, 0, "rows", len(metrics), len(was)))
    return result


def _differ(name: str, was: np.ndarray, now: np.ndarray, counted: RecountedRows) -> BOOL:
    apart: BOOL
    if name in ("first", "last"):
        apart = was.view(np.int64) != now.view(np.int64)
        return apart
    same: BOOL = (was == now) | (_nan(was) & _nan(now))
    if name in _EXACT:
        return ~same
    with np.errstate(invalid="ignore", over="ignore"):
        scale = now if name == "sumsq" else counted.scale
        near = np.abs(was - now) <= TOLERANCE * np.abs(scale)
        odd = ~np.isfinite(scale) & ~np.isfinite(was)  # sums that leave the range of numbers, in one order or another
    apart = ~(same | (near & ~counted.whole_numbers) | odd)
    return apart


def _sizes(values: F64) -> F64:
    """The absolute values, 0 for NaN: a sum with NaN is NaN in any order, so NaN adds nothing to the tolerance."""
    return np.where(np.isnan(values), 0.0, np.abs(values))


def _nan(values: np.ndarray) -> BOOL:
    return np.isnan(values) if values.dtype == np.float64 else np.zeros(len(values), np.bool_)


def _wrong_sketches(stored: Aggregates, counted: RecountedRows) -> BOOL:
    """Marks rows whose sketch does not match the values; rows of form 1 have no sketch, which is no fault."""
    if len(stored.sketch) != len(stored):
        return np.zeros(len(stored), np.bool_)
    there: BOOL = stored.has_sketch & ~np.isnan(stored.min)
    if counted.values is None or counted.sizes is None:
        return there & _other_buckets(stored.sketch, counted.rows.sketch, len(stored))
    owner = np.repeat(np.arange(len(stored)), np.diff(stored.sketch.starts))
    sizes = np.bincount(owner, weights=stored.sketch.counts, minlength=len(stored)).astype(np.int64)
    wrong: BOOL = there & (sizes != counted.sizes)
    matching = there & ~wrong
    shown = np.repeat(sketch.values_of(stored.sketch.keys), stored.sketch.counts)
    shown = shown[np.repeat(matching[owner], stored.sketch.counts)]
    of_value = np.repeat(np.arange(len(stored)), counted.sizes)
    true = counted.values[matching[of_value]]
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.abs(shown - true) <= 0.01 * np.abs(true) + 5e-324
    wrong[of_value[matching[of_value]][~(near | (shown == true))]] = True
    return wrong


def _other_buckets(was: sketch.Sketches, now: sketch.Sketches, rows: int) -> BOOL:
    if len(now) != rows:
        return np.zeros(rows, np.bool_)
    wrong: BOOL = np.diff(was.starts) != np.diff(now.starts)
    owner = np.repeat(np.arange(rows), np.diff(was.starts))
    mine, theirs = ~wrong[owner], ~wrong[np.repeat(np.arange(rows), np.diff(now.starts))]
    differ = (was.keys[mine] != now.keys[theirs]) | (was.counts[mine] != now.counts[theirs])
    wrong[owner[mine][differ]] = True
    return wrong
