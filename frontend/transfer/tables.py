"""Tables read back: CSV and Parquet, whose rows are samples. Enter by `table` and `parquet`.

The columns are metric, one for each label (`label.NAME`), the time and the value, in any order. Which they are is
checked before the first row. Rows are never looked at one by one: texts become numbers of their distinct texts, and
rows with equal numbers are a series.
"""

from __future__ import annotations

import csv as plain_csv
import importlib
import io
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from frontend.transfer.cells import column, unguarded, values_of
from frontend.transfer.gathering import Gathering, groups
from frontend.transfer.pieces import File, Pieces, spool, without_mark
from frontend.transfer.writing import LABEL
from spm.errors import BadMessage, LimitExceeded
from spm.limits import IMPORT_GROUP_BYTES_MAX, IMPORT_PIECE_BYTES, IMPORT_SAMPLES_AT_ONCE
from spm.query.select import METRIC_NAME
from spm.store.columns import string
from spm.wire import F64, I64, Parsed

_HEAD_BYTES_MAX = 1 << 18
_NAMES_SHOWN = 200


def table(pieces: Pieces, now_ms: int) -> Iterator[Parsed]:
    """CSV with a head line: metric, columns that begin with `label.`, time_ms and value."""
    gathered, file = Gathering(now_ms), File(without_mark(pieces))
    names, number = _head_of(file)
    _check_names(names, "time_ms")
    try:
        for batch in _batches(file, names):
            _table(gathered, _by_name(batch), number)
            number += batch.num_rows
            yield from gathered.full()
    except pa.ArrowInvalid as error:
        raise BadMessage("not a table", got=str(error)[:200], wanted="CSV with a head line") from error
    if file.fault:
        raise file.fault
    yield from gathered.rest()


def parquet(pieces: Pieces, now_ms: int) -> Iterator[Parsed]:
    """Parquet with the same columns, times as timestamps. It is spooled first: its index stands at its end."""
    library: Any = importlib.import_module("pyarrow.parquet")
    gathered = Gathering(now_ms)
    with tempfile.TemporaryFile() as spooled:
        spool(pieces, spooled)
        try:
            file = library.ParquetFile(spooled)
            _check_names(file.schema_arrow.names, "time")
            _check_groups(file)
            number = 0
            for batch in file.iter_batches(batch_size=IMPORT_SAMPLES_AT_ONCE):
                _parquet(gathered, _by_name(batch), number)
                number += batch.num_rows
                yield from gathered.full()
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise BadMessage("not a Parquet file that can be read", got=str(error)[:200]) from error
    yield from gathered.rest()


# --- names of columns ---


def _head_of(file: File) -> tuple[list[str], int]:
    """The names in a table's head, which is read, and the number of its last line."""
    begun = file.begun(_HEAD_BYTES_MAX).decode("utf-8", "surrogateescape")
    text = io.StringIO(begun, newline="")
    rows = plain_csv.reader(text)
    try:
        names = next((row for row in rows if row), [])
    except plain_csv.Error as error:
        raise BadMessage("the head of the table cannot be read", got=str(error), wanted="names of columns") from error
    if text.tell() == len(begun):
        if file.fault:
            raise file.fault
        if len(begun.encode("utf-8", "surrogateescape")) == _HEAD_BYTES_MAX:
            raise BadMessage("the head of the table is too long", got=f"over {_HEAD_BYTES_MAX} bytes")
    file.skip(len(begun[: text.tell()].encode("utf-8", "surrogateescape")))
    try:
        "".join(names).encode()
    except UnicodeEncodeError as error:
        shown = ", ".join(names).encode("utf-8", "replace").decode()[:_NAMES_SHOWN]
        raise BadMessage("the head of the table is not UTF-8", got=shown, remedy="Save it as UTF-8.") from error
    return names, rows.line_num


