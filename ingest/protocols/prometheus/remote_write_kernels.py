"""Compiled loops of Prometheus' remote write, 1.0 and 2.0: from the bytes of a request to columns.

1. ``measure`` walks through a request, looks that all lengths fit, and counts: so that columns are made once, in size.
2. ``read_labelled`` (1.0) or ``read_spans`` and ``read_referring`` (2.0) fill them.

A series is known by its labels as they are written in 1.0; those of 2.0 are written so first, and both find the same
entry of the cache. What a series the cache does not know, or one with anything but samples, is about is left to Python
as a row of ``odd``: its samples stand in the columns meanwhile under the number -1.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ingest.protocols.common.byte_kernels import copy, load64
from ingest.protocols.common.protobuf_kernels import BYTES, VARINT, field, put_text, put_varint, text_size, varint
from ingest.protocols.common.series_kernels import KnownSeries, find_head, find_item
from spm.arrays import I32, I64, U8, U64

SERIES, SAMPLES, TEXTS, WHERE = range(4)  # what ``measure`` counts (texts: metadata of 1.0, symbols of 2.0); a fault
LABEL, SAMPLE = 1, 2  # fields of a series in both versions
NAME_TAG, VALUE_TAG = 0x0A, 0x12
PLACE, FIRST, LAST, EXEMPLARS, HISTOGRAMS, TYPE, HELP, UNIT, FAULT, NUMBER = range(10)  # columns of a row of ``odd``
ODD_COLUMNS = 10
_COMMON = (NAME_TAG, VALUE_TAG)  # of a series' fields, too: its first two are bytes
ODD_REFERENCES, NO_SUCH_SYMBOL, TOO_LONG, TOO_MANY = 1, 2, 3, 4  # faults of a series of 2.0
ODD, TEXT, COPIED = 0, 1, 2  # state: rows of ``odd``, bytes of ``text``, bytes spelt out
OK, TOO_RICH = 0, 1

Odd = NDArray[np.int64]
Spans = NDArray[np.int64]


@njit(nogil=True, cache=True)
def measure(body: U8, series_field: int, text_field: int, counts: I64) -> int:
    """Count series, samples and texts; a fault of the wire (and where it stands) or 0."""
    at = 0
    while at < body.size:
        number, form, start, stop, _ = field(body, at, body.size)
        if number < 0:
            counts[WHERE] = at
            return number
        if form == BYTES and number == text_field:
            counts[TEXTS] += 1
        if form == BYTES and number == series_field:
            counts[SERIES] += 1
            inner = start
            while inner < stop:
                if inner + 1 < stop and body[inner] in _COMMON and body[inner + 1] < 0x80:  # plain: nothing to decode
                    next_one = inner + 2 + int(body[inner + 1])
                    if next_one <= stop:
                        counts[SAMPLES] += body[inner] == VALUE_TAG
                        inner = next_one
                        continue
                within, how, _, next_one, _ = field(body, inner, stop)
                if within < 0:
                    counts[WHERE] = inner
                    return within
                counts[SAMPLES] += within == SAMPLE and how == BYTES
                inner = next_one
        at = stop
    return 0


@njit(nogil=True, cache=True, inline="always")
def _sample(body: U8, start: int, stop: int, count: int, ts: I64, bits: U64) -> int:
    """One sample into row ``count``; a fault or 0. A field that is not there is 0."""
    at, value, time = start, np.uint64(0), np.uint64(0)
    while at < stop:
        tag = body[at]
        if tag == 9 and at + 9 <= stop:  # field 1, fixed64
            value = load64(body, at + 1)
            at += 9
        elif tag == 16:  # field 2, varint
            at, time = varint(body, at + 1, stop)
            if at < 0:
                return -1
        else:
            number, _, _, at, _ = field(body, at, stop)
            if number < 0:
                return number
    ts[count], bits[count] = np.int64(time), value
    return 0


@njit(nogil=True, cache=True, inline="always")
def _known_series(known: KnownSeries, text: U8, start: int, end: int) -> int:
    """The number of the series whose labels are text[start:end], or -1."""
    head = find_head(known, text, start, end)
    if head < 0:
        return -1
    item = find_item(known, head, text, start, start)
    return known.item_series[item] if item >= 0 else -1


@njit(nogil=True, cache=True)
def _keep_odd(odd: Odd, state: I64, place: int, known: int) -> I64:
    """A new row of ``odd``."""
    row: I64 = odd[state[ODD]]
    row[:] = 0
    row[PLACE], row[NUMBER] = place, known
    state[ODD] += 1
    return row


@njit(nogil=True, cache=True)
def read_labelled(
    body: U8, known: KnownSeries, state: I64, text: U8, odd: Odd, series: I32, ts: I64, bits: U64, offsets: I64
) -> int:
    """All series of a request of 1.0; a fault or 0. ``offsets`` gets the first sample of each series, and the end."""
    at, place, count = 0, 0, 0
    while at < body.size:
        outer, form, start, stop, _ = field(body, at, body.size)
        at = stop
        if outer != 1 or form != BYTES:
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
            number, how, begin, end, _ = field(body, inner, stop)
            if number == SAMPLE and how == BYTES:
                fault = _sample(body, begin, end, count, ts, bits)
                if fault < 0:
                    return fault
                count += 1
            elif number == LABEL and how == BYTES:
                if first < 0:
                    first = inner
                elif last != inner or written > state[TEXT]:  # labels with something in between
                    if written == state[TEXT]:
                        written = copy(body, first, last, text, written)
                    written = copy(body, inner, end, text, written)
                last = end
            elif how == BYTES:
                exemplars += number == 3
                histograms += number == 4
            inner = end
        if written > state[TEXT]:
            found = _known_series(known, text, state[TEXT], written)
        else:
            found = _known_series(known, body, first, last) if first >= 0 else -1
            if found < 0 and first >= 0:
                written = copy(body, first, last, text, written)
        if found < 0 or exemplars or histograms:
            row = _keep_odd(odd, state, place, found)
            if found < 0:
                row[FIRST], row[LAST] = state[TEXT], written
                state[TEXT] = written
            row[EXEMPLARS], row[HISTOGRAMS] = exemplars, histograms
        series[offsets[place] : count] = found
        place += 1
    offsets[place] = count
    return 0


@njit(nogil=True, cache=True)
def read_spans(body: U8, wanted: int, spans: Spans) -> None:
    """Where the first fields of this number stand, as many as there is room for; ``measure`` has counted them."""
    at = count = 0
    while at < body.size and count < len(spans):
        number, form, start, stop, _ = field(body, at, body.size)
        if number == wanted and form == BYTES:
            spans[count, 0], spans[count, 1] = start, stop
            count += 1
        at = stop


@njit(nogil=True, cache=True, inline="always")
def _references(body: U8, form: int, start: int, stop: int, value: np.uint64, refs: U64, count: int) -> int:
    """Add the references of a field, packed or single; how many there are then, one too many at most; -1: a fault."""
    if form == VARINT:
        if count < refs.size:
            refs[count] = value
            count += 1
        return count
    at = start
    while at < stop and count < refs.size:
        at, refs[count] = varint(body, at, stop)
        if at < 0:
            return -1
        count += 1
    return count


@njit(nogil=True, cache=True, inline="always")
def _spell(body: U8, symbols: Spans, refs: U64, count: int, longest: int, text: U8, at: int) -> tuple[int, int]:
    """Write the labels that references name, as 1.0 does: (where they end, a fault of the series or 0)."""
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
def _metadata(body: U8, start: int, stop: int, told: I64) -> int:
    """Type, help and unit of a series of 2.0 into ``told``; a fault or 0."""
    at = start
    while at < stop:
        number, form, _, at, value = field(body, at, stop)
        if number < 0:
            return number
        if form == VARINT and value < np.uint64(1 << 31):
            if number == 1:
                told[0] = np.int64(value)
            elif number == 3:
                told[1] = np.int64(value)
            elif number == 4:
                told[2] = np.int64(value)
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
    odd: Odd,
    series: I32,
    ts: I64,
    bits: U64,
    offsets: I64,
) -> int:
    """All series of a request of 2.0, as ``read_labelled``; TOO_RICH when they spell more than ``limits`` allow.

    ``limits``: bytes of the longest symbol of a label, of the labels of one series, and of those of all together.
    """
    at, place, count = 0, 0, 0
    told = np.zeros(3, np.int64)
    while at < body.size:
        outer, form, start, stop, _ = field(body, at, body.size)
        at = stop
        if outer != 5 or form != BYTES:
            continue
        offsets[place] = count
        named = exemplars = histograms = 0
        told[:] = 0
        inner = start
        while inner < stop:
            number, how, begin, end, value = field(body, inner, stop)
            fault = 0
            if number == SAMPLE and how == BYTES:
                fault = _sample(body, begin, end, count, ts, bits)
                count += 1
            elif number == LABEL and how in (BYTES, VARINT):
                named = _references(body, how, begin, end, value, refs, named)
                fault = min(named, 0)
            elif how == BYTES:
                histograms += number == 3
                exemplars += number == 4
                if number == 5:
                    fault = _metadata(body, begin, end, told)
            if fault < 0:
                return fault
            inner = end
        if state[TEXT] + limits[1] > text.size or state[COPIED] > limits[2]:
            return TOO_RICH
        written, wrong = _spell(body, symbols, refs, named, limits[0], text, state[TEXT])
        state[COPIED] += written - state[TEXT]
        found = -1 if wrong else _known_series(known, text, state[TEXT], written)
        if found < 0 or exemplars or histograms:
            row = _keep_odd(odd, state, place, found)
            if found < 0:
                row[FIRST], row[LAST], row[FAULT] = state[TEXT], written, wrong
                state[TEXT] = written
            row[EXEMPLARS], row[HISTOGRAMS] = exemplars, histograms
            row[TYPE], row[HELP], row[UNIT] = told[0], told[1], told[2]
        series[offsets[place] : count] = found
        place += 1
    offsets[place] = count
    return 0
