"""Writes columns of floats as Go does in JSON: the shortest digits that read back to the same number.

Most measured numbers are decimals of few digits. If value × 10^k is a whole number of at most 15 digits, and dividing
it by 10^k gives the value again, no other decimal is as short, and it is written with integers alone. The digits of all
other numbers come from `schubfach`; here they are laid out: no exponent between 1e-6 and 1e21, "NaN", "+Inf", "-Inf".
The code for one number is compiled into its loop by `forceinline`, since calls would double the time. Enter by
`text_column`, or for points by `samples_json` and `matrix_json`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numba import njit

from spm.arrays import BOOL, F64, I32, I64, U8, U64
from spm.query.formats.schubfach import POWERS, decimal

_CHARS_MAX = 32  # of one number: a sign, 0.00000 and 17 digits, or 21 digits; and room for digits written in eights
_WHOLE_MAX = 1e15  # whole numbers below it have at most 15 digits
_PLACES_MAX = 6  # decimal places that are tried; more are rare, and `schubfach` is fast enough
_NEAR = 1e-15  # the division is only tried where the product is nearly whole
# A product that is nearly whole with fewer places is nearly whole with the most places too, but for rounding.
_FINEST, _FAR = 10.0**_PLACES_MAX, 4e-15
_OTHER = -1
_DIGITS = 17  # the most digits that a float needs
_MINUS, _POINT, _ZERO, _E, _PLUS = b"-.0e+"
_OPEN, _CLOSE, _QUOTE, _COMMA, _END = b'[]",}'
_POINT_MAX = len(',[,""]') + 2 * _CHARS_MAX
_AROUND = len(',{"metric":,"values":[]}')
_TEN, _FOUR_DIGITS, _EIGHT_DIGITS, _FULL = (np.uint64(10**n) for n in (1, 4, 8, _DIGITS - 1))
_EIGHT, _BYTE = 8, np.uint64(8)
_LIMITS = tuple(np.uint64(10**n) for n in range(1, 8))


class Texts(NamedTuple):
    """Concatenated texts, with eight spare bytes at the end; text i is ``raw[ends[i]:ends[i + 1]]``."""

    ends: I32
    raw: U8


def format_floats(values: F64) -> Texts:
    """Write each value as a text."""
    out, ends = np.empty(len(values) * _CHARS_MAX + _EIGHT, np.uint8), np.zeros(len(values) + 1, np.int32)
    return Texts(ends, out[: _write(*_read_only(values), POWERS, out, ends) + _EIGHT])


def text_column(values: F64) -> pa.Array:
    """Write each value as a text, into a column of Arrow."""
    texts = format_floats(values)
    buffers = [None, pa.py_buffer(texts.ends), pa.py_buffer(texts.raw)]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)


def _read_only(values: F64) -> tuple[F64, U64]:
    """Return the values and their bits as read-only arrays: kernels are compiled for this kind of array only."""
    plain = np.ascontiguousarray(values, np.float64).view()
    plain.flags.writeable = False
    return plain, plain.view(np.uint64)


@njit(cache=True, nogil=True)
def _write(values: F64, bits: U64, powers: U64, out: U8, ends: I32) -> int:
    at = 0
    for i in range(len(values)):
        at = _number(values[i], bits[i], powers, out, at)
        ends[i + 1] = at
    return at


@njit(cache=True, nogil=True, forceinline=True)
def _number(value: float, bits: np.uint64, powers: U64, out: U8, at: int) -> int:
    whole, places = _short(value)
    if places >= 0:
        return _decimal(whole, places, out, at)
    if np.isnan(value):
        return _literal(b"NaN", out, at)
    if np.isinf(value):
        return _literal(b"+Inf" if value > 0 else b"-Inf", out, at)
    if np.signbit(value):
        out[at] = _MINUS
        at += 1
    if value == 0:
        out[at] = _ZERO
        return at + 1
    digits, exponent = decimal(bits, powers)
    digits, missing = _pad_digits(digits)
    point = _DIGITS - missing + exponent
    if 1e-6 <= abs(value) < 1e21:
        return _plain(digits, point, out, at)
    return _with_exponent(digits, point - 1, out, at)


@njit(cache=True, nogil=True, forceinline=True)
def _short(value: float) -> tuple[int, int]:
    """Return a decimal of few digits as a whole number and its decimal places; places are -1 for any other number."""
    finest = abs(value) * _FINEST
    if finest < _WHOLE_MAX and abs(finest - np.rint(finest)) > finest * _FAR:
        return 0, _OTHER
    scale = 1.0
    for places in range(_PLACES_MAX + 1):
        scaled = value * scale
        if not abs(scaled) < _WHOLE_MAX:
            break
        rounded = np.rint(scaled)
        if abs(scaled - rounded) <= abs(scaled) * _NEAR and rounded / scale == value:
            if value == 0 and np.signbit(value):
                break
            return int(rounded), places
        scale *= 10.0
    return 0, _OTHER


@njit(cache=True, nogil=True, forceinline=True)
def _decimal(whole: int, places: int, out: U8, at: int) -> int:
    """Write a whole number with this number of decimal places."""
    if whole < 0:
        out[at] = _MINUS
        at += 1
    rest, count = np.uint64(abs(whole)), _EIGHT
    if rest < _EIGHT_DIGITS:
        count = max(_count(rest), places + 1)
    else:  # the point is among the last eight
        upper = rest // _EIGHT_DIGITS
        rest -= upper * _EIGHT_DIGITS
        first = _count(upper)
        _put(_eight(upper) >> np.uint64(64 - 8 * first), out, at)
        at += first
    word = _eight(rest) >> np.uint64(64 - 8 * count)
    _put(word, out, at)
    if places == 0:
        return at + count
    before = count - places
    out[at + before] = _POINT
    _put(word >> np.uint64(8 * before), out, at + before + 1)
    return at + count + 1


@njit(cache=True, nogil=True, forceinline=True)
def _count(number: np.uint64) -> int:
    """Count the digits of a number that has at most eight."""
    count = 1
    for limit in _LIMITS:
        count += 1 if number >= limit else 0
    return count


@njit(cache=True, nogil=True, forceinline=True)
def _pad_digits(digits: np.uint64) -> tuple[np.uint64, int]:
    """Append zeros to the digits up to 17; return the digits and the number of zeros."""
    missing = 0
    while digits < _FULL:
        digits *= _TEN
        missing += 1
    return digits, missing


@njit(cache=True, nogil=True, forceinline=True)
def _plain(digits: np.uint64, point: int, out: U8, at: int) -> int:
    """Write 17 digits with a point before digit `point`, without zeros at the end."""
    if point >= _DIGITS:
        _seventeen(digits, out, at)
        for k in range(_DIGITS, point):
            out[at + k] = _ZERO
        return at + point
    if point > 0:
        return _with_point(digits, point, out, at)
    out[at], out[at + 1] = _ZERO, _POINT
    for k in range(-point):
        out[at + 2 + k] = _ZERO
    return _without_zeros(out, _seventeen(digits, out, at + 2 - point))


@njit(cache=True, nogil=True, forceinline=True)
def _with_point(digits: np.uint64, point: int, out: U8, at: int) -> int:
    end = _seventeen(digits, out, at + 1)
    for k in range(point):
        out[at + k] = out[at + k + 1]
    out[at + point] = _POINT
    end = _without_zeros(out, end)
    return end - 1 if end == at + point + 1 else end


@njit(cache=True, nogil=True, forceinline=True)
def _with_exponent(digits: np.uint64, exponent: int, out: U8, at: int) -> int:
    at = _with_point(digits, 1, out, at)
    out[at], out[at + 1] = _E, _MINUS if exponent < 0 else _PLUS
    at, exponent = at + 2, abs(exponent)
    if exponent >= 100:
        out[at] = _ZERO + exponent // 100
        at += 1
    out[at], out[at + 1] = _ZERO + exponent // 10 % 10, _ZERO + exponent % 10
    return at + 2


@njit(cache=True, nogil=True, forceinline=True)
def _without_zeros(out: U8, end: int) -> int:
    while out[end - 1] == _ZERO:
        end -= 1
    return end


@njit(cache=True, nogil=True, forceinline=True)
def _seventeen(digits: np.uint64, out: U8, at: int) -> int:
    """Write 17 digits; return their end, without a last 0: half of all averages have one, so no branch drops it."""
    upper = digits // _EIGHT_DIGITS
    first = upper // _EIGHT_DIGITS
    out[at] = _ZERO + first
    _put(_eight(upper - first * _EIGHT_DIGITS), out, at + 1)
    last = _eight(digits - upper * _EIGHT_DIGITS)
    _put(last, out, at + 9)
    return at + _DIGITS - (1 if last >> np.uint64(56) == np.uint64(_ZERO) else 0)


@njit(cache=True, nogil=True, forceinline=True)
def _eight(number: np.uint64) -> np.uint64:
    """Convert eight digits to the bytes of a word, the first lowest: by two fours, four twos and eight ones."""
    fours = number // _FOUR_DIGITS
    fours |= (number - fours * _FOUR_DIGITS) << np.uint64(32)
    twos = ((fours * np.uint64(10486)) >> np.uint64(20)) & np.uint64(0x7F_0000_007F)  # divided by 100
    twos |= (fours - twos * np.uint64(100)) << np.uint64(16)
    ones = ((twos * np.uint64(103)) >> np.uint64(10)) & np.uint64(0xF_000F_000F_000F)  # divided by 10
    ones |= (twos - ones * _TEN) << _BYTE
    return ones | np.uint64(0x3030_3030_3030_3030)


@njit(cache=True, nogil=True, forceinline=True)
def _put(word: np.uint64, out: U8, at: int) -> None:
    place = np.uint64(at)
    for k in range(np.uint64(_EIGHT)):  # becomes one store, as an unsigned index is never counted from the end
        out[place + k] = np.uint8((word >> (k * _BYTE)) & np.uint64(0xFF))


@njit(cache=True, nogil=True)
def _literal(word: bytes, out: U8, at: int) -> int:
    for k in range(len(word)):
        out[at + k] = word[k]
    return at + len(word)


def samples_json(times: Texts, steps: I64, values: F64, counts: I64, names: U8, borders: I64) -> memoryview:
    """Write the objects of series with their samples, `{"metric":{…},"values":[[time,"value"],…]}`.

    `times` are by step; the labels of series i are `names[borders[i]:borders[i + 1]]`.
    """
    out = _room(len(values), borders)
    size = _join(*times, *_read_only(values), POWERS, steps, counts, names, borders, out)
    return memoryview(out)[:size]  # type: ignore[arg-type]


def matrix_json(times: Texts, values: F64, present: BOOL, names: U8, borders: I64, *, single: bool) -> memoryview:
    """Write the objects of series with elements at steps; with `single`, of one step: `"value":[time,"value"]`."""
    out = _room(values.size, borders)
    mask = np.ascontiguousarray(present)
    size = _join_present(*times, *_read_only(values), POWERS, mask, names, borders, single, out)
    return memoryview(out)[:size]  # type: ignore[arg-type]


def _room(points: int, borders: I64) -> U8:
    """Allocate enough bytes for the objects; pages that are never written take no memory."""
    series = len(borders) - 1
    return np.empty(points * _POINT_MAX + int(borders[-1] - borders[0]) + _AROUND * series + _EIGHT, np.uint8)


@njit(cache=True, nogil=True)
def _join(
    before: I32,
    times: U8,
    values: F64,
    bits: U64,
    powers: U64,
    steps: I64,
    counts: I64,
    names: U8,
    borders: I64,
    out: U8,
) -> int:
    at = point = 0
    for row in range(len(counts)):
        at = _open_series(row, names, borders, out, at)
        at = _literal(b',"values":[', out, at)
        for k in range(counts[row]):
            if k > 0:
                out[at] = _COMMA
                at += 1
            at = _point(before, times, steps[point], values[point], bits[point], powers, out, at)
            point += 1
        out[at], out[at + 1] = _CLOSE, _END
        at += 2
    return at


@njit(cache=True, nogil=True)
def _join_present(
    before: I32,
    times: U8,
    values: F64,
    bits: U64,
    powers: U64,
    present: BOOL,
    names: U8,
    borders: I64,
    single: bool,
    out: U8,
) -> int:
    at = 0
    for row in range(values.shape[0]):
        at = _open_series(row, names, borders, out, at)
        at = _literal(b',"value":', out, at) if single else _literal(b',"values":[', out, at)
        first = True
        for step in range(values.shape[1]):
            if present[row, step]:
                if not first:
                    out[at] = _COMMA
                    at += 1
                first = False
                at = _point(before, times, step, values[row, step], bits[row, step], powers, out, at)
        if not single:
            out[at] = _CLOSE
            at += 1
        out[at] = _END
        at += 1
    return at


@njit(cache=True, nogil=True, forceinline=True)
def _open_series(row: int, names: U8, borders: I64, out: U8, at: int) -> int:
    if row > 0:
        out[at] = _COMMA
        at += 1
    return _copy(names, borders[row], borders[row + 1], out, _literal(b'{"metric":', out, at))


@njit(cache=True, nogil=True, forceinline=True)
def _point(before: I32, times: U8, step: int, value: float, bits: np.uint64, powers: U64, out: U8, at: int) -> int:
    out[at] = _OPEN
    at = _copy_in_eights(times, before[step], before[step + 1], out, at + 1)
    out[at], out[at + 1] = _COMMA, _QUOTE
    at = _number(value, bits, powers, out, at + 2)
    out[at], out[at + 1] = _QUOTE, _CLOSE
    return at + 2


@njit(cache=True, nogil=True, forceinline=True)
def _copy(source: U8, first: int, last: int, out: U8, at: int) -> int:
    for k in range(first, last):
        out[at + k - first] = source[k]
    return at + last - first


@njit(cache=True, nogil=True, forceinline=True)
def _copy_in_eights(source: U8, first: int, last: int, out: U8, at: int) -> int:
    """Copy bytes eight at a time; source and output must have seven more bytes after the end."""
    for begin in range(first, last, _EIGHT):
        word, place = np.uint64(0), np.uint64(begin)
        for k in range(np.uint64(_EIGHT)):  # becomes one load
            word |= np.uint64(source[place + k]) << (k * _BYTE)
        _put(word, out, at + begin - first)
    return at + last - first
