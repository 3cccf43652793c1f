"""Reads Prometheus' remote write: the decompressed bytes of a request become a ``Parsed``.

Enter by ``parse`` for 1.0 (prometheus.WriteRequest) and ``parse_v2`` for 2.0 (io.prometheus.write.v2.Request).

- ``__name__`` is the metric. Labels may be in any order; a label with an empty value is no label, as in PromQL.
- Values keep their bits, so that staleness markers are preserved. Times are ms.
- Bad labels reject their series, a bad time rejects its sample; bytes that are no protobuf reject the request.
- Native histograms become classic ones (``native_histograms``). Exemplars are kept (``remote_write_exemplars``); those
  that cannot be are counted and reported. Start times are ignored, because counters here have none.

The compiled kernels read known series. Python reads only labels that are new to the process, exemplars and histograms.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingest.protocols.common import naming
from ingest.protocols.common.exemplars import ExemplarCollector
from ingest.protocols.common.over_quota_cache import OverQuotaCache
from ingest.protocols.common.protobuf import damage_error, read_byte_fields, read_fields
from ingest.protocols.common.protobuf_kernels import BYTES
from ingest.protocols.common.series_cache import CacheGeneration, LabelPairs, SeriesCache, limit_error
from ingest.protocols.common.times import before_1970, too_far_ahead
from ingest.protocols.influx.exact import excerpt
from ingest.protocols.prometheus.native_histograms import NativeSamples, name_fault, read_native
from ingest.protocols.prometheus.remote_write_exemplars import read_exemplars
from ingest.protocols.prometheus.remote_write_kernels import (
    EARLIEST,
    EXEMPLARS,
    FAULT,
    FIRST,
    HELP,
    HISTOGRAMS,
    LAST,
    LATEST,
    NO_SUCH_SYMBOL,
    NUMBER,
    ODD_REFERENCES,
    PLACE,
    SAMPLES,
    SERIES,
    SPECIAL,
    SPECIAL_COLUMNS,
    STATES,
    TEXTS,
    TOO_LONG,
    TOO_MANY,
    TOO_MANY_BYTES,
    TYPE,
    UNIT,
    WHERE,
    Spans,
    SpecialRows,
    measure,
    read_labelled,
    read_referring,
    read_spans,
)
from spm.arrays import BOOL, F64, I32, I64, U8, U64
from spm.limits import (
    FUTURE_MS,
    LABEL_VALUE_BYTES_MAX,
    LABELS_MAX,
    MESSAGE_SAMPLES_MAX,
    MESSAGE_SERIES_BYTES_MAX,
    MESSAGE_SERIES_MAX,
    METADATA_HELP_CHARS_MAX,
    METADATA_MESSAGE_MAX,
    REJECTIONS_MAX,
    SPELT_BYTES_MAX,
)
from spm.wire import Exemplar, Metadata, Parsed, Rejection, parse_canonical

NO_LABELS = "the series has no labels"
TOO_LONG_A_LABEL = f"a label's name or value is longer than {LABEL_VALUE_BYTES_MAX} bytes"
FAULTS = {
    ODD_REFERENCES: "a label's name has no value: an odd number of references to symbols",
    NO_SUCH_SYMBOL: "a label refers to a symbol that is not in the table",
    TOO_LONG: TOO_LONG_A_LABEL,
    TOO_MANY: naming.TOO_MANY_LABELS,
}
TYPES = ("unknown", "counter", "gauge", "histogram", "gaugehistogram", "summary", "info", "stateset")
_WHAT = {1: "a remote write request (prometheus.WriteRequest)", 2: "a request of remote write 2.0"}
_LABEL_BYTES_MAX = 2 * LABEL_VALUE_BYTES_MAX  # of one encoded label: a longer one has a value that is too long
_SERIES_BYTES_MAX = (LABELS_MAX + 1) * (
    2 * LABEL_VALUE_BYTES_MAX + 16
)  # of one series of 2.0 with its symbols resolved
_CACHE, _OVER_QUOTA_CACHE = SeriesCache(), OverQuotaCache()


def parse(body: bytes, *, now_ms: int, over_quota: bool = False, cache: SeriesCache | None = None) -> Parsed:
    """Returns all samples of a request of 1.0.

    ``BadMessage``: it is no such request; ``LimitExceeded``: it holds more than one message may. ``over_quota``: the
    app has more series than its quota allows, so its names must not fill the common cache. Rejections report exemplars
    that are left out, which do not count as rejected: the samples beside them are stored.
    """
    return _read(body, 1, now_ms, (cache or (_OVER_QUOTA_CACHE if over_quota else _CACHE)).generation())


def parse_v2(body: bytes, *, now_ms: int, over_quota: bool = False, cache: SeriesCache | None = None) -> Parsed:
    """Returns all samples of a request of 2.0, with the arguments and errors of ``parse``."""
    return _read(body, 2, now_ms, (cache or (_OVER_QUOTA_CACHE if over_quota else _CACHE)).generation())


class _Columns(NamedTuple):
    """The arrays that the kernels fill: series numbers, times and value bits per sample; first samples per series."""

    series: I32
    ts: I64
    bits: U64
    offsets: I64
    special: SpecialRows
    text: U8


def _read(body: bytes, version: int, now_ms: int, generation: CacheGeneration) -> Parsed:
    raw = np.frombuffer(body, np.uint8)
    counts: I64 = np.zeros(4, np.int64)
    fault = measure(raw, 1, 3, counts) if version == 1 else measure(raw, 5, 4, counts)
    _check_fault(fault, int(counts[WHERE]), version)
    for count, most, what in (
        (counts[SAMPLES], MESSAGE_SAMPLES_MAX, "samples"),
        (counts[SERIES], MESSAGE_SERIES_MAX, "series"),
    ):
        if count > most:
            raise limit_error(f"{what} in one body", most)
    columns = _allocate(counts, len(body) if version == 1 else MESSAGE_SERIES_BYTES_MAX)
    state: I64 = np.zeros(STATES, np.int64)
    known = generation.view()
    series, ts, bits, offsets, special, text = columns
    text_count = int(counts[TEXTS])
    spans: Spans = np.empty((min(text_count, METADATA_MESSAGE_MAX) if version == 1 else text_count, 2), np.int64)
    if len(spans):
        read_spans(raw, 3 if version == 1 else 4, spans)
    if version == 1:
        fault = read_labelled(raw, known, state, text, special, series, ts, bits, offsets)
    else:
        refs: U64 = np.empty(2 * LABELS_MAX + 3, np.uint64)
        limits: I64 = np.array([LABEL_VALUE_BYTES_MAX, _SERIES_BYTES_MAX, SPELT_BYTES_MAX], np.int64)
        fault = read_referring(raw, known, spans, refs, limits, state, text, special, series, ts, bits, offsets)
    if fault == TOO_MANY_BYTES:  # of labels with their symbols resolved
        raise limit_error("bytes of labels in one body", MESSAGE_SERIES_BYTES_MAX)
    _check_fault(fault, 0, version)
    reader = _RemoteWriteReader(body, version, spans, columns, generation)
    reader.read_special(special[: state[SPECIAL]].tolist())
    reader.read_native(raw, now_ms)
    reader.read_exemplars(raw, now_ms)
    if version == 1:
        reader.metadata += (one for span in spans for one in _read_metadata(body[span[0] : span[1]]))
    if not state[SPECIAL] and state[EARLIEST] >= 1 and state[LATEST] <= now_ms + FUTURE_MS:
        return reader.result(None)
    return reader.result(reader.good_rows(now_ms))


def _allocate(counts: I64, text_bytes: int) -> _Columns:
    samples, series = int(counts[SAMPLES]), int(counts[SERIES])
    return _Columns(
        series=np.empty(samples, np.int32),
        ts=np.empty(samples, np.int64),
        bits=np.empty(samples, np.uint64),
        offsets=np.empty(series + 1, np.int64),
        special=np.empty((series, SPECIAL_COLUMNS), np.int64),
        text=np.empty(text_bytes, np.uint8),
    )


def _check_fault(fault: int, where: int, version: int) -> None:
    if fault < 0:
        raise damage_error(fault, where, _WHAT[version])


class _RemoteWriteReader:
    """Reads the series that the kernels leave to Python: new series, and series with exemplars or histograms."""

    def __init__(
        self, body: bytes, version: int, symbols: Spans, columns: _Columns, generation: CacheGeneration
    ) -> None:
        self._body, self._version, self._symbols = body, version, symbols
        self._columns, self._generation = columns, generation
        self._budget = MESSAGE_SERIES_BYTES_MAX
        self._resolved: dict[bytes, tuple[int, str | None]] = {}  # encoded labels → series number, or a fault
        self._rejections: list[Rejection] = []
        self._rejected = 0
        self._with_histograms: dict[int, int] = {}  # series number by place
        self._with_exemplars: dict[int, tuple[bytes, int]] = {}  # canonical form and count by place
        self._exemplars: tuple[Exemplar, ...] = ()
        self._native: NativeSamples | None = None
        self.metadata: list[Metadata] = []

    def read_special(self, rows: list[list[int]]) -> None:
        """Read special rows: resolve the series of each, and report what is not supported."""
        offsets = self._columns.offsets.tolist() if rows else []
        for row in rows:
            self._read_special(row, *offsets[row[PLACE] : row[PLACE] + 2])

    def read_native(self, raw: U8, now_ms: int) -> None:
        """Read the histograms of the series that have some."""
        if self._with_histograms:
            self._native, self._budget = read_native(
                raw,
                self._version,
                self._with_histograms,
                self._generation,
                self._budget,
                now_ms,
                lambda place, reason, count: self._reject(
                    place + 1, reason, self._shown(self._with_histograms[place]), count
                ),
            )

    def read_exemplars(self, raw: U8, now_ms: int) -> None:
        """Read the exemplars of the series that have some."""
        if self._with_exemplars:
            collector = ExemplarCollector(now_ms)
            read_exemplars(raw, self._version, self._with_exemplars, self._whole_symbol, collector)
            self._exemplars = tuple(collector.exemplars)
            self._rejections += collector.rejections()[: REJECTIONS_MAX - len(self._rejections)]

    def _read_special(self, row: list[int], start: int, end: int) -> None:
        raw, number, fault = b"", row[NUMBER], FAULTS.get(row[FAULT])
        if number < 0:
            raw = self._columns.text[row[FIRST] : row[LAST]].tobytes()
            if fault is None:
                number, fault = self._number(raw, row)
            self._columns.series[start:end] = number
        place, histograms, exemplars = row[PLACE] + 1, row[HISTOGRAMS], row[EXEMPLARS]
        if fault is not None:
            self._reject(place, fault, _format_labels(raw), max(end - start + histograms, 1))
            return
        if histograms and (fault := name_fault(*parse_canonical(self._generation.canonical(number)))):
            self._reject(place, fault, self._shown(number), histograms)
        elif histograms:
            self._with_histograms[row[PLACE]] = number
        if exemplars:
            self._with_exemplars[row[PLACE]] = self._generation.canonical(number), exemplars

    def good_rows(self, now_ms: int) -> BOOL | None:
        """Returns which samples are not rejected; ``None`` for all."""
        series, ts = self._columns[:2]
        good = series >= 0
        for wrong, describe in ((ts < 1, before_1970), (ts > now_ms + FUTURE_MS, too_far_ahead)):
            if (wrong & good).any():
                self._reject_times(np.flatnonzero(wrong & good), describe, now_ms)
                good &= ~wrong
        return None if good.all() else good

    def result(self, good: BOOL | None) -> Parsed:
        """Returns these samples of the request."""
        series, ts, bits, offsets = self._columns[:4]
        if good is not None:
            series, ts, bits = series[good], ts[good], bits[good]
        native = self._native
        if native is not None:
            series, ts = np.concatenate((series, native.series)), np.concatenate((ts, native.ts))
            bits = np.concatenate((bits, native.bits))
            if len(ts) > MESSAGE_SAMPLES_MAX:
                raise limit_error("samples in one body", MESSAGE_SAMPLES_MAX)
        values: F64 = bits.view(np.float64)
        return Parsed(
            series=self._generation.message_table(series),
            series_index=series,
            ts=ts,
            values=values,
            rejections=tuple(self._rejections),
            rejected=self._rejected,
            metadata=tuple(self.metadata[:METADATA_MESSAGE_MAX]),
            histograms=native.histograms if native is not None else 0,
            histogram_samples=len(native.ts) if native is not None else 0,
            exemplars=self._exemplars,
            places=lambda rows: _places_of(np.asarray(rows, np.intp), offsets, good, native),
        )

    def _number(self, raw: bytes, row: list[int]) -> tuple[int, str | None]:
        """Returns the number of the series with these labels, or -1 and the fault."""
        resolved = self._resolved.get(raw)
        if resolved is not None:
            return resolved
        labels, fault = _read_labels(raw, _WHAT[self._version])
        number = -1
        if fault is None:
            metric = next(value for name, value in labels if name == naming.METRIC_LABEL)
            rest = [label for label in labels if label[0] != naming.METRIC_LABEL]
            number, self._budget = self._generation.resolve_field(
                raw, b"", metric=metric, labels=rest, budget=self._budget
            )
            self._describe(metric, row)
        self._resolved[raw] = number, fault
        return number, fault

    def _describe(self, metric: bytes, row: list[int]) -> None:
        """Store the metadata that a new series of 2.0 has about its metric."""
        if self._version != 2:
            return
        kind, texts = row[TYPE], (self._symbol(row[HELP]), self._symbol(row[UNIT]))
        if (kind or any(texts)) and len(self.metadata) < METADATA_MESSAGE_MAX:
            self.metadata.append(_metadata(metric, kind, *texts))

    def _symbol(self, number: int) -> bytes:
        if not 0 < number < len(self._symbols):
            return b""
        start, end = self._symbols[number]
        return self._body[start : min(end, start + 4 * METADATA_HELP_CHARS_MAX)]

    def _whole_symbol(self, number: int) -> bytes | None:
        if not 0 <= number < len(self._symbols):
            return None
        start, end = self._symbols[number]
        return self._body[start:end]

    def _shown(self, number: int) -> str:
        """Returns a known series as text for people."""
        metric, labels = parse_canonical(self._generation.canonical(number))
        return excerpt(format_series(metric, labels).encode())

    def _reject(self, place: int, reason: str, shown: str, count: int) -> None:
        self._rejected += count
        if len(self._rejections) < REJECTIONS_MAX:
            self._rejections.append(Rejection(place, reason, shown))

    def _reject_times(self, rows: NDArray[np.intp], describe: Callable[[int, int], str], now_ms: int) -> None:
        """Add one rejection for each series that has samples with bad times in these rows."""
        series = _series_places(self._columns.offsets, rows)
        places, firsts, counts = np.unique(series, return_index=True, return_counts=True)
        self._rejected += len(rows)
        for place, first, count in zip(places, rows[firsts], counts, strict=True):
            if len(self._rejections) >= REJECTIONS_MAX:
                return
            first_ms = int(self._columns.ts[first])
            reason = f"{count} samples, from {first_ms} ms: {describe(first_ms, now_ms)}"
            self._rejections.append(Rejection(int(place), reason, self._shown(int(self._columns.series[first]))))


def _series_places(offsets: I64, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Returns the number of the series, from 1, of each of these samples."""
    return np.searchsorted(offsets, rows, "right")


