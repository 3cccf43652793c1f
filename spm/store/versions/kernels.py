"""Compiled loops over versions: sorts them, and finds the winner of each series and time (PROTOCOL 2).

No stamp is compared here, only the rank that ``merge.merge_messages`` gave to its message. ``order_versions`` sorts the
versions of a piece and merges identical ones; ``winners`` picks the version that counts;
``find_series`` finds some series of a piece.
``rollups/check/recount.py`` states the winner rule a second time, in numpy, so that ``fsck`` need not trust this one.
Shapes and conventions as in ``spm/store/encoding/kernels.py``.
"""

import numpy as np
from numba import njit

from spm.arrays import BOOL, I32, I64, U64
from spm.wire import STALE_BITS

_TWINS_SORTED = 64  # from so many versions of one time in one message on, sorting is faster than comparing all pairs


@njit(cache=True, nogil=True)
def _sort_segment(ts: I64, rank: I32, order: I64, scratch: I64, start: int, stop: int) -> None:
    """Stable merge sort of ``order[start:stop]`` by (ts, rank), bottom up."""
    n = stop - start
    width = 1
    while width < n:
        left = start
        while left < stop:
            middle = min(left + width, stop)
            right = min(left + 2 * width, stop)
            i, j = left, middle
            for k in range(left, right):
                take_left = i < middle
                if take_left and j < right:
                    a, b = order[i], order[j]
                    take_left = ts[a] < ts[b] or (ts[a] == ts[b] and rank[a] <= rank[b])
                if take_left:
                    scratch[k - start] = order[i]
                    i += 1
                else:
                    scratch[k - start] = order[j]
                    j += 1
            left += 2 * width
        order[start:stop] = scratch[:n]
        width *= 2


@njit(cache=True, nogil=True)
def _without_twins(order: I64, bits: I64, start: int, stop: int, written: int) -> int:
    """Move ``order[start:stop]`` (one series, ts, rank) down to ``written``, of equal bits the last; return its end.

    It is written to at or before what has been read.

    Many values for one time in one message are rare but cheap to send: from ``_TWINS_SORTED`` on the rows are sorted,
    so that no sender can make a merge quadratic.
    """
    n = stop - start
    if n == 1:
        order[written] = order[start]
        return written + 1
    if n < _TWINS_SORTED:
        for i in range(start, stop):
            last = True
            for j in range(i + 1, stop):
                if bits[order[j]] == bits[order[i]]:
                    last = False
                    break
            if last:
                order[written] = order[i]
                written += 1
        return written
    by_bits = np.argsort(bits[order[start:stop]], kind="mergesort")
    stays = np.ones(n, np.bool_)
    for k in range(n - 1):
        if bits[order[start + by_bits[k]]] == bits[order[start + by_bits[k + 1]]]:
            stays[by_bits[k]] = False
    for i in range(n):
        if stays[i]:
            order[written] = order[start + i]
            written += 1
    return written


@njit(cache=True, nogil=True)
def order_versions(counts: I32, order: I64, ts: I64, rank: I32, bits: I64) -> tuple[I64, I32]:
    """Sort rows by (series, ts, rank, arrival) and merge fully identical versions.

    ``order`` groups rows by series in order of arrival (``group_by_series``); the result takes its place. Of versions
    with equal series, ts, rank and bits the last to arrive stays, so that the index in the message still decides.
    Returns (row numbers i64[N'], count per series i32[S]).
    """
    merged_counts = np.zeros(counts.size, np.int32)
    scratch = np.empty(counts.max() if counts.size else 0, np.int64)
    start = 0
    written = 0
    for s in range(counts.size):
        stop = start + counts[s]
        for i in range(start + 1, stop):
            a, b = order[i - 1], order[i]
            if ts[a] > ts[b] or (ts[a] == ts[b] and rank[a] > rank[b]):
                _sort_segment(ts, rank, order, scratch, start, stop)
                break
        first = written
        i = start
        while i < stop:
            row = order[i]
            j = i + 1
            while j < stop and ts[order[j]] == ts[row] and rank[order[j]] == rank[row]:
                j += 1
            written = _without_twins(order, bits, i, j, written)
            i = j
        merged_counts[s] = written - first
        start = stop
    return order[:written], merged_counts


@njit(cache=True, nogil=True)
def winners(counts: I32, ts: I64, bits: I64, visible: BOOL) -> tuple[I64, I32]:
    """Of rows sorted by (series, ts, stamp): the last visible one of each (series, ts), and the count per series.

    A stale marker never wins over a value of its series and time. ``visible`` says of each row whether it takes part
    (as-of, retractions); when it is empty, all rows do.
    """
    out = np.empty(ts.size, np.int64)
    winner_counts = np.zeros(counts.size, np.int32)
    written = 0
    start = 0
    for s in range(counts.size):
        stop = start + counts[s]
        first = written
        for i in range(start, stop):
            if visible.size and not visible[i]:
                continue
            if written > first and ts[out[written - 1]] == ts[i]:
                if bits[i] != STALE_BITS or bits[out[written - 1]] == STALE_BITS:
                    out[written - 1] = i
            else:
                out[written] = i
                written += 1
        winner_counts[s] = written - first
        start = stop
    return out[:written], winner_counts


@njit(cache=True, nogil=True)
def find_series(series: U64, metrics: U64, wanted_metrics: U64, spans: I64, wanted: U64) -> I64:
    """The numbers of the wanted ones of a piece's series; both are sorted by (metric, id).

    Of metric m ``wanted[spans[m, 0] : spans[m, 1]]`` are wanted, or all its series where the span begins below 0.
    """
    numbers, size, place = np.empty(series.size, np.int64), 0, 0
    for m in range(wanted_metrics.size):
        metric, begin = wanted_metrics[m], spans[m, 0]
        if begin < 0:
            place = first_not_below(metrics, series, place, metric, np.uint64(0))
            while place < series.size and metrics[place] == metric:
                numbers[size] = place
                size, place = size + 1, place + 1
        for at in range(max(begin, 0), spans[m, 1]):
            place = first_not_below(metrics, series, place, metric, wanted[at])
            if place < series.size and metrics[place] == metric and series[place] == wanted[at]:
                numbers[size] = place
                size += 1
    return numbers[:size]


@njit(cache=True, nogil=True)
def rows_of(counts: I32, numbers: I64) -> I64:
    """The rows of the series with these numbers, ascending, of a piece that has ``counts`` rows of each series."""
    size = 0
    for number in numbers:
        size += counts[number]
    rows, written, before, start = np.empty(size, np.int64), 0, 0, 0
    for number in numbers:
        for between in range(before, number):
            start += counts[between]
        before = number
        for row in range(start, start + counts[number]):
            rows[written] = row
            written += 1
    return rows


@njit(cache=True, nogil=True)
def first_not_below(metrics: U64, series: U64, low: int, metric: np.uint64, series_id: np.uint64) -> int:
    """The first place from ``low`` on, among pairs sorted by (metric, id), that is not below a pair.

    It is sought in steps that double: a near one, as where all series are sought one by one, is found at once.
    """
    end, step = low, 1
    while end < len(series) and (metrics[end] < metric or (metrics[end] == metric and series[end] < series_id)):
        low, end, step = end + 1, end + step, 2 * step
    end = min(end, len(series))
    while low < end:
        middle = (low + end) // 2
        if metrics[middle] < metric or (metrics[middle] == metric and series[middle] < series_id):
            low = middle + 1
        else:
            end = middle
    return low
