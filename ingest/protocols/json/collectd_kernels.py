"""The compiled loop of collectd's value lists. It reads lists of known series in the form that collectd writes.

It follows the contract of ``line_kernels`` and uses the steps of ``json.kernels``. The head of a list is the text that
names the sender, from the key ``host`` to the end of the last such key, if no other key lies between them. Its items
are the names of the values. Enter by ``read_lists``.
"""

import numpy as np
from numba import njit

from ingest.protocols.common.line_kernels import COUNT, END, FULL, LINE, POSITION, RAW_MAX, STOPPED
from ingest.protocols.common.series_kernels import KnownSeries, find_head, find_item, series_of, uncounted_series
from ingest.protocols.json.kernels import (
    CLOSE,
    CLOSE_LIST,
    COMMA,
    NULL,
    OPEN,
    OPEN_LIST,
    QUOTE,
    is_key,
    next_item,
    next_key,
    read_json_number,
    skip_space,
    string_end,
    value_end,
)
from spm.arrays import F64, I32, I64, U8
from spm.store.encoding.byte_kernels import uncounted

HEAD_START, HEAD_END = 4, 5  # after the state of ``line_kernels``: the head of the item it stopped at; 0 is no head
_VALUES, _DSNAMES, _TIME = (np.frombuffer(f'"{key}"'.encode(), np.uint8) for key in ("values", "dsnames", "time"))
_HOST, _PLUGIN, _PLUGIN_INSTANCE, _TYPE, _TYPE_INSTANCE = (
    np.frombuffer(f'"{key}"'.encode(), np.uint8)
    for key in ("host", "plugin", "plugin_instance", "type", "type_instance")
)
_SECONDS_MAX = 1e11
_NONE = -2  # the number of a series whose value is null


@njit(nogil=True, cache=True)
def _name_bit(body: U8, start: int, end: int) -> int:
    """Returns a distinct bit for each key that names the sender; 0 for other keys."""
    if is_key(body, start, end, _HOST):
        return 1
    if is_key(body, start, end, _PLUGIN):
        return 2
    if is_key(body, start, end, _PLUGIN_INSTANCE):
        return 4
    if is_key(body, start, end, _TYPE):
        return 8
    return 16 if is_key(body, start, end, _TYPE_INSTANCE) else 0


@njit(nogil=True, cache=True)
def _is_sample_key(body: U8, start: int, end: int) -> bool:
    return is_key(body, start, end, _VALUES) or is_key(body, start, end, _DSNAMES) or is_key(body, start, end, _TIME)


@njit(nogil=True, cache=True)
def _read_values(body: U8, i: int, count: int, series: I32, values: F64) -> tuple[int, int]:
    """Read the list of values at ``i``; returns (its end, count with nulls); an end of -1: not a plain list."""
    i = skip_space(body, i + 1)
    at = count
    while body[i] != CLOSE_LIST:
        if at == values.size:
            return -1, 0
        if body[i] == NULL:
            i += 4
            series[at] = _NONE
        else:
            i, values[at] = read_json_number(body, i)
            series[at] = 0
        if i < 0:
            return -1, 0
        at += 1
        i = skip_space(body, i)
        if body[i] == COMMA:
            i = skip_space(body, i + 1)
    return i + 1, at - count


@njit(nogil=True, cache=True)
def _assign_series(body: U8, i: int, head: int, known: KnownSeries, count: int, value_count: int, series: I32) -> bool:
    """Set the series of each value by its name in the list at ``i``; false if one series is unknown."""
    i = skip_space(body, i + 1)
    at = count
    while body[i] == QUOTE:
        if at == count + value_count:
            return False
        end = string_end(body, i)
        item = find_item(known, head, body, i, end)
        if item < 0:
            return False
        if series[at] != _NONE:
            series[at] = series_of(known, item)
        at += 1
        i = skip_space(body, end)
        if body[i] == COMMA:
            i = skip_space(body, i + 1)
    return bool(body[i] == CLOSE_LIST and at == count + value_count)


@njit(nogil=True, cache=True)
def _drop_nulls(count: int, value_count: int, series: I32, values: F64) -> int:
    """Remove the nulls from the columns; returns the count of samples."""
    at = count
    for k in range(count, count + value_count):
        if series[k] != _NONE:
            series[at], values[at] = series[k], values[k]
            at += 1
    return at


@njit(nogil=True, cache=True)
def read_lists(body: U8, rules: I64, known: KnownSeries, state: I64, series: I32, ts: I64, values: F64) -> int:
    """Read value lists from ``state`` on until END, or a list for the exact reader (STOPPED or FULL)."""
    known, body, rules, state = uncounted_series(known), uncounted(body), uncounted(rules), uncounted(state)
    series, ts, values = uncounted(series), uncounted(ts), uncounted(values)
    position, line, count = state[POSITION], state[LINE], state[COUNT]
    status = END
    while body[position] != CLOSE_LIST:
        if count == series.size:
            status = FULL
            break
        value_count = names_at = -1
        ms = 0
        names = head_start = head_end = 0
        apart = False  # another key follows one that names the sender
        i = position if body[position] == OPEN else -1
        while i >= 0:
            start, end, i = next_key(body, i)
            if i < 0:
                break
            bit = _name_bit(body, start, end)
            if bit:
                if names & bit or apart or body[i] != QUOTE:
                    i = -1
                    break
                names |= bit
                if head_start == 0:
                    head_start = start
                i = head_end = string_end(body, i)
            elif is_key(body, start, end, _VALUES) and value_count < 0 and body[i] == OPEN_LIST:
                i, value_count = _read_values(body, i, count, series, values)
            elif is_key(body, start, end, _DSNAMES) and names_at < 0 and body[i] == OPEN_LIST:
                names_at, i = i, value_end(body, i)
            elif is_key(body, start, end, _TIME) and ms == 0:
                i, seconds = read_json_number(body, i)
                ms = int(np.rint(seconds * 1000.0)) if i >= 0 and 0.0 < seconds < _SECONDS_MAX else -1
            elif _is_sample_key(body, start, end):  # repeated, or with a value of another type
                i = -1
            else:
                i = value_end(body, i)
            if i >= 0:
                apart = apart or (names > 0 and bit == 0)
                i = skip_space(body, i)
                if body[i] == CLOSE:
                    break
        state[HEAD_START], state[HEAD_END] = (head_start, head_end) if i >= 0 else (0, 0)
        head = -1
        if i >= 0 and value_count >= 0 and names_at >= 0 and 1 <= ms <= rules[RAW_MAX] and names & 11 == 11:
            head = find_head(known, body, head_start, head_end)
        if head < 0 or not _assign_series(body, names_at, head, known, count, value_count, series):
            status = STOPPED
            break
        ts[count : count + value_count] = ms
        count = _drop_nulls(count, value_count, series, values)
        position, line = next_item(body, i + 1), line + 1
    state[POSITION], state[LINE], state[COUNT] = position, line, count
    return status
