"""Reads tables, CSV and Parquet, whose rows are samples. Enter by `table` and `parquet`.

The columns are metric, one for each label (`label.NAME`), the time and the value, in any order. They are checked before
the first row. Rows are never read one by one: texts are replaced by codes, and rows with equal codes are a series.
"""

from __future__ import annotations

import csv as plain_csv
import importlib
import io
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from frontend.transfer.body_parts import DAMAGED, BodyPieces, TextFile, spool, without_byte_order_mark
from frontend.transfer.cells import column, unguarded, value_fault, values_of
from frontend.transfer.message_builder import MessageBuilder, as_messages, groups
from frontend.transfer.writers import LABEL
from ingest.protocols.common import naming
from spm.arrays import BOOL, F64, I64
from spm.errors import BadMessage, LimitExceeded
from spm.limits import IMPORT_GROUP_BYTES_MAX, IMPORT_PIECE_BYTES, IMPORT_SAMPLES_AT_ONCE
from spm.query.request.batches import METRIC_NAME
from spm.store.encoding.arrow import as_mask, bools, string, strings

_HEAD_BYTES_MAX = 1 << 18
_NAMES_SHOWN = 200
_INTEGER = r"^(?:-?[0-9]{1,18}|0[xX][0-9a-fA-F]{1,16})$"  # what Arrow takes for one
_NOTHING = pa.scalar(b"", pa.binary())


@as_messages
def table(pieces: BodyPieces, builder: MessageBuilder) -> Iterator[int]:
    """Read CSV with a header line: metric, columns that begin with `label.`, time_ms and value."""
    file = TextFile(without_byte_order_mark(pieces))
    names, number = _head_of(file)
    _check_names(names, "time_ms")
    skipped = SkippedRows(builder, number)
    try:
        for batch in _batches(file, names, skipped):
            numbers = skipped.numbers(batch.num_rows)
            if len(numbers):
                _table(builder, _by_name(batch), numbers, damaged=file.damaged)
                yield int(numbers[-1])
    except pa.ArrowInvalid as error:
        if "straddling" in str(error):
            raise LimitExceeded(
                "a row is too long",
                got=f"over {IMPORT_PIECE_BYTES} bytes",
                remedy="Is there a quote without its closing quote?",
            ) from error
        raise BadMessage("not a table", got=str(error)[:200], wanted="CSV with a header line") from error
    if file.fault:
        raise file.fault


@as_messages
def parquet(pieces: BodyPieces, builder: MessageBuilder) -> Iterator[int]:
    """Read Parquet with these columns, times as timestamps. It is spooled first, because its index is at its end."""
    library: Any = importlib.import_module("pyarrow.parquet")
    with tempfile.TemporaryFile() as spooled:
        spool(pieces, spooled)
        try:
            file = library.ParquetFile(spooled)
            _check_names(file.schema_arrow.names, "time")
            _check_types(file.schema_arrow)
            _check_groups(file)
            number = 1
            for batch in file.iter_batches(batch_size=IMPORT_SAMPLES_AT_ONCE):
                _parquet(builder, _by_name(batch), np.arange(number, number + batch.num_rows))
                number += batch.num_rows
                yield number - 1
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            remedy = "Is the file complete, and can other programs read it?"
            raise BadMessage("not a readable Parquet file", got=str(error)[:200], remedy=remedy) from error


# --- names of columns ---


def _head_of(file: TextFile) -> tuple[list[str], int]:
    """Read a table's header; returns its names and the number of its last line."""
    start = file.peek(_HEAD_BYTES_MAX).decode("utf-8", "surrogateescape")
    text = io.StringIO(start, newline="")
    rows = plain_csv.reader(text)
    try:
        names = next((row for row in rows if row), [])
    except plain_csv.Error as error:
        raise BadMessage(
            "the header of the table cannot be read",
            got=str(error),
            wanted="names of columns",
            remedy="A table begins with the names of its columns.",
        ) from error
    if text.tell() == len(start):
        if file.fault:
            raise file.fault
        if len(start.encode("utf-8", "surrogateescape")) == _HEAD_BYTES_MAX:
            raise BadMessage(
                "the header of the table is too long",
                got=f"over {_HEAD_BYTES_MAX} bytes",
                remedy="Is there a quote without its closing quote?",
            )
    file.skip(len(start[: text.tell()].encode("utf-8", "surrogateescape")))
    try:
        "".join(names).encode()
    except UnicodeEncodeError as error:
        shown = ", ".join(names).encode("utf-8", "replace").decode()[:_NAMES_SHOWN]
        raise BadMessage("the header of the table is not UTF-8", got=shown, remedy="Save it as UTF-8.") from error
    return names, rows.line_num


