"""The compiled loop of line protocol. It reads plain lines of known series.

Enter by ``read_lines``, or by ``read_bodies`` for many bodies at once. It stops before the first line that is not plain
or that names a series unknown to the cache (contract: ``line_kernels``). ``split_line`` reads a plain line of unknown
series; ``exact`` reads any other.
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
    PER,
    POSITION,
    RAW_MAX,
    SERIES,
    STATUS,
    STOPPED,
    TIMELESS,
    TIMES,
    line_end,
)
from ingest.protocols.common.number_kernels import DIGITS_MAX, read_digits, read_number
from ingest.protocols.common.series_kernels import (
    KnownSeries,
    find_head,
    find_item,
    number_series,
    series_of,
    uncounted_series,
)
from spm.arrays import F64, I32, I64, U8
from spm.store.encoding.byte_kernels import is_equal, text_hash, uncounted

FIELDS_MAX = 1_000  # of a line that is split
KNOWN_LINES_MAX = 64  # after which the search for new series ends: the lines behind them are read once, not twice
_SPACE, _COMMA, _EQUALS, _NEWLINE, _ESCAPE, _COMMENT = 32, 44, 61, 10, 92, 35


@njit(nogil=True, cache=True)
def _head_end(body: U8, start: int) -> int:
    """Returns the position of the first space without a backslash before it; -1 if the line ends before."""
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
    """Returns the position of the '=' after a plain field name; -1 in every other case."""
    i = start
    while True:
        byte = body[i]
        if byte == _EQUALS:
            return i if i > start else -1
        if byte in (_NEWLINE, _SPACE, _COMMA, _ESCAPE):
            return -1
        i += 1


@njit(nogil=True, cache=True, forceinline=True)
def _read_fields(
    body: U8, start: int, head: int, known: KnownSeries, count: int, series: I32, values: F64
) -> tuple[int, int]:
    """Read all fields of a line; returns (their end, count of samples). An end below 0 is -STOPPED or -FULL."""
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
        i, value = read_number(body, name_end + 1)
        if i < 0:
            return -STOPPED, count
        series[count] = series_of(known, item)
        values[count] = value
        count += 1
        if body[i] != _COMMA:
            return i, count
        i += 1


@njit(nogil=True, cache=True)
def _read_time(body: U8, start: int, rules: I64) -> tuple[int, int]:
    """Read the time after the fields; returns (position of the newline, ms); -1 if only the exact reader can tell."""
    if body[start] != _SPACE:
        return line_end(body, start), rules[NOW]
    i, raw = read_digits(body, start + 1, np.uint64(0))
    if i == start + 1 or i - start - 1 > DIGITS_MAX or raw > np.uint64(rules[RAW_MAX]):
        return -1, 0
    ms = np.int64(raw) * rules[TIMES] // rules[PER]
    return (line_end(body, i) if ms >= 1 else -1), ms


@njit(nogil=True, cache=True)
def split_line(body: U8, start: int, rules: I64, spans: I64, values: F64) -> tuple[int, int, int, int]:
    """Split a plain line, whatever its series; returns (end of its head, count of fields, newline, ms).

    ``spans`` gets the names of the fields and ``values`` their values. The head's end is -1 if only the exact reader
    can tell; ms is -1 for a line without a time.
    """
    body, spans, values = uncounted(body), uncounted(spans), uncounted(values)
    space = _head_end(body, start + 1) if body[start] > _COMMENT else -1
    i, count = space + 1, 0
    while space > 0:
        name_end = _name_end(body, i) if count < len(spans) else -1
        if name_end < 0:
            return -1, 0, 0, 0
        spans[count, 0], spans[count, 1] = i, name_end
        i, values[count] = read_number(body, name_end + 1)
        if i < 0:
            return -1, 0, 0, 0
        count += 1
        if body[i] != _COMMA:
            break
        i += 1
    newline, ms = _read_time(body, i, rules) if space > 0 else (-1, 0)
    if newline < 0 or newline - start > rules[LENGTH_MAX]:
        return -1, 0, 0, 0
    return space, count, newline, int(ms) if body[i] == _SPACE else -1


@njit(nogil=True, cache=True)
def _place_of(known: KnownSeries, body: U8, rows: I64, count: int, table: I32, owner: int, start: int, end: int) -> int:
    """Returns the row of the text body[start:end] of an owner; ``count`` if it is new, and is now in the table."""
    slot = np.int64(text_hash(known.seed + np.uint64(owner), known.multiplier, body, start, end)) & (table.size - 1)
    while table[slot] > 0:
        row = table[slot] - 1
        if (
            rows[row, 2] == owner
            and rows[row, 1] - rows[row, 0] == end - start
            and is_equal(body, rows[row, 0], body, start, end)
        ):
            return int(row)
        slot = (slot + 1) & (table.size - 1)
    table[slot] = count + 1
    return count


@njit(nogil=True, cache=True)
def find_new(
    body: U8, spans: I64, rules: I64, known: KnownSeries, heads: I64, names: I64, tables: I32
) -> tuple[int, int, int]:
    """Find the fields of plain lines that the cache does not know; returns (heads, names, where the last span stopped).

    A row of ``spans`` is where lines start and end, and their rules; a stretch of them ends before a line that is not
    plain, and after ``KNOWN_LINES_MAX`` known ones. A row of ``heads`` or ``names`` is a text's start and end, and 0 or
    the row of its head; each text of an owner is there once. ``tables`` are two of zeros, for at least twice as many.
    """
    known, body = uncounted_series(known), uncounted(body)
    fields, values = np.empty((FIELDS_MAX, 2), np.int64), np.empty(FIELDS_MAX)
    head_count = name_count = at = 0
    for k in range(len(spans)):
        at, known_lines = spans[k, 0], 0
        while at < spans[k, 1] and known_lines < KNOWN_LINES_MAX:
            if body[at] == _NEWLINE:
                at += 1
                continue
            head_end, count, newline, _ = split_line(body, at, rules[spans[k, 2]], fields, values)
            if head_end < 0 or name_count + count > len(names):
                break
            number, row = find_head(known, body, at, head_end), -1
            for i in range(count):
                if number < 0 or find_item(known, number, body, fields[i, 0], fields[i, 1]) < 0:
                    if row < 0:
                        row = _place_of(known, body, heads, head_count, tables[0], 0, at, head_end)
                        if row == head_count:
                            heads[row, 0], heads[row, 1], heads[row, 2] = at, head_end, 0
                            head_count += 1
                    start, end = fields[i, 0], fields[i, 1]
                    name = _place_of(known, body, names, name_count, tables[1], row, start, end)
                    if name == name_count:
                        names[name, 0], names[name, 1], names[name, 2] = start, end, row
                        name_count += 1
            known_lines = known_lines + 1 if row < 0 else 0
            at = newline + 1
    return head_count, name_count, at


@njit(nogil=True, cache=True)
def read_lines(body: U8, rules: I64, known: KnownSeries, state: I64, series: I32, ts: I64, values: F64) -> int:
    """Read plain lines from ``state`` on until END, a line for the exact reader (STOPPED), or full columns (FULL).

    ``body`` ends with a newline. ``series`` gets numbers of the cache, ``ts`` milliseconds.
    """
    known, body, rules, state = uncounted_series(known), uncounted(body), uncounted(rules), uncounted(state)
    series, ts, values = uncounted(series), uncounted(ts), uncounted(values)
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
        end, after = _read_fields(body, space + 1, head, known, count, series, values)
        if end < 0:
            status = -end
            break
        newline, ms = _read_time(body, end, rules)
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
def read_bodies(
    joined: U8,
    cuts: I64,
    rules: I64,
    rule: I64,
    known: KnownSeries,
    states: I64,
    scratch: I32,
    series: I32,
    ts: I64,
    values: F64,
    distinct: I32,
) -> None:
    """Read many bodies as ``read_lines`` reads one: body k is joined[cuts[k] : cuts[k + 1]], by rules[rule[k]].

    The columns get the samples of all bodies, those of one that stops as far as they were read. ``states`` gets the
    state of each body, its status, and how many series it has: their numbers follow each other in ``distinct``, and
    ``series`` has their places among these. A body that stops has none, and its ``series`` are numbers of the cache.
    """
    known, joined, states = uncounted_series(known), uncounted(joined), uncounted(states)
    series, ts, values = uncounted(series), uncounted(ts), uncounted(values)
    count = table = 0
    for k in range(rule.size):
        state = states[k]
        state[LINE] = 1
        body = joined[cuts[k] : cuts[k + 1]]
        status = read_lines(body, rules[rule[k]], known, state, series[count:], ts[count:], values[count:])
        end = count + state[COUNT]
        if status == END and state[POSITION] == body.size:
            state[SERIES] = number_series(series[count:end], scratch, distinct[table:])
            table += state[SERIES]
        else:
            state[STATUS] = max(status, STOPPED)
        count = end
