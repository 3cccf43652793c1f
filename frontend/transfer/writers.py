"""Forms of an export: each turns batches of series into bytes, as they come, and never holds more than one batch.

    jsonl        {"metric": {…}, "values": […], "timestamps": […]} a line: VictoriaMetrics' form; a series has one for
                 each stretch of time. What JSON cannot say is a text: "NaN", "Infinity", "NaN:7ff0000000000002".
    csv          metric, a column for each label ("label.host"), time_ms, value
    parquet      the same columns, typed: time as a timestamp of ms, the value with all its bits
    prometheus   name{label="…"} value time_ms: stale markers are left out, and a NaN is a NaN: text has no other
    openmetrics  the same with times in seconds, for promtool

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

LABEL = "label."  # before a label's name, so that no label is taken for a column of ours
Batches = Iterable[SeriesBatch]


def json_lines(batches: Batches, labels: Sequence[str]) -> Iterator[bytes]:
    """VictoriaMetrics' JSON lines."""
    for batch in batches:
        values = texts_of(batch.values, zero="-0.0", quote='"')
        times = pc.cast(ints(batch.ts), pa.string())
        both = [_joined(batch.offsets, column) for column in (values, times)]
        for row, (value, time) in enumerate(zip(*both, strict=True)):
            if value:
                metric = orjson.dumps(batch.labels[row], option=orjson.OPT_SORT_KEYS)
                yield b'{"metric":%b,"values":[%b],"timestamps":[%b]}\n' % (metric, value, time)


def table(batches: Batches, labels: Sequence[str]) -> Iterator[bytes]:
    """CSV: a line for each sample."""
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
    """Parquet: one row group for each batch; what was written is given away at once."""
    library: Any = importlib.import_module("pyarrow.parquet")  # slow to load, and wanted by few
    texts = pa.dictionary(pa.int32(), pa.string())
    columns = [("metric", texts), *((LABEL + name, texts) for name in labels)]
    schema = pa.schema([*columns, ("time", pa.timestamp("ms", tz="UTC")), ("value", pa.float64())])
    sink = _Sink()
    # A dictionary of values would join equal ones: NaNs are never equal, and their bits are to stay.
    named = [name for name, _ in columns]
    writer = library.ParquetWriter(sink, schema, compression="zstd", use_dictionary=named, write_statistics=["time"])
    for batch in batches:
        writer.write_table(_rows(batch, labels, schema))
        yield sink.taken()
    writer.close()
    yield sink.taken()


def prometheus(batches: Batches, labels: Sequence[str]) -> Iterator[bytes]:
    """Prometheus' text, times in ms."""
    for batch in batches:
        for series, ts, values in _going(batch):
            yield exposition.sample_lines(series, ts, values)


def open_metrics(batches: Batches, labels: Sequence[str]) -> Iterator[bytes]:
    """OpenMetrics: the same, with times in seconds."""
    for batch in batches:
        for series, ts, values in _going(batch):
            yield exposition.sample_lines(series, ts, values, seconds=True)
    yield b"# EOF\n"


FORMS: Mapping[str, tuple[Callable[[Batches, Sequence[str]], Iterator[bytes]], str]] = {
    "jsonl": (json_lines, "application/x-ndjson"),
    "csv": (table, "text/csv; charset=utf-8"),
    "parquet": (parquet, "application/vnd.apache.parquet"),
    "prometheus": (prometheus, "text/plain; version=0.0.4; charset=utf-8"),
    "openmetrics": (open_metrics, "application/openmetrics-text; version=1.0.0; charset=utf-8"),
}
TABLES = frozenset({"csv", "parquet"})  # which need to know all labels beforehand


def _going(batch: SeriesBatch) -> Iterator[tuple[Mapping[str, str], I64, F64]]:
    """The samples of each series, without markers of its end."""
    kept = batch.values.view(np.uint64) != STALE_BITS
    for row, series in enumerate(batch.labels):
        part = slice(int(batch.offsets[row]), int(batch.offsets[row + 1]))
        yield series, batch.ts[part][kept[part]], batch.values[part][kept[part]]


def _joined(offsets: I64, texts: pa.Array) -> Iterator[bytes]:
    """The texts of each series, with commas between them."""
    rows = pa.LargeListArray.from_arrays(ints(offsets), pc.cast(texts, pa.large_string()))
    joined = pc.binary_join(rows, pa.scalar(",", pa.large_string()))
    return (text.encode() for text in joined.to_pylist())


def _rows(batch: SeriesBatch, labels: Sequence[str], schema: pa.Schema) -> pa.Table:
    owner = ints(np.repeat(np.arange(len(batch.labels)), np.diff(batch.offsets)))
    columns = [_column([series.get(name) for series in batch.labels], owner) for name in (METRIC_NAME, *labels)]
    times = ints(batch.ts).view(schema.field("time").type)
    return pa.Table.from_arrays([*columns, times, floats(batch.values)], schema=schema)


def _column(values: Sequence[str | None], owner: pa.Array) -> pa.Array:
    """A label of each sample; the distinct values stand once."""
    distinct = sorted({value for value in values if value is not None})
    number = {value: code for code, value in enumerate(distinct)}
    codes = [-1 if value is None else number[value] for value in values]
    there = pa.array([None if code < 0 else code for code in codes], pa.int32())
    return pa.DictionaryArray.from_arrays(there.take(owner), strings(distinct))


def _bytes(texts: pa.Array) -> bytes:
    _, offsets, raw = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return bytes(memoryview(raw)[ends[0] : ends[-1]]) if len(texts) else b""


def _line(cells: Sequence[str]) -> bytes:
    out = io.StringIO()
    csv.writer(out).writerow(cells)
    return out.getvalue().encode()


class _Sink(io.RawIOBase):
    """A file that is given away as it grows."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """How much was written in all."""
        return self._size

    def write(self, piece: Any) -> int:
        """More."""
        raw = bytes(piece)
        self._pieces.append(raw)
        self._size += len(raw)
        return len(raw)

    def taken(self) -> bytes:
        """What was written since this was last asked."""
        found, self._pieces = b"".join(self._pieces), []
        return found
