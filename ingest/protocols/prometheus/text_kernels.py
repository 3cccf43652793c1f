"""The compiled loop of Prometheus' text form. It reads plain lines of known series.

It stops before the first line that is not plain or that names a series unknown to the cache (contract:
``line_kernels``); the exact reader reads that line. A head is the series as written: up to the closing brace, or up to
the first space. Its only item has the name ``value``. Comments are skipped. Enter by ``read_text``.
"""

import numpy as np
from numba import njit

from ingest.protocols.common.line_kernels import (
    COUNT,
    END,
    FULL,
    LENGTH_MAX,
    LINE,
    LINES_MAX,
    NOW,
    POSITION,
    RAW_MAX,
    STOPPED,
    TIMELESS,
    line_end,
)
from ingest.protocols.common.number_kernels import DIGITS_MAX, read_digits, read_number
from ingest.protocols.common.series_kernels import KnownSeries, find_head, find_item, series_of, uncounted_series
from spm.arrays import F64, I32, I64, U8
from spm.store.encoding.byte_kernels import uncounted

SECONDS = 6  # after the rules of ``line_kernels``: 1 if times are seconds with a fraction (OpenMetrics)
_SPACE, _QUOTE, _COMMENT, _POINT, _ZERO, _NINE, _NEWLINE, _OPEN, _CLOSE, _ESCAPE = (
    32,
    34,
    35,
    46,
    48,
    57,
    10,
    123,
    125,
    92,
)
_BIG_N, _SMALL_A, _MINUS = 78, 97, 45
_SECONDS_MAX = 1e11


@njit(nogil=True, cache=True)
def _head_end(body: U8, start: int) -> int:
    """Returns the end of the series that begins at ``start``; -1 if only the exact reader can tell."""
    i = start
    while body[i] != _OPEN:
        if body[i] == _SPACE:
            return i
        if body[i] == _NEWLINE or body[i] == _QUOTE:
            return -1
        i += 1
    quoted = False
    while quoted or body[i] != _CLOSE:
        if body[i] == _NEWLINE or body[i] == _ESCAPE:
            return -1
        if body[i] == _QUOTE:
            quoted = not quoted
        i += 1
    return i + 1


@njit(nogil=True, cache=True)
def _skip_spaces(body: U8, i: int) -> int:
    while body[i] == _SPACE:
        i += 1
    return i


@njit(nogil=True, cache=True)
def _read_value(body: U8, i: int) -> tuple[int, float]:
    """Returns end and value of the decimal number or ``NaN`` at ``i``; end -1 if only the exact reader can tell."""
    if body[i] == _BIG_N and body[i + 1] == _SMALL_A and body[i + 2] == _BIG_N:
        return i + 3, np.nan
    end, value = read_number(body, i)
    if end < 0:
        return -1, 0.0
    last = body[end - 1]  # a letter here is line protocol's suffix of an integer, or its boolean
    return (end if _ZERO <= last <= _NINE or last == _POINT else -1), value


@njit(nogil=True, cache=True)
def _read_time(body: U8, i: int, rules: I64) -> tuple[int, int]:
    """Returns end and ms of the time at ``i``; end -1 if only the exact reader can tell."""
    if body[i] == _MINUS:
        return -1, 0
    if rules[SECONDS] == 1:
        end, seconds = _read_value(body, i)
        if end < 0 or not seconds < _SECONDS_MAX:
            return -1, 0
        ms = np.int64(np.rint(seconds * 1000.0))
    else:
        end, raw = read_digits(body, i, np.uint64(0))
        if end == i or end - i > DIGITS_MAX or raw > np.uint64(rules[RAW_MAX]):
            return -1, 0
        ms = np.int64(raw)
    return (end if 1 <= ms <= rules[RAW_MAX] else -1), int(ms)


@njit(nogil=True, cache=True)
def _read_sample(body: U8, start: int, rules: I64) -> tuple[int, float, int, bool]:
    """Returns (newline, value, ms, timeless) of the text after a series; newline -1: only the exact reader can tell."""
    i = _skip_spaces(body, start)
    if i == start:
        return -1, 0.0, 0, False
    i, value = _read_value(body, i)
    if i < 0:
        return -1, 0.0, 0, False
    after = _skip_spaces(body, i)
    newline = line_end(body, after)
    if newline >= 0:
        return newline, value, rules[NOW], True
    if after == i:
        return -1, 0.0, 0, False
    i, ms = _read_time(body, after, rules)
    return (-1 if i < 0 else line_end(body, _skip_spaces(body, i))), value, ms, False


@njit(nogil=True, cache=True)
def read_text(body: U8, name: U8, rules: I64, known: KnownSeries, state: I64, series: I32, ts: I64, values: F64) -> int:
    """Read lines from ``state`` on until END, a line for the exact reader (STOPPED), or full columns (FULL).

    ``body`` ends with a newline; ``name`` is the name of the item. ``series`` gets numbers of the cache.
    """
    known, body, rules, state = uncounted_series(known), uncounted(body), uncounted(rules), uncounted(state)
    series, ts, values = uncounted(series), uncounted(ts), uncounted(values)
    position, line, count = state[POSITION], state[LINE], state[COUNT]
    status = END
    while position < body.size and line <= rules[LINES_MAX]:
        if body[position] == _NEWLINE or body[position] == _COMMENT:
            while body[position] != _NEWLINE:
                position += 1
            position += 1
            line += 1
            continue
        if count == series.size:
            status = FULL
            break
        end = _head_end(body, position)
        head = find_head(known, body, position, end) if end > position else -1
        item = find_item(known, head, name, 0, name.size) if head >= 0 else -1
        newline, value, ms, timeless = _read_sample(body, end, rules) if item >= 0 else (-1, 0.0, 0, False)
        if newline < 0 or newline - position > rules[LENGTH_MAX]:
            status = STOPPED
            break
        series[count] = series_of(known, item)
        values[count] = value
        ts[count] = ms
        count += 1
        if timeless:
            state[TIMELESS] += 1
        position, line = newline + 1, line + 1
    state[POSITION], state[LINE], state[COUNT] = position, line, count
    return status
