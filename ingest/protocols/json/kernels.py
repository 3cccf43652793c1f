"""Compiled loops over the JSON forms of samples. They read plain items of known series.

The body is checked to be JSON before, so a loop only follows the syntax and never crosses the end. It stops before the
first item that is not plain or that names a series unknown to the cache (contract: ``line_kernels``); the exact reader
reads that item. Strings are compared as written, not decoded: another spelling is another entry of the cache. Enter by
``read_columns``, ``read_samples`` or ``list_start``.
"""

import numpy as np
from numba import njit

from ingest.protocols.common.line_kernels import COUNT, END, FULL, LINE, NOW, POSITION, RAW_MAX, STOPPED, TIMELESS
from ingest.protocols.common.number_kernels import DIGITS_MAX, read_digits, read_number
from ingest.protocols.common.series_kernels import KnownSeries, find_head, find_item, series_of, uncounted_series
from spm.arrays import F64, I32, I64, U8
from spm.store.encoding.byte_kernels import uncounted

QUOTE, COMMA, COLON, MINUS, NULL = 34, 44, 58, 45, 110
OPEN_LIST, CLOSE_LIST, OPEN, CLOSE = 91, 93, 123, 125
SAMPLES, SERIES = 1, 2  # the list that ``list_start`` returns
_ESCAPE, _ZERO, _NINE = 92, 48, 57
_METRIC, _TAGS, _TIMES, _VALUES, _TIME, _VALUE, _SAMPLES, _SERIES = (
    np.frombuffer(f'"{key}"'.encode(), np.uint8)
    for key in ("metric", "tags", "times", "values", "time", "value", "samples", "series")
)
_NAN, _INF, _PLUS_INF, _MINUS_INF = (
    np.frombuffer(f'"{text}"'.encode(), np.uint8) for text in ("NaN", "Inf", "+Inf", "-Inf")
)


@njit(nogil=True, cache=True, forceinline=True)
def skip_space(body: U8, i: int) -> int:
    """Returns the position of the first byte from ``i`` on that is no white space."""
    while body[i] == 32 or body[i] == 10 or body[i] == 13 or body[i] == 9:
        i += 1
    return i


@njit(nogil=True, cache=True)
def string_end(body: U8, i: int) -> int:
    """Returns the end of the string whose opening quote is at ``i``."""
    i += 1
    while body[i] != QUOTE:
        i += 2 if body[i] == _ESCAPE else 1
    return i + 1


@njit(nogil=True, cache=True)
def value_end(body: U8, i: int) -> int:
    """Returns the end of the value that begins at ``i``, of any type."""
    depth = 0
    while True:
        byte = body[i]
        if byte == QUOTE:
            i = string_end(body, i)
        elif byte in (OPEN, OPEN_LIST):
            depth += 1
            i += 1
            continue
        elif byte in (CLOSE, CLOSE_LIST):
            depth -= 1
            i += 1
        elif depth == 0:
            while not (body[i] <= 32 or body[i] == COMMA or body[i] == CLOSE or body[i] == CLOSE_LIST):
                i += 1
        else:
            i += 1
            continue
        if depth == 0:
            return i


@njit(nogil=True, cache=True, forceinline=True)
def is_key(body: U8, start: int, end: int, key: U8) -> bool:
    """Whether body[start:end] is this key, including the quotes."""
    if end - start != key.size:
        return False
    for k in range(key.size):  # noqa: SIM110 (a generator would not compile)
        if body[start + k] != key[k]:
            return False
    return True


@njit(nogil=True, cache=True)
def read_json_number(body: U8, i: int) -> tuple[int, float]:
    """Returns end and float64 of the number at ``i``; end -1 if it is none, or only the exact reader can tell."""
    if body[i] != MINUS and not _ZERO <= body[i] <= _NINE:
        return -1, 0.0
    return read_number(body, i)


@njit(nogil=True, cache=True)
def _read_value(body: U8, i: int) -> tuple[int, float]:
    """Returns end and float64 of a number, "NaN", "Inf", "+Inf" or "-Inf"; end -1 for everything else."""
    if body[i] != QUOTE:
        return read_json_number(body, i)
    end = string_end(body, i)
    if is_key(body, i, end, _NAN):
        return end, np.nan
    if is_key(body, i, end, _INF) or is_key(body, i, end, _PLUS_INF):
        return end, np.inf
    return (end, -np.inf) if is_key(body, i, end, _MINUS_INF) else (-1, 0.0)


