"""Compiled reading of decimal numbers: digits to a float64 with a single rounding, as Python's ``float`` gives it.

Enter by ``read_number``. It reads the plain ones of the spellings that ``influx.exact`` lists, which decides: decimals,
integers with ``i`` or ``u``, booleans. The kernels of Influx, Prometheus text and JSON use it. An end of -1 means that
only the exact reader can decide; it never guesses. ``to_float`` is for mantissas of at most ``DIGITS_MAX`` digits.
"""

import numpy as np
from numba import njit

from spm.arrays import U8

EXPONENT_MAX = 64  # of ten, positive or negative; metrics beyond 10^±64 are rare enough for the exact reader
DIGITS_MAX = 19  # of a mantissa: every number of 19 digits fits 64 bits

_PLUS, _MINUS, _POINT, _ZERO, _SMALL_E, _BIG_E, _INTEGER, _UNSIGNED = 43, 45, 46, 48, 101, 69, 105, 117
_TEN = np.uint64(10)
_I64_MAX = np.uint64((1 << 63) - 1)
_EXACT = np.array([float(f"1e{k}") for k in range(23)])  # 10^22 is the last power of ten that float64 holds exactly
_HALF, _LOW, _ONE = np.uint64(32), np.uint64(0xFFFFFFFF), np.uint64(1)


def _power_of_five(exponent: int) -> int:
    """Returns the leading 128 bits of 5^exponent, truncated; a reciprocal is rounded up, as the method requires."""
    power: int = 5 ** abs(exponent)
    size = power.bit_length()
    if exponent >= 0:
        return power << (128 - size) if size <= 128 else power >> (size - 128)
    if exponent >= -27:
        return (1 << (size + 127)) // power + 1
    reciprocal = (1 << (2 * size + 128)) // power + 1
    return reciprocal >> (reciprocal.bit_length() - 128)


_FIVES = np.array(
    [[p >> 64, p & (1 << 64) - 1] for p in map(_power_of_five, range(-EXPONENT_MAX, EXPONENT_MAX + 1))], np.uint64
)


@njit(nogil=True, cache=True)
def read_digits(body: U8, start: int, mantissa: np.uint64) -> tuple[int, np.uint64]:
    """Returns the end of the digits at ``start`` and the mantissa with them (meaningless past DIGITS_MAX digits)."""
    i = start
    while True:
        digit = np.uint8(body[i] - np.uint8(_ZERO))
        if digit > 9:
            return i, mantissa
        mantissa = mantissa * _TEN + np.uint64(digit)
        i += 1


