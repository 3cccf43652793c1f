"""Compiled reading of the native histograms of remote write, 1.0 and 2.0, as cumulative classic buckets.

Enter by ``read_histograms``. Exponential buckets are converted by the kernel that OTLP's histograms use, custom ones
(schema −53) have their bounds. Bucket i of Prometheus ends where bucket i of OTLP begins. Counts are float64 here:
histograms of both kinds are read alike, and whole counts stay exact up to 2^53. A stale marker has no buckets, so that
it ends the series of sum, count and ``+Inf``.
"""

import math

import numpy as np
from numba import njit

from ingest.protocols.common.histogram_kernels import (
    BAD_BUCKETS,
    BAD_SCALE,
    BUCKET_ROLE,
    COUNT_ROLE,
    POINT_COLUMNS,
    SCALE,
    SUM_ROLE,
    THRESHOLD,
    TIME,
    TOO_MANY_BUCKETS,
    VALUE,
    bits_of,
    convert_classic,
    convert_exponential,
    put_row,
    read_numbers,
)
from ingest.protocols.common.protobuf_kernels import BAD_VARINT, BYTES, FIXED64, VARINT, read_field, read_varint
from spm.arrays import F64, I64, U8, U64
from spm.limits import HISTOGRAM_BUCKETS_MAX
from spm.store.encoding.byte_kernels import load64
from spm.wire import STALE_BITS

PLACE, HISTOGRAM, AT, ROLE, EDGE, BITS, ROW_COLUMNS = range(7)  # of a row: its series, histogram, ms, and sample
FULL = -100
CUSTOM = -53  # the schema of custom buckets
BAD_COUNT = 20
TABLE_ROWS = 2 * HISTOGRAM_BUCKETS_MAX + 16
NEGATIVE_SPANS, POSITIVE_SPANS, NEGATIVE, POSITIVE, BOUNDS, SHAPE_COLUMNS = range(6)  # counts of what a list holds
_ONE, _STALE, _INFINITY = np.uint64(1), np.uint64(STALE_BITS), np.uint64(0x7FF0000000000000)
_SINT32 = np.uint64(0xFFFFFFFF)


@njit(nogil=True, cache=True)
def _signed(value: np.uint64) -> int:
    """Returns a number in ZigZag's form."""
    return int(np.int64(value >> _ONE) ^ -np.int64(value & _ONE))


@njit(nogil=True, cache=True)
def _read_span(body: U8, start: int, stop: int, spans: I64, count: int) -> int:
    """Append one span (offset, length); returns the count, or a fault."""
    at = start
    spans[count, 0] = spans[count, 1] = 0
    while at < stop:
        number, wire_type, _, at, value = read_field(body, at, stop)
        if number < 0:
            return number
        if number == 1 and wire_type == VARINT:
            spans[count, 0] = _signed(value & _SINT32)  # as its type; a sum of larger ones would overflow
        elif number == 2 and wire_type == VARINT:
            spans[count, 1] = np.int64(min(value, np.uint64(HISTOGRAM_BUCKETS_MAX)))
    return count + 1


@njit(nogil=True, cache=True)
def _read_deltas(body: U8, wire_type: int, start: int, stop: int, value: np.uint64, into: F64, count: int) -> int:
    """Append the counts whose differences a field has, packed or single; returns the count, or a fault."""
    last = np.int64(into[count - 1]) if count else np.int64(0)
    if wire_type == VARINT:
        if count < into.size:
            into[count] = float(last + _signed(value))
            count += 1
        return count
    at = start
    while at < stop and count < into.size:
        at, value = read_varint(body, at, stop)
        if at < 0:
            return BAD_VARINT
        last += _signed(value)
        into[count] = float(last)
        count += 1
    return count


