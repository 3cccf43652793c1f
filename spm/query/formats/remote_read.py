"""Prometheus' remote read protocol: parses requests and encodes responses as protobuf. Pure; never compresses.

The parser reads varints, 64-bit and length-delimited fields, and skips unknown fields. Samples are written as columns:
the records of a series are built as one table of bytes of fixed width, from which the used bytes are selected. A stream
consists of frames: the length of a message as a varint, its CRC-32C, and the message, with chunks of one series. Enter
by `parse_request`, `encode_response` for one message, and `frames` for a stream.

    ReadRequest   1 queries: Query*            2 accepted_response_types: enum*
    Query         1 start_timestamp_ms  2 end_timestamp_ms  3 matchers: LabelMatcher*
    LabelMatcher  1 type (0 =, 1 !=, 2 =~, 3 !~)  2 name  3 value
    ReadResponse  1 results: QueryResult*      QueryResult  1 timeseries: TimeSeries*
    TimeSeries    1 labels: Label(1 name, 2 value)*         2 samples: Sample(1 value: double, 2 timestamp)*
    ChunkedReadResponse  1 series: ChunkedSeries(1 labels: Label*, 2 chunks: Chunk*)  2 number of the query
    Chunk         1 min_time_ms  2 max_time_ms  3 type (1 XOR)  4 data
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from spm.arrays import F64, I64
from spm.errors import BadQuery
from spm.limits import READ_FRAME_BYTES, REMOTE_READ_QUERIES_MAX, TIME_MAX_MS
from spm.query.formats import xor_chunks
from spm.query.request.batches import Matcher, SeriesBatch
from spm.store.matchers import matches_empty

_OPERATORS = ("=", "!=", "=~", "!~")
_SAMPLES, _STREAMED = 0, 1  # the types of responses
_XOR = 1
_VARINT_BYTES = 10


@dataclass(frozen=True, slots=True)
class RemoteReadQuery:
    """One selector over a range of time, both ends inclusive."""

    matchers: tuple[Matcher, ...]
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class RemoteReadRequest:
    """The queries of a request, and whether the response is to be a stream of chunks."""

    queries: tuple[RemoteReadQuery, ...]
    streamed: bool

    def until(self, latest_ms: int) -> RemoteReadRequest:
        """Cut the queries off at the time of the latest possible sample: clients send the largest time for "no end"."""
        queries = (dataclasses.replace(query, end_ms=min(query.end_ms, latest_ms)) for query in self.queries)
        return dataclasses.replace(self, queries=tuple(queries))


def parse_request(body: bytes) -> RemoteReadRequest:
    """Parse a request; raises `BadQuery` if it is malformed or accepts no supported type of response."""
    queries: list[RemoteReadQuery] = []
    accepted: list[int] = []
    for field, value in _fields(body):
        if field == 1 and isinstance(value, bytes):
            queries.append(_query(value))
        elif field == 2:
            accepted += [value] if isinstance(value, int) else [number for number, _ in _varints(value)]
    # The first supported type in the client's order of preference.
    kind = next((kind for kind in accepted or [_SAMPLES] if kind in (_SAMPLES, _STREAMED)), None)
    if kind is None:
        raise BadQuery("responses have the type SAMPLES or STREAMED_XOR_CHUNKS, and the request accepts neither")
    if not 1 <= len(queries) <= REMOTE_READ_QUERIES_MAX:
        raise BadQuery(f"a read request has 1 to {REMOTE_READ_QUERIES_MAX} queries, not {len(queries)}")
    return RemoteReadRequest(tuple(queries), streamed=kind == _STREAMED)


def encode_response(batches: Sequence[SeriesBatch]) -> bytes:
    """Encode the samples of each query as one message."""
    return b"".join(_delimited(1, _result(batch)) for batch in batches)


def frames(query: int, batch: SeriesBatch) -> Iterator[bytes]:
    """Encode whole series of a query as frames; readers expect the series of a query sorted by labels."""
    encoded = xor_chunks.chunks(batch.ts, batch.values, batch.offsets)
    raw, borders, ends = encoded.raw.tobytes(), encoded.borders.tolist(), encoded.series.tolist()
    spans = list(zip(encoded.first_ms.tolist(), encoded.last_ms.tolist(), strict=True))
    tail = _varint(2 << 3) + _varint(query) if query else b""
    for row, labels in enumerate(batch.labels):
        head, parts, size = _labels(labels), [], 0
        for chunk in range(ends[row], ends[row + 1]):
            parts.append(_delimited(2, _chunk(*spans[chunk], raw[borders[chunk] : borders[chunk + 1]])))
            size += len(parts[-1])
            if size >= READ_FRAME_BYTES or chunk + 1 == ends[row + 1]:
                yield _frame(_delimited(1, head + b"".join(parts)) + tail)
                parts, size = [], 0


# --- writing ---


def _chunk(first_ms: int, last_ms: int, data: bytes) -> bytes:
    times = _varint(1 << 3) + _varint(_unsigned(first_ms)) + _varint(2 << 3) + _varint(_unsigned(last_ms))
    return times + _varint(3 << 3) + _varint(_XOR) + _delimited(4, data)


def _frame(message: bytes) -> bytes:
    return _varint(len(message)) + xor_chunks.checksum(message).to_bytes(4, "big") + message


def _result(batch: SeriesBatch) -> bytes:
    order = sorted(range(len(batch.labels)), key=lambda row: sorted(batch.labels[row].items()))
    ends = batch.offsets.tolist()
    return b"".join(
        _delimited(1, _labels(batch.labels[row]) + samples(batch.ts[a:b], batch.values[a:b]))
        for row, a, b in ((row, ends[row], ends[row + 1]) for row in order)
    )


def _labels(labels: Mapping[str, str]) -> bytes:
    pairs = (_delimited(1, name.encode()) + _delimited(2, value.encode()) for name, value in sorted(labels.items()))
    return b"".join(_delimited(1, pair) for pair in pairs)


def samples(ts: I64, values: F64) -> bytes:
    """Encode the samples of a series: each 0x12, its length, 0x09 with the value, 0x10 with the time as a varint."""
    moments = np.ascontiguousarray(ts).view(np.uint64)
    shifts = np.arange(0, 7 * _VARINT_BYTES, 7, dtype=np.uint64)
    digits = ((moments[:, None] >> shifts) & np.uint64(127)).astype(np.uint8)
    widths = np.maximum(_VARINT_BYTES - np.argmax(digits[:, ::-1] != 0, axis=1), 1)
    widths[~digits.any(axis=1)] = 1
    places = np.arange(_VARINT_BYTES)
    digits[places < widths[:, None] - 1] |= 128
    table = np.empty((len(ts), 12 + _VARINT_BYTES), np.uint8)
    table[:, 0], table[:, 1], table[:, 2], table[:, 11] = 0x12, 10 + widths, 0x09, 0x10
    table[:, 3:11] = np.ascontiguousarray(values, "<f8").view(np.uint8).reshape(-1, 8)
    table[:, 12:] = digits
    is_used = np.ones(table.shape, np.bool_)
    is_used[:, 12:] = places < widths[:, None]
    return table[is_used].tobytes()


def _delimited(field: int, raw: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(raw)) + raw


def _varint(number: int) -> bytes:
    raw = bytearray()
    while number > 127:
        raw.append(number & 127 | 128)
        number >>= 7
    raw.append(number)
    return bytes(raw)


# --- reading ---


def _query(body: bytes) -> RemoteReadQuery:
    start = end = 0
    matchers: list[Matcher] = []
    for field, value in _fields(body):
        if field == 1 and isinstance(value, int):
            start = _signed(value)
        elif field == 2 and isinstance(value, int):
            end = _signed(value)
        elif field == 3 and isinstance(value, bytes):
            matchers.append(_matcher(value))
    if max(abs(start), abs(end)) > TIME_MAX_MS * 2:  # clients send the largest time for "no end"
        start, end = max(start, -TIME_MAX_MS), min(end, TIME_MAX_MS)
    if not matchers or all(map(matches_empty, matchers)):
        raise BadQuery("a read query must have at least one matcher that does not match the empty string")
    return RemoteReadQuery(tuple(matchers), start, end)


def _matcher(body: bytes) -> Matcher:
    op, texts = 0, {2: "", 3: ""}
    for field, value in _fields(body):
        if field == 1 and isinstance(value, int):
            op = value
        elif field in texts and isinstance(value, bytes):
            try:
                texts[field] = value.decode()
            except UnicodeDecodeError as error:
                raise BadQuery("a matcher is not UTF-8") from error
    if op >= len(_OPERATORS):
        raise BadQuery(f"a matcher has the unknown type {op}")
    return Matcher(texts[2], _OPERATORS[op], texts[3])


def _fields(body: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(body):
        tag, at = _number(body, at)
        field, kind = tag >> 3, tag & 7
        if kind == 0:
            value, at = _number(body, at)
            yield field, value
            continue
        size, at = (8, at) if kind == 1 else (4, at) if kind == 5 else _number(body, at) if kind == 2 else (-1, at)
        if size < 0 or at + size > len(body):
            raise BadQuery("not a read request: the protobuf message is damaged")
        yield field, body[at : at + size]
        at += size


def _varints(body: bytes) -> Iterator[tuple[int, int]]:
    at = 0
    while at < len(body):
        value, at = _number(body, at)
        yield value, at


def _number(body: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(body) and shift < 7 * _VARINT_BYTES:
        byte = body[at]
        number, shift, at = number | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return number & 0xFFFF_FFFF_FFFF_FFFF, at
    raise BadQuery("not a read request: the protobuf message is damaged")


def _unsigned(number: int) -> int:
    return number & 0xFFFF_FFFF_FFFF_FFFF


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number
