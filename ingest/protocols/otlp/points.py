"""Compiled loop over OTLP's data points: a number gives one sample, a histogram one per bucket and its sum and count.

Enter by ``read_points``. A head of the cache is a context's number and a point's attributes as they are written, an
item a role of the point (buckets and quantiles with their bits). What the cache does not know is left to Python as a
row of ``odd``; its sample stands in the columns meanwhile under the number -1.
"""

import numpy as np
from numba import njit

from ingest.protocols.common.byte_kernels import copy, load64, store64
from ingest.protocols.common.histogram_kernels import (
    BAD_BOUNDS,
    BAD_BUCKETS,
    BAD_SCALE,
    BUCKET_ROLE,
    COUNT_ROLE,
    FLAGS,
    HAS,
    HAS_MAX,
    HAS_MIN,
    MAX,
    MAX_ROLE,
    MIN,
    MIN_ROLE,
    NO_TEMPORALITY,
    NO_TIME,
    NO_VALUE,
    ONE,
    POINT_COLUMNS,
    QUANTILE_ROLE,
    SCALE,
    SUM_ROLE,
    TARGET_ROLE,
    THRESHOLD,
    TIME,
    TOO_MANY_BUCKETS,
    TOTAL,
    VALUE,
    VALUE_ROLE,
    ZERO,
    bits_of,
    buckets_of,
    classic,
    exponential,
    numbers,
    put,
    quantile,
)
from ingest.protocols.common.protobuf_kernels import BYTES, FIXED64, VARINT, field
from ingest.protocols.common.series_kernels import KnownSeries, find_head, find_item
from ingest.protocols.otlp.kernels import (
    CONTEXT,
    COUNT,
    DATA,
    DATA_END,
    DELTA,
    EXEMPLARS,
    EXPONENTIAL,
    FAULTY,
    FIRST_POINT,
    FULL,
    GAUGE,
    HISTOGRAM,
    KIND,
    ODDS,
    POINTS,
    RESOURCE,
    RESOURCE_END,
    RESOURCE_NUMBER,
    SUM,
    SUMMARY,
    TEXT,
    WHERE,
    Rows,
)
from spm.arrays import I32, I64, U8, U64
from spm.limits import HISTOGRAM_BUCKETS_MAX
from spm.wire import STALE_BITS

ODD_ROW, ODD_SAMPLE, ODD_HEAD, ODD_HEAD_END, ODD_ROLE, ODD_BITS, ODD_COLUMNS = range(7)  # of a row of ``odd``
FAULTS = {
    NO_TIME: "the data point has no time",
    NO_VALUE: "the data point has no value",
    BAD_BUCKETS: "a histogram must have one bucket more than bounds",
    BAD_BOUNDS: "a histogram's bounds must be finite and ascend",
    BAD_SCALE: "an exponential histogram's scale or offset is out of range",
    NO_TEMPORALITY: "the temporality is neither delta nor cumulative",
    TOO_MANY_BUCKETS: f"a histogram has {HISTOGRAM_BUCKETS_MAX} buckets or more",
}
NOTHING = -2  # the number of a series that is not to be
NO_CONTEXT = 0xFFFF_FFFF_FFFF_FFFF  # before a resource's own series, in place of a context's number
FOUND, EDGES, POSITIVE, NEGATIVE = (
    0,
    1,
    2,
    4,
)  # shape of a point: how many counts and bounds; ends and offsets of buckets
SHAPE_COLUMNS = 6
TABLE_ROWS = 2 * HISTOGRAM_BUCKETS_MAX + 16
_NS = np.uint64(1_000_000)
_STALE = np.uint64(STALE_BITS)
_INFINITY = np.uint64(0x7FF0000000000000)


@njit(nogil=True, cache=True)
def _samples(
    row: I64, point: U64, shape: I64, counts: U64, bounds: U64, merged: U64, table: U64
) -> int:  # fmt: skip
    """All samples of a point into ``table``: how many, or minus a fault of the point."""
    kind, found, edges = row[KIND], shape[FOUND], shape[EDGES]
    positive, negative = (shape[POSITIVE], shape[POSITIVE + 1]), (shape[NEGATIVE], shape[NEGATIVE + 1])
    stale = point[FLAGS] & ONE != 0
    if point[TIME] == 0:
        return -NO_TIME
    if kind in (SUM, HISTOGRAM, EXPONENTIAL) and not 1 <= row[DELTA] <= 2:
        return -NO_TEMPORALITY
    if kind in (GAUGE, SUM):
        if not point[HAS] and not stale:
            return -NO_VALUE
        return put(table, 0, VALUE_ROLE, np.uint64(0), _STALE if stale else point[VALUE])
    if max(found, edges, positive[0], negative[0]) >= HISTOGRAM_BUCKETS_MAX:
        return -TOO_MANY_BUCKETS
    total = bits_of(float(point[TOTAL]))
    count = 0
    if kind == SUMMARY:
        for k in range(found):
            count = put(table, count, QUANTILE_ROLE, bounds[k], counts[k])
    elif kind == HISTOGRAM:
        count = classic(counts, bounds, found, edges, table, count)
    else:
        count = exponential(point, positive, negative, counts, merged, table, count)
    if count < 0:
        return count
    if kind != SUMMARY:
        count = put(table, count, BUCKET_ROLE, _INFINITY, total)
        if point[HAS_MIN]:
            count = put(table, count, MIN_ROLE, np.uint64(0), point[MIN])
        if point[HAS_MAX]:
            count = put(table, count, MAX_ROLE, np.uint64(0), point[MAX])
    if point[HAS] or kind == SUMMARY:
        count = put(table, count, SUM_ROLE, np.uint64(0), point[VALUE])
    count = put(table, count, COUNT_ROLE, np.uint64(0), total)
    if stale:
        table[:count, 2] = _STALE
    return count