@njit(nogil=True, cache=True)
def _read_list(
    body: U8,
    number: int,
    wire_type: int,
    start: int,
    stop: int,
    value: np.uint64,
    shape: I64,
    spans: I64,
    counts: F64,
    bounds: U64,
) -> int:
    """Read a list field, or a part of it; returns a fault or 0. ``spans`` and ``counts``: negative, then positive."""
    fault = 0
    side = 0 if number <= 10 else 1
    if number in (8, 11) and wire_type == BYTES:
        if shape[NEGATIVE_SPANS + side] < HISTOGRAM_BUCKETS_MAX:
            fault = _read_span(body, start, stop, spans[side], shape[NEGATIVE_SPANS + side])
            shape[NEGATIVE_SPANS + side] = fault
    elif number in (9, 12) and wire_type in (BYTES, VARINT):
        fault = _read_deltas(body, wire_type, start, stop, value, counts[side], shape[NEGATIVE + side])
        shape[NEGATIVE + side] = fault
    elif number in (10, 13) and wire_type in (BYTES, FIXED64):
        fault = read_numbers(body, wire_type, start, stop, counts[side].view(np.uint64), shape[NEGATIVE + side])
        shape[NEGATIVE + side] = fault
    elif number == 16 and wire_type in (BYTES, FIXED64):
        fault = read_numbers(body, wire_type, start, stop, bounds, shape[BOUNDS])
        shape[BOUNDS] = fault
    return min(fault, 0)


