"""Compiled conversion of histograms of every form to cumulative classic buckets.

``convert_classic`` and ``convert_exponential`` write rows (role, bits of the bucket's upper edge, bits of its count)
into a table. A result below 0 is minus a fault of the point. Buckets of an exponential histogram are merged to at most
four per power of two, at every scale, so that their edges stay when the scale changes. Counts are integers until the
end, unless a histogram has others.
"""

import math

import numpy as np
from numba import njit

from ingest.protocols.common.protobuf_kernels import BAD_VARINT, BEYOND, BYTES, FIXED64, VARINT, read_field, read_varint
from spm.arrays import U8, U64
from spm.limits import EXPONENTIAL_SCALE_MAX
from spm.store.encoding.byte_kernels import load64

VALUE_ROLE, SUM_ROLE, COUNT_ROLE, MIN_ROLE, MAX_ROLE, BUCKET_ROLE, QUANTILE_ROLE, TARGET_ROLE = b"vscnxbqt"
NO_TIME, NO_VALUE, BAD_BUCKETS, BAD_BOUNDS, BAD_SCALE, NO_TEMPORALITY, TOO_MANY_BUCKETS = range(1, 8)  # of a point
# Columns of a point:
TIME, VALUE, HAS, TOTAL, ZERO, THRESHOLD, MIN, HAS_MIN, MAX, HAS_MAX, FLAGS, SCALE, POINT_COLUMNS = range(13)
ONE = np.uint64(1)
_QUARTERS = np.array([1.0, 2.0**0.25, 2.0**0.5, 2.0**0.75])
_EDGE_MAX = 4_096  # quarters of powers of two up to the largest float64; down to the smallest are 4,296
_EDGE_MIN = -4_296


@njit(nogil=True, cache=True)
def read_numbers(body: U8, wire_type: int, start: int, stop: int, into: U64, count: int) -> int:
    """Append the 64-bit numbers of a field, packed or single, as far as they fit; returns the count; -2 is a fault."""
    if wire_type == BYTES and (stop - start) % 8:
        return BEYOND
    while start + 8 <= stop and count < into.size:
        into[count] = load64(body, start)
        count += 1
        start += 8
    return count


@njit(nogil=True, cache=True)
def read_exponential_buckets(body: U8, start: int, stop: int, into: U64, at_first: int) -> tuple[int, int]:
    """Append the buckets of an exponential histogram after the first ``at_first``; returns (count, their offset).

    A count below 0 is a fault. A count as large as ``into`` means that not all buckets fitted.
    """
    at, count, offset = start, at_first, 0
    while at < stop:
        number, wire_type, begin, at, value = read_field(body, at, stop)
        if number < 0:
            return number, 0
        if number == 1 and wire_type == VARINT:
            offset = int(np.int64(value >> ONE) ^ -np.int64(value & ONE))
        elif number == 2 and wire_type == VARINT and count < into.size:
            into[count] = value
            count += 1
        elif number == 2 and wire_type == BYTES:
            while begin < at and count < into.size:
                begin, into[count] = read_varint(body, begin, at)
                if begin < 0:
                    return BAD_VARINT, 0
                count += 1
    return count, min(max(offset, -(1 << 31)), 1 << 31)


@njit(nogil=True, cache=True)
def read_quantile(body: U8, start: int, stop: int, counts: U64, bounds: U64, count: int) -> int:
    """Read one quantile and its value; returns a fault or 0."""
    at = start
    counts[count] = bounds[count] = np.uint64(0)
    while at < stop:
        number, wire_type, begin, at, _ = read_field(body, at, stop)
        if number < 0:
            return number
        if wire_type == FIXED64 and number == 1:
            bounds[count] = load64(body, begin)
        elif wire_type == FIXED64 and number == 2:
            counts[count] = load64(body, begin)
    return 0


@njit(nogil=True, cache=True)
def _edge(quarters: int) -> float:
    """Returns 2^(quarters / 4), always as an identical float64."""
    return math.ldexp(_QUARTERS[quarters & 3], quarters >> 2)


@njit(nogil=True, cache=True)
def bits_of(value: float) -> np.uint64:
    return np.float64(value).view(np.uint64)


