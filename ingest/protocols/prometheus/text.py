"""Reads Prometheus' text form (0.0.4) and OpenMetrics: the answer to a scrape, pushed.

    # TYPE http_requests_total counter
    http_requests_total{method="post",code="200"} 1027 1395066363000
    {"a name with dots", host="a"} 1.5

Times are ms, in OpenMetrics seconds; a sample without a time gets the server's. Each line of a histogram or summary is
a series of its own. Names may be quoted, as Prometheus 3 writes names beyond its old alphabet. A label without a value
is no label. Exemplars of OpenMetrics are kept; a bad one is left out and reported, and its sample kept. A bad line
rejects only itself. Enter by ``parse``.
"""

import math
import re
from dataclasses import dataclass, replace

import numpy as np

from ingest.protocols.common import naming, times
from ingest.protocols.common.exemplars import ExemplarCollector
from ingest.protocols.common.line_kernels import LINE, POSITION
from ingest.protocols.common.line_reader import LineReader, TimeRules
from ingest.protocols.common.over_quota_cache import OverQuotaCache
from ingest.protocols.common.series_cache import CacheGeneration, LabelPairs, SeriesCache
from ingest.protocols.common.series_kernels import KnownSeries
from ingest.protocols.influx.exact import DECIMAL, INFINITE_OR_NAN, excerpt
from ingest.protocols.prometheus.text_comments import read_metadata
from ingest.protocols.prometheus.text_kernels import read_text
from spm.arrays import I64, U8
from spm.limits import FUTURE_MS, LINE_BYTES_MAX, REJECTIONS_MAX
from spm.wire import Parsed, canonical

LINE_TOO_LONG = f"the line is longer than {LINE_BYTES_MAX} bytes"
NO_NAME = "the line does not begin with a metric's name"
BAD_LABELS = 'the labels are not name="value", …'
OPEN_LABELS = "the labels are not closed"
NO_VALUE = "no value follows the series"
NOT_A_VALUE = "the value is not a number, NaN, +Inf or -Inf"
TOO_LARGE = "the number does not fit a float64"
NOT_A_TIME = "the time is not a whole number of milliseconds"
NOT_SECONDS = "the time is not a number of seconds"
TRAILING = "something follows the value and its time"

_NAME = re.compile(rb"[A-Za-z_:][A-Za-z0-9_:]*+")
_LABEL = re.compile(rb'[ \t]*+(?:([A-Za-z_][A-Za-z0-9_.:-]*+)|"([^"\\]*+(?:\\.[^"\\]*+)*)")[ \t]*+')
_TEXT = re.compile(rb'[ \t]*+"([^"\\]*+(?:\\.[^"\\]*+)*)"[ \t]*+')
_WHOLE = re.compile(rb"-?[0-9]{1,20}")
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)
_ESCAPES = {b"n": b"\n", b"\\": b"\\", b'"': b'"'}
_ITEM = b"value"
_ITEM_BYTES: U8 = np.frombuffer(_ITEM, np.uint8)
_CACHE, _OVER_QUOTA_CACHE = SeriesCache(), OverQuotaCache()


class _Fault(Exception):
    """The reason for rejecting a line."""


@dataclass(frozen=True, slots=True)
class _Sample:
    """The sample of one line."""

    head: bytes
    metric: bytes
    labels: LabelPairs
    value: float
    time_ms: int | None
    exemplar: bytes


def is_open_metrics(content_type: str) -> bool:
    """Whether a media type is OpenMetrics, whose times are seconds."""
    return content_type.lower().lstrip().startswith("application/openmetrics-text")


def parse(
    body: bytes, *, now_ms: int, seconds: bool = False, over_quota: bool = False, cache: SeriesCache | None = None
) -> Parsed:
    """Returns all samples of a body, in its order. ``seconds``: the body is OpenMetrics.

    ``LimitExceeded``: the body holds more than one message may. ``over_quota``: the app has more series than its quota
    allows, so its names must not fill the common cache.
    """
    cache = cache or (_OVER_QUOTA_CACHE if over_quota else _CACHE)
    rules = TimeRules(now_ms=now_ms, times=1, per=1, latest_ms=now_ms + FUTURE_MS)
    reader = _TextReader(body if body.endswith(b"\n") else body + b"\n", rules, cache.generation(), seconds)
    reader.run()
    return reader.result()


class _TextReader(LineReader):
    """Reads one body of text."""

    def __init__(self, body: bytes, rules: TimeRules, generation: CacheGeneration, seconds: bool) -> None:
        super().__init__(body, rules, generation)
        self._seconds = seconds
        self._exemplars = ExemplarCollector(rules.now_ms)
        self._kernel_rules: I64 = np.array((*rules.for_kernel(), int(seconds)), np.int64)

    def result(self) -> Parsed:
        """Returns the samples, exemplars, metadata and rejections of the body."""
        parsed, metadata = super().result(), read_metadata(self._body)
        exemplars, notes = tuple(self._exemplars.exemplars), self._exemplars.rejections()
        if not metadata and not exemplars and not notes:
            return parsed
        rejections = (*parsed.rejections, *notes)[:REJECTIONS_MAX]
        return replace(parsed, metadata=metadata, exemplars=exemplars, rejections=rejections)

    def _read_plain(self, known: KnownSeries) -> int:
        columns = (self._series, self._ts, self._values)
        return int(read_text(self._bytes, _ITEM_BYTES, self._kernel_rules, known, self._state, *columns))

    def _read_exactly(self) -> None:
        start, number = int(self._state[POSITION]), int(self._state[LINE])
        end = self._body.index(b"\n", start)
        self._state[POSITION], self._state[LINE] = end + 1, number + 1
        line = self._body[start:end].strip(b" \t\r")
        if not line or line.startswith(b"#"):
            return
        try:
            one = _read_sample(line, self._rules, self._seconds)
        except _Fault as fault:
            self._reject(number, str(fault), excerpt(line))
            return
        if one.exemplar:
            self._add_exemplar(one)
        self._add_line(
            one.head, measurement=one.metric, labels=one.labels, names=[_ITEM], values=[one.value], time_ms=one.time_ms
        )

    def _add_exemplar(self, one: _Sample) -> None:
        try:
            labels, end = _read_exemplar_labels(one.exemplar)
            value, given = _read_value_and_time(one.exemplar[end:], self._rules, seconds=True)
        except _Fault as fault:
            self._exemplars.refuse(str(fault))
            return
        time_ms = given or one.time_ms or self._rules.now_ms
        form = canonical(one.metric.decode(), {name.decode(): text.decode() for name, text in one.labels})
        self._exemplars.add(form, time_ms, value, labels)