@njit(nogil=True, cache=True)
def _read_histogram(
    body: U8, start: int, stop: int, point: U64, totals: F64, shape: I64, spans: I64, counts: F64, bounds: U64
) -> int:
    """Read all fields of a histogram; returns a fault of the wire or 0. ``totals``: of all values, of the zero ones."""
    point[:], shape[:], totals[:] = 0, 0, 0
    at = start
    while at < stop:
        number, wire_type, begin, at, value = read_field(body, at, stop)
        fault = min(number, 0)
        if wire_type == VARINT and number in (1, 6):
            totals[number // 6] = float(value)
        elif wire_type == FIXED64 and number in (2, 7):
            totals[number // 7] = np.array([load64(body, begin)]).view(np.float64)[0]
        elif wire_type == FIXED64 and number == 3:
            point[VALUE] = load64(body, begin)
        elif wire_type == VARINT and number == 4:
            point[SCALE] = np.uint64(_signed(value))
        elif wire_type == FIXED64 and number == 5:
            point[THRESHOLD] = load64(body, begin)
        elif wire_type == VARINT and number == 15:
            point[TIME] = value
        elif fault == 0:
            fault = _read_list(body, number, wire_type, begin, at, value, shape, spans, counts, bounds)
        if fault < 0:
            return fault
    return 0


@njit(nogil=True, cache=True)
def _spread(spans: I64, span_count: int, counts: F64, count: int, into: F64, first: int) -> tuple[int, int]:
    """Write counts with the empty buckets between them from ``first``; returns (end, index of the first bucket).

    An end below 0 is minus a fault of the histogram.
    """
    at, k, index = first, 0, 0
    for number in range(span_count):
        gap, length = spans[number, 0], spans[number, 1]
        if number == 0:
            index = int(gap)
        elif gap < 0:
            return -BAD_BUCKETS, 0
        else:
            if at + gap >= into.size:
                return -TOO_MANY_BUCKETS, 0
            into[at : at + gap] = 0
            at += gap
        if at + length >= into.size:
            return -TOO_MANY_BUCKETS, 0
        if k + length > count:
            return -BAD_BUCKETS, 0
        for _ in range(length):
            if not 0 <= counts[k] < math.inf:
                return -BAD_COUNT, 0
            into[at] = counts[k]
            at, k = at + 1, k + 1
    return (at, index) if k == count else (-BAD_BUCKETS, 0)


@njit(nogil=True, cache=True)
def _convert(
    point: U64, totals: F64, shape: I64, spans: I64, counts: F64, bounds: U64, dense: F64, merged: F64, table: U64
) -> int:
    """Write all samples of a histogram into ``table``; returns their count, or minus a fault of the histogram."""
    count, total = 0, bits_of(totals[0])
    if point[VALUE] == _STALE:
        total = _STALE
    elif not (0 <= totals[0] < math.inf and 0 <= totals[1] < math.inf):
        return -BAD_COUNT
    elif max(shape[NEGATIVE], shape[POSITIVE], shape[BOUNDS]) >= HISTOGRAM_BUCKETS_MAX:
        return -TOO_MANY_BUCKETS
    else:
        scale = int(np.int64(point[SCALE]))
        end, index = _spread(spans[1], shape[POSITIVE_SPANS], counts[1], shape[POSITIVE], dense, 0)
        if end < 0:
            return end
        if scale == CUSTOM:
            edges = shape[BOUNDS]
            if index < 0 or index + end > edges + 1:
                return -BAD_BUCKETS
            merged[: edges + 1] = 0
            merged[index : index + end] = dense[:end]
            count = convert_classic(merged, bounds, edges + 1, edges, table, 0)  # type: ignore[arg-type]  # of float64
        elif not -4 <= scale <= 8:
            return -BAD_SCALE
        else:
            last, below = _spread(spans[0], shape[NEGATIVE_SPANS], counts[0], shape[NEGATIVE], dense, end)
            if last < 0:
                return last
            sides = (end, index - 1), (last, below - 1)
            count = convert_exponential(point, totals[1], *sides, dense, merged, table, 0)  # type: ignore[arg-type]
        if count < 0:
            return count
    count = put_row(table, count, BUCKET_ROLE, _INFINITY, total)
    count = put_row(table, count, SUM_ROLE, np.uint64(0), point[VALUE])
    return put_row(table, count, COUNT_ROLE, np.uint64(0), total)


@njit(nogil=True, cache=True)
def read_histograms(body: U8, series_field: int, histogram_field: int, rows: U64, faulty: I64, state: I64) -> int:
    """Read all histograms of a request into ``rows``; returns a fault of the wire, FULL, or 0.

    ``state`` gets the counts of rows, of histograms and of faulty ones; ``faulty`` (place, fault) of the first ones.
    """
    point: U64 = np.zeros(POINT_COLUMNS, np.uint64)
    totals: F64 = np.zeros(2)
    shape: I64 = np.zeros(SHAPE_COLUMNS, np.int64)
    spans: I64 = np.empty((2, HISTOGRAM_BUCKETS_MAX + 1, 2), np.int64)
    counts: F64 = np.empty((2, HISTOGRAM_BUCKETS_MAX))
    bounds: U64 = np.empty(HISTOGRAM_BUCKETS_MAX, np.uint64)
    dense: F64 = np.empty(HISTOGRAM_BUCKETS_MAX)
    merged: F64 = np.empty(HISTOGRAM_BUCKETS_MAX + 1)
    table: U64 = np.empty((TABLE_ROWS, 3), np.uint64)
    at, place = 0, 0
    while at < body.size:
        outer, wire_type, inner, stop, _ = read_field(body, at, body.size)
        at = stop
        if outer != series_field or wire_type != BYTES:
            continue
        while inner < stop:
            number, inner_type, begin, inner, _ = read_field(body, inner, stop)
            if number != histogram_field or inner_type != BYTES:
                continue
            fault = _read_histogram(body, begin, inner, point, totals, shape, spans, counts, bounds)
            if fault < 0:
                return fault
            samples = _convert(point, totals, shape, spans, counts, bounds, dense, merged, table)
            if samples < 0:
                if state[2] < len(faulty):
                    faulty[state[2], 0], faulty[state[2], 1] = place, -samples
                state[2] += 1
                continue
            if state[0] + samples > len(rows):
                return FULL
            for k in range(samples):
                row = rows[state[0] + k]
                row[PLACE], row[HISTOGRAM], row[AT] = np.uint64(place), np.uint64(state[1]), point[TIME]
                row[ROLE], row[EDGE], row[BITS] = table[k, 0], table[k, 1], table[k, 2]
            state[0] += samples
            state[1] += 1
        place += 1
    return 0
