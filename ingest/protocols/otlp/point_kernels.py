"""Compiled loop over OTLP's data points. A number has one sample, a histogram one per bucket and its sum and count.

Enter by ``read_points``. A head of the cache is the number of a context and the encoded attributes of a point; an item
is a role of the point (with the bits of the edge for buckets and quantiles). A series that the cache does not know gets
a row in ``new_rows``, which Python reads; its sample has the series number -1 until then.
"""

import numpy as np
from numba import njit

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
    convert_classic,
    convert_exponential,
    put_row,
    read_exponential_buckets,
    read_numbers,
    read_quantile,
)
from ingest.protocols.common.protobuf_kernels import BYTES, FIXED64, VARINT, read_field
from ingest.protocols.common.series_kernels import KnownSeries, find_head, find_item, series_of, uncounted_series
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
    NEW_COUNT,
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
from spm.store.encoding.byte_kernels import copy_bytes, load64, store64, uncounted
from spm.wire import STALE_BITS

NEW_ROW, NEW_SAMPLE, NEW_HEAD, NEW_HEAD_END, NEW_ROLE, NEW_BITS, NEW_COLUMNS = range(7)  # of a row of ``new_rows``
FAULTS = {
    NO_TIME: "the data point has no time",
    NO_VALUE: "the data point has no value",
    BAD_BUCKETS: "a histogram must have one bucket more than bounds",
    BAD_BOUNDS: "a histogram's bounds must be finite and ascend",
    BAD_SCALE: "an exponential histogram's scale or offset is out of range",
    NO_TEMPORALITY: "the temporality is neither delta nor cumulative",
    TOO_MANY_BUCKETS: f"a histogram has {HISTOGRAM_BUCKETS_MAX} buckets or more",
}
NOTHING = -2  # the number for a series that is not stored
NO_CONTEXT = 0xFFFF_FFFF_FFFF_FFFF  # in place of a context's number, in the head of a resource's ``target_info``
COUNTS, EDGES, POSITIVE, NEGATIVE = 0, 1, 2, 4  # shape of a point: counts, bounds; (end, offset) of buckets
SHAPE_COLUMNS = 6
TABLE_ROWS = 2 * HISTOGRAM_BUCKETS_MAX + 16
_NS = np.uint64(1_000_000)
_STALE = np.uint64(STALE_BITS)
_INFINITY = np.uint64(0x7FF0000000000000)


@njit(nogil=True, cache=True)
def _write_samples(row: I64, point: U64, shape: I64, counts: U64, bounds: U64, merged: U64, table: U64) -> int:
    """Write all samples of a point into ``table``; returns their count, or minus a fault of the point."""
    kind, counted, edges = row[KIND], shape[COUNTS], shape[EDGES]
    positive, negative = (shape[POSITIVE], shape[POSITIVE + 1]), (shape[NEGATIVE], shape[NEGATIVE + 1])
    stale = point[FLAGS] & ONE != 0
    if point[TIME] == 0:
        return -NO_TIME
    if kind in (SUM, HISTOGRAM, EXPONENTIAL) and not 1 <= row[DELTA] <= 2:
        return -NO_TEMPORALITY
    if kind in (GAUGE, SUM):
        if not point[HAS] and not stale:
            return -NO_VALUE
        return put_row(table, 0, VALUE_ROLE, np.uint64(0), _STALE if stale else point[VALUE])
    if max(counted, edges, positive[0], negative[0]) >= HISTOGRAM_BUCKETS_MAX:
        return -TOO_MANY_BUCKETS
    total = bits_of(float(point[TOTAL]))
    count = 0
    if kind == SUMMARY:
        for k in range(counted):
            count = put_row(table, count, QUANTILE_ROLE, bounds[k], counts[k])
    elif kind == HISTOGRAM:
        count = convert_classic(counts, bounds, counted, edges, table, count)
    else:
        count = convert_exponential(point, point[ZERO], positive, negative, counts, merged, table, count)
    if count < 0:
        return count
    if kind != SUMMARY:
        count = put_row(table, count, BUCKET_ROLE, _INFINITY, total)
        if point[HAS_MIN]:
            count = put_row(table, count, MIN_ROLE, np.uint64(0), point[MIN])
        if point[HAS_MAX]:
            count = put_row(table, count, MAX_ROLE, np.uint64(0), point[MAX])
    if point[HAS] or kind == SUMMARY:
        count = put_row(table, count, SUM_ROLE, np.uint64(0), point[VALUE])
    count = put_row(table, count, COUNT_ROLE, np.uint64(0), total)
    if stale:
        table[:count, 2] = _STALE
    return count