def _places_of(rows: NDArray[np.intp], offsets: I64, good: BOOL | None, native: NativeSamples | None) -> list[int]:
    """Returns the number of the series, from 1, of each of these stored samples; those of histograms come last."""
    stored = np.arange(offsets[-1]) if good is None else np.flatnonzero(good)
    plain = rows[rows < len(stored)]
    places: list[int] = _series_places(offsets, stored[plain]).tolist()
    if native is not None:
        places += (native.places[rows[rows >= len(stored)] - len(stored)] + 1).tolist()
    return places


def format_series(metric: str, labels: Mapping[str, str]) -> str:
    """Returns a series for people, as PromQL writes it, without escapes."""
    return metric + "{" + ", ".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def _format_labels(raw: bytes) -> str:
    """Returns rejected labels as text for people, as far as they can be read."""
    labels, _ = _read_labels(raw, "labels")
    return excerpt(b"{" + b", ".join(name + b'="' + value + b'"' for name, value in labels) + b"}")


def _read_labels(raw: bytes, what: str) -> tuple[LabelPairs, str | None]:
    """Returns the labels of a series that have a value, and the fault if there is one."""
    plain = _plain_labels(raw)
    if plain is not None:
        return [label for label in plain if label[1]], _labels_fault(plain)
    labels: LabelPairs = []
    for number, wire_type, value in read_fields(raw, what):
        if number == 1 and wire_type == BYTES and isinstance(value, bytes):
            if len(value) > _LABEL_BYTES_MAX:
                return labels, TOO_LONG_A_LABEL
            pair = read_byte_fields(value, what)
            labels.append((pair.get(1, b""), pair.get(2, b"")))
        if len(labels) > LABELS_MAX + 1:
            return labels, naming.TOO_MANY_LABELS
    return [label for label in labels if label[1]], _labels_fault(labels)