@njit(nogil=True, cache=True)
def _read_ms(body: U8, i: int, rules: I64) -> tuple[int, int]:
    """Returns end and ms of the time at ``i``; end -1 if it is no plain integer within the bounds."""
    end, raw = read_digits(body, i, np.uint64(0))
    if end == i or end - i > DIGITS_MAX or raw == 0 or raw > np.uint64(rules[RAW_MAX]):
        return -1, 0
    byte = body[end]
    return (end if byte in (COMMA, CLOSE_LIST, CLOSE) or byte <= 32 else -1), int(np.int64(raw))


@njit(nogil=True, cache=True)
def _read_times(body: U8, i: int, rules: I64, count: int, ts: I64) -> tuple[int, int]:
    """Read the list of times at ``i``; returns (its end, count); an end of -1: not a plain list."""
    i = skip_space(body, i + 1)
    at = count
    while body[i] != CLOSE_LIST:
        if at == ts.size:
            return -1, 0
        i, ts[at] = _read_ms(body, i, rules)
        if i < 0:
            return -1, 0
        at += 1
        i = skip_space(body, i)
        if body[i] == COMMA:
            i = skip_space(body, i + 1)
    return i + 1, at - count


@njit(nogil=True, cache=True)
def _read_values(body: U8, i: int, count: int, values: F64) -> tuple[int, int]:
    """Read the list of values at ``i``; returns (its end, count); an end of -1: not a plain list."""
    i = skip_space(body, i + 1)
    at = count
    while body[i] != CLOSE_LIST:
        if at == values.size:
            return -1, 0
        i, values[at] = _read_value(body, i)
        if i < 0:
            return -1, 0
        at += 1
        i = skip_space(body, i)
        if body[i] == COMMA:
            i = skip_space(body, i + 1)
    return i + 1, at - count


@njit(nogil=True, cache=True, forceinline=True)
def _find_series(body: U8, known: KnownSeries, metric: int, metric_end: int, tags: int, tags_end: int) -> int:
    """Returns the number of the series with this metric and these labels, as written; -1 if the cache has none."""
    if metric < 0:
        return -1
    start, end = (tags, tags_end) if tags >= 0 else (metric, metric_end)
    head = find_head(known, body, start, end)
    item = find_item(known, head, body, metric, metric_end) if head >= 0 else -1
    return int(series_of(known, item)) if item >= 0 else -1


@njit(nogil=True, cache=True)
def list_start(body: U8) -> tuple[int, int]:
    """Returns (SAMPLES or SERIES, position of the first item or of the list's end); 0 for every other beginning."""
    i = skip_space(body, 0)
    if body[i] != OPEN:
        return 0, 0
    start = skip_space(body, i + 1)
    if body[start] != QUOTE:
        return 0, 0
    end = string_end(body, start)
    kind = SAMPLES if is_key(body, start, end, _SAMPLES) else SERIES if is_key(body, start, end, _SERIES) else 0
    i = skip_space(body, skip_space(body, end) + 1)
    return (kind, skip_space(body, i + 1)) if body[i] == OPEN_LIST else (0, 0)


@njit(nogil=True, cache=True)
def ends_with(body: U8, i: int) -> bool:
    """Whether only the end of the outer object follows the list's end at ``i``."""
    return bool(body[i] == CLOSE_LIST and body[skip_space(body, i + 1)] == CLOSE)


@njit(nogil=True, cache=True)
def next_key(body: U8, i: int) -> tuple[int, int, int]:
    """Returns start, end and value position of the key after the brace or comma at ``i``; -1 if there is no key."""
    start = skip_space(body, i + 1)
    if body[start] != QUOTE:
        return -1, -1, -1
    end = string_end(body, start)
    return start, end, skip_space(body, skip_space(body, end) + 1)


@njit(nogil=True, cache=True)
def next_item(body: U8, i: int) -> int:
    """Returns the position of the item after the one that ends at ``i``, or of the list's end."""
    i = skip_space(body, i)
    return skip_space(body, i + 1) if body[i] == COMMA else i