@njit(nogil=True, cache=True)
def _read_number(point: U64, number: int, form: int, body: U8, begin: int, value: np.uint64) -> None:
    """A plain field of a number's point."""
    if number == 3 and form == FIXED64:
        point[TIME] = load64(body, begin)
    elif number == 4 and form == FIXED64:
        point[VALUE], point[HAS] = load64(body, begin), ONE
    elif number == 6 and form == FIXED64:
        point[VALUE], point[HAS] = bits_of(float(np.int64(load64(body, begin)))), ONE
    elif number == 8 and form == VARINT:
        point[FLAGS] = value


@njit(nogil=True, cache=True)
def _read_distribution(point: U64, kind: int, number: int, form: int, body: U8, begin: int, value: np.uint64) -> None:
    """A plain field of a histogram's or summary's point."""
    exponential = kind == EXPONENTIAL
    if form == VARINT:
        if number == (8 if kind == SUMMARY else 10):
            point[FLAGS] = value
        elif exponential and number == 6:
            point[SCALE] = np.uint64(np.int64(value >> ONE) ^ -np.int64(value & ONE))
    elif form == FIXED64:
        bits = load64(body, begin)
        if number == 3:
            point[TIME] = bits
        elif number == 4:
            point[TOTAL] = bits
        elif number == 5:
            point[VALUE], point[HAS] = bits, ONE
        elif exponential and number == 7:
            point[ZERO] = bits
        elif exponential and number == 14:
            point[THRESHOLD] = bits
        elif number == (12 if exponential else 11) and kind != SUMMARY:
            point[MIN], point[HAS_MIN] = bits, ONE
        elif number == (13 if exponential else 12) and kind != SUMMARY:
            point[MAX], point[HAS_MAX] = bits, ONE


