"""Compiled loops of the line protocol: plain lines of known series, at full speed.

Enter by ``read_lines``. It reads line after line and stops, with nothing half done, at the first one that is not plain
or names a series the cache does not know; the exact reader takes that one line, and the kernel goes on behind it. So it
never rejects, never explains and never guesses: whatever it takes, it takes exactly as the exact reader would.

``Known`` is one consistent view of the series cache: entries below its counts never change any more, entries beyond
them are treated as absent, so readers need no lock while another thread adds series. The disk cache of compiled code
looks at the caller's file only, so that one kernel's change makes all of them be compiled anew (``bin/lib.sh``). The
look-ups are inlined: a ``Known`` handed to a function is fourteen arrays whose users are counted, a third of the time.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ingest.protocols.common.byte_kernels import same, text_hash

U8 = NDArray[np.uint8]
U64 = NDArray[np.uint64]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
F64 = NDArray[np.float64]

END, STOPPED, FULL = 0, 1, 2  # what made ``read_lines`` return
POSITION, LINE, COUNT, TIMELESS = 0, 1, 2, 3  # its state: next byte, its line, samples, those without time
NOW, TIMES, PER, RAW_MAX, LINES_MAX, LENGTH_MAX = range(6)  # its rules: ms without time; raw × TIMES // PER

_SPACE, _COMMA, _EQUALS, _NEWLINE, _RETURN, _ESCAPE, _COMMENT = 32, 44, 61, 10, 13, 92, 35
_PLUS, _MINUS, _POINT, _ZERO, _SMALL_E, _BIG_E, _INTEGER, _UNSIGNED = 43, 45, 46, 48, 101, 69, 105, 117
_TEN = np.uint64(10)
_I64_MAX = np.uint64((1 << 63) - 1)

EXPONENT_MAX = 64  # of ten, either way; metrics beyond 10^±64 are rare enough for the exact reader
DIGITS_MAX = 19  # of a mantissa: every number of 19 digits fits 64 bits
_EXACT = np.array([float(f"1e{k}") for k in range(23)])  # 10^22 is the last power of ten without rounding
_HALF, _LOW, _ONE = np.uint64(32), np.uint64(0xFFFFFFFF), np.uint64(1)


def _power_of_five(exponent: int) -> int:
    """The leading 128 bits of 5^exponent, cut off; of a reciprocal, rounded up as the proof of the method asks."""
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


class Known(NamedTuple):
    """A view of the cache. Texts lie in ``text``; hours hold entry numbers, -1 where free."""

    key: U64  # seed and odd multiplier, drawn per process, so that nobody can choose colliding names
    text: U8
    head_count: int  # a head: measurement and tags as sent
    head_hours: I32
    head_hash: U64
    head_start: I64
    head_end: I64
    item_count: int  # an item: a head and a field's name
    item_hours: I32
    item_hash: U64
    item_head: I32
    item_start: I64
    item_end: I64
    item_series: I32


@njit(nogil=True, cache=True, inline="always")
def find_head(known: Known, text: U8, start: int, end: int) -> int:
    """The number of the head text[start:end], or -1."""
    h = text_hash(known.key[0], known.key[1], text, start, end)
    mask = known.head_hours.size - 1
    hour = np.int64(h & np.uint64(mask))
    while True:
        entry = int(known.head_hours[hour])
        if entry < 0 or entry >= known.head_count:
            return -1
        if (
            known.head_hash[entry] == h
            and known.head_end[entry] - known.head_start[entry] == end - start
            and same(known.text, known.head_start[entry], text, start, end)
        ):
            return entry
        hour = (hour + 1) & mask


@njit(nogil=True, cache=True, inline="always")
def find_item(known: Known, head: int, text: U8, start: int, end: int) -> int:
    """The number of the item (head, field name text[start:end]), or -1."""
    h = text_hash(known.key[0] + np.uint64(head), known.key[1], text, start, end)
    mask = known.item_hours.size - 1
    hour = np.int64(h & np.uint64(mask))
    while True:
        entry = int(known.item_hours[hour])
        if entry < 0 or entry >= known.item_count:
            return -1
        if (
            known.item_hash[entry] == h
            and known.item_head[entry] == head
            and known.item_end[entry] - known.item_start[entry] == end - start
            and same(known.text, known.item_start[entry], text, start, end)
        ):
            return entry
        hour = (hour + 1) & mask


@njit(nogil=True, cache=True)
def _head_end(body: U8, start: int) -> int:
    """Where the first space stands that no backslash precedes; -1 if the line ends before."""
    i = start
    while True:
        byte = body[i]
        if byte == _SPACE and body[i - 1] != _ESCAPE:
            return i
        if byte == _NEWLINE:
            return -1
        i += 1


@njit(nogil=True, cache=True)
def _name_end(body: U8, start: int) -> int:
    """Where the '=' behind a field's plain name stands; -1 for every other case."""
    i = start
    while True:
        byte = body[i]
        if byte == _EQUALS:
            return i if i > start else -1
        if byte in (_NEWLINE, _SPACE, _COMMA, _ESCAPE):
            return -1
        i += 1