def _check_names(names: Sequence[str], time: str) -> None:
    """Check that the table has all columns, each once, and no others."""
    columns = f"metric, {LABEL}NAME for each label, {time}, value"
    unknown = [name for name in names if not _is_text(name) and name not in (time, "value")]
    if unknown or {"metric", time, "value"} - set(names):
        remedy = "A table begins with the names of its columns."
        raise BadMessage(
            "the table has the wrong columns", got=", ".join(names)[:_NAMES_SHOWN], wanted=columns, remedy=remedy
        )
    meanings = [LABEL + _label_of(name) if _is_text(name) else name for name in names]
    twice = [name for name, each in zip(names, meanings, strict=True) if meanings.count(each) > 1]
    if twice:
        remedy = f"Remove all but one of them. The metric's name is the column metric, not {LABEL}{METRIC_NAME}."
        raise BadMessage(
            "several columns have the same meaning", got=", ".join(twice)[:_NAMES_SHOWN], wanted="one", remedy=remedy
        )


def _is_text(name: str) -> bool:
    return name == "metric" or name.startswith(LABEL)


def _label_of(name: str) -> str:
    return METRIC_NAME if name == "metric" else name.removeprefix(LABEL)


# --- rows ---


class SkippedRows:
    """Rows with too few or too many cells, which Arrow skips; Arrow may be ahead of the rows it returns."""

    def __init__(self, builder: MessageBuilder, head: int) -> None:
        self._builder, self._head, self._next = builder, head, head + 1
        self._ahead: deque[int] = deque()

    def __call__(self, row: Any) -> str:
        """Reject one of them; its number counts from the first row after the header."""
        self._ahead.append(self._head + row.number)
        fault = f"a row with {row.actual_columns} cells; wanted {row.expected_columns}, as in the header"
        shown = row.text[:_NAMES_SHOWN].replace(DAMAGED, "\ufffd")
        self._builder.reject(self._head + row.number, fault, shown)
        return "skip"

    def numbers(self, count: int) -> I64:
        """Return the line numbers of the next rows that Arrow returned."""
        first, end, skipped = self._next, self._next + count, list[int]()
        while self._ahead and self._ahead[0] < end:
            skipped.append(self._ahead.popleft())
            end += 1
        self._next = end
        numbers: I64 = np.delete(np.arange(first, end), np.array(skipped, np.int64) - first)
        return numbers


def _batches(file: TextFile, names: Sequence[str], skipped: SkippedRows) -> Iterator[pa.RecordBatch]:
    """Yield rows of CSV after its header: every column is text. An empty line is a row of empty cells."""
    if not file.peek(1):
        return
    yield from csv.open_csv(
        pa.PythonFile(file, mode="r"),
        # Arrow numbers the rows it skips only if it reads without threads.
        read_options=csv.ReadOptions(block_size=IMPORT_PIECE_BYTES, use_threads=False, column_names=list(names)),
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False, invalid_row_handler=skipped),
        convert_options=csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False),
    )