@njit(nogil=True, cache=True)
def _look_up(
    known: KnownSeries, place: int, point: U64, samples: int, head_start: int, head_end: int, table: U64, key: U8, text: U8,
    state: I64, odd: Rows, series: I32, ts: I64, values: U64, points: I32,
) -> None:  # fmt: skip
    """The samples of a point into the columns, each under its series' number."""
    head = find_head(known, text, head_start, head_end)
    ms = np.int64(point[TIME] // _NS)
    for k in range(samples):
        role = np.int64(table[k, 0])
        item = -1
        if head >= 0:
            key[0] = np.uint8(role)
            store64(key, 1, table[k, 1])
            item = find_item(known, head, key, 0, 9 if role in (BUCKET_ROLE, QUANTILE_ROLE) else 1)
        number = known.item_series[item] if item >= 0 else -1
        if number == NOTHING:
            continue
        count = state[COUNT]
        series[count], ts[count], values[count], points[count] = number, ms, table[k, 2], state[POINTS]
        state[COUNT] += 1
        if number < 0:
            one = odd[state[ODDS]]
            one[ODD_ROW], one[ODD_SAMPLE], one[ODD_ROLE], one[ODD_BITS] = place, count, role, np.int64(table[k, 1])
            one[ODD_HEAD], one[ODD_HEAD_END] = head_start, head_end
            state[ODDS] += 1
            state[TEXT] = max(state[TEXT], head_end)


@njit(nogil=True, cache=True)
def _read_list(
    kind: int, number: int, form: int, body: U8, begin: int, end: int, counts: U64, bounds: U64, shape: I64
) -> int:  # fmt: skip
    """A field of a distribution that is a list, or part of one, into ``counts`` and ``bounds``; a fault below 0."""
    fault = 0
    if kind == HISTOGRAM and number == 6:
        shape[FOUND] = fault = numbers(body, form, begin, end, counts, shape[FOUND])
    elif kind == HISTOGRAM and number == 7:
        shape[EDGES] = fault = numbers(body, form, begin, end, bounds, shape[EDGES])
    elif kind == SUMMARY and number == 6 and shape[FOUND] < HISTOGRAM_BUCKETS_MAX:
        fault = quantile(body, begin, end, counts, bounds, shape[FOUND])
        shape[FOUND] += 1
    elif kind == EXPONENTIAL and number == 8:
        shape[POSITIVE], shape[POSITIVE + 1] = buckets_of(body, begin, end, counts, 0)
        fault = shape[POSITIVE]
    elif kind == EXPONENTIAL and number == 9:
        shape[NEGATIVE], shape[NEGATIVE + 1] = buckets_of(body, begin, end, counts, shape[POSITIVE])
        fault = shape[NEGATIVE]
    return min(fault, 0)


@njit(nogil=True, cache=True)
def _read_point(
    body: U8, start: int, stop: int, kind: int, point: U64, counts: U64, bounds: U64, shape: I64, text: U8,
    head_end: int, state: I64,
) -> int:  # fmt: skip
    """All fields of a point; its attributes are added to the head. Where the head ends, or a fault of the wire."""
    attribute = 1 if kind == EXPONENTIAL else 9 if kind == HISTOGRAM else 7
    exemplar = 11 if kind == EXPONENTIAL else 8 if kind == HISTOGRAM else 5 if kind in (GAUGE, SUM) else -1
    point[:], shape[:] = 0, 0
    at = start
    while at < stop:
        number, form, begin, end, value = field(body, at, stop)
        fault = min(number, 0)
        if form == BYTES and number == attribute:
            head_end = copy(body, at, end, text, head_end)
        elif form == BYTES and number == exemplar:
            state[EXEMPLARS] += 1
        if fault == 0:
            if kind in (GAUGE, SUM):
                _read_number(point, number, form, body, begin, value)
            elif form == BYTES or (kind == HISTOGRAM and form == FIXED64 and number in (6, 7)):
                fault = _read_list(kind, number, form, body, begin, end, counts, bounds, shape)
            else:
                _read_distribution(point, kind, number, form, body, begin, value)
        if fault < 0:
            state[WHERE] = at
            return fault
        at = end
    if shape[NEGATIVE] < shape[POSITIVE]:
        shape[NEGATIVE] = shape[POSITIVE]
    return head_end


@njit(nogil=True, cache=True)
def read_points(
    body: U8, known: KnownSeries, rows: Rows, state: I64, text: U8, odd: Rows, faulty: Rows,
    series: I32, ts: I64, values: U64, points: I32,
) -> int:  # fmt: skip
    """All samples of all points; a fault of the wire, FULL if there is no room for them, or 0.

    1. per metric: its points; 2. per point: its fields; 3. its head: the context's number and its attributes; 4. its
    samples, looked up one by one; 5. behind the last metric of a resource the sample of the resource's own series.
    """
    point: U64 = np.zeros(POINT_COLUMNS, np.uint64)
    shape: I64 = np.zeros(SHAPE_COLUMNS, np.int64)
    counts: U64 = np.empty(HISTOGRAM_BUCKETS_MAX, np.uint64)
    bounds: U64 = np.empty(HISTOGRAM_BUCKETS_MAX, np.uint64)
    merged: U64 = np.empty(HISTOGRAM_BUCKETS_MAX, np.uint64)
    table: U64 = np.empty((TABLE_ROWS, 3), np.uint64)
    key: U8 = np.zeros(16, np.uint8)
    latest = np.uint64(0)
    for place in range(len(rows)):
        row = rows[place]
        row[FIRST_POINT] = state[POINTS]
        at = row[DATA]
        while at < row[DATA_END]:
            number, form, start, stop, _ = field(body, at, row[DATA_END])
            if number < 0:
                state[WHERE] = at
                return number
            at = stop
            if number != 1 or form != BYTES:
                continue
            head = state[TEXT]
            if head + (stop - start) + 32 > text.size or state[COUNT] + len(table) > series.size:
                return FULL
            store64(text, head, np.uint64(row[CONTEXT]))
            end = _read_point(body, start, stop, row[KIND], point, counts, bounds, shape, text, head + 8, state)
            if end < 0:
                return end
            samples = _samples(row, point, shape, counts, bounds, merged, table)
            if samples < 0:
                if state[FAULTY] < len(faulty):
                    faulty[state[FAULTY], 0], faulty[state[FAULTY], 1] = state[POINTS], -samples
                state[FAULTY] += 1
            else:
                latest = max(latest, point[TIME])
                _look_up(known, place, point, samples, head, end, table, key, text, state, odd,
                         series, ts, values, points)  # fmt: skip
            state[POINTS] += 1
        if latest > 0 and (place + 1 == len(rows) or rows[place + 1, RESOURCE_NUMBER] != row[RESOURCE_NUMBER]):
            head = state[TEXT]
            if head + (row[RESOURCE_END] - row[RESOURCE]) + 32 > text.size or state[COUNT] == series.size:
                return FULL
            store64(text, head, np.uint64(NO_CONTEXT))
            end = copy(body, row[RESOURCE], row[RESOURCE_END], text, head + 8)
            put(table, 0, TARGET_ROLE, np.uint64(0), bits_of(1.0))
            point[TIME] = latest
            state[POINTS] -= 1  # it counts as the last point of its resource
            _look_up(known, place, point, 1, head, end, table, key, text, state, odd, series, ts, values, points)
            state[POINTS] += 1
            latest = np.uint64(0)
    return 0
