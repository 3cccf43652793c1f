"""Floats as texts the way Go writes them in JSON, a column at once: the shortest digits that read back to the same.

Most numbers that are measured are decimals of few digits. One of at most 15 digits that is value × 10^k, whole and
exact again when it is divided, is the only one so short, and is written by integers alone. All others get their digits
from Arrow, and only the layout here: no exponent between 1e-6 and 1e21, "NaN", "+Inf", "-Inf". Enter by `texts`, or for
points by `rows`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from spm.store.columns import floats

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]

_CHARS_MAX = 32  # of one number: a sign, 0.00000 and 17 digits; or 21 digits
_WHOLE_MAX = 1e15  # below it every decimal of our kind has at most 15 digits
_PLACES_MAX = 6  # tried behind the point; more are rarely found, and Arrow is quick enough
_NEAR = 1e-15  # a division is worth its time only where the product is nearly whole
_OTHER = -1
_MINUS, _POINT, _ZERO, _E, _PLUS = b"-.0e+"
_OPEN, _CLOSE, _QUOTE, _COMMA, _END = b'[]",}'
_AROUND_POINT = len(',[,""]')
_AROUND = len(',{"metric":,"values":[]}')


def texts(values: F64) -> pa.Array:
    """A column of texts, one for each value."""
    plain = np.ascontiguousarray(values, np.float64)
    whole, places = np.empty(len(plain), np.int64), np.empty(len(plain), np.int8)
    count = _classify(plain, whole, places)
    given, raw = _by_arrow(plain[places == _OTHER]) if count else _NONE_BY_ARROW
    out, ends = np.empty(len(plain) * _CHARS_MAX, np.uint8), np.zeros(len(plain) + 1, np.int32)
    size = _write(plain, whole, places, given, raw, out, ends)
    return pa.Array.from_buffers(pa.string(), len(plain), [None, pa.py_buffer(ends), pa.py_buffer(out[:size])])


def _by_arrow(values: F64) -> tuple[npt.NDArray[np.int32], U8]:
    """(where each text begins, and the last one ends; the texts)."""
    _, ends, text = pc.cast(floats(values), pa.string()).buffers()
    return np.frombuffer(ends, np.int32)[: len(values) + 1], np.frombuffer(text, np.uint8)


_NONE_BY_ARROW = np.zeros(1, np.int32), np.zeros(1, np.uint8)  # writeable as Arrow's: kernels are compiled for one kind


@njit(cache=True, nogil=True)
def _classify(values: F64, whole: I64, places: npt.NDArray[np.int8]) -> int:
    """Which values are decimals of few digits, and which; returns how many are not."""
    others = 0
    for i in range(len(values)):
        value, places[i] = values[i], _OTHER
        scale = 1.0
        for k in range(_PLACES_MAX + 1):
            scaled = value * scale
            if not abs(scaled) < _WHOLE_MAX:
                break
            rounded = np.rint(scaled)
            if abs(scaled - rounded) <= abs(scaled) * _NEAR and rounded / scale == value:
                if value != 0 or not np.signbit(value):
                    whole[i], places[i] = np.int64(rounded), k
                break
            scale *= 10.0
        others += places[i] == _OTHER
    return others


@njit(cache=True, nogil=True)
def _write(
    values: F64, whole: I64, places: npt.NDArray[np.int8], given: npt.NDArray[np.int32], raw: U8, out: U8,
    ends: npt.NDArray[np.int32],
) -> int:  # fmt: skip
    at = other = 0
    digits = np.empty(_CHARS_MAX, np.uint8)
    for i in range(len(values)):
        if places[i] >= 0:
            at = _decimal(whole[i], places[i], digits, out, at)
            ends[i + 1] = at
            continue
        if 1e-6 <= abs(values[i]) < 1e10:  # Arrow's layout is Go's
            for k in range(given[other], given[other + 1]):
                out[at] = raw[k]
                at += 1
        else:
            at = _laid_out(values[i], raw[given[other] : given[other + 1]], digits, out, at)
        other += 1
        ends[i + 1] = at
    return at


@njit(cache=True, nogil=True)
def _decimal(number: int, places: int, digits: U8, out: U8, at: int) -> int:
    """A whole number with so many of its digits behind the point."""
    if number < 0:
        out[at] = _MINUS
        at, number = at + 1, -number
    count = 0
    while number > 0 or count <= places:
        digits[count] = _ZERO + number % 10
        number //= 10
        count += 1
    for k in range(count - 1, -1, -1):
        out[at] = digits[k]
        at += 1
        if k == places and k > 0:
            out[at] = _POINT
            at += 1
    return at


@njit(cache=True, nogil=True)
def _laid_out(value: float, text: U8, digits: U8, out: U8, at: int) -> int:
    """Arrow's digits in Go's layout."""
    if np.isnan(value):
        return _word(b"NaN", out, at)
    if np.isinf(value):
        return _word(b"+Inf" if value > 0 else b"-Inf", out, at)
    if np.signbit(value):
        out[at] = _MINUS
        at += 1
    if value == 0:
        out[at] = _ZERO
        return at + 1
    count, point = _digits(text, digits)
    if 1e-6 <= abs(value) < 1e21:
        return _plain(digits, count, point, out, at)
    return _with_exponent(digits, count, point, out, at)


@njit(cache=True, nogil=True)
def _digits(text: U8, digits: U8) -> tuple[int, int]:
    """The digits that count, and where the point stands among them: before digit `point`."""
    count = point = exponent = 0
    behind = seen = False
    k = 1 if text[0] == _MINUS else 0
    while k < len(text) and text[k] != _E:
        if text[k] == _POINT:
            behind = True
        else:
            seen = seen or text[k] != _ZERO
            if seen:
                digits[count] = text[k]
                count += 1
            if not behind and seen:
                point += 1
            if behind and not seen:
                point -= 1
        k += 1
    if k < len(text):
        minus = text[k + 1] == _MINUS
        k += 2 if minus or text[k + 1] == _PLUS else 1
        while k < len(text):
            exponent = exponent * 10 + int(text[k]) - _ZERO
            k += 1
        point += -exponent if minus else exponent
    while count > 1 and digits[count - 1] == _ZERO:
        count -= 1
    return count, point


@njit(cache=True, nogil=True)
def _plain(digits: U8, count: int, point: int, out: U8, at: int) -> int:
    if point <= 0:
        out[at], out[at + 1] = _ZERO, _POINT
        at += 2
        for _ in range(-point):
            out[at] = _ZERO
            at += 1
    for k in range(max(count, point)):
        if k == point and k > 0:
            out[at] = _POINT
            at += 1
        out[at] = digits[k] if k < count else _ZERO
        at += 1
    return at


@njit(cache=True, nogil=True)
def _with_exponent(digits: U8, count: int, point: int, out: U8, at: int) -> int:
    for k in range(count):
        if k == 1:
            out[at] = _POINT
            at += 1
        out[at] = digits[k]
        at += 1
    exponent = point - 1
    out[at], out[at + 1] = _E, _MINUS if exponent < 0 else _PLUS
    at, exponent = at + 2, abs(exponent)
    if exponent >= 100:
        out[at] = _ZERO + exponent // 100
        at += 1
    out[at], out[at + 1] = _ZERO + exponent // 10 % 10, _ZERO + exponent % 10
    return at + 2


@njit(cache=True, nogil=True)
def _word(word: bytes, out: U8, at: int) -> int:
    for k in range(len(word)):
        out[at + k] = word[k]
    return at + len(word)


def rows(
    times: pa.Array, steps: I64, shown: pa.Array, counts: I64, names: U8, borders: I64, *, single: bool
) -> memoryview:
    """Objects of series, `{"metric":{…},"values":[[time,"value"],…]}`, or with `single` `"value":[time,"value"]`.

    `times` are by step; the labels of series i are `names[borders[i]:borders[i + 1]]`.
    """
    before, after = np.frombuffer(times.buffers()[1], np.int32), np.frombuffer(shown.buffers()[1], np.int32)
    widest = int(np.diff(before[: len(times) + 1]).max(initial=0))
    points = int(after[len(shown)]) + len(shown) * (widest + _AROUND_POINT)
    out = np.empty(points + int(borders[-1] - borders[0]) + _AROUND * len(counts), np.uint8)
    times_raw, shown_raw = (np.frombuffer(each.buffers()[2], np.uint8) for each in (times, shown))
    size = _join(before, times_raw, after, shown_raw, steps, counts, names, borders, single, out)
    return memoryview(out)[:size]  # type: ignore[arg-type]


@njit(cache=True, nogil=True)
def _join(
    before: npt.NDArray[np.int32], times: U8, after: npt.NDArray[np.int32], shown: U8, steps: I64, counts: I64,
    names: U8, borders: I64, single: bool, out: U8,
) -> int:  # fmt: skip
    at = point = 0
    for row in range(len(counts)):
        if row > 0:
            out[at] = _COMMA
            at += 1
        at = _word(b'{"metric":', out, at)
        for n in range(borders[row], borders[row + 1]):
            out[at] = names[n]
            at += 1
        at = _word(b',"value":', out, at) if single else _word(b',"values":[', out, at)
        for k in range(counts[row]):
            if k > 0:
                out[at] = _COMMA
                at += 1
            out[at] = _OPEN
            at += 1
            for n in range(before[steps[point]], before[steps[point] + 1]):
                out[at] = times[n]
                at += 1
            out[at], out[at + 1] = _COMMA, _QUOTE
            at += 2
            for n in range(after[point], after[point + 1]):
                out[at] = shown[n]
                at += 1
            out[at], out[at + 1] = _QUOTE, _CLOSE
            at, point = at + 2, point + 1
        if not single:
            out[at] = _CLOSE
            at += 1
        out[at] = _END
        at += 1
    return at
