"""Compiled reading of an ExportMetricsServiceRequest: one row for each metric.

``count_metrics`` checks that lengths fit, and counts. ``list_metrics`` writes the rows: the positions of a metric's
resource, scope and parts, its kind, and the number of its context if the cache has it. A context is a metric of a scope
of a resource, with everything that its series depend on. ``otlp.point_kernels`` reads the points.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ingest.protocols.common.protobuf_kernels import BYTES, VARINT, read_field
from ingest.protocols.common.series_kernels import KnownSeries, find_head, uncounted_series
from spm.arrays import I64, U8
from spm.store.encoding.byte_kernels import copy_bytes, store64, uncounted

GAUGE, SUM, HISTOGRAM, EXPONENTIAL, SUMMARY = 5, 7, 9, 10, 11  # fields of a metric
RESOURCE, RESOURCE_END, SCOPE, SCOPE_END, SCHEMA, SCHEMA_END, NAME, NAME_END, UNIT, UNIT_END = range(10)  # of a row
HELP, HELP_END, DATA, DATA_END, KIND, DELTA, MONOTONIC, CONTEXT, CONTEXT_TEXT, CONTEXT_TEXT_END = range(10, 20)
RESOURCE_NUMBER, FIRST_POINT, ROW_COLUMNS = 20, 21, 22
POINTS, COUNT, NEW_COUNT, FAULTY, TEXT, EXEMPLARS, WHERE, STATES = range(8)  # state
FULL = 1

Rows = NDArray[np.int64]


@njit(nogil=True, cache=True)
def count_metrics(body: U8, state: I64) -> int:
    """Count the metrics into state[COUNT]; returns a fault of the wire format or 0."""
    body = uncounted(body)
    at = 0
    while at < body.size:
        one, wire_type, start, stop, _ = read_field(body, at, body.size)
        if one < 0:
            state[WHERE] = at
            return one
        at = stop
        if one != 1 or wire_type != BYTES:
            continue
        while start < stop:
            two, wire_type, begin, end, _ = read_field(body, start, stop)
            if two < 0:
                state[WHERE] = start
                return two
            start = end
            if two != 2 or wire_type != BYTES:
                continue
            while begin < end:
                three, wire_type, _, after, _ = read_field(body, begin, end)
                if three < 0:
                    state[WHERE] = begin
                    return three
                state[COUNT] += three == 2 and wire_type == BYTES
                begin = after
    return 0


@njit(nogil=True, cache=True)
def _read_metric(body: U8, start: int, stop: int, row: I64) -> int:
    """Write the parts of a metric into its row; returns a fault of the wire format or 0."""
    at = start
    while at < stop:
        number, wire_type, begin, end, _ = read_field(body, at, stop)
        if number < 0:
            return number
        if wire_type == BYTES:
            if number == 1:
                row[NAME], row[NAME_END] = begin, end
            elif number == 2:
                row[HELP], row[HELP_END] = begin, end
            elif number == 3:
                row[UNIT], row[UNIT_END] = begin, end
            elif number in (GAUGE, SUM, HISTOGRAM, EXPONENTIAL, SUMMARY):
                row[KIND], row[DATA], row[DATA_END] = number, begin, end
        at = end
    at = row[DATA]
    while at < row[DATA_END] and row[KIND] in (SUM, HISTOGRAM, EXPONENTIAL):
        number, wire_type, _, at, value = read_field(body, at, row[DATA_END])
        if number < 0:
            return number
        if number == 2 and wire_type == VARINT:
            row[DELTA] = np.int64(min(value, np.uint64(3)))
        elif number == 3 and wire_type == VARINT:
            row[MONOTONIC] = value != 0
    return 0


@njit(nogil=True, cache=True)
def _write_context(body: U8, known: KnownSeries, row: I64, text: U8, at: int) -> int:
    """Write the key of a metric's context to ``text``, and its number, if known, to the row; returns the end."""
    start = at
    for part in (RESOURCE, SCOPE, SCHEMA, NAME, UNIT):
        store64(text, at, np.uint64(row[part + 1] - row[part]))
        at = copy_bytes(body, row[part], row[part + 1], text, at + 8)
    text[at] = np.uint8(row[KIND])
    text[at + 1] = np.uint8(row[DELTA])
    text[at + 2] = np.uint8(row[MONOTONIC])
    at += 3
    row[CONTEXT] = find_head(known, text, start, at)
    if row[CONTEXT] < 0:
        row[CONTEXT_TEXT], row[CONTEXT_TEXT_END] = start, at
        return at
    return start


@njit(nogil=True, cache=True)
def list_metrics(body: U8, known: KnownSeries, state: I64, text: U8, rows: Rows) -> int:
    """Write a row for each metric; returns a fault of the wire format, FULL if ``text`` is too small, or 0."""
    known, body, text, rows = uncounted_series(known), uncounted(body), uncounted(text), uncounted(rows)
    at = count = resources = written = 0
    while at < body.size:
        one, wire_type, start, stop, _ = read_field(body, at, body.size)
        at = stop
        if one != 1 or wire_type != BYTES:
            continue
        resource = resource_end = start
        inner = start
        while inner < stop:
            two, wire_type, begin, inner, _ = read_field(body, inner, stop)
            if two == 1 and wire_type == BYTES:
                resource, resource_end = begin, inner
        inner = start
        while inner < stop:
            two, wire_type, begin, end, _ = read_field(body, inner, stop)
            inner = end
            if two != 2 or wire_type != BYTES:
                continue
            scope = scope_end = schema = schema_end = begin
            deeper = begin
            while deeper < end:
                three, wire_type, first, deeper, _ = read_field(body, deeper, end)
                if three == 1 and wire_type == BYTES:
                    scope, scope_end = first, deeper
                elif three == 3 and wire_type == BYTES:
                    schema, schema_end = first, deeper
            deeper = begin
            while deeper < end:
                three, wire_type, first, after, _ = read_field(body, deeper, end)
                deeper = after
                if three != 2 or wire_type != BYTES:
                    continue
                row = rows[count]
                row[:] = 0
                row[RESOURCE], row[RESOURCE_END], row[RESOURCE_NUMBER] = resource, resource_end, resources
                row[SCOPE], row[SCOPE_END], row[SCHEMA], row[SCHEMA_END] = scope, scope_end, schema, schema_end
                fault = _read_metric(body, first, after, row)
                if fault < 0:
                    state[WHERE] = first
                    return fault
                size = resource_end - resource + scope_end - scope + schema_end - schema + after - first + 64
                if written + size > text.size:
                    return FULL
                written = _write_context(body, known, row, text, written)
                count += 1
        resources += 1
    return 0
