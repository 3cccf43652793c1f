"""Prometheus' remote write: the bytes of a request, decompressed, become a ``Parsed``.

Enter by ``parse`` for 1.0 (prometheus.WriteRequest) and ``parse_v2`` for 2.0 (io.prometheus.write.v2.Request).

- ``__name__`` is the metric. Labels may come in any order; one with an empty value is none, as in PromQL.
- Values keep their bits, so that markers of staleness stay such. Times are ms.
- Labels that break the rules refuse their series, a bad time its sample; bytes that are no protobuf refuse all.
- Exemplars and native histograms have no place here: they are counted and reported, never silently left out. Start
  times are read over: counters here have none.

The compiled kernels read what is known; only labels that are new to the process, and what is odd, are read in Python.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingest.protocols.common import naming
from ingest.protocols.common.over_quota_cache import OverQuotaCache
from ingest.protocols.common.protobuf import damaged, fields, texts
from ingest.protocols.common.protobuf_kernels import BYTES
from ingest.protocols.common.series_cache import Generation, SeriesCache, Tags, too_much, within_budget
from ingest.protocols.common.series_kernels import localise
from ingest.protocols.common.times import early, late
from ingest.protocols.influx.exact import example
from ingest.protocols.prometheus.remote_write_kernels import (
    EXEMPLARS,
    FAULT,
    FIRST,
    HELP,
    HISTOGRAMS,
    LAST,
    NO_SUCH_SYMBOL,
    NUMBER,
    ODD,
    ODD_COLUMNS,
    ODD_REFERENCES,
    PLACE,
    SAMPLES,
    SERIES,
    TEXTS,
    TOO_LONG,
    TOO_MANY,
    TOO_RICH,
    TYPE,
    UNIT,
    WHERE,
    Odd,
    Spans,
    measure,
    read_labelled,
    read_referring,
    read_spans,
)
from spm.arrays import F64, I32, I64, U8, U64
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
from spm.wire import Metadata, Parsed, Rejection, parse_canonical

NO_LABELS = "the series has no labels"
TOO_LONG_A_LABEL = f"a label's name or value is longer than {LABEL_VALUE_BYTES_MAX} bytes"
FAULTS = {
    ODD_REFERENCES: "a label's name has no value: an odd number of references to symbols",
    NO_SUCH_SYMBOL: "a label refers to a symbol that is not in the table",
    TOO_LONG: TOO_LONG_A_LABEL,
    TOO_MANY: naming.TOO_MANY_TAGS,
}
TYPES = ("unknown", "counter", "gauge", "histogram", "gaugehistogram", "summary", "info", "stateset")
_WHAT = {1: "a remote write request (prometheus.WriteRequest)", 2: "a request of remote write 2.0"}
_LABEL_BYTES_MAX = 2 * LABEL_VALUE_BYTES_MAX  # of one label as written: more is a value that is too long
_SERIES_BYTES_MAX = (LABELS_MAX + 1) * (2 * LABEL_VALUE_BYTES_MAX + 16)  # of one series, as 2.0 spells it out
_CACHE, _OVER_QUOTA_CACHE = SeriesCache(), OverQuotaCache()


def parse(body: bytes, *, now_ms: int, over_quota: bool = False, cache: SeriesCache | None = None) -> Parsed:
    """Returns all samples of a request of 1.0.

    ``BadMessage``: it is no such request; ``LimitExceeded``: it holds more than one may. ``over_quota``: the app has
    more series than its quota allows; its names must not fill the common cache. Native histograms and exemplars stand
    among the rejections; histograms are counted as rejected, too, as each is a sample that is lost.
    """
    return _read(body, 1, now_ms, (cache or (_OVER_QUOTA_CACHE if over_quota else _CACHE)).generation())


def parse_v2(body: bytes, *, now_ms: int, over_quota: bool = False, cache: SeriesCache | None = None) -> Parsed:
    """Returns all samples of a request of 2.0, with the arguments and errors of ``parse``."""
    return _read(body, 2, now_ms, (cache or (_OVER_QUOTA_CACHE if over_quota else _CACHE)).generation())


class _Columns(NamedTuple):
    """What the kernels fill: numbers of series, times and bits of values by sample; first samples by series."""

    series: I32
    ts: I64
    bits: U64
    offsets: I64
    odd: Odd
    text: U8


def _read(body: bytes, version: int, now_ms: int, generation: Generation) -> Parsed:
    raw = np.frombuffer(body, np.uint8)
    counts: I64 = np.zeros(4, np.int64)
    fault = measure(raw, 1, 3, counts) if version == 1 else measure(raw, 5, 4, counts)
    _check(fault, int(counts[WHERE]), version)
    for count, most, what in (
        (counts[SAMPLES], MESSAGE_SAMPLES_MAX, "samples"),
        (counts[SERIES], MESSAGE_SERIES_MAX, "series"),
    ):
        if count > most:
            raise too_much(f"{what} in one body", most)
    columns = _room(counts, len(body) if version == 1 else MESSAGE_SERIES_BYTES_MAX)
    state: I64 = np.zeros(3, np.int64)
    known = generation.view()
    series, ts, bits, offsets, odd, text = columns
    told = int(counts[TEXTS])
    spans: Spans = np.empty((min(told, METADATA_MESSAGE_MAX) if version == 1 else told, 2), np.int64)
    read_spans(raw, 3 if version == 1 else 4, spans)
    if version == 1:
        fault = read_labelled(raw, known, state, text, odd, series, ts, bits, offsets)
    else:
        refs: U64 = np.empty(2 * LABELS_MAX + 3, np.uint64)
        limits: I64 = np.array([LABEL_VALUE_BYTES_MAX, _SERIES_BYTES_MAX, SPELT_BYTES_MAX], np.int64)
        fault = read_referring(raw, known, spans, refs, limits, state, text, odd, series, ts, bits, offsets)
    if fault == TOO_RICH:
        raise too_much("bytes of labels in one body", MESSAGE_SERIES_BYTES_MAX)
    _check(fault, 0, version)
    reading = _Reading(body, version, spans, columns, generation)
    for row in odd[: state[ODD]]:
        reading.take(row)
    if version == 1:
        reading.metadata += (one for span in spans for one in _told(body[span[0] : span[1]]))
    return reading.parsed(now_ms)


def _room(counts: I64, text_bytes: int) -> _Columns:
    samples, series = int(counts[SAMPLES]), int(counts[SERIES])
    return _Columns(
        series=np.empty(samples, np.int32),
        ts=np.empty(samples, np.int64),
        bits=np.empty(samples, np.uint64),
        offsets=np.empty(series + 1, np.int64),
        odd=np.empty((series, ODD_COLUMNS), np.int64),
        text=np.empty(text_bytes, np.uint8),
    )


def _check(fault: int, where: int, version: int) -> None:
    if fault < 0:
        raise damaged(fault, where, _WHAT[version])


class _Reading:
    """What the kernels left to Python: series that are new, and whatever is not a plain sample."""

    def __init__(self, body: bytes, version: int, symbols: Spans, columns: _Columns, generation: Generation) -> None:
        self._body, self._version, self._symbols = body, version, symbols
        self._columns, self._generation = columns, generation
        self._budget = MESSAGE_SERIES_BYTES_MAX
        self._met: dict[bytes, tuple[int, str | None]] = {}  # labels as written → number, or a reason
        self._rejections: list[Rejection] = []
        self._rejected = 0
        self.metadata: list[Metadata] = []

    def take(self, row: I64) -> None:
        """One odd row: find its series, tell what of it has no place here."""
        start, end = (int(n) for n in self._columns.offsets[row[PLACE] : row[PLACE] + 2])
        raw, number, fault = b"", int(row[NUMBER]), FAULTS.get(int(row[FAULT]))
        if number < 0:
            raw = self._columns.text[row[FIRST] : row[LAST]].tobytes()
            if fault is None:
                number, fault = self._number(raw, row)
            self._columns.series[start:end] = number
        place, histograms, exemplars = int(row[PLACE]) + 1, int(row[HISTOGRAMS]), int(row[EXEMPLARS])
        if fault is not None:
            self._reject(place, fault, _spelt(raw), max(end - start + histograms, 1))
            return
        shown = self._shown(number) if histograms or exemplars else ""
        if histograms:
            self._reject(place, f"{histograms} native histograms: not supported, send classic ones", shown, histograms)
        if exemplars:
            self._reject(place, f"{exemplars} exemplars: not supported, the series' samples are kept", shown, 0)

    def parsed(self, now_ms: int) -> Parsed:
        """Returns the samples of the request that are not rejected."""
        columns = self._columns
        offsets = columns.offsets
        good = columns.series >= 0
        for wrong, worded in ((columns.ts < 1, early), (columns.ts > now_ms + FUTURE_MS, late)):
            if (wrong & good).any():
                self._refuse_times(np.flatnonzero(wrong & good), worded, now_ms)
                good &= ~wrong
        if good.all():
            series, ts, bits = columns.series, columns.ts, columns.bits
        else:
            series, ts, bits = columns.series[good], columns.ts[good], columns.bits[good]
        values: F64 = bits.view(np.float64)
        table = self._generation.table(localised(series, self._generation))
        within_budget(MESSAGE_SERIES_BYTES_MAX - int((table.ends - table.starts).sum()))
        return Parsed(
            series=table,
            series_index=series,
            ts=ts,
            values=values,
            rejections=tuple(self._rejections),
            rejected=self._rejected,
            metadata=tuple(self.metadata[:METADATA_MESSAGE_MAX]),
            places=lambda rows: _places(offsets, np.flatnonzero(good)[rows]).tolist(),
        )

    def _number(self, raw: bytes, row: I64) -> tuple[int, str | None]:
        """The number of the series with these labels, or -1 and why there is none."""
        found = self._met.get(raw)
        if found is not None:
            return found
        tags, fault = _labels(raw, _WHAT[self._version])
        number = -1
        if fault is None:
            metric = next(value for name, value in tags if name == naming.METRIC_LABEL)
            rest = [tag for tag in tags if tag[0] != naming.METRIC_LABEL]
            number, self._budget = self._generation.enter(raw, b"", metric=metric, tags=rest, budget=self._budget)
            self._describe(metric, row)
        self._met[raw] = number, fault
        return number, fault

    def _describe(self, metric: bytes, row: I64) -> None:
        """Keep what a new series of 2.0 says about its metric."""
        kind, told = int(row[TYPE]), (self._symbol(int(row[HELP])), self._symbol(int(row[UNIT])))
        if self._version == 2 and (kind or any(told)) and len(self.metadata) < METADATA_MESSAGE_MAX:
            self.metadata.append(_metadata(metric, kind, *told))

    def _symbol(self, number: int) -> bytes:
        if not 0 < number < len(self._symbols):
            return b""
        start, end = self._symbols[number]
        return self._body[start : min(end, start + 4 * METADATA_HELP_CHARS_MAX)]

    def _shown(self, number: int) -> str:
        """A known series for people."""
        metric, labels = parse_canonical(self._generation.form(number))
        return example(shown_series(metric, labels).encode())

    def _reject(self, place: int, reason: str, shown: str, count: int) -> None:
        self._rejected += count
        if len(self._rejections) < REJECTIONS_MAX:
            self._rejections.append(Rejection(place, reason, shown))

    def _refuse_times(self, at: NDArray[np.intp], worded: Callable[[int, int], str], now_ms: int) -> None:
        """One rejection for each series with samples whose times cannot be, which stand ``at`` these rows."""
        places, firsts, counts = np.unique(_places(self._columns.offsets, at), return_index=True, return_counts=True)
        self._rejected += len(at)
        for place, first, count in zip(places, at[firsts], counts, strict=True):
            if len(self._rejections) >= REJECTIONS_MAX:
                return
            reason = (
                f"{count} samples, from {self._columns.ts[first]} ms: {worded(int(self._columns.ts[first]), now_ms)}"
            )
            self._rejections.append(Rejection(int(place), reason, self._shown(int(self._columns.series[first]))))


def _places(offsets: I64, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """The number of the series, from 1, in which each of these samples stands."""
    return np.searchsorted(offsets, rows, "right")


def localised(series: I32, generation: Generation) -> I32:
    """Replace the cache's numbers by places in the message's own table; the numbers in that order."""
    marks = generation.borrow_marks()
    found: I32 = np.empty(min(len(series), marks.size), np.int32)
    count = int(localise(series, marks, found))
    generation.return_marks(marks)
    return found[:count]


def shown_series(metric: str, labels: Mapping[str, str]) -> str:
    """A series for people, as PromQL writes it but for escapes."""
    return metric + "{" + ", ".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def _spelt(raw: bytes) -> str:
    """Labels that could not be taken, as far as they can be read."""
    tags, _ = _labels(raw, "labels")
    return example(b"{" + b", ".join(name + b'="' + value + b'"' for name, value in tags) + b"}")


def _labels(raw: bytes, what: str) -> tuple[Tags, str | None]:
    """The labels of a series without those that have no value, and why they cannot be taken."""
    plain = _plain_labels(raw)
    if plain is not None:
        return [tag for tag in plain if tag[1]], _fault(plain)
    tags: Tags = []
    for number, form, value in fields(raw, what):
        if number == 1 and form == BYTES and isinstance(value, bytes):
            if len(value) > _LABEL_BYTES_MAX:
                return tags, TOO_LONG_A_LABEL
            label = texts(value, what)
            tags.append((label.get(1, b""), label.get(2, b"")))
        if len(tags) > LABELS_MAX + 1:
            return tags, naming.TOO_MANY_TAGS
    return [tag for tag in tags if tag[1]], _fault(tags)


def _plain_labels(raw: bytes) -> Tags | None:
    """Labels as nearly all encoders write them, each of name and value below 128 bytes; ``None`` for any other form."""
    tags: Tags = []
    at, size = 0, len(raw)
    while at + 5 < size and len(tags) <= LABELS_MAX:
        end, middle = at + 2 + raw[at + 1], at + 4 + raw[at + 3]
        if raw[at] != 10 or raw[at + 2] != 10 or raw[at + 1] > 127 or end > size or middle + 1 >= end:
            return None
        if raw[middle] != 18 or middle + 2 + raw[middle + 1] != end:
            return None
        tags.append((raw[at + 4 : middle], raw[middle + 2 : end]))
        at = end
    return tags if at == size else None


def _fault(tags: Tags) -> str | None:
    if not tags:
        return NO_LABELS
    if len({name for name, _ in tags}) < len(tags):
        return naming.TAG_TWICE
    metric = next((value for name, value in tags if name == naming.METRIC_LABEL), b"")
    return naming.metric_fault(metric) or naming.tags_fault(
        [tag for tag in tags if tag[1] and tag[0] != naming.METRIC_LABEL]
    )


def _told(raw: bytes) -> Iterator[Metadata]:
    """What one message of metadata of 1.0 says, if it is about a metric that can be."""
    kinds = [n for field, _, n in islice(fields(raw, _WHAT[1]), 16) if field == 1 and isinstance(n, int)]
    told = texts(raw, _WHAT[1])
    if naming.metric_fault(told.get(2, b"")) is None:
        yield _metadata(told[2], kinds[-1] if kinds else 0, told.get(4, b""), told.get(5, b""))


def _metadata(metric: bytes, kind: int, text: bytes, unit: bytes) -> Metadata:
    words: Sequence[str] = [part.decode("utf-8", "replace")[:METADATA_HELP_CHARS_MAX] for part in (metric, text, unit)]
    return Metadata(words[0], TYPES[kind] if kind < len(TYPES) else TYPES[0], words[1], words[2])
