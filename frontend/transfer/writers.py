"""Writes exports: each format turns batches of series into bytes, and never holds more than one batch.

    jsonl        {"metric": {…}, "values": […], "timestamps": […]} a line: VictoriaMetrics' form; a series has one for
                 each stretch of time. Values that JSON lacks are texts: "NaN", "Infinity", "NaN:7ff0000000000002".
    csv          metric, a column for each label ("label.host"), time_ms, value
    parquet      the same columns, typed: time as a timestamp of ms, the value with all its bits
    prometheus   name{label="…"} value time_ms: without stale markers; a NaN loses its payload
    openmetrics  as prometheus, with times in seconds, for promtool

Enter by `FORMS`.
"""

from __future__ import annotations

import csv
import importlib
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from frontend.transfer.cells import guarded, texts_of
from spm.arrays import F64, I64
from spm.query.formats import exposition
from spm.query.request.batches import METRIC_NAME, SeriesBatch
from spm.store.encoding.arrow import floats, ints, string, strings
from spm.wire import STALE_BITS

LABEL = "label."  # before a label's name, so that no label is mistaken for another column
Batches = Iterable[SeriesBatch]


def json_lines(batches: Batches, labels: Sequence[str]) -> Iterator[bytes]:
    """Write VictoriaMetrics' JSON lines."""
    for batch in batches:
        values = texts_of(batch.values, zero="-0.0", quote='"')
        times = pc.cast(ints(batch.ts), pa.string())
        both = [_joined(batch.offsets, column) for column in (values, times)]
        for row, (value, time) in enumerate(zip(*both, strict=True)):
            if value:
                metric = orjson.dumps(batch.labels[row], option=orjson.OPT_SORT_KEYS)
                yield b'{"metric":%b,"values":[%b],"timestamps":[%b]}\n' % (metric, value, time)


def table(batches: Batches, labels: Sequence[str]) -> Iterator[bytes]:
    """Write CSV: a line for each sample."""
    yield _line(["metric", *(guarded(LABEL + name) for name in labels), "time_ms", "value"])
    for batch in batches:
        heads = strings(
            [
                _line([guarded(series.get(name, "")) for name in (METRIC_NAME, *labels)])[:-2].decode()
                for series in batch.labels
            ]
        )
        owner = np.repeat(np.arange(len(batch.labels)), np.diff(batch.offsets))
        times = pc.cast(ints(batch.ts), pa.string())
        ends = pc.binary_join_element_wise(texts_of(batch.values), string("\r\n"), string(""))
        yield _bytes(pc.binary_join_element_wise(heads.take(ints(owner)), times, ends, string(",")))


def parquet(batches: Batches, labels: Sequence[str]) -> Iterator[bytes]:
    """Write Parquet: one row group for each batch, yielded at once."""
    library: Any = importlib.import_module("pyarrow.parquet")  # slow to load and rarely used
    texts = pa.dictionary(pa.int32(), pa.string())
    columns = [("metric", texts), *((LABEL + name, texts) for name in labels)]
    schema = pa.schema([*columns, ("time", pa.timestamp("ms", tz="UTC")), ("value", pa.float64())])
    sink = _Sink()
    # A dictionary of values would merge values by equality, which NaNs lack, and their bits must stay.
    text_columns = [name for name, _ in columns]
    writer = library.ParquetWriter(
        sink, schema, compression="zstd", use_dictionary=text_columns, write_statistics=["time"]
    )
    for batch in batches:
        writer.write_table(_rows(batch, labels, schema))
        yield sink.take()
    writer.close()
    yield sink.take()


def prometheus(batches: Batches, labels: Sequence[str]) -> Iterator[bytes]:
    """Write Prometheus' text, times in ms."""
    for batch in batches:
        for series, ts, values in _live_samples(batch):
            yield exposition.sample_lines(series, ts, values)


def open_metrics(batches: Batches, labels: Sequence[str]) -> Iterator[bytes]:
    """Write OpenMetrics, with times in seconds."""
    for batch in batches:
        for series, ts, values in _live_samples(batch):
            yield exposition.sample_lines(series, ts, values, seconds=True)
    yield b"# EOF\n"


FORMS: Mapping[str, tuple[Callable[[Batches, Sequence[str]], Iterator[bytes]], str]] = {
    "jsonl": (json_lines, "application/x-ndjson"),
    "csv": (table, "text/csv; charset=utf-8"),
    "parquet": (parquet, "application/vnd.apache.parquet"),
    "prometheus": (prometheus, "text/plain; version=0.0.4; charset=utf-8"),
    "openmetrics": (open_metrics, "application/openmetrics-text; version=1.0.0; charset=utf-8"),
}
TABLES = frozenset({"csv", "parquet"})  # formats that need all labels beforehand


def _live_samples(batch: SeriesBatch) -> Iterator[tuple[Mapping[str, str], I64, F64]]:
    """Yield the samples of each series without stale markers."""
    is_live = batch.values.view(np.uint64) != STALE_BITS
    for row, series in enumerate(batch.labels):
        part = slice(int(batch.offsets[row]), int(batch.offsets[row + 1]))
        yield series, batch.ts[part][is_live[part]], batch.values[part][is_live[part]]


def _joined(offsets: I64, texts: pa.Array) -> Iterator[bytes]:
    """Join the texts of each series with commas."""
    rows = pa.LargeListArray.from_arrays(ints(offsets), pc.cast(texts, pa.large_string()))
    joined = pc.binary_join(rows, pa.scalar(",", pa.large_string()))
    return (text.encode() for text in joined.to_pylist())


def _rows(batch: SeriesBatch, labels: Sequence[str], schema: pa.Schema) -> pa.Table:
    owner = ints(np.repeat(np.arange(len(batch.labels)), np.diff(batch.offsets)))
    columns = [_column([series.get(name) for series in batch.labels], owner) for name in (METRIC_NAME, *labels)]
    times = ints(batch.ts).view(schema.field("time").type)
    return pa.Table.from_arrays([*columns, times, floats(batch.values)], schema=schema)


def _column(values: Sequence[str | None], owner: pa.Array) -> pa.Array:
    """Write a label of each sample; distinct values are stored once."""
    distinct = sorted({value for value in values if value is not None})
    number = {value: code for code, value in enumerate(distinct)}
    codes = [-1 if value is None else number[value] for value in values]
    code_column = pa.array([None if code < 0 else code for code in codes], pa.int32())
    return pa.DictionaryArray.from_arrays(code_column.take(owner), strings(distinct))


def _bytes(texts: pa.Array) -> bytes:
    _, offsets, raw = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return bytes(memoryview(raw)[ends[0] : ends[-1]]) if len(texts) else b""


def _line(cells: Sequence[str]) -> bytes:
    out = io.StringIO()
    csv.writer(out).writerow(cells)
    return out.getvalue().encode()


class _Sink(io.RawIOBase):
    """A file whose content is taken away as it grows."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        """Return True, as Arrow requires."""
        return True

    def tell(self) -> int:
        """Return how many bytes were written in all."""
        return self._size

    def write(self, piece: Any) -> int:
        """Append bytes."""
        raw = bytes(piece)
        self._pieces.append(raw)
        self._size += len(raw)
        return len(raw)

    def take(self) -> bytes:
        """Return the bytes that were written since the last call."""
        content, self._pieces = b"".join(self._pieces), []
        return content
