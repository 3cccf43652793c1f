"""Sorting whose cost does not depend on the order of the numbers, so that no data can hold a kernel.

numba's ``np.sort`` is a quicksort: numbers in an order made for it (McIlroy, "A Killer Adversary for Quicksort", 1999)
cost the square of their count, hours for a series of some million samples. Above ``_QUICKSORT_MAX`` numbers this is a
radix sort over the bits of the floats, eleven at a time, that leaves out digits which all numbers share: twice to six
times as fast as the quicksort at its best.
"""

import numpy as np
from numba import njit

from spm.arrays import F64

_QUICKSORT_MAX = 1_000  # numbers: its worst is some 0.15 ms
_DIGITS, _BITS = 6, 11
_MASK = np.uint64((1 << _BITS) - 1)
_SIGN, _ALL = np.uint64(1 << 63), np.uint64((1 << 64) - 1)


@njit(cache=True, nogil=True, error_model="numpy")
def ascending(values: F64) -> F64:
    """Return a sorted copy of numbers without NaN; -0.0 may stand before or after 0.0."""
    count = len(values)
    if count <= _QUICKSORT_MAX:
        return np.sort(values)
    keys, other = np.empty(count, np.uint64), np.empty(count, np.uint64)
    bits = values.view(np.uint64)
    ends = np.zeros((_DIGITS, 1 << _BITS), np.int64)
    for i in range(count):
        key = bits[i] ^ (_ALL if bits[i] & _SIGN else _SIGN)  # the order of the floats is that of these integers
        keys[i] = key
        for digit in range(_DIGITS):
            ends[digit, (key >> np.uint64(digit * _BITS)) & _MASK] += 1
    for digit in range(_DIGITS):
        shift, places = np.uint64(digit * _BITS), ends[digit]
        if places[(keys[0] >> shift) & _MASK] == count:
            continue
        total = 0
        for each in range(1 << _BITS):
            places[each], total = total, total + places[each]
        for i in range(count):
            each = (keys[i] >> shift) & _MASK
            other[places[each]] = keys[i]
            places[each] += 1
        keys, other = other, keys
    for i in range(count):
        keys[i] ^= _SIGN if keys[i] & _SIGN else _ALL
    return keys.view(np.float64)