@njit(nogil=True, cache=True)
def _multiply(a: np.uint64, b: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Returns the high and the low half of a 64 × 64 bit product."""
    a1, a0, b1, b0 = a >> _HALF, a & _LOW, b >> _HALF, b & _LOW
    low = a0 * b0
    middle = a1 * b0 + (low >> _HALF)
    cross = a0 * b1 + (middle & _LOW)
    return a1 * b1 + (middle >> _HALF) + (cross >> _HALF), (cross << _HALF) | (low & _LOW)


@njit(nogil=True, cache=True)
def _leading_zeros(value: np.uint64) -> int:
    count = 0
    for step in (32, 16, 8, 4, 2, 1):
        if value >> np.uint64(64 - step) == 0:
            count += step
            value = value << np.uint64(step)
    return count


@njit(nogil=True, cache=True)
def _convert_by_product(mantissa: np.uint64, exponent: int) -> tuple[bool, float]:
    """Convert by Eisel and Lemire's method ("Number parsing at a gigabyte per second"): a 128-bit product.

    1. Normalise. 2. Multiply by 5^exponent, truncated to 128 bits. 3. Refine if in doubt. 4. Round half to even.
    5. Pack.
    """
    zeros = _leading_zeros(mantissa)
    normal = mantissa << np.uint64(zeros)
    row = exponent + EXPONENT_MAX
    high, low = _multiply(normal, _FIVES[row, 0])
    if high & np.uint64(0x1FF) == np.uint64(0x1FF):
        carry, _ = _multiply(normal, _FIVES[row, 1])
        low = low + carry
        if carry > low:
            high = high + _ONE
        if low == np.uint64(0xFFFFFFFFFFFFFFFF) and not -27 <= exponent <= 55:
            return False, 0.0
    upper = high >> np.uint64(63)
    shift = upper + np.uint64(9)
    bits = high >> shift
    power = ((217706 * exponent) >> 16) + 63 + np.int64(upper) - zeros + 1023
    if power <= 0 or power >= 2046:
        return False, 0.0
    if low <= _ONE and -4 <= exponent <= 23 and bits & np.uint64(3) == _ONE and bits << shift == high:
        bits = bits & ~_ONE
    bits = (bits + (bits & _ONE)) >> _ONE
    if bits >= np.uint64(1 << 53):
        bits = np.uint64(1 << 52)
        power += 1
    packed = np.uint64((bits & np.uint64((1 << 52) - 1)) | (np.uint64(power) << np.uint64(52)))
    return True, np.uint64(packed).view(np.float64)


@njit(nogil=True, cache=True)
def to_float(mantissa: np.uint64, exponent: int) -> tuple[bool, float]:
    """Returns (ok, mantissa × 10^exponent rounded once); if not ok, only Python's float() can tell.

    Clinger's method applies where float64 holds both factors exactly, so that one operation rounds once; else Eisel
    and Lemire's.
    """
    if mantissa <= np.uint64(1 << 53):
        integer = np.float64(np.int64(mantissa))
        if exponent == 0 or mantissa == 0:
            return True, integer
        if 0 < exponent <= 22:
            return True, integer * _EXACT[exponent]
        if -22 <= exponent < 0:
            return True, integer / _EXACT[-exponent]
    if exponent < -EXPONENT_MAX or exponent > EXPONENT_MAX:
        return False, 0.0
    return _convert_by_product(mantissa, exponent)


@njit(nogil=True, cache=True)
def _read_boolean(body: U8, start: int) -> tuple[int, float]:
    """Returns end and value of ``t``, ``true``, ``f`` or ``false``; end -1 for everything else."""
    if body[start] == 116:
        if body[start + 1] == 114 and body[start + 2] == 117 and body[start + 3] == 101:
            return start + 4, 1.0
        return start + 1, 1.0
    if body[start] == 102:
        if body[start + 1] == 97 and body[start + 2] == 108 and body[start + 3] == 115 and body[start + 4] == 101:
            return start + 5, 0.0
        return start + 1, 0.0
    return -1, 0.0


@njit(nogil=True, cache=True)
def _read_exponent(body: U8, start: int) -> tuple[int, int]:
    """Returns end and value of the exponent after an ``e``; end -1 if there is none or it has over three digits."""
    i = start
    negative = body[i] == _MINUS
    if negative or body[i] == _PLUS:
        i += 1
    end, value = read_digits(body, i, np.uint64(0))
    if end == i or end - i > 3:
        return -1, 0
    written = int(np.int64(value))
    return end, -written if negative else written


@njit(nogil=True, cache=True)
def read_number(body: U8, start: int) -> tuple[int, float]:
    """Returns end and float64 of the value at ``start``; end -1 if only the exact reader can tell."""
    negative = body[start] == _MINUS
    first = start + 1 if negative else start
    i, mantissa = read_digits(body, first, np.uint64(0))
    if i == first:
        return _read_boolean(body, start)
    digits = i - first
    byte = body[i]
    if byte in (_INTEGER, _UNSIGNED):
        if digits > DIGITS_MAX or (byte == _INTEGER and mantissa > _I64_MAX) or (byte == _UNSIGNED and negative):
            return -1, 0.0
        integer = np.float64(mantissa)
        return i + 1, (0.0 - integer if negative else integer)
    exponent = 0
    if byte == _POINT:
        fraction = i + 1
        i, mantissa = read_digits(body, fraction, mantissa)
        exponent = fraction - i
        digits -= exponent
    if digits > DIGITS_MAX:
        return -1, 0.0
    if body[i] == _SMALL_E or body[i] == _BIG_E:
        i, written = _read_exponent(body, i + 1)
        if i < 0:
            return -1, 0.0
        exponent += written
    ok, value = to_float(mantissa, exponent)
    if not ok:
        return -1, 0.0
    return i, -value if negative else value
