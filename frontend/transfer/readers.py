"""Reads files of samples: each format turns pieces of a body into `Parsed`, a bounded part at a time.

The formats are those of `writers`, and close relatives: JSON lines and text of other exporters, tables with other
labels. An invalid line or row is rejected alone and reported; a body that is not of its format at all is `BadMessage`.
Times are checked as for any other sender. Enter by `FORMS`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frontend.transfer.body_parts import BodyPieces, blocks, lines, without_byte_order_mark
from frontend.transfer.cells import column, value_fault, values_of
from frontend.transfer.message_builder import MessageBuilder, as_messages, groups
from frontend.transfer.selectors import series_of
from frontend.transfer.tables import parquet, table
from ingest.protocols.common import naming
from spm.arrays import F64, I64
from spm.errors import BadMessage
from spm.store.encoding.arrow import as_mask, bools, ints, string, strings
from spm.wire import Parsed

Read = Callable[[BodyPieces, int], Iterator[Parsed]]  # the body, and now

_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[iI]nf(?:inity)?|[nN]a[nN])"
_LABELS = r'\{(?:[^"{}]*"(?:[^"\\]|\\.)*")*[^"{}]*\}'  # up to their closing brace: an exemplar has labels, too
_SAMPLE = (
    rf"^\s*(?P<series>[^\s{{]+\s*(?:{_LABELS})?|{_LABELS})\s+(?P<value>{_NUMBER})"
    r"(?:\s+(?P<time>-?[0-9]+(?:\.[0-9]+)?))?(?:\s+#.*)?\s*$"
)
_CHARS_SHOWN = 80
_NO_SAMPLE = "not a sample: a name with labels, a value, and an optional time"
_BLANK = r"^\s*(?:#.*)?$"


class _Line(msgspec.Struct, gc=False):
    """One line of JSON."""

    metric: msgspec.Raw
    values: list[float | str | None]
    timestamps: list[int]


_LINE = msgspec.json.Decoder(_Line)
_METRIC = msgspec.json.Decoder(dict[str, str])
_KEYS = tuple(f'"{name}"'.encode() for name in _Line.__struct_fields__)


@as_messages
def json_lines(pieces: BodyPieces, builder: MessageBuilder) -> Iterator[int]:
    """Read VictoriaMetrics' JSON lines."""
    for number, line in enumerate(lines(without_byte_order_mark(pieces)), 1):
        if line.strip():
            _json_line(builder, number, line)
        yield number


@as_messages
def text(pieces: BodyPieces, builder: MessageBuilder) -> Iterator[int]:
    """Read Prometheus' text: times in ms; a sample without a time gets the server's."""
    yield from _text(pieces, builder, unit=1)


@as_messages
def open_metrics(pieces: BodyPieces, builder: MessageBuilder) -> Iterator[int]:
    """Read OpenMetrics: times in seconds."""
    yield from _text(pieces, builder, unit=1_000)


FORMS: Mapping[str, Read] = {
    "jsonl": json_lines,
    "csv": table,
    "parquet": parquet,
    "prometheus": text,
    "openmetrics": open_metrics,
}


# --- text ---


def _text(pieces: BodyPieces, builder: MessageBuilder, *, unit: int) -> Iterator[int]:
    number = 1
    for block in blocks(without_byte_order_mark(pieces)):
        texts = _decoded(builder, block, number)
        _text_block(builder, strings(texts), number, unit)
        number += len(texts)
        yield number - 1


def _text_block(builder: MessageBuilder, texts: pa.Array, number: int, unit: int) -> None:
    blank = as_mask(pc.match_substring_regex(texts, pattern=_BLANK))
    matches = pc.extract_regex(texts, pattern=_SAMPLE)
    good = as_mask(matches.is_valid()) & ~blank
    numbers = np.arange(number, number + len(texts))
    builder.passing(numbers, [(good | blank, lambda _: _NO_SAMPLE)], lambda row: str(texts[row]))
    rows = np.flatnonzero(good)
    samples = matches.take(ints(rows))
    values, has_value = values_of(samples.field("value"))
    checks = [(has_value, lambda row: value_fault(str(samples.field("value")[row])))]
    good = builder.passing(numbers[rows], checks, lambda row: str(texts[rows[row]]))
    _add_series(builder, samples.filter(bools(good)), values[good], numbers[rows[good]], unit)