def _by_name(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    return dict(zip(batch.schema.names, batch.columns, strict=True))


def _table(builder: MessageBuilder, texts: Mapping[str, pa.Array], numbers: I64, *, damaged: bool) -> None:
    utf8 = np.ones(len(numbers), np.bool_)
    for each in texts.values() if damaged else ():
        utf8 &= ~as_mask(pc.match_substring(each, pattern=DAMAGED))
    values, has_value = values_of(texts["value"])
    times, has_time = _whole_numbers(texts["time_ms"])
    good = utf8 & has_value & has_time
    if not good.all():  # an empty line is a row of empty cells
        filled = np.any([as_mask(pc.not_equal(each, string(""))) for each in texts.values()], axis=0)
        numbers, values, times = numbers[filled], values[filled], times[filled]
        utf8, has_value, has_time = utf8[filled], has_value[filled], has_time[filled]
        texts = _filtered(texts, filled)
    checks = [
        (utf8, lambda _: naming.NOT_UTF8),
        (has_time, lambda row: f"time_ms is not an integer; got {str(texts['time_ms'][row])[:40] or 'nothing'}"),
        (has_value, lambda row: value_fault(str(texts["value"][row]))),
    ]
    good = builder.passing(
        numbers, checks, lambda row: ",".join(str(each[row]) for each in texts.values()).replace(DAMAGED, "\ufffd")
    )
    labels = {name: each for name, each in texts.items() if _is_text(name)}
    _add_rows(builder, _filtered(labels, good), numbers[good], times[good], values[good])


def _filtered(columns: Mapping[str, pa.Array], mask: BOOL) -> Mapping[str, pa.Array]:
    return columns if mask.all() else {name: each.filter(bools(mask)) for name, each in columns.items()}


def _whole_numbers(texts: pa.Array) -> tuple[I64, BOOL]:
    """Read texts as integers, and say which texts are valid."""
    good = np.ones(len(texts), np.bool_)
    try:
        return column(pc.cast(texts, pa.int64()), np.int64), good
    except pa.ArrowInvalid:
        plain = pc.match_substring_regex(texts, pattern=_INTEGER)
    times = pc.cast(pc.if_else(plain, texts, string("0")), pa.int64())
    return column(times, np.int64), as_mask(plain)


def _texts(columns: Mapping[str, pa.Array]) -> tuple[dict[str, pa.Array], BOOL]:
    """Decode columns of bytes, and say which rows are UTF-8 in all of them."""
    texts, good = {}, np.ones(len(next(iter(columns.values()))), np.bool_)
    for name, raw in columns.items():
        try:
            texts[name] = raw.cast(pa.string())
        except pa.ArrowInvalid:
            folded = pc.dictionary_encode(raw)
            distinct = folded.dictionary.to_pylist()
            fine = np.array([naming.is_utf8(each) for each in distinct])
            good &= fine[column(folded.indices, np.int32)]
            texts[name] = strings([each.decode("utf-8", "replace") for each in distinct]).take(folded.indices)
    return texts, good


def _add_rows(
    builder: MessageBuilder,
    columns: Mapping[str, pa.Array],
    numbers: I64,
    ts: I64,
    values: F64,
    *,
    plain: bool = False,
) -> None:
    """Add rows by series: texts are replaced by codes, and rows with equal codes are a series."""
    if not len(ts):
        return
    folded = [pc.dictionary_encode(each) for each in columns.values()]
    codes = np.stack([column(each.indices, np.int32) for each in folded], axis=1)
    texts = [[each if plain else unguarded(each) for each in one.dictionary.to_pylist()] for one in folded]
    labels = [_label_of(name) for name in columns]
    distinct, owner = np.unique(codes, axis=0, return_inverse=True)
    for picked, mine in zip(distinct.tolist(), groups(owner.ravel(), len(distinct)), strict=True):
        series = {label: one[code] for label, one, code in zip(labels, texts, picked, strict=True)}
        builder.add(numbers[mine], series, ts[mine], values[mine])


# --- rows of Parquet ---


def _check_types(schema: Any) -> None:
    """Check that every column has a type that can hold a text, a time or a value."""
    for field in schema:
        kind, expected = field.type, ""
        if field.name == "time" and not pa.types.is_timestamp(kind):
            expected = "a timestamp"
        elif field.name == "value" and not (_is_text_type(kind) or _is_number_type(kind)):
            expected = "numbers, or texts of numbers"
        elif pa.types.is_nested(kind):
            expected = "texts"
        if expected:
            remedy = "Write the column as that type."
            raise BadMessage(
                f"the column {field.name} has an unsupported type", got=kind, wanted=expected, remedy=remedy
            )


def _is_text_type(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_number_type(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean, pa.types.is_null)
    return any(each(kind) for each in kinds)


def _parquet(builder: MessageBuilder, columns: Mapping[str, pa.Array], numbers: I64) -> None:
    texts, utf8 = _texts({name: _raw(each) for name, each in columns.items() if _is_text(name)})
    times, value = columns["time"], columns["value"]
    ms = pc.cast(times, pa.timestamp("ms", tz=times.type.tz), safe=False).view(pa.int64())
    values, has_value = _numbers(value)
    checks = [
        (utf8, lambda _: naming.NOT_UTF8),
        (as_mask(times.is_valid()), lambda _: "no time"),
        (as_mask(value.is_valid()), lambda _: "no value"),
        (has_value, lambda row: _number_fault(value[row].as_py())),
    ]
    good = builder.passing(numbers, checks, lambda row: ",".join(str(each[row]) for each in texts.values()))
    _add_rows(builder, _filtered(texts, good), numbers[good], column(ms, np.int64)[good], values[good], plain=True)


def _raw(texts: pa.Array) -> pa.Array:
    """Return a label's column of any type as bytes; null is an empty text."""
    if not pa.types.is_binary(texts.type):
        texts = texts.cast(pa.string()).view(pa.binary())
    return pc.fill_null(texts, _NOTHING)


def _numbers(values: pa.Array) -> tuple[F64, BOOL]:
    """Read a column of any type as numbers, and say which rows are valid: not integers that float64 would change."""
    if _is_text_type(values.type):
        texts, utf8 = _texts({"value": _raw(values)})
        numbers, good = values_of(texts["value"])
        return numbers, good & utf8
    numbers = column(pc.cast(values, pa.float64(), safe=False), np.float64)
    if not pa.types.is_integer(values.type) or values.type.bit_width < 64:
        return numbers, np.ones(len(numbers), np.bool_)
    kind = np.uint64 if pa.types.is_unsigned_integer(values.type) else np.int64
    edge = float(np.iinfo(kind).max)  # rounds to one more than the maximum, which cannot be converted back
    back = np.where(numbers < edge, numbers, 0).astype(kind)
    return numbers, (back == column(values, kind)) & (numbers < edge)


def _number_fault(value: object) -> str:
    if isinstance(value, str):
        return value_fault(value)
    return f"an integer that float64 cannot represent; got {value}"


def _check_groups(file: Any) -> None:
    for number in range(file.metadata.num_row_groups):
        size = file.metadata.row_group(number).total_byte_size
        if size > IMPORT_GROUP_BYTES_MAX:
            allowed = f"at most {IMPORT_GROUP_BYTES_MAX}"
            remedy = "Write the file with more and smaller row groups."
            raise LimitExceeded("a row group is too large", got=f"{size} bytes", wanted=allowed, remedy=remedy)
