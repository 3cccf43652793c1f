"""Computes the shortest decimal that reads back to the same float: digits and a power of ten, in 64-bit integers.

This is Schubfach: Raffaello Giulietti, "The Schubfach way to render doubles" (2021), whose names are used. With k such
that the rounding interval is at least 10^k long but shorter than 10^(k+1), it contains a multiple of 10^k and at most
one multiple of 10^(k+1), so only the float's neighbours at both scales are compared. A product is truncated "rounded to
odd": its last bit also stands for all truncated bits, so comparisons stay exact. Powers of ten have 128 bits and are
computed by Python's integers at import (0.7 ms). Enter by `decimal`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from spm.arrays import U64

_LEAST, _MOST = -292, 324  # powers of ten that floats are multiplied by
_ZERO, _ONE, _TWO, _FOUR, _TEN, _FORTY = (np.uint64(n) for n in (0, 1, 2, 4, 10, 40))
_HALF, _WORD_BITS, _LOW = np.uint64(32), np.uint64(64), np.uint64(0xFFFF_FFFF)
_FRACTION, _HIDDEN = np.uint64((1 << 52) - 1), np.uint64(1 << 52)
_MANTISSA_BITS, _EXPONENT = np.uint64(52), np.uint64(0x7FF)
_BIAS = 1075  # a mantissa as a whole number, times 2^(exponent - bias)


def _powers() -> U64:
    """Return rows of (lower, upper half) of 10^n, its first 128 bits rounded up."""
    rows = []
    for n in range(_LEAST, _MOST + 1):
        over, under = (10**n, 1) if n >= 0 else (1, 10**-n)
        shift = 127 - (over.bit_length() - 1 if n >= 0 else -under.bit_length())
        over, under = (over << shift, under) if shift >= 0 else (over, under << -shift)
        power = -(-over // under)
        rows.append((power & ((1 << 64) - 1), power >> 64))
    return np.array(rows, np.uint64)


POWERS = _powers()


@njit(cache=True, nogil=True, forceinline=True)
def decimal(bits: np.uint64, powers: U64) -> tuple[np.uint64, int]:
    """Return (digits, exponent) of a finite, nonzero float, by its bits, without the sign. Digits may end in zeros."""
    fraction, exponent = bits & _FRACTION, int(np.int64((bits >> _MANTISSA_BITS) & _EXPONENT))
    c, q = (fraction | _HIDDEN, exponent - _BIAS) if exponent > 0 else (fraction, 1 - _BIAS)
    uneven = bool(fraction == _ZERO and exponent > 1)  # below a power of two floats are twice as dense
    k = (q * 1262611 - (524031 if uneven else 0)) >> 22  # floor(log10(2^q)), or of 3/4 of it
    h = np.uint64(q + ((-k * 1741647) >> 19) + 1)
    low, high = powers[-k - _LEAST, 0], powers[-k - _LEAST, 1]
    below, there, above = _scaled(low, high, c, h, uneven)
    outside = c & _ONE  # the ends of the interval belong to it if the mantissa is even
    lower, upper = below + outside, above - outside
    s = there >> _TWO
    tens = s // _TEN
    down, up = lower <= tens * _FORTY, tens * _FORTY + _FORTY <= upper
    coarse, coarser = (tens + np.uint64(up)) * _TEN, (down != up) & (s >= _TEN)
    down, up = lower <= s * _FOUR, s * _FOUR + _FOUR <= upper
    middle = s * _FOUR + _TWO
    nearer = (there > middle) | ((there == middle) & ((s & _ONE) != _ZERO))
    fine = s + np.uint64(up if down != up else nearer)
    return coarse if coarser else fine, k  # selected without a branch: of averages each case is half


@njit(cache=True, nogil=True, forceinline=True)
def _scaled(
    low: np.uint64, high: np.uint64, c: np.uint64, h: np.uint64, uneven: bool
) -> tuple[np.uint64, np.uint64, np.uint64]:
    """Return the lower end of the rounding interval, the float and the upper end, times four, scaled, rounded to odd.

    The distance of the ends from the float is 2 << h times the power, so one product is enough.
    """
    factor = (c << _TWO) << h
    x, y0, y1 = low * factor, high * factor, _upper(high, factor)
    y0, y1 = _plus(y0, y1, _upper(low, factor), _ZERO)
    up = h + _ONE
    d0, d1, d2 = low << up, (high << up) | (low >> (_WORD_BITS - up)), high >> (_WORD_BITS - up)
    z = x + d0
    a0, a1 = _plus(y0, y1, d1, np.uint64(z < x))
    if uneven:
        d0, d1, d2 = (d0 >> _ONE) | (d1 << np.uint64(63)), (d1 >> _ONE) | (d2 << np.uint64(63)), d2 >> _ONE
    borrow = np.uint64(x < d0)
    b0, b1 = y0 - d1, y1 - d2 - np.uint64(y0 < d1)
    b0, b1 = b0 - borrow, b1 - np.uint64(b0 < borrow)
    return (
        b1 | np.uint64(b0 > _ONE),
        y1 | np.uint64(y0 > _ONE),
        (a1 + (high >> (_WORD_BITS - up))) | np.uint64(a0 > _ONE),
    )


@njit(cache=True, nogil=True, forceinline=True)
def _plus(low: np.uint64, high: np.uint64, more: np.uint64, carry: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Add a number of two words, a number of one word, and a carry bit."""
    total = low + more
    carried = np.uint64(total < low)
    total_carried = total + carry
    return total_carried, high + carried + np.uint64(total_carried < total)


@njit(cache=True, nogil=True, forceinline=True)
def _upper(a: np.uint64, b: np.uint64) -> np.uint64:
    """Return the upper half of a product."""
    a0, a1, b0, b1 = a & _LOW, a >> _HALF, b & _LOW, b >> _HALF
    middle = a1 * b0 + ((a0 * b0) >> _HALF)
    other = a0 * b1 + (middle & _LOW)
    return a1 * b1 + (middle >> _HALF) + (other >> _HALF)