def _add_series(builder: MessageBuilder, samples: pa.Array, values: F64, numbers: I64, unit: int) -> None:
    if not len(samples):
        return
    ts = _text_times(samples.field("time"), builder, unit)
    folded = pc.dictionary_encode(samples.field("series"))
    for code, mine in enumerate(groups(column(folded.indices, np.int32), len(folded.dictionary))):
        name = folded.dictionary[code].as_py()
        try:
            builder.add(numbers[mine], series_of(name), ts[mine], values[mine])
        except BadMessage as error:
            builder.reject_rows(numbers[mine], partial(_constant, (str(error), name)))


def _constant(why: tuple[str, str], _: int) -> tuple[str, str]:
    return why


def _text_times(texts: pa.Array, builder: MessageBuilder, unit: int) -> I64:
    """Convert times to ms; a missing time is now. Of a second's fraction three digits count."""
    texts = pc.fill_null(texts, string(""))
    absent = as_mask(pc.equal(texts, string("")))
    seconds = column(pc.cast(pc.if_else(bools(absent), string("0"), texts), pa.float64()), np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        ts: I64 = np.rint(np.clip(seconds * unit, -1.0, 9e15)).astype(np.int64)
    builder.timeless += int(absent.sum())
    ts[absent] = builder.now_ms
    return ts


def _decoded(builder: MessageBuilder, block: bytes, number: int) -> list[str]:
    """Decode the lines of a block. A line that is not UTF-8 is rejected and becomes empty."""
    try:
        return block.decode().split("\n")
    except UnicodeDecodeError:
        raw = block.split(b"\n")
    for row, line in enumerate(raw):
        if not naming.is_utf8(line):
            builder.reject(number + row, naming.NOT_UTF8, line)
            raw[row] = b""
    return [line.decode() for line in raw]


# --- JSON ---


def _json_line(builder: MessageBuilder, number: int, line: bytes) -> None:
    try:
        one = _LINE.decode(line)
        metric = _METRIC.decode(one.metric)
        _check_keys(line, bytes(one.metric), len(metric))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, BadMessage) as error:
        builder.reject(number, f"not a line of JSON with metric, values and timestamps: {error}", line)
        return
    if len(one.values) != len(one.timestamps):
        builder.reject(number, "values and timestamps differ in length", line)
        return
    try:
        ts, values = np.array(one.timestamps, np.int64), _json_values(one.values)
    except (OverflowError, BadMessage) as error:
        builder.reject(number, f"a value or time is invalid: {error}", line)
        return
    builder.add(number, metric, ts, values)


def _check_keys(line: bytes, metric: bytes, count: int) -> None:
    """Check that no key occurs twice. Labels have four quotes, keys of the line two; others are parsed again."""
    if line.count(b'"') == 4 * count + 2 * len(_KEYS):
        return
    if metric.count(b'"') != 4 * count or any(line.count(key) > 1 for key in _KEYS):
        json.loads(line, object_pairs_hook=_check_pairs, parse_int=str, parse_float=str)


def _check_pairs(pairs: Sequence[tuple[str, object]]) -> None:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadMessage("a label is named twice", got=twice[:_CHARS_SHOWN])


def _json_values(values: Sequence[float | str | None]) -> F64:
    """Convert a list of values to a column; only lists with texts or nulls are read one by one."""
    kinds = set(map(type, values))
    if kinds <= {float, int}:
        return np.array(values, np.float64)
    odd = [each if isinstance(each, str) else "NaN" if each is None else None for each in values]
    column_values = np.array(
        [each if text is None else math.nan for text, each in zip(odd, values, strict=True)], np.float64
    )
    rows = [row for row, text in enumerate(odd) if text is not None]
    texts = [text for text in odd if text is not None]
    special, good = values_of(strings(texts))
    if not good.all():
        raise BadMessage(value_fault(texts[int(np.argmin(good))]))
    column_values.view(np.uint64)[rows] = special.view(np.uint64)
    return column_values
