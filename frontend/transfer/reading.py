"""Files read back: each form turns pieces of a body into `Parsed`, a bounded part at a time.

The forms are those of `writing`, and anything close to them: other exporters' JSON lines and text, tables with other
labels. A bad line or row refuses itself and is named; a body that is not of its form at all is `BadMessage`. Times are
checked as at any other door. Enter by `FORMS`.
"""

from __future__ import annotations

import importlib
import io
import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from csv import reader as rows
from itertools import chain
from typing import Any, BinaryIO

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from frontend.transfer.cells import column, unguarded, values_of
from frontend.transfer.gathering import Gathering
from frontend.transfer.selectors import series_of
from frontend.transfer.writing import LABEL
from spm.errors import BadMessage, LimitExceeded
from spm.limits import (
    IMPORT_GROUP_BYTES_MAX,
    IMPORT_LINE_BYTES_MAX,
    IMPORT_PARQUET_BYTES_MAX,
    IMPORT_PIECE_BYTES,
    IMPORT_SAMPLES_AT_ONCE,
)
from spm.query.select import METRIC_NAME
from spm.store.columns import as_mask, bools, ints, string, strings
from spm.wire import F64, I64, Parsed

Pieces = Iterable[bytes]
Read = Callable[[Pieces, int], Iterator[Parsed]]  # the body, and now

_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[iI]nf(?:inity)?|[nN]a[nN])"
_SAMPLE = (
    r"^\s*(?P<series>[^\s{]+\s*(?:\{.*\})?|\{.*\})\s+(?P<value>" + _NUMBER + r")"
    r"(?:\s+(?P<time>-?[0-9]+(?:\.[0-9]+)?))?(?:\s+#.*)?\s*$"
)
_HEAD_BYTES_MAX = 1 << 18
_BLANK = r"^\s*(?:#.*)?$"


class _Line(msgspec.Struct, gc=False):
    """One line of JSON."""

    metric: dict[str, str]
    values: list[float | str | None]
    timestamps: list[int]


_LINE = msgspec.json.Decoder(_Line)


def json_lines(pieces: Pieces, now_ms: int) -> Iterator[Parsed]:
    """VictoriaMetrics' JSON lines."""
    gathered = Gathering(now_ms)
    for number, line in enumerate(_lines(pieces), 1):
        if not line.strip():
            continue
        try:
            one = _LINE.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            gathered.refuse(number, f"not a line of JSON with metric, values and timestamps: {error}", line)
            continue
        if len(one.values) != len(one.timestamps):
            gathered.refuse(number, "values and timestamps differ in length", line)
            continue
        try:
            ts, values = np.array(one.timestamps, np.int64), _json_values(one.values)
        except (OverflowError, BadMessage) as error:
            gathered.refuse(number, f"a value or time cannot be taken: {error}", line)
            continue
        gathered.add(number, one.metric, ts, values)
        yield from gathered.full()
    yield from gathered.rest()


def text(pieces: Pieces, now_ms: int) -> Iterator[Parsed]:
    """Prometheus' text: times in ms; a sample without one gets the server's."""
    yield from _text(pieces, now_ms, unit=1)


def open_metrics(pieces: Pieces, now_ms: int) -> Iterator[Parsed]:
    """OpenMetrics: times in seconds."""
    yield from _text(pieces, now_ms, unit=1_000)


def table(pieces: Pieces, now_ms: int) -> Iterator[Parsed]:
    """CSV with a head line: metric, columns that begin with `label.`, time_ms and value."""
    gathered = Gathering(now_ms)
    try:
        names, pieces = _columns_of(iter(pieces))
        stream = pa.PythonFile(_Reader(pieces), mode="r")
        reader = csv.open_csv(
            stream,
            read_options=csv.ReadOptions(block_size=IMPORT_PIECE_BYTES, use_threads=False),
            parse_options=csv.ParseOptions(newlines_in_values=True),
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
            ),
        )
        number = 1
        for batch in reader:
            columns = {name: batch.column(at) for at, name in enumerate(batch.schema.names)}
            _table(gathered, columns, number, batch.num_rows)
            number += batch.num_rows
            yield from gathered.full()
    except pa.ArrowInvalid as error:
        raise BadMessage("not a table", got=str(error)[:200], wanted="CSV with a head line") from error
    yield from gathered.rest()