@njit(nogil=True, cache=True)
def _digits(body: U8, start: int, mantissa: np.uint64) -> tuple[int, np.uint64]:
    """End of a row of digits and the mantissa they prolong (meaningless past DIGITS_MAX digits)."""
    i = start
    while True:
        digit = np.uint8(body[i] - np.uint8(_ZERO))
        if digit > 9:
            return i, mantissa
        mantissa = mantissa * _TEN + np.uint64(digit)
        i += 1


@njit(nogil=True, cache=True)
def _multiply(a: np.uint64, b: np.uint64) -> tuple[np.uint64, np.uint64]:
    """High and low half of a 64 × 64 bit product."""
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
def _by_product(mantissa: np.uint64, exponent: int) -> tuple[bool, float]:
    """Eisel and Lemire's way ("Number parsing at a gigabyte per second"): a 128-bit product with a cut-off power of 5.

    1. normalise; 2. multiply by 5^exponent; 3. refine if in doubt; 4. round half to even; 5. pack.
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
    """(ok, mantissa × 10^exponent rounded once); not ok: only Python's float() can tell.

    Clinger's way where both factors are float64 without rounding, so that one operation rounds once; else Lemire's.
    """
    if mantissa <= np.uint64(1 << 53):
        whole = np.float64(np.int64(mantissa))
        if exponent == 0 or mantissa == 0:
            return True, whole
        if 0 < exponent <= 22:
            return True, whole * _EXACT[exponent]
        if -22 <= exponent < 0:
            return True, whole / _EXACT[-exponent]
    if exponent < -EXPONENT_MAX or exponent > EXPONENT_MAX:
        return False, 0.0
    return _by_product(mantissa, exponent)


@njit(nogil=True, cache=True)
def _boolean(body: U8, start: int) -> tuple[int, float]:
    """End and value of ``t``, ``true``, ``f``, ``false``; end -1 for the other spellings and everything else."""
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
def _exponent(body: U8, start: int) -> tuple[int, int]:
    """End and value of the exponent behind an ``e``; end -1 if it is none or has over three digits."""
    i = start
    negative = body[i] == _MINUS
    if negative or body[i] == _PLUS:
        i += 1
    end, value = _digits(body, i, np.uint64(0))
    if end == i or end - i > 3:
        return -1, 0
    written = int(np.int64(value))
    return end, -written if negative else written


@njit(nogil=True, cache=True)
def _number(body: U8, start: int) -> tuple[int, float]:
    """End and float64 of the value at ``start``; end -1 if only the exact reader can tell."""
    negative = body[start] == _MINUS
    first = start + 1 if negative else start
    i, mantissa = _digits(body, first, np.uint64(0))
    if i == first:
        return _boolean(body, start)
    digits = i - first
    byte = body[i]
    if byte in (_INTEGER, _UNSIGNED):
        if digits > DIGITS_MAX or (byte == _INTEGER and mantissa > _I64_MAX) or (byte == _UNSIGNED and negative):
            return -1, 0.0
        whole = np.float64(mantissa)
        return i + 1, (0.0 - whole if negative else whole)
    exponent = 0
    if byte == _POINT:
        fraction = i + 1
        i, mantissa = _digits(body, fraction, mantissa)
        exponent = fraction - i
        digits -= exponent
    if digits > DIGITS_MAX:
        return -1, 0.0
    if body[i] == _SMALL_E or body[i] == _BIG_E:
        i, written = _exponent(body, i + 1)
        if i < 0:
            return -1, 0.0
        exponent += written
    ok, value = to_float(mantissa, exponent)
    if not ok:
        return -1, 0.0
    return i, -value if negative else value


@njit(nogil=True, cache=True)
def _fields(body: U8, start: int, head: int, known: Known, count: int, series: I32, values: F64) -> tuple[int, int]:
    """All fields of a line: (where they end, samples then written); an end of -1 or -FULL gives the line up."""
    i = start
    while True:
        if count == series.size:
            return -FULL, count
        name_end = _name_end(body, i)
        if name_end < 0:
            return -STOPPED, count
        item = find_item(known, head, body, i, name_end)
        if item < 0:
            return -STOPPED, count
        i, value = _number(body, name_end + 1)
        if i < 0:
            return -STOPPED, count
        series[count] = known.item_series[item]
        values[count] = value
        count += 1
        if body[i] != _COMMA:
            return i, count
        i += 1


@njit(nogil=True, cache=True)
def _line_end(body: U8, i: int) -> int:
    """The position of the newline if the line ends at ``i`` (perhaps by \\r\\n), else -1."""
    if body[i] == _RETURN:
        i += 1
    return i if body[i] == _NEWLINE else -1


@njit(nogil=True, cache=True)
def _time(body: U8, start: int, rules: I64) -> tuple[int, int]:
    """(newline's position, time in ms) behind the fields; position -1 if only the exact reader can tell."""
    if body[start] != _SPACE:
        return _line_end(body, start), rules[NOW]
    i, raw = _digits(body, start + 1, np.uint64(0))
    if i == start + 1 or i - start - 1 > DIGITS_MAX or raw > np.uint64(rules[RAW_MAX]):
        return -1, 0
    ms = np.int64(raw) * rules[TIMES] // rules[PER]
    return (_line_end(body, i) if ms >= 1 else -1), ms


@njit(nogil=True, cache=True)
def read_lines(body: U8, rules: I64, known: Known, state: I64, series: I32, ts: I64, values: F64) -> int:
    """Read plain lines from ``state`` on until END, a line for the exact reader (STOPPED) or no more room (FULL).

    ``body`` ends with a newline. Series are written as the cache's numbers, times in ms.
    """
    position, line, count = state[POSITION], state[LINE], state[COUNT]
    status = END
    while position < body.size and line <= rules[LINES_MAX]:
        if body[position] == _NEWLINE:
            position += 1
            line += 1
            continue
        space = _head_end(body, position + 1) if body[position] > _COMMENT else -1
        head = find_head(known, body, position, space) if space > 0 else -1
        if head < 0:
            status = STOPPED
            break
        end, after = _fields(body, space + 1, head, known, count, series, values)
        if end < 0:
            status = -end
            break
        newline, ms = _time(body, end, rules)
        if newline < 0 or newline - position > rules[LENGTH_MAX]:
            status = STOPPED
            break
        if body[end] != _SPACE:
            state[TIMELESS] += after - count
        ts[count:after] = ms
        position, line, count = newline + 1, line + 1, after
    state[POSITION], state[LINE], state[COUNT] = position, line, count
    return status


@njit(nogil=True, cache=True)
def localise(series: I32, marks: I32, found: I32) -> int:
    """Number the distinct series by appearance, in place; ``found`` gets them. Marks are zero before and after."""
    count = 0
    for i in range(series.size):
        number = series[i]
        if marks[number] == 0:
            found[count] = number
            count += 1
            marks[number] = count
        series[i] = marks[number] - 1
    for k in range(count):
        marks[found[k]] = 0
    return count