def _plain_labels(raw: bytes) -> LabelPairs | None:
    """Returns labels in the form of nearly all encoders, each below 128 bytes; ``None`` for any other form."""
    labels: LabelPairs = []
    at, size = 0, len(raw)
    while at + 5 < size and len(labels) <= LABELS_MAX:
        end, middle = at + 2 + raw[at + 1], at + 4 + raw[at + 3]
        if raw[at] != 10 or raw[at + 2] != 10 or raw[at + 1] > 127 or end > size or middle + 1 >= end:
            return None
        if raw[middle] != 18 or middle + 2 + raw[middle + 1] != end:
            return None
        labels.append((raw[at + 4 : middle], raw[middle + 2 : end]))
        at = end
    return labels if at == size else None


def _labels_fault(labels: LabelPairs) -> str | None:
    if not labels:
        return NO_LABELS
    if len({name for name, _ in labels}) < len(labels):
        return naming.LABEL_REPEATED
    metric = next((value for name, value in labels if name == naming.METRIC_LABEL), b"")
    return naming.metric_fault(metric) or naming.labels_fault(
        [label for label in labels if label[1] and label[0] != naming.METRIC_LABEL]
    )


def _read_metadata(raw: bytes) -> Iterator[Metadata]:
    """Yields the metadata of one message of 1.0, if the name of its metric is valid."""
    kinds = [n for field, _, n in islice(read_fields(raw, _WHAT[1]), 16) if field == 1 and isinstance(n, int)]
    texts = read_byte_fields(raw, _WHAT[1])
    if naming.metric_fault(texts.get(2, b"")) is None:
        yield _metadata(texts[2], kinds[-1] if kinds else 0, texts.get(4, b""), texts.get(5, b""))


def _metadata(metric: bytes, kind: int, text: bytes, unit: bytes) -> Metadata:
    texts: Sequence[str] = [part.decode("utf-8", "replace")[:METADATA_HELP_CHARS_MAX] for part in (metric, text, unit)]
    return Metadata(texts[0], TYPES[kind] if kind < len(TYPES) else TYPES[0], texts[1], texts[2])