def parquet(pieces: Pieces, now_ms: int) -> Iterator[Parsed]:
    """Parquet with the same columns, times as timestamps. It is spooled first: its index stands at its end."""
    library: Any = importlib.import_module("pyarrow.parquet")
    gathered = Gathering(now_ms)
    with tempfile.TemporaryFile() as spool:
        _spool(pieces, spool)
        try:
            file = library.ParquetFile(spool)
            _check_groups(file)
            number = 1
            for batch in file.iter_batches(batch_size=IMPORT_SAMPLES_AT_ONCE):
                columns = {name: batch.column(at) for at, name in enumerate(batch.schema.names)}
                _parquet(gathered, columns, number, batch.num_rows)
                number += batch.num_rows
                yield from gathered.full()
        except (pa.ArrowException, OSError) as error:
            raise BadMessage("not a Parquet file that can be read", got=str(error)[:200]) from error
    yield from gathered.rest()


FORMS: Mapping[str, Read] = {
    "jsonl": json_lines,
    "csv": table,
    "parquet": parquet,
    "prometheus": text,
    "openmetrics": open_metrics,
}


# --- text ---


def _text(pieces: Pieces, now_ms: int, *, unit: int) -> Iterator[Parsed]:
    gathered, number = Gathering(now_ms), 1
    for block in _blocks(pieces):
        lines = _decoded(block).split("\n")
        _text_block(gathered, strings(lines), number, unit)
        number += len(lines)
        yield from gathered.full()
    yield from gathered.rest()


def _text_block(gathered: Gathering, lines: pa.Array, number: int, unit: int) -> None:
    blank = as_mask(pc.match_substring_regex(lines, pattern=_BLANK))
    found = pc.extract_regex(lines, pattern=_SAMPLE)
    good = as_mask(found.is_valid()) & ~blank
    for row in np.flatnonzero(~good & ~blank).tolist():
        gathered.refuse(number + row, "not a sample: a name with labels, a value, perhaps a time", lines[row].as_py())
    rows = np.flatnonzero(good)
    if not len(rows):
        return
    taken = found.take(ints(rows))
    values = values_of(taken.field("value"))
    ts = _text_times(taken.field("time"), gathered, unit)
    folded = pc.dictionary_encode(taken.field("series"))
    for code, mine in enumerate(_groups(column(folded.indices, np.int32), len(folded.dictionary))):
        name, first = folded.dictionary[code].as_py(), number + int(rows[mine[0]])
        try:
            gathered.add(first, series_of(name), ts[mine], values[mine])
        except BadMessage as error:
            gathered.refuse(first, str(error), name, len(mine))


def _groups(codes: npt.NDArray[np.integer[Any]], count: int) -> list[I64]:
    """The rows of each code, in their order."""
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.cumsum(np.bincount(codes, minlength=count))[:-1])


