"""Sketches of distributions, many at once: percentiles of hours, days and groups of series within 1 %.

DDSketch (Masson, Rim, Lee: "DDSketch: a fast and fully-mergeable quantile sketch with relative-error guarantees", VLDB
2019) without its collapsing of buckets, so that the guarantee holds for every quantile. Bucket k counts values in
(g^(k-1), g^k] with g = 2^(1/35) = 1.0200016: a bucket is found from a float's own bits, the same on every machine, and
any value in it is within 0.991 % of the bucket's representative. Below 2.2e-308 the step between two floats, 4.9e-324,
may come on top. Zero, infinities and negative numbers have keys of their own, ordered like the values; NaN of any
payload (stale markers too) is left out. A sketch has one form only, so the merge of parts equals the sketch of all
their samples, byte for byte. Enter by ``of_winners`` and ``quantile``. This module never reads a store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from spm.arrays import F64, I32, I64

PER_OCTAVE = 35  # buckets from a number to its double
GAMMA = 2.0 ** (1 / PER_OCTAVE)
RELATIVE_ERROR = (GAMMA - 1) / (GAMMA + 1)
_LOWEST = PER_OCTAVE * -1074 - 1  # key 1 is the bucket of the least number above zero
_GREATEST = PER_OCTAVE * 1024 - _LOWEST  # the key of the greatest finite one
INFINITE = _GREATEST + 1  # the key of +Inf; -Inf has its negative
_CELL_BITS = 6  # leading bits of a mantissa that name its cell
_CELLS = 1 << _CELL_BITS  # parts of an octave, narrower than any bucket: each contains one border at most
_BITS_IN_CELL = 52 - _CELL_BITS  # the remaining bits of a mantissa


def _root(number: int, degree: int) -> int:
    """The integer part of a root, exactly."""
    low, high = 0, 1 << (number.bit_length() // degree + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle**degree <= number else (low, middle)
    return low


def _cells() -> tuple[I64, I64]:
    """Per cell of an octave: the number of borders below it, and the border in it (as 53 bits; else the end).

    Border j is 2^(j / PER_OCTAVE); no float but 1 lies on a border.
    """
    borders = [_root(1 << (j + 52 * PER_OCTAVE), PER_OCTAVE) for j in range(PER_OCTAVE)]
    starts = [(1 << 52) + (cell << _BITS_IN_CELL) for cell in range(_CELLS + 1)]
    below = [sum(b < start for b in borders) for start in starts]
    inside = [borders[n] if n < PER_OCTAVE else starts[-1] for n in below]
    return np.array(below[:-1], np.int64), np.array(inside[:-1], np.int64)


_BELOW, _INSIDE = _cells()
# The representative of bucket k, equally far from both ends relatively: 2^(k // PER_OCTAVE) times one of these.
_MIDDLES = np.array([2.0 ** (j / PER_OCTAVE) * 2 / (GAMMA + 1) for j in range(PER_OCTAVE)])


@dataclass(frozen=True, slots=True)
class Sketches:
    """N sketches: that of row i has the buckets starts[i]:starts[i+1], keys strictly ascending, counts above zero."""

    starts: I64
    keys: I32
    counts: I64

    def __len__(self) -> int:
        return len(self.starts) - 1

    def take(self, rows: npt.NDArray[Any]) -> Sketches:
        """The sketches of some rows (indices or a mask)."""
        if rows.dtype == np.bool_:
            if bool(rows.all()):
                return self
            rows = np.flatnonzero(rows)
        return Sketches(*_take(self.starts, self.keys, self.counts, np.ascontiguousarray(rows, np.int64)))

    def without(self, rows: npt.NDArray[np.bool_]) -> Sketches:
        """These sketches, with empty ones in the rows of a mask."""
        remains = np.repeat(~rows, np.diff(self.starts))
        lengths = np.where(rows, 0, np.diff(self.starts))
        return Sketches(np.concatenate([[0], np.cumsum(lengths)]), self.keys[remains], self.counts[remains])

    @staticmethod
    def empty(rows: int = 0) -> Sketches:
        """So many empty sketches."""
        return Sketches(np.zeros(rows + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.int64))

    @property
    def sizes(self) -> I64:
        """The number of values in each sketch."""
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.counts, dtype=np.int64)])
        sizes: I64 = ends[self.starts[1:]] - ends[self.starts[:-1]]
        return sizes


def of_winners(starts: I64, values: F64) -> Sketches:
    """Sketch each series: series i holds the values starts[i]:starts[i+1], in any order."""
    bits = np.ascontiguousarray(values).view(np.uint64)
    return Sketches(*_sketch(np.ascontiguousarray(starts, np.int64), bits))


def concat(parts: Sequence[Sketches]) -> Sketches:
    """Concatenate the rows of the parts."""
    if len(parts) == 1:
        return parts[0]
    bases = np.cumsum([0, *(len(part.keys) for part in parts)])
    starts = [part.starts[:-1] + base for part, base in zip(parts, bases, strict=False)]
    return Sketches(
        np.concatenate([*starts, bases[-1:]]).astype(np.int64),
        np.concatenate([np.empty(0, np.int32), *(part.keys for part in parts)]),
        np.concatenate([np.empty(0, np.int64), *(part.counts for part in parts)]),
    )


def merge_groups(sketches: Sketches, heads: I64) -> Sketches:
    """Merge each group of rows into one sketch: group i has the rows heads[i]:heads[i+1]."""
    heads = np.ascontiguousarray(heads, np.int64)
    if len(heads) == len(sketches) + 1 and bool((np.diff(heads) == 1).all()):
        return sketches
    return Sketches(*_merge(sketches.starts, sketches.keys, sketches.counts, heads))


def quantile(sketches: Sketches, q: float) -> F64:
    """The q-quantile of each row, by PromQL's interpolation: between the values of the ranks around q * (n - 1).

    Each of the two values is within ``RELATIVE_ERROR`` of the true one, and so is every value between two of one sign.
    The result is NaN for an empty sketch and for a q that is NaN, -Inf for q below 0, +Inf for q above 1.
    """
    return _quantile(sketches.starts, sketches.keys, sketches.counts, float(q))


def values_of(keys: I32) -> F64:
    """The representative of each key."""
    return _values(np.ascontiguousarray(keys, np.int32))


def keys_of(values: F64) -> I32:
    """The key of each value; also 0 for NaN, which no sketch counts."""
    return _keys(np.ascontiguousarray(values).view(np.uint64))


@njit(cache=True, nogil=True)
def _key(bits: Any) -> Any:
    """The key of a number by its bits (not of NaN)."""
    exponent = np.int64((bits >> np.uint64(52)) & np.uint64(0x7FF))
    mantissa = np.int64(bits & np.uint64(0xFFFFFFFFFFFFF))
    if exponent == 0x7FF:
        key = np.int64(INFINITE)
    elif exponent == 0 and mantissa == 0:
        return 0
    else:
        if exponent == 0:
            exponent = np.int64(1)
            while mantissa < (1 << 52):
                mantissa <<= 1
                exponent -= 1
        else:
            mantissa |= 1 << 52
        cell = (mantissa >> _BITS_IN_CELL) & (_CELLS - 1)
        over = _BELOW[cell] + (1 if mantissa > _INSIDE[cell] else 0)
        key = (exponent - 1023) * PER_OCTAVE + over - _LOWEST
    return -key if bits >> np.uint64(63) else key


@njit(cache=True, nogil=True)
def _is_nan(bits: Any) -> Any:
    return (bits & np.uint64(0x7FFFFFFFFFFFFFFF)) > np.uint64(0x7FF0000000000000)


@njit(cache=True, nogil=True)
def _value(key: Any) -> Any:
    if key == 0:
        return 0.0
    size = abs(key)
    if size == INFINITE:
        return np.inf if key > 0 else -np.inf
    k = size + _LOWEST
    octave = k // PER_OCTAVE
    number = _MIDDLES[k - octave * PER_OCTAVE]
    while octave > 1000:  # 2^1024 is no float, but the number times it may be one
        number *= 2.0
        octave -= 1
    if octave < -1000:  # one rounding alone, at the end
        number = number * 2.0**-1000 * 2.0 ** (octave + 1000)
    else:
        number *= 2.0**octave
    return number if key > 0 else -number


@njit(cache=True, nogil=True)
def _values(keys: I32) -> F64:
    out = np.empty(keys.size, np.float64)
    for i in range(keys.size):
        out[i] = _value(np.int64(keys[i]))
    return out


@njit(cache=True, nogil=True)
def _keys(bits: npt.NDArray[np.uint64]) -> I32:
    out = np.zeros(bits.size, np.int32)
    for i in range(bits.size):
        if not _is_nan(bits[i]):
            out[i] = _key(bits[i])
    return out


@njit(cache=True, nogil=True)
def _count(key: Any, times: Any, dense: I64, touched: I32, n: int) -> int:
    """Count a key so many times; return the number of keys in ``touched``."""
    if dense[key + INFINITE] == 0:
        touched[n] = key
        n += 1
    dense[key + INFINITE] += times
    return n


@njit(cache=True, nogil=True)
def _collect(dense: I64, touched: I32, n: int, keys: I32, counts: I64, at: int) -> int:
    """Write the n keys in ``touched``, ascending, and their counts from ``at`` on; set ``dense`` to zero again."""
    if n == 0:
        return at
    low, high = touched[0], touched[0]
    for i in range(1, n):
        low, high = min(low, touched[i]), max(high, touched[i])
    if high - low < 16 * n:
        for key in range(low, high + 1):
            if dense[key + INFINITE]:
                keys[at], counts[at] = key, dense[key + INFINITE]
                dense[key + INFINITE] = 0
                at += 1
        return at
    touched[:n].sort()
    for i in range(n):
        keys[at], counts[at] = touched[i], dense[touched[i] + INFINITE]
        dense[touched[i] + INFINITE] = 0
        at += 1
    return at


@njit(cache=True, nogil=True)
def _sketch(starts: I64, bits: npt.NDArray[np.uint64]) -> Any:
    n = starts.size - 1
    ends = np.zeros(n + 1, np.int64)
    keys = np.empty(starts[n] - starts[0], np.int32)
    counts = np.empty(keys.size, np.int64)
    dense = np.zeros(2 * INFINITE + 1, np.int64)
    touched = np.empty(dense.size, np.int32)
    at = 0
    for i in range(n):
        used = 0
        k = starts[i]
        while k < starts[i + 1]:
            b = bits[k]
            first = k
            while k < starts[i + 1] and bits[k] == b:  # most series keep a value for a while
                k += 1
            if not _is_nan(b):
                used = _count(_key(b), k - first, dense, touched, used)
        at = _collect(dense, touched, used, keys, counts, at)
        ends[i + 1] = at
    return ends, keys[:at].copy(), counts[:at].copy()


@njit(cache=True, nogil=True)
def _merge(starts: I64, keys: I32, counts: I64, heads: I64) -> Any:
    n = heads.size - 1
    ends = np.zeros(n + 1, np.int64)
    into_keys = np.empty(keys.size, np.int32)
    into_counts = np.empty(keys.size, np.int64)
    dense = np.zeros(2 * INFINITE + 1, np.int64)
    touched = np.empty(dense.size, np.int32)
    at = 0
    for i in range(n):
        used = 0
        for k in range(starts[heads[i]], starts[heads[i + 1]]):
            used = _count(np.int64(keys[k]), counts[k], dense, touched, used)
        at = _collect(dense, touched, used, into_keys, into_counts, at)
        ends[i + 1] = at
    return ends, into_keys[:at].copy(), into_counts[:at].copy()


@njit(cache=True, nogil=True)
def _take(starts: I64, keys: I32, counts: I64, rows: I64) -> Any:
    ends = np.zeros(rows.size + 1, np.int64)
    total = 0
    for i in range(rows.size):
        total += starts[rows[i] + 1] - starts[rows[i]]
        ends[i + 1] = total
    into_keys = np.empty(total, np.int32)
    into_counts = np.empty(total, np.int64)
    at = 0
    for row in rows:
        for k in range(starts[row], starts[row + 1]):
            into_keys[at], into_counts[at] = keys[k], counts[k]
            at += 1
    return ends, into_keys, into_counts


@njit(cache=True, nogil=True)
def _quantile(starts: I64, keys: I32, counts: I64, q: float) -> F64:
    out = np.full(starts.size - 1, np.nan)
    for i in range(out.size):
        begin, end = starts[i], starts[i + 1]
        if begin == end or np.isnan(q):
            continue
        if q < 0.0 or q > 1.0:
            out[i] = -np.inf if q < 0.0 else np.inf
            continue
        size = 0
        for k in range(begin, end):
            size += counts[k]
        rank = q * (size - 1)
        lower = np.int64(np.floor(rank))
        share = rank - lower
        k, below_count = begin, counts[begin]
        while below_count <= lower:
            k += 1
            below_count += counts[k]
        below = _value(np.int64(keys[k]))
        if share > 0.0 and below_count <= lower + 1:  # the next rank lies in the next bucket
            above = _value(np.int64(keys[k + 1]))
            out[i] = below * (1.0 - share) + above * share
        else:
            out[i] = below
    return out


def warm() -> None:
    """Compile every kernel for the types it is called with."""
    one = of_winners(np.array([0, 2], np.int64), np.array([1.0, -2.0]))
    two = concat([one, one])
    quantile(merge_groups(two, np.array([0, 2], np.int64)).take(np.zeros(1, np.int64)), 0.5)
    values_of(keys_of(np.array([0.0])))
