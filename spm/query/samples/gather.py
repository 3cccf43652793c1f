"""Gathers the winners of a few series from merged pieces by one kernel call, without merging these.

Pieces of one hour-shard usually have no time of a series in common: each time is in the message that brought it, and
only one that was sent again is in two. Then the winners of all pieces are those of each piece, in order of time, and
no stamps are compared. Where pieces differ about a time, ``gather`` says so, and its caller merges them. Enter by
``gather``.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit

from spm.arrays import F64, I64, U64
from spm.fast_dataclass import dataclass
from spm.query.samples.pointers import address_of, integers_at, shorts_at, unsigned_at
from spm.query.samples.sample_runs import Timelines
from spm.query.series.index import SeriesByMetric
from spm.store.versions.kernels import first_not_below
from spm.store.versions.merge import Piece
from spm.wire import STALE_BITS

Layout = tuple[int, ...]
GATHERED_SERIES_MAX = 64  # of more series a copy costs more than merging

_STALE = np.uint64(STALE_BITS)
_PIECE_FIELDS = 6  # of a layout: number of series; addresses of series, metrics, counts, times and values
_PIECE_TYPES = [np.uint64, np.uint64, np.int32, np.int64, np.float64]


@dataclass(frozen=True, slots=True)
class Gathered:
    """Samples of a time range: entries along one timeline for each series that has any, and its values."""

    has_series: bool  # whether any piece has samples of them, at whatever time
    entries: I64  # [N, 4], as ``SampleRunsBuilder`` has them
    values: F64
    timelines: Timelines


def layout_of(piece: Piece) -> Layout | None:
    """Where a merged piece's columns lie, while it lives; ``None`` if kernels cannot read them by their address."""
    columns: tuple[np.ndarray, ...] = (piece.series, piece.metrics, piece.counts, piece.ts, piece.values)
    if [column.dtype for column in columns] != _PIECE_TYPES or not all(column.flags.c_contiguous for column in columns):
        return None
    return (len(piece.series), *map(address_of, columns))


def gather(layouts: Sequence[Layout | None], selected: SeriesByMetric, start_ms: int, end_ms: int) -> Gathered | None:
    """Gather the winners with start_ms < ts <= end_ms of an hour-shard's merged pieces, which hide nothing.

    ``None`` where pieces differ about a time, or cannot be read by their addresses.
    """
    if None in layouts:
        return None
    table = np.array(layouts, np.int64).reshape(-1, _PIECE_FIELDS)
    agreed, has_series, entries, ts, values, first, lengths, addresses = _gather(
        table, selected.ids, selected.metrics, selected.numbers, start_ms, end_ms
    )
    if not agreed:
        return None
    return Gathered(has_series, entries, values, Timelines(ts, first, lengths, np.zeros_like(first), addresses))


@njit(cache=True, nogil=True)
def _gather(layouts: I64, ids: U64, metrics: U64, numbers: I64, start_ms: int, end_ms: int) -> Any:
    """(whether the pieces agree, whether any has the series, entries, times, values, and of each timeline: where it
    begins, its length, its address).
    """
    rows, total, has_series = _find_rows(layouts, ids, metrics, start_ms, end_ms)
    ts, bits = np.empty(total, np.int64), np.empty(total, np.uint64)
    spare_ts, spare_bits = np.empty(total, np.int64), np.empty(total, np.uint64)
    entries, first = np.empty((len(ids), 4), np.int64), np.empty(len(ids), np.int64)
    lengths, size, at = np.empty(len(ids), np.int64), 0, 0
    for wanted in range(len(ids)):
        begin = at
        for piece in range(len(layouts)):
            low, high = rows[piece, wanted, 0], rows[piece, wanted, 1]
            middle = at
            own_ts = integers_at(layouts[piece, 4] + 8 * low, high - low)
            at = _add_winners(own_ts, unsigned_at(layouts[piece, 5] + 8 * low, high - low), ts, bits, at)
            if begin < middle < at and ts[middle] <= ts[middle - 1]:
                at = _merge_runs(ts, bits, begin, middle, at, spare_ts, spare_bits)
                if at < 0:
                    return (False, has_series, entries, ts, bits.view(np.float64), first, lengths, first)
        if at > begin:
            entries[size] = numbers[wanted], 0, begin, size
            first[size], lengths[size] = begin, at - begin
            size += 1
    addresses = np.int64(ts.ctypes.data) + 8 * first[:size]
    return (
        True,
        has_series,
        entries[:size],
        ts[:at],
        bits[:at].view(np.float64),
        first[:size],
        lengths[:size],
        addresses,
    )


@njit(cache=True, nogil=True)
def _find_rows(layouts: I64, ids: U64, metrics: U64, start_ms: int, end_ms: int) -> tuple[I64, int, bool]:
    """(the rows of each piece and series within the time range, how many they are, whether there are any at all)."""
    rows, total, has_series = np.zeros((len(layouts), len(ids), 2), np.int64), 0, False
    for piece in range(len(layouts)):
        count = layouts[piece, 0]
        series, own_metrics = unsigned_at(layouts[piece, 1], count), unsigned_at(layouts[piece, 2], count)
        counts, place, before, row = shorts_at(layouts[piece, 3], count), 0, 0, 0
        for wanted in range(len(ids)):
            place = first_not_below(own_metrics, series, place, metrics[wanted], ids[wanted])
            if place == count or own_metrics[place] != metrics[wanted] or series[place] != ids[wanted]:
                continue
            for number in range(before, place):
                row += counts[number]
            before = place
            ts = integers_at(layouts[piece, 4] + 8 * row, counts[place])
            low = int(np.searchsorted(ts, start_ms, side="right"))
            high = int(np.searchsorted(ts, end_ms, side="right"))
            rows[piece, wanted, 0], rows[piece, wanted, 1] = row + low, row + high
            total, has_series = total + high - low, has_series or counts[place] > 0
    return rows, total, has_series


@njit(cache=True, nogil=True)
def _add_winners(ts: I64, bits: U64, out_ts: I64, out_bits: U64, at: int) -> int:
    """Add the winner of each time, of rows sorted by (ts, stamp), as ``versions.kernels.winners`` picks it."""
    begin = at
    for row in range(len(ts)):
        if at > begin and out_ts[at - 1] == ts[row]:
            if bits[row] != _STALE or out_bits[at - 1] == _STALE:
                out_bits[at - 1] = bits[row]
        else:
            out_ts[at], out_bits[at] = ts[row], bits[row]
            at += 1
    return at


@njit(cache=True, nogil=True)
def _merge_runs(ts: I64, bits: U64, begin: int, middle: int, end: int, spare_ts: I64, spare_bits: U64) -> int:
    """Merge two ascending runs of samples; returns their new end, -1 if they differ about a time."""
    left, right, at = begin, middle, begin
    while left < middle or right < end:
        if left < middle and right < end and ts[left] == ts[right]:
            if bits[left] != bits[right]:
                return -1
            left += 1
        if right == end or (left < middle and ts[left] < ts[right]):
            spare_ts[at], spare_bits[at] = ts[left], bits[left]
            left += 1
        else:
            spare_ts[at], spare_bits[at] = ts[right], bits[right]
            right += 1
        at += 1
    ts[begin:at], bits[begin:at] = spare_ts[begin:at], spare_bits[begin:at]
    return at