def _read_sample(line: bytes, rules: TimeRules, seconds: bool) -> _Sample:
    """Returns the sample of a line. It has a series, a value, and optionally a time and an exemplar, in this order."""
    if len(line) > LINE_BYTES_MAX:
        raise _Fault(LINE_TOO_LONG)
    metric, labels, end = _read_series(line)
    rest, _, exemplar = line[end:].partition(b" # ") if seconds else (line[end:], b"", b"")
    value, time_ms = _read_value_and_time(rest, rules, seconds)
    return _Sample(line[:end], metric, labels, value, time_ms, exemplar.lstrip(b" \t"))


def _read_value_and_time(raw: bytes, rules: TimeRules, seconds: bool) -> tuple[float, int | None]:
    parts = raw.split()
    if not parts:
        raise _Fault(NO_VALUE)
    if len(parts) > 2:
        raise _Fault(TRAILING)
    value = _read_value(parts[0])
    return value, _read_time(parts[1], rules, seconds) if len(parts) == 2 else None


def _read_exemplar_labels(exemplar: bytes) -> tuple[LabelPairs, int]:
    """Returns the labels of an exemplar, and where they end."""
    if exemplar[:1] != b"{":
        raise _Fault(BAD_LABELS)
    _, labels, end = _read_labels(exemplar, 1, b"exemplar")
    return labels, end


def _read_series(line: bytes) -> tuple[bytes, LabelPairs, int]:
    """Returns metric, labels, and where they end."""
    name = _NAME.match(line)
    metric, at = (name[0], name.end()) if name else (b"", 0)
    while line[at : at + 1] in (b" ", b"\t"):
        at += 1
    labels: LabelPairs = []
    if line[at : at + 1] == b"{":
        metric, labels, at = _read_labels(line, at + 1, metric)
    elif name is None:
        raise _Fault(NO_NAME)
    else:
        at = name.end()
        if at < len(line) and line[at] not in b" \t":
            raise _Fault(NO_NAME)
    if fault := naming.metric_fault(metric) or naming.labels_fault(labels):
        raise _Fault(fault)
    return metric, labels, at


def _read_labels(line: bytes, at: int, metric: bytes) -> tuple[bytes, LabelPairs, int]:
    """Returns metric, labels and end of a label list; a quoted text without ``=`` and ``__name__`` are the metric."""
    labels: LabelPairs = []
    while True:
        name = _LABEL.match(line, at)
        if name is None:
            at = _closing_end(line, at)
            return metric, labels, at
        text, at = name[1] if name[1] is not None else _unescape(name[2]), name.end()
        if line[at : at + 1] == b"=":
            value = _TEXT.match(line, at + 1)
            if value is None:
                raise _Fault(BAD_LABELS)
            at = value.end()
            if text == naming.METRIC_LABEL and not metric:
                metric = _unescape(value[1])
            elif value[1]:
                labels.append((text, _unescape(value[1])))
        elif name[1] is None and not metric:
            metric = text
        else:
            raise _Fault(BAD_LABELS)
        if line[at : at + 1] == b",":
            at += 1
        else:
            return metric, labels, _closing_end(line, at)


def _closing_end(line: bytes, at: int) -> int:
    """Returns the end of the closing brace, which must follow here."""
    while line[at : at + 1] in (b" ", b"\t"):
        at += 1
    if line[at : at + 1] != b"}":
        raise _Fault(OPEN_LABELS if at >= len(line) else BAD_LABELS)
    return at + 1


def _unescape(raw: bytes) -> bytes:
    return _ESCAPED.sub(lambda match: _ESCAPES.get(match[1], match[0]), raw) if b"\\" in raw else raw


def _read_value(raw: bytes) -> float:
    if DECIMAL.fullmatch(raw):
        value = float(raw)
        if not math.isfinite(value):
            raise _Fault(TOO_LARGE)
        return value
    if INFINITE_OR_NAN.fullmatch(raw):
        return float(raw)
    raise _Fault(NOT_A_VALUE)


def _read_time(raw: bytes, rules: TimeRules, seconds: bool) -> int:
    form, unit = (DECIMAL, "s") if seconds else (_WHOLE, "ms")
    if not form.fullmatch(raw):
        raise _Fault(NOT_SECONDS if seconds else NOT_A_TIME)
    ms = round(max(-1e20, min(float(raw), 1e20)) * 1_000) if seconds else int(raw)
    if ms < 1:
        raise _Fault(times.before_1970(ms, rules.now_ms, unit))
    if ms > rules.latest_ms:
        raise _Fault(times.too_far_ahead(ms, rules.now_ms, unit))
    return ms