@njit(nogil=True, cache=True)
def read_columns(body: U8, rules: I64, known: KnownSeries, state: I64, series: I32, ts: I64, values: F64) -> int:
    """Read {"metric", "tags", "times", "values"} from ``state`` on until END or an item for the exact reader.

    ``series`` gets numbers of the cache. An item whose columns do not fit is one for the exact reader, too.
    """
    known, body, rules, state = uncounted_series(known), uncounted(body), uncounted(rules), uncounted(state)
    series, ts, values = uncounted(series), uncounted(ts), uncounted(values)
    position, line, count = state[POSITION], state[LINE], state[COUNT]
    status = END
    while body[position] != CLOSE_LIST:
        metric = metric_end = tags = tags_end = time_count = value_count = -1
        i = position if body[position] == OPEN else -1
        while i >= 0:
            start, end, i = next_key(body, i)
            if i < 0:
                break
            if is_key(body, start, end, _METRIC) and metric < 0 and body[i] == QUOTE:
                metric, metric_end = i, string_end(body, i)
                i = metric_end
            elif is_key(body, start, end, _TAGS) and tags < 0 and body[i] == OPEN:
                tags, tags_end = i, value_end(body, i)
                i = tags_end
            elif is_key(body, start, end, _TIMES) and time_count < 0 and body[i] == OPEN_LIST:
                i, time_count = _read_times(body, i, rules, count, ts)
            elif is_key(body, start, end, _VALUES) and value_count < 0 and body[i] == OPEN_LIST:
                i, value_count = _read_values(body, i, count, values)
            else:
                i = -1
            if i >= 0:
                i = skip_space(body, i)
                if body[i] == CLOSE:
                    break
        number_of = _find_series(body, known, metric, metric_end, tags, tags_end) if i >= 0 else -1
        if number_of < 0 or time_count < 0 or time_count != value_count:
            status = STOPPED
            break
        series[count : count + value_count] = number_of
        count += value_count
        position, line = next_item(body, i + 1), line + 1
    state[POSITION], state[LINE], state[COUNT] = position, line, count
    return status


@njit(nogil=True, cache=True)
def read_samples(body: U8, rules: I64, known: KnownSeries, state: I64, series: I32, ts: I64, values: F64) -> int:
    """Read {"metric", "tags", "value", "time"} as ``read_columns`` does; FULL if the columns are full."""
    known, body, rules, state = uncounted_series(known), uncounted(body), uncounted(rules), uncounted(state)
    series, ts, values = uncounted(series), uncounted(ts), uncounted(values)
    position, line, count = state[POSITION], state[LINE], state[COUNT]
    status = END
    while body[position] != CLOSE_LIST:
        if count == series.size:
            status = FULL
            break
        metric = metric_end = tags = tags_end = -1
        valued = timed = False
        ms = rules[NOW]
        i = position if body[position] == OPEN else -1
        while i >= 0:
            start, end, i = next_key(body, i)
            if i < 0:
                break
            if is_key(body, start, end, _METRIC) and metric < 0 and body[i] == QUOTE:
                metric, metric_end = i, string_end(body, i)
                i = metric_end
            elif is_key(body, start, end, _TAGS) and tags < 0 and body[i] == OPEN:
                tags, tags_end = i, value_end(body, i)
                i = tags_end
            elif is_key(body, start, end, _TIME) and not timed:
                i, ms = _read_ms(body, i, rules)
                timed = True
            elif is_key(body, start, end, _VALUE) and not valued:
                i, values[count] = _read_value(body, i)
                valued = True
            else:
                i = -1
            if i >= 0:
                i = skip_space(body, i)
                if body[i] == CLOSE:
                    break
        number_of = _find_series(body, known, metric, metric_end, tags, tags_end) if i >= 0 and valued else -1
        if number_of < 0:
            status = STOPPED
            break
        series[count], ts[count] = number_of, ms
        if not timed:
            state[TIMELESS] += 1
        count += 1
        position, line = next_item(body, i + 1), line + 1
    state[POSITION], state[LINE], state[COUNT] = position, line, count
    return status
