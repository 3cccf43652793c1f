"""Compiled loops of Prometheus' remote write, 1.0 and 2.0: from the bytes of a request to columns.

1. ``measure`` reads a request, checks that all lengths fit, and counts, so that the columns are allocated once.
2. ``read_labelled`` (1.0) or ``read_spans`` and ``read_referring`` (2.0) fill the columns.

The key of a series in the cache is its labels in the encoding of 1.0. Labels of 2.0 are converted to it first, so both
versions share the cache entry. Python reads a series that is new to the cache, or that has exemplars or histograms: it
gets a row of ``special``. Samples of a new series have the series number -1 until then.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ingest.protocols.common.protobuf_kernels import (
    BYTES,
    VARINT,
    put_text,
    put_varint,
    read_field,
    read_varint,
    text_size,
)
from ingest.protocols.common.series_kernels import KnownSeries, find_head, find_item, series_of, uncounted_series
from spm.arrays import I32, I64, U8, U64
from spm.store.encoding.byte_kernels import copy_bytes, load64, uncounted

SERIES, SAMPLES, TEXTS, WHERE = range(
    4
)  # counts of ``measure`` (texts: metadata of 1.0, symbols of 2.0); fault position
LABEL, SAMPLE = 1, 2  # fields of a series in both versions
NAME_TAG, VALUE_TAG = 0x0A, 0x12
PLACE, FIRST, LAST, EXEMPLARS, HISTOGRAMS, TYPE, HELP, UNIT, FAULT, NUMBER = range(
    10
)  # columns of a row of ``special``
SPECIAL_COLUMNS = 10
_COMMON = (NAME_TAG, VALUE_TAG)  # also the tags of labels and samples in a series
ODD_REFERENCES, NO_SUCH_SYMBOL, TOO_LONG, TOO_MANY = 1, 2, 3, 4  # faults of a series of 2.0
SPECIAL, TEXT, COPIED = 0, 1, 2  # state: rows of ``special``, bytes of ``text``, bytes of resolved labels
EARLIEST, LATEST, STATES = 3, 4, 5  # state: the bounds of all times
OK, TOO_MANY_BYTES = 0, 1

SpecialRows = NDArray[np.int64]
Spans = NDArray[np.int64]


@njit(nogil=True, cache=True)
def measure(body: U8, series_field: int, text_field: int, counts: I64) -> int:
    """Count series, samples and texts; returns a fault of the wire format (with its position in ``counts``) or 0."""
    body = uncounted(body)
    at = 0
    while at < body.size:
        number, wire_type, start, stop, _ = read_field(body, at, body.size)
        if number < 0:
            counts[WHERE] = at
            return number
        if wire_type == BYTES and number == text_field:
            counts[TEXTS] += 1
        if wire_type == BYTES and number == series_field:
            counts[SERIES] += 1
            inner = start
            while inner < stop:
                if inner + 1 < stop and body[inner] in _COMMON and body[inner + 1] < 0x80:  # plain: nothing to decode
                    next_one = inner + 2 + int(body[inner + 1])
                    if next_one <= stop:
                        counts[SAMPLES] += body[inner] == VALUE_TAG
                        inner = next_one
                        continue
                within, inner_type, _, next_one, _ = read_field(body, inner, stop)
                if within < 0:
                    counts[WHERE] = inner
                    return within
                counts[SAMPLES] += within == SAMPLE and inner_type == BYTES
                inner = next_one
        at = stop
    return 0


@njit(nogil=True, cache=True, forceinline=True)
def _read_sample(body: U8, start: int, stop: int, count: int, ts: I64, bits: U64) -> int:
    """Read one sample into row ``count``; returns a fault or 0. A missing field is 0."""
    at, value, time = start, np.uint64(0), np.uint64(0)
    while at < stop:
        tag = body[at]
        if tag == 9 and at + 9 <= stop:  # field 1, fixed64
            value = load64(body, at + 1)
            at += 9
        elif tag == 16:  # field 2, varint
            at, time = read_varint(body, at + 1, stop)
            if at < 0:
                return -1
        else:
            number, _, _, at, _ = read_field(body, at, stop)
            if number < 0:
                return number
    ts[count], bits[count] = np.int64(time), value
    return 0


@njit(nogil=True, cache=True, forceinline=True)
def _known_series(known: KnownSeries, text: U8, start: int, end: int) -> int:
    """Returns the number of the series whose labels are text[start:end], or -1."""
    head = find_head(known, text, start, end)
    if head < 0:
        return -1
    item = find_item(known, head, text, start, start)
    return series_of(known, item) if item >= 0 else -1


@njit(nogil=True, cache=True)
def _add_special(special: SpecialRows, state: I64, place: int, known: int) -> I64:
    """Append a row to ``special``; returns the row."""
    row: I64 = special[state[SPECIAL]]
    row[:] = 0
    row[PLACE], row[NUMBER] = place, known
    state[SPECIAL] += 1
    return row


@njit(nogil=True, cache=True)
def _write_bounds(ts: I64, count: int, state: I64) -> None:
    """Write the earliest and the latest time; both are 1 if there is none."""
    earliest = latest = ts[0] if count else np.int64(1)
    for k in range(count):
        earliest, latest = min(earliest, ts[k]), max(latest, ts[k])
    state[EARLIEST], state[LATEST] = earliest, latest


@njit(nogil=True, cache=True)
def read_labelled(
    body: U8,
    known: KnownSeries,
    state: I64,
    text: U8,
    special: SpecialRows,
    series: I32,
    ts: I64,
    bits: U64,
    offsets: I64,
) -> int:
    """Read all series of a request of 1.0; returns a fault or 0. ``offsets`` gets the first sample of each series."""
    known, body, state, text = uncounted_series(known), uncounted(body), uncounted(state), uncounted(text)
    series, ts, bits, offsets = uncounted(series), uncounted(ts), uncounted(bits), uncounted(offsets)
    at, place, count = 0, 0, 0
    while at < body.size:
        outer, wire_type, start, stop, _ = read_field(body, at, body.size)
        at = stop
        if outer != 1 or wire_type != BYTES:
            continue
        offsets[place] = count
        first, last, written = -1, -1, state[TEXT]
        exemplars = histograms = 0
        inner = start
        while inner + 1 < stop and body[inner] == NAME_TAG and body[inner + 1] < 0x80:  # plain labels come first
            inner += 2 + int(body[inner + 1])
        if inner > start:
            first, last = start, inner
        while inner < stop:
            number, inner_type, begin, end, _ = read_field(body, inner, stop)
            if number == SAMPLE and inner_type == BYTES:
                fault = _read_sample(body, begin, end, count, ts, bits)
                if fault < 0:
                    return fault
                count += 1
            elif number == LABEL and inner_type == BYTES:
                if first < 0:
                    first = inner
                elif last != inner or written > state[TEXT]:  # another field lies between the labels
                    if written == state[TEXT]:
                        written = copy_bytes(body, first, last, text, written)
                    written = copy_bytes(body, inner, end, text, written)
                last = end
            elif inner_type == BYTES:
                exemplars += number == 3
                histograms += number == 4
            inner = end
        if written > state[TEXT]:
            series_number = _known_series(known, text, state[TEXT], written)
        else:
            series_number = _known_series(known, body, first, last) if first >= 0 else -1
            if series_number < 0 and first >= 0:
                written = copy_bytes(body, first, last, text, written)
        if series_number < 0 or exemplars or histograms:
            row = _add_special(special, state, place, series_number)
            if series_number < 0:
                row[FIRST], row[LAST] = state[TEXT], written
                state[TEXT] = written
            row[EXEMPLARS], row[HISTOGRAMS] = exemplars, histograms
        series[offsets[place] : count] = series_number
        place += 1
    offsets[place] = count
    _write_bounds(ts, count, state)
    return 0


@njit(nogil=True, cache=True)
def read_spans(body: U8, field_number: int, spans: Spans) -> None:
    """Write the positions of the first fields of this number into ``spans``, as many as fit."""
    body = uncounted(body)
    at = count = 0
    while at < body.size and count < len(spans):
        number, wire_type, start, stop, _ = read_field(body, at, body.size)
        if number == field_number and wire_type == BYTES:
            spans[count, 0], spans[count, 1] = start, stop
            count += 1
        at = stop


@njit(nogil=True, cache=True, forceinline=True)
def _read_references(body: U8, wire_type: int, start: int, stop: int, value: np.uint64, refs: U64, count: int) -> int:
    """Append the references of a field, packed or single; returns the count; -1 is a fault."""
    if wire_type == VARINT:
        if count < refs.size:
            refs[count] = value
            count += 1
        return count
    at = start
    while at < stop and count < refs.size:
        at, refs[count] = read_varint(body, at, stop)
        if at < 0:
            return -1
        count += 1
    return count


@njit(nogil=True, cache=True, forceinline=True)
def _write_labels(body: U8, symbols: Spans, refs: U64, count: int, longest: int, text: U8, at: int) -> tuple[int, int]:
    """Write the labels of the references in the encoding of 1.0; returns (their end, a fault of the series or 0)."""
    if count == refs.size:
        return at, TOO_MANY
    if count % 2:
        return at, ODD_REFERENCES
    for k in range(count):
        if refs[k] >= np.uint64(len(symbols)):
            return at, NO_SUCH_SYMBOL
        if symbols[np.int64(refs[k]), 1] - symbols[np.int64(refs[k]), 0] > longest:
            return at, TOO_LONG
    for k in range(0, count, 2):
        name, value = np.int64(refs[k]), np.int64(refs[k + 1])
        size = text_size(symbols[name, 1] - symbols[name, 0]) + text_size(symbols[value, 1] - symbols[value, 0])
        text[at] = NAME_TAG  # a label is field 1 of a series, as a name is of a label
        at = put_varint(text, at + 1, size)
        at = put_text(NAME_TAG, body, symbols[name, 0], symbols[name, 1], text, at)
        at = put_text(VALUE_TAG, body, symbols[value, 0], symbols[value, 1], text, at)
    return at, 0


@njit(nogil=True, cache=True)
def _read_description(body: U8, start: int, stop: int, description: I64) -> int:
    """Read type, help and unit of a series of 2.0 into ``description``; returns a fault or 0."""
    at = start
    while at < stop:
        number, wire_type, _, at, value = read_field(body, at, stop)
        if number < 0:
            return number
        if wire_type == VARINT and value < np.uint64(1 << 31):
            if number == 1:
                description[0] = np.int64(value)
            elif number == 3:
                description[1] = np.int64(value)
            elif number == 4:
                description[2] = np.int64(value)
    return 0


@njit(nogil=True, cache=True)
def read_referring(
    body: U8,
    known: KnownSeries,
    symbols: Spans,
    refs: U64,
    limits: I64,
    state: I64,
    text: U8,
    special: SpecialRows,
    series: I32,
    ts: I64,
    bits: U64,
    offsets: I64,
) -> int:
    """Read all series of a request of 2.0, as ``read_labelled``; TOO_MANY_BYTES if the labels exceed ``limits``.

    ``limits``: bytes of a symbol, of the labels of one series, and of the labels of all series.
    """
    known, body, state, text = uncounted_series(known), uncounted(body), uncounted(state), uncounted(text)
    series, ts, bits, offsets = uncounted(series), uncounted(ts), uncounted(bits), uncounted(offsets)
    symbols, refs = uncounted(symbols), uncounted(refs)
    at, place, count = 0, 0, 0
    description = np.zeros(3, np.int64)
    while at < body.size:
        outer, wire_type, start, stop, _ = read_field(body, at, body.size)
        at = stop
        if outer != 5 or wire_type != BYTES:
            continue
        offsets[place] = count
        named = exemplars = histograms = 0
        description[:] = 0
        inner = start
        while inner < stop:
            number, inner_type, begin, end, value = read_field(body, inner, stop)
            fault = 0
            if number == SAMPLE and inner_type == BYTES:
                fault = _read_sample(body, begin, end, count, ts, bits)
                count += 1
            elif number == LABEL and inner_type in (BYTES, VARINT):
                named = _read_references(body, inner_type, begin, end, value, refs, named)
                fault = min(named, 0)
            elif inner_type == BYTES:
                histograms += number == 3
                exemplars += number == 4
                if number == 5:
                    fault = _read_description(body, begin, end, description)
            if fault < 0:
                return fault
            inner = end
        if state[TEXT] + limits[1] > text.size or state[COPIED] > limits[2]:
            return TOO_MANY_BYTES
        written, wrong = _write_labels(body, symbols, refs, named, limits[0], text, state[TEXT])
        state[COPIED] += written - state[TEXT]
        series_number = -1 if wrong else _known_series(known, text, state[TEXT], written)
        if series_number < 0 or exemplars or histograms:
            row = _add_special(special, state, place, series_number)
            if series_number < 0:
                row[FIRST], row[LAST], row[FAULT] = state[TEXT], written, wrong
                state[TEXT] = written
            row[EXEMPLARS], row[HISTOGRAMS] = exemplars, histograms
            row[TYPE], row[HELP], row[UNIT] = description[0], description[1], description[2]
        series[offsets[place] : count] = series_number
        place += 1
    offsets[place] = count
    _write_bounds(ts, count, state)
    return 0