@njit(nogil=True, cache=True)
def _merge_buckets(counts: U64, start: int, stop: int, offset: int, scale: int, into: U64) -> tuple[int, int, int]:
    """Merge buckets of base 2^(2^-scale) to at most four per power of two; returns (count, lower edge, step).

    The lower edge is that of the first bucket. Edge and step are in quarters of powers of two. Empty buckets at both
    ends are left out. A step of 0 means that a bucket is out of range.
    """
    while start < stop and counts[start] == 0:
        start += 1
        offset += 1
    while stop > start and counts[stop - 1] == 0:
        stop -= 1
    if start == stop:
        return 0, 0, 1
    shift = max(scale - EXPONENTIAL_SCALE_MAX, 0)
    step = 1 << max(EXPONENTIAL_SCALE_MAX - scale, 0)
    first, last = offset >> shift, (offset + stop - start - 1) >> shift
    if first * step < _EDGE_MIN or (last + 1) * step > _EDGE_MAX + step - 1:
        return 0, 0, 0
    into[: last - first + 1] = 0
    for k in range(start, stop):
        into[((offset + k - start) >> shift) - first] += counts[k]
    return last - first + 1, first * step, step


@njit(nogil=True, cache=True)
def put_row(table: U64, count: int, role: int, edge: np.uint64, value: np.uint64) -> int:
    """Append one sample of the point; returns the count."""
    table[count, 0], table[count, 1], table[count, 2] = np.uint64(role), edge, value
    return count + 1


@njit(nogil=True, cache=True)
def convert_classic(counts: U64, bounds: U64, buckets: int, edges: int, table: U64, count: int) -> int:
    """Append the cumulative buckets of a histogram; returns the count of samples, or minus a fault of the point."""
    if buckets == 0:
        return count
    if buckets != edges + 1:
        return -BAD_BUCKETS
    total, before = np.uint64(0), -math.inf
    for k in range(edges):
        edge = bounds[k : k + 1].view(np.float64)[0]
        if not before < edge < math.inf:
            return -BAD_BOUNDS
        before = edge
        total += counts[k]
        count = put_row(table, count, BUCKET_ROLE, bits_of(edge), bits_of(float(total)))
    return count


@njit(nogil=True, cache=True)
def convert_exponential(
    point: U64,
    zero: np.uint64,
    positive: tuple[int, int],
    negative: tuple[int, int],
    counts: U64,
    merged: U64,
    table: U64,
    count: int,
) -> int:
    """Append the cumulative classic buckets of an exponential histogram: negative ones, zero, positive ones.

    ``positive`` is (number of the first counts, offset), ``negative`` is (end of the counts after them, offset).
    ``zero``, ``counts`` and ``merged`` are all whole numbers, or all float64.
    """
    scale = int(np.int64(point[SCALE]))
    if not -10 <= scale <= 20:
        return -BAD_SCALE
    total = np.uint64(0)
    size, first, step = _merge_buckets(counts, positive[0], negative[0], negative[1], scale, merged)
    if step == 0:
        return -BAD_SCALE
    for k in range(size - 1, -1, -1):
        total += merged[k]
        count = put_row(table, count, BUCKET_ROLE, bits_of(-_edge(first + k * step)), bits_of(float(total)))
    below = size > 0
    size, first, step = _merge_buckets(counts, 0, positive[0], positive[1], scale, merged)
    if step == 0:
        return -BAD_SCALE
    total += zero
    threshold = point[THRESHOLD : THRESHOLD + 1].view(np.float64)[0]
    if threshold > 0 and not (size and _edge(first) < threshold):
        count = put_row(table, count, BUCKET_ROLE, point[THRESHOLD], bits_of(float(total)))
    elif zero != 0 or below:
        count = put_row(table, count, BUCKET_ROLE, np.uint64(0), bits_of(float(total)))
    if size and bits_of(_edge(first)) != point[THRESHOLD]:
        count = put_row(table, count, BUCKET_ROLE, bits_of(_edge(first)), bits_of(float(total)))
    for k in range(size):
        total += merged[k]
        edge = min((first + (k + 1) * step), _EDGE_MAX)
        if edge == _EDGE_MAX:
            break  # beyond all float64: the bucket +Inf counts these
        count = put_row(table, count, BUCKET_ROLE, bits_of(_edge(edge)), bits_of(float(total)))
    return count