def _check_names(names: Sequence[str], time: str) -> None:
    """All columns that a table must have, each once, and no others."""
    wanted = f"metric, {LABEL}NAME for each label, {time}, value"
    strange = [name for name in names if not _is_text(name) and name not in (time, "value")]
    if strange or {"metric", time, "value"} - set(names):
        remedy = "A table begins with the names of its columns."
        raise BadMessage("the columns are others", got=", ".join(names)[:_NAMES_SHOWN], wanted=wanted, remedy=remedy)
    meant = [LABEL + _label_of(name) if _is_text(name) else name for name in names]
    twice = [name for name, each in zip(names, meant, strict=True) if meant.count(each) > 1]
    if twice:
        remedy = f"Leave one of them. The metric's name is the column metric, not {LABEL}{METRIC_NAME}."
        raise BadMessage("columns say the same", got=", ".join(twice)[:_NAMES_SHOWN], wanted="one", remedy=remedy)


def _is_text(name: str) -> bool:
    return name == "metric" or name.startswith(LABEL)


def _label_of(name: str) -> str:
    return METRIC_NAME if name == "metric" else name.removeprefix(LABEL)


# --- rows ---


def _batches(file: File, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Rows of CSV after its head: every column is text, whatever is in it."""
    if not file.begun(1):
        return
    yield from csv.open_csv(
        pa.PythonFile(file, mode="r"),
        read_options=csv.ReadOptions(block_size=IMPORT_PIECE_BYTES, use_threads=False, column_names=list(names)),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False),
    )


def _by_name(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    return dict(zip(batch.schema.names, batch.columns, strict=True))


def _table(gathered: Gathering, columns: Mapping[str, pa.Array], number: int) -> None:
    try:
        times = pc.cast(columns["time_ms"], pa.int64())
    except pa.ArrowInvalid as error:
        raise BadMessage("time_ms has a cell that is no whole number", got=str(error)[:120]) from error
    _add_rows(gathered, columns, number, column(times, np.int64), values_of(columns["value"]))


def _parquet(gathered: Gathering, columns: Mapping[str, pa.Array], number: int) -> None:
    times, values = columns["time"], columns["value"]
    if times.null_count or values.null_count or not pa.types.is_timestamp(times.type):
        raise BadMessage("time and value must be there in every row, time as a timestamp", got=str(times.type))
    ms = pc.cast(times, pa.timestamp("ms", tz=times.type.tz), safe=False).view(pa.int64())
    numbers = column(pc.cast(values, pa.float64()), np.float64)
    texts = {name: pc.fill_null(each.cast(pa.string()), string("")) for name, each in columns.items() if _is_text(name)}
    for each in texts.values():
        each.validate(full=True)
    _add_rows(gathered, texts, number, column(ms, np.int64), numbers, plain=True)


def _add_rows(
    gathered: Gathering, columns: Mapping[str, pa.Array], number: int, ts: I64, values: F64, *, plain: bool = False
) -> None:
    """Rows by series: text columns become numbers of their distinct texts, and rows with equal numbers are a series."""
    names = [name for name in columns if _is_text(name)]
    folded = [pc.dictionary_encode(columns[name]) for name in names]
    codes = np.stack([column(each.indices, np.int32) for each in folded], axis=1)
    texts = [[each if plain else unguarded(each) for each in one.dictionary.to_pylist()] for one in folded]
    labels = [_label_of(name) for name in names]
    distinct, owner = np.unique(codes, axis=0, return_inverse=True)
    for picked, mine in zip(distinct.tolist(), groups(owner.ravel(), len(distinct)), strict=True):
        series = {label: one[code] for label, one, code in zip(labels, texts, picked, strict=True)}
        gathered.add(number + 1 + int(mine[0]), series, ts[mine], values[mine])


def _check_groups(file: Any) -> None:
    for number in range(file.metadata.num_row_groups):
        size = file.metadata.row_group(number).total_byte_size
        if size > IMPORT_GROUP_BYTES_MAX:
            wanted = f"at most {IMPORT_GROUP_BYTES_MAX}"
            raise LimitExceeded("a row group is too large", got=f"{size} bytes", wanted=wanted)