@njit(nogil=True, cache=True)
def _read_number(point: U64, number: int, wire_type: int, body: U8, begin: int, value: np.uint64) -> None:
    """Read a scalar field of a point of a gauge or sum."""
    if number == 3 and wire_type == FIXED64:
        point[TIME] = load64(body, begin)
    elif number == 4 and wire_type == FIXED64:
        point[VALUE], point[HAS] = load64(body, begin), ONE
    elif number == 6 and wire_type == FIXED64:
        point[VALUE], point[HAS] = bits_of(float(np.int64(load64(body, begin)))), ONE
    elif number == 8 and wire_type == VARINT:
        point[FLAGS] = value


@njit(nogil=True, cache=True)
def _read_distribution(
    point: U64, kind: int, number: int, wire_type: int, body: U8, begin: int, value: np.uint64
) -> None:
    """Read a scalar field of a point of a histogram or summary."""
    exponential = kind == EXPONENTIAL
    if wire_type == VARINT:
        if number == (8 if kind == SUMMARY else 10):
            point[FLAGS] = value
        elif exponential and number == 6:
            point[SCALE] = np.uint64(np.int64(value >> ONE) ^ -np.int64(value & ONE))
    elif wire_type == FIXED64:
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


@njit(nogil=True, cache=True, forceinline=True)
def _append_samples(
    known: KnownSeries,
    place: int,
    point: U64,
    samples: int,
    head_start: int,
    head_end: int,
    table: U64,
    key: U8,
    text: U8,
    state: I64,
    new_rows: Rows,
    series: I32,
    ts: I64,
    values: U64,
    points: I32,
) -> None:
    """Append the samples of a point to the columns, each with the number of its series."""
    head = find_head(known, text, head_start, head_end)
    ms = np.int64(point[TIME] // _NS)
    for k in range(samples):
        role = np.int64(table[k, 0])
        item = -1
        if head >= 0:
            key[0] = np.uint8(role)
            store64(key, 1, table[k, 1])
            item = find_item(known, head, key, 0, 9 if role in (BUCKET_ROLE, QUANTILE_ROLE) else 1)
        number = series_of(known, item) if item >= 0 else -1
        if number == NOTHING:
            continue
        count = state[COUNT]
        series[count], ts[count], values[count], points[count] = number, ms, table[k, 2], state[POINTS]
        state[COUNT] += 1
        if number < 0:
            one = new_rows[state[NEW_COUNT]]
            one[NEW_ROW], one[NEW_SAMPLE], one[NEW_ROLE], one[NEW_BITS] = place, count, role, np.int64(table[k, 1])
            one[NEW_HEAD], one[NEW_HEAD_END] = head_start, head_end
            state[NEW_COUNT] += 1
            state[TEXT] = max(state[TEXT], head_end)


@njit(nogil=True, cache=True)
def _read_list(
    kind: int, number: int, wire_type: int, body: U8, begin: int, end: int, counts: U64, bounds: U64, shape: I64
) -> int:
    """Read a list field of a distribution, or a part of it, into ``counts`` and ``bounds``; returns a fault or 0."""
    fault = 0
    if kind == HISTOGRAM and number == 6:
        shape[COUNTS] = fault = read_numbers(body, wire_type, begin, end, counts, shape[COUNTS])
    elif kind == HISTOGRAM and number == 7:
        shape[EDGES] = fault = read_numbers(body, wire_type, begin, end, bounds, shape[EDGES])
    elif kind == SUMMARY and number == 6 and shape[COUNTS] < HISTOGRAM_BUCKETS_MAX:
        fault = read_quantile(body, begin, end, counts, bounds, shape[COUNTS])
        shape[COUNTS] += 1
    elif kind == EXPONENTIAL and number == 8:
        shape[POSITIVE], shape[POSITIVE + 1] = read_exponential_buckets(body, begin, end, counts, 0)
        fault = shape[POSITIVE]
    elif kind == EXPONENTIAL and number == 9:
        shape[NEGATIVE], shape[NEGATIVE + 1] = read_exponential_buckets(body, begin, end, counts, shape[POSITIVE])
        fault = shape[NEGATIVE]
    return min(fault, 0)


@njit(nogil=True, cache=True, forceinline=True)
def _read_point(
    body: U8,
    start: int,
    stop: int,
    kind: int,
    point: U64,
    counts: U64,
    bounds: U64,
    shape: I64,
    text: U8,
    head_end: int,
    state: I64,
) -> int:
    """Read all fields of a point, its attributes into the head; returns the head's end or a fault of the wire."""
    attribute = 1 if kind == EXPONENTIAL else 9 if kind == HISTOGRAM else 7
    exemplar = 11 if kind == EXPONENTIAL else 8 if kind == HISTOGRAM else 5 if kind in (GAUGE, SUM) else -1
    point[:], shape[:] = 0, 0
    at = start
    while at < stop:
        number, wire_type, begin, end, value = read_field(body, at, stop)
        fault = min(number, 0)
        if wire_type == BYTES and number == attribute:
            head_end = copy_bytes(body, at, end, text, head_end)
        elif wire_type == BYTES and number == exemplar:
            state[EXEMPLARS] += 1
        if fault == 0:
            if kind in (GAUGE, SUM):
                _read_number(point, number, wire_type, body, begin, value)
            elif wire_type == BYTES or (kind == HISTOGRAM and wire_type == FIXED64 and number in (6, 7)):
                fault = _read_list(kind, number, wire_type, body, begin, end, counts, bounds, shape)
            else:
                _read_distribution(point, kind, number, wire_type, body, begin, value)
        if fault < 0:
            state[WHERE] = at
            return fault
        at = end
    if shape[NEGATIVE] < shape[POSITIVE]:
        shape[NEGATIVE] = shape[POSITIVE]
    return head_end


@njit(nogil=True, cache=True)
def read_points(
    body: U8,
    known: KnownSeries,
    rows: Rows,
    state: I64,
    text: U8,
    new_rows: Rows,
    faulty: Rows,
    series: I32,
    ts: I64,
    values: U64,
    points: I32,
) -> int:
    """Read all samples of all points; returns a fault of the wire format, FULL if the columns are too small, or 0.

    1. For each metric read its points. 2. For each point read its fields. 3. Write its head: the context's number and
    its attributes. 4. Look up its samples one by one. 5. After the last metric of a resource add the sample of the
    resource's ``target_info``.
    """
    known, body, rows, text = uncounted_series(known), uncounted(body), uncounted(rows), uncounted(text)
    state, new_rows = uncounted(state), uncounted(new_rows)
    series, ts, values, points = uncounted(series), uncounted(ts), uncounted(values), uncounted(points)
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
            number, wire_type, start, stop, _ = read_field(body, at, row[DATA_END])
            if number < 0:
                state[WHERE] = at
                return number
            at = stop
            if number != 1 or wire_type != BYTES:
                continue
            head = state[TEXT]
            most = len(table) if row[KIND] in (HISTOGRAM, EXPONENTIAL, SUMMARY) else 1
            if head + (stop - start) + 32 > text.size or state[COUNT] + most > series.size:
                return FULL
            store64(text, head, np.uint64(row[CONTEXT]))
            end = _read_point(body, start, stop, row[KIND], point, counts, bounds, shape, text, head + 8, state)
            if end < 0:
                return end
            samples = _write_samples(row, point, shape, counts, bounds, merged, table)
            if samples < 0:
                if state[FAULTY] < len(faulty):
                    faulty[state[FAULTY], 0], faulty[state[FAULTY], 1] = state[POINTS], -samples
                state[FAULTY] += 1
            else:
                latest = max(latest, point[TIME])
                _append_samples(
                    known,
                    place,
                    point,
                    samples,
                    head,
                    end,
                    table,
                    key,
                    text,
                    state,
                    new_rows,
                    series,
                    ts,
                    values,
                    points,
                )
            state[POINTS] += 1
        if latest > 0 and (place + 1 == len(rows) or rows[place + 1, RESOURCE_NUMBER] != row[RESOURCE_NUMBER]):
            head = state[TEXT]
            if head + (row[RESOURCE_END] - row[RESOURCE]) + 32 > text.size or state[COUNT] == series.size:
                return FULL
            store64(text, head, np.uint64(NO_CONTEXT))
            end = copy_bytes(body, row[RESOURCE], row[RESOURCE_END], text, head + 8)
            put_row(table, 0, TARGET_ROLE, np.uint64(0), bits_of(1.0))
            point[TIME] = latest
            state[POINTS] -= 1  # it counts as the last point of its resource
            _append_samples(
                known, place, point, 1, head, end, table, key, text, state, new_rows, series, ts, values, points
            )
            state[POINTS] += 1
            latest = np.uint64(0)
    return 0