def _text_times(texts: pa.Array, gathered: Gathering, unit: int) -> I64:
    """Times in ms; those that are not there are now. Seconds have at most three digits that count."""
    texts = pc.fill_null(texts, string(""))
    absent = as_mask(pc.equal(texts, string("")))
    seconds = column(pc.cast(pc.if_else(bools(absent), string("0"), texts), pa.float64()), np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        ts: I64 = np.rint(np.clip(seconds * unit, -1.0, 9e15)).astype(np.int64)
    gathered.timeless += int(absent.sum())
    ts[absent] = gathered.now_ms
    return ts


def _decoded(block: bytes) -> str:
    try:
        return block.decode()
    except UnicodeDecodeError as error:
        raise BadMessage("the text is not UTF-8", got=str(error)[:80]) from error


# --- tables ---


def _table(gathered: Gathering, columns: Mapping[str, pa.Array], number: int, rows: int) -> None:
    _check_columns(columns, "time_ms")
    try:
        times = pc.cast(columns["time_ms"], pa.int64())
    except pa.ArrowInvalid as error:
        raise BadMessage("time_ms has a cell that is no whole number", got=str(error)[:120]) from error
    _add_rows(gathered, columns, number, column(times, np.int64), values_of(columns["value"]))


def _parquet(gathered: Gathering, columns: Mapping[str, pa.Array], number: int, rows: int) -> None:
    _check_columns(columns, "time")
    times, values = columns["time"], columns["value"]
    if times.null_count or values.null_count or not pa.types.is_timestamp(times.type):
        raise BadMessage("time and value must be there in every row, time as a timestamp", got=str(times.type))
    ms = pc.cast(times, pa.timestamp("ms", tz=times.type.tz), safe=False).view(pa.int64())
    numbers = column(pc.cast(values, pa.float64()), np.float64)
    texts = {name: pc.fill_null(each.cast(pa.string()), string("")) for name, each in columns.items() if _is_text(name)}
    _add_rows(gathered, texts, number, column(ms, np.int64), numbers, plain=True)


def _add_rows(
    gathered: Gathering, columns: Mapping[str, pa.Array], number: int, ts: I64, values: F64, *, plain: bool = False
) -> None:
    """Rows by series: text columns become numbers of their distinct texts, and rows with equal numbers are a series."""
    names = [name for name in columns if _is_text(name)]
    folded = [pc.dictionary_encode(columns[name]) for name in names]
    codes = np.stack([column(each.indices, np.int32) for each in folded], axis=1)
    texts = [[each if plain else unguarded(each) for each in one.dictionary.to_pylist()] for one in folded]
    labels = [METRIC_NAME if name == "metric" else unguarded(name)[len(LABEL) :] for name in names]
    distinct, owner = np.unique(codes, axis=0, return_inverse=True)
    for picked, mine in zip(distinct.tolist(), _groups(owner.ravel(), len(distinct)), strict=True):
        series = {label: one[code] for label, one, code in zip(labels, texts, picked, strict=True)}
        gathered.add(number + 1 + int(mine[0]), series, ts[mine], values[mine])


def _is_text(name: str) -> bool:
    return name == "metric" or unguarded(name).startswith(LABEL)


def _check_columns(columns: Mapping[str, pa.Array], time: str) -> None:
    missing = {"metric", time, "value"} - columns.keys()
    strange = [name for name in columns if not _is_text(name) and name not in (time, "value")]
    if missing or strange:
        raise BadMessage(
            "the columns are others",
            got=", ".join(columns)[:200],
            wanted=f"metric, {LABEL}NAME for each label, {time}, value",
        )


def _columns_of(pieces: Iterator[bytes]) -> tuple[list[str], Iterator[bytes]]:
    """The names in a table's head, and the table with it: every column is to be read as text, whatever is in it."""
    begun = b""
    for piece in pieces:
        begun += piece
        if len(begun) >= _HEAD_BYTES_MAX:
            break
    head = next(rows(io.StringIO(begun[:_HEAD_BYTES_MAX].decode("utf-8", "replace"), newline="")), [])
    return head, chain([begun], pieces)


# --- pieces ---


def _blocks(pieces: Pieces) -> Iterator[bytes]:
    """Whole lines, some megabytes at once."""
    left = b""
    for piece in pieces:
        left += piece
        if len(left) < IMPORT_PIECE_BYTES:
            continue
        whole, _, left = left.rpartition(b"\n")
        if whole:
            yield whole
        elif len(left) > IMPORT_LINE_BYTES_MAX:
            raise LimitExceeded("a line is too long", got=f"over {IMPORT_LINE_BYTES_MAX} bytes")
    if left:
        yield left


def _lines(pieces: Pieces) -> Iterator[bytes]:
    for block in _blocks(pieces):
        yield from block.split(b"\n")


def _spool(pieces: Pieces, spool: BinaryIO) -> None:
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > IMPORT_PARQUET_BYTES_MAX:
            raise LimitExceeded("the file is too large", got=f"over {IMPORT_PARQUET_BYTES_MAX} bytes",
                                remedy="Send several smaller ones.")  # fmt: skip
        spool.write(piece)
    spool.seek(0)


def _check_groups(file: Any) -> None:
    for number in range(file.metadata.num_row_groups):
        size = file.metadata.row_group(number).total_byte_size
        if size > IMPORT_GROUP_BYTES_MAX:
            wanted = f"at most {IMPORT_GROUP_BYTES_MAX}"
            raise LimitExceeded("a row group is too large", got=f"{size} bytes", wanted=wanted)


class _Reader:
    """Pieces as a file to read from."""

    closed = False

    def __init__(self, pieces: Pieces) -> None:
        self._pieces, self._left = iter(pieces), b""

    def read(self, size: int = -1) -> bytes:
        """At most so many bytes."""
        while size < 0 or len(self._left) < size:
            piece = next(self._pieces, None)
            if piece is None:
                break
            self._left += piece
        taken, self._left = (self._left, b"") if size < 0 else (self._left[:size], self._left[size:])
        return taken

    def close(self) -> None:
        """Nothing is held."""

    def readable(self) -> bool:
        """It is."""
        return True


def _json_values(values: Sequence[float | str | None]) -> F64:
    """A column of values; only one that holds texts or nulls is looked at one by one."""
    kinds = set(map(type, values))
    if kinds <= {float, int}:
        return np.array(values, np.float64)
    odd = [each if isinstance(each, str) else "NaN" if each is None else None for each in values]
    found = np.array([each if text is None else math.nan for text, each in zip(odd, values, strict=True)], np.float64)
    rows = [row for row, text in enumerate(odd) if text is not None]
    bits = values_of(strings([text for text in odd if text is not None])).view(np.uint64)
    found.view(np.uint64)[rows] = bits
    return found
