"""Reads OTLP's metrics over HTTP: the bytes of a request, protobuf or JSON, become a ``Parsed``.

Enter by ``parse``. docs/reference/protocols.md says which metric has which series.

- A gauge or a sum is one series; the name of a monotonic sum ends in ``_total``.
- Sums and histograms of delta temporality are stored unchanged and never added up; their series have the label
  ``__type__="delta"``, so that ``increase`` of them is their sum.
- Histograms become classic histograms; exponential ones have at most four buckets per power of two.
- A data point is stored completely or rejected completely. Exemplars are kept, or counted with the reason why not.

Compiled loops read known series; Python reads only series that are new to the process. JSON is converted to protobuf.
"""

import struct
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingest.protocols.common import naming
from ingest.protocols.common.exemplars import ExemplarCollector
from ingest.protocols.common.histogram_kernels import (
    BUCKET_ROLE,
    COUNT_ROLE,
    MAX_ROLE,
    MIN_ROLE,
    QUANTILE_ROLE,
    SUM_ROLE,
    TARGET_ROLE,
)
from ingest.protocols.common.over_quota_cache import OverQuotaCache
from ingest.protocols.common.protobuf import damage_error
from ingest.protocols.common.series_cache import CacheGeneration, SeriesCache, limit_error
from ingest.protocols.common.times import before_1970, too_far_ahead
from ingest.protocols.influx.exact import excerpt
from ingest.protocols.otlp import labels as otlp_labels
from ingest.protocols.otlp.answers import PROTOBUF, is_json
from ingest.protocols.otlp.exemplars import read_exemplars
from ingest.protocols.otlp.json_form import to_protobuf
from ingest.protocols.otlp.kernels import (
    CONTEXT,
    CONTEXT_TEXT,
    CONTEXT_TEXT_END,
    COUNT,
    DELTA,
    EXEMPLARS,
    FAULTY,
    FIRST_POINT,
    FULL,
    GAUGE,
    HELP,
    KIND,
    MONOTONIC,
    NAME,
    NEW_COUNT,
    RESOURCE,
    ROW_COLUMNS,
    SCHEMA,
    SCOPE,
    STATES,
    SUM,
    SUMMARY,
    UNIT,
    WHERE,
    Rows,
    count_metrics,
    list_metrics,
)
from ingest.protocols.otlp.labels import WHAT, ResourceLabels, format_number
from ingest.protocols.otlp.names import metric_name, unit_name
from ingest.protocols.otlp.point_kernels import (
    FAULTS,
    NEW_BITS,
    NEW_COLUMNS,
    NEW_HEAD,
    NEW_HEAD_END,
    NEW_ROLE,
    NEW_ROW,
    NEW_SAMPLE,
    NOTHING,
    TABLE_ROWS,
    read_points,
)
from spm.arrays import I32, I64, U8, U64
from spm.limits import (
    FUTURE_MS,
    MESSAGE_SAMPLES_MAX,
    MESSAGE_SERIES_BYTES_MAX,
    MESSAGE_SERIES_MAX,
    METADATA_HELP_CHARS_MAX,
    METADATA_MESSAGE_MAX,
    REJECTIONS_MAX,
)
from spm.wire import Exemplar, Metadata, Parsed, Rejection

NO_NAME = "the metric has no name that can be used"
_ENDINGS = {BUCKET_ROLE: "_bucket", SUM_ROLE: "_sum", COUNT_ROLE: "_count", MIN_ROLE: "_min", MAX_ROLE: "_max"}
_EDGES = {BUCKET_ROLE: "le", QUANTILE_ROLE: "quantile"}
_SINGLE = {GAUGE, SUM}  # kinds whose points have one sample; those of the others may have very many
_DELTA = 1  # the temporality's number
_CACHE, _OVER_QUOTA_CACHE = SeriesCache(), OverQuotaCache()


def parse(
    body: bytes,
    content_type: str = PROTOBUF,
    *,
    now_ms: int,
    over_quota: bool = False,
    cache: SeriesCache | None = None,
) -> Parsed:
    """Returns all samples of a request; its rejections are counted in data points.

    ``BadMessage``: it is no such request; ``LimitExceeded``: it holds more than one message may. ``over_quota``: the
    app has more series than its quota allows, so its names must not fill the common cache.
    """
    if is_json(content_type):
        body = to_protobuf(body)
    generation = (cache or (_OVER_QUOTA_CACHE if over_quota else _CACHE)).generation()
    return _OtlpReader(body, generation, now_ms).result()


class _Columns(NamedTuple):
    series: I32
    ts: I64
    bits: U64
    points: I32  # the place of each sample's point in the body, from 0

    def where(self, rows: NDArray[np.intp] | slice) -> "_Columns":
        """Returns these samples only."""
        return _Columns(self.series[rows], self.ts[rows], self.bits[rows], self.points[rows])


class _OtlpReader:
    """Reads one request."""

    def __init__(self, body: bytes, generation: CacheGeneration, now_ms: int) -> None:
        self._body, self._raw = body, np.frombuffer(body, np.uint8)
        self._generation, self._now_ms = generation, now_ms
        self._budget = MESSAGE_SERIES_BYTES_MAX
        self._rejections: list[Rejection] = []
        self._metadata: dict[str, Metadata] = {}
        self._resources: dict[bytes, ResourceLabels] = {}
        self._scopes: dict[tuple[bytes, bytes], dict[str, str]] = {}
        self._resolved: dict[tuple[bytes, bytes], tuple[int, str | None]] = {}
        self._heads: dict[bytes, dict[str, str]] = {}
        self._rows = self._list_metrics()

    def result(self) -> Parsed:
        """Reads all points, looks up new series, and leaves out the rejected points."""
        read, state = self._read_points()
        bad = self._reject_times(read)
        bad |= read.series < 0
        columns, wrong = read, 0
        if bad.any():
            points = np.unique(read.points[bad])
            columns, wrong = read.where(np.flatnonzero(~np.isin(read.points, points))), len(points)
        exemplars = self._read_exemplars(int(state[EXEMPLARS]), columns)
        table = self._generation.message_table(columns.series)
        return Parsed(
            series=table,
            series_index=columns.series,
            ts=columns.ts,
            values=columns.bits.view(np.float64),
            rejections=tuple(sorted(self._rejections, key=lambda one: one.line)),
            rejected=int(state[FAULTY]) + wrong,
            metadata=tuple(self._metadata.values()),
            exemplars=exemplars,
            places=lambda rows: (columns.points[rows] + 1).tolist(),
        )

    def _list_metrics(self) -> Rows:
        """Returns a row for each metric, with the number of its context."""
        state: I64 = np.zeros(STATES, np.int64)
        _check_fault(count_metrics(self._raw, state), state)
        count = int(state[COUNT])
        if count > MESSAGE_SERIES_MAX:
            raise limit_error("metrics in one body", MESSAGE_SERIES_MAX)
        rows: Rows = np.zeros((count, ROW_COLUMNS), np.int64)
        text: U8 = np.empty(min(MESSAGE_SERIES_BYTES_MAX, (len(self._body) + 64) * (count + 1)), np.uint8)
        fault = list_metrics(self._raw, self._generation.view(), state, text, rows)
        if fault == FULL:
            raise limit_error("bytes of resources and metrics in one body", MESSAGE_SERIES_BYTES_MAX)
        _check_fault(fault, state)
        for place in np.flatnonzero(rows[:, CONTEXT] < 0):
            row = rows[place]
            row[CONTEXT] = self._generation.resolve_head(text[row[CONTEXT_TEXT] : row[CONTEXT_TEXT_END]].tobytes())
            self._describe(row)
        return rows

    def _read_points(self) -> tuple[_Columns, I64]:
        """Returns the columns of all samples, with new series resolved, and the state of the kernel."""
        text: U8 = np.empty(2 * len(self._body) + 1024, np.uint8)
        capacity = len(self._body) // 16 + (64 if _SINGLE.issuperset(self._rows[:, KIND].tolist()) else TABLE_ROWS)
        faulty: Rows = np.zeros((REJECTIONS_MAX, 2), np.int64)
        while True:
            state: I64 = np.zeros(STATES, np.int64)
            columns = _Columns(
                np.empty(capacity, np.int32),
                np.empty(capacity, np.int64),
                np.empty(capacity, np.uint64),
                np.empty(capacity, np.int32),
            )
            new_rows: Rows = np.empty((capacity, NEW_COLUMNS), np.int64)
            known = self._generation.view()
            fault = read_points(self._raw, known, self._rows, state, text, new_rows, faulty, *columns)
            if state[COUNT] > MESSAGE_SAMPLES_MAX or capacity > 2 * (MESSAGE_SAMPLES_MAX + TABLE_ROWS):
                raise limit_error("samples in one body", MESSAGE_SAMPLES_MAX)
            if fault != FULL:
                break
            capacity *= 2
        _check_fault(fault, state)
        for point, fault_number in faulty[: state[FAULTY]]:
            self._reject(int(point) + 1, FAULTS[int(fault_number)], self._metric_of_point(int(point)))
        for new_row in new_rows[: state[NEW_COUNT]].tolist():
            self._read_new(new_row, columns, text)
        read = columns.where(slice(int(state[COUNT])))
        if state[NEW_COUNT]:
            read = read.where(np.flatnonzero(read.series != NOTHING))
        return read, state

    def _read_exemplars(self, count: int, columns: _Columns) -> tuple[Exemplar, ...]:
        """Read the exemplars of accepted points; reports the others."""
        if not count:
            return ()
        collector, samples = ExemplarCollector(self._now_ms), (columns.series, columns.points)
        read_exemplars(self._raw, count, self._rows, samples, self._generation, collector)
        self._rejections += collector.rejections()[: REJECTIONS_MAX - len(self._rejections)]
        return tuple(collector.exemplars)

    def _read_new(self, new_row: list[int], columns: _Columns, text: U8) -> None:
        """Resolve the series of one sample that is new to the cache."""
        head, role = text[new_row[NEW_HEAD] : new_row[NEW_HEAD_END]].tobytes(), new_row[NEW_ROLE]
        name = bytes([role]) + (struct.pack("<q", new_row[NEW_BITS]) if role in _EDGES else b"")
        resolved = self._resolved.get((head, name))
        if resolved is None:
            resolved = self._resolved[head, name] = self._resolve(head, name, role, self._rows[new_row[NEW_ROW]])
        number, fault = resolved
        columns.series[new_row[NEW_SAMPLE]] = number
        if fault is not None:
            point = int(columns.points[new_row[NEW_SAMPLE]])
            self._reject(point + 1, fault, self._metric_of_point(point))

    def _resolve(self, head: bytes, name: bytes, role: int, row: I64) -> tuple[int, str | None]:
        """Returns the number of a new series, or -1 and the fault."""
        if role == TARGET_ROLE:
            target = self._resource(row).target
            if target is None or naming.labels_fault(_pairs(target)):
                return self._generation.remember_no_series(head, name, NOTHING), None
            metric, labels = "target_info", target
        else:
            base = self._metric(row)
            if not base:
                return -1, NO_NAME
            metric, labels = base + _ENDINGS.get(role, ""), self._labels(head, row)
            if role in (MIN_ROLE, MAX_ROLE):  # the sum of minima means nothing
                labels = {label: value for label, value in labels.items() if label != "__type__"}
            if role in _EDGES:
                labels = {**labels, _EDGES[role]: format_number(struct.unpack("<d", name[1:])[0])}
        pairs = _pairs(labels)
        fault = naming.metric_fault(metric.encode()) or naming.labels_fault(pairs)
        if fault is not None:
            return -1, fault
        number, self._budget = self._generation.resolve_field(
            head, name, metric=metric.encode(), labels=pairs, budget=self._budget
        )
        return number, None

    def _labels(self, head: bytes, row: I64) -> dict[str, str]:
        """Returns the labels that all series of a point have."""
        labels = self._heads.get(head)
        if labels is None:
            number = otlp_labels.POINT_ATTRIBUTES[int(row[KIND])]
            own = otlp_labels.attribute_labels(otlp_labels.read_attributes(head[8:], number))
            labels = {**own, **self._resource(row).labels, **self._scope(row)}
            if row[DELTA] == _DELTA and row[KIND] not in (GAUGE, SUMMARY):
                labels["__type__"] = "delta"
            self._heads[head] = labels
        return labels

    def _resource(self, row: I64) -> ResourceLabels:
        raw = self._part(row, RESOURCE)
        if raw not in self._resources:
            self._resources[raw] = otlp_labels.resource_labels(raw)
        return self._resources[raw]

    def _scope(self, row: I64) -> dict[str, str]:
        key = self._part(row, SCOPE), self._part(row, SCHEMA)
        if key not in self._scopes:
            self._scopes[key] = otlp_labels.scope_labels(*key)
        return self._scopes[key]

    def _metric(self, row: I64) -> str:
        name, unit = (self._part(row, part).decode("utf-8", "replace") for part in (NAME, UNIT))
        return metric_name(
            name, unit, counter=bool(row[KIND] == SUM and row[MONOTONIC]), gauge=bool(row[KIND] == GAUGE)
        )

    def _describe(self, row: I64) -> None:
        """Store the metadata of a new metric."""
        metric = self._metric(row)
        if naming.metric_fault(metric.encode()) is None and len(self._metadata) < METADATA_MESSAGE_MAX:
            help_text = self._part(row, HELP)[: 4 * METADATA_HELP_CHARS_MAX].decode("utf-8", "replace")
            unit = unit_name(self._part(row, UNIT).decode("utf-8", "replace"))
            self._metadata[metric] = Metadata(metric, _kind(row), help_text[:METADATA_HELP_CHARS_MAX], unit)

    def _part(self, row: I64, part: int) -> bytes:
        return self._body[row[part] : row[part + 1]]

    def _reject_times(self, columns: _Columns) -> NDArray[np.bool_]:
        """Returns which samples have a bad time; adds a rejection for each of their points."""
        wrong: tuple[tuple[NDArray[np.bool_], Callable[[int, int, str], str]], ...] = (
            (columns.ts < 1, before_1970),
            (columns.ts > self._now_ms + FUTURE_MS, too_far_ahead),
        )
        for which, describe in wrong:
            if not which.any():
                continue
            points, first = np.unique(columns.points[which], return_index=True)
            for point, row in zip(points[:REJECTIONS_MAX], np.flatnonzero(which)[first], strict=False):
                reason = describe(int(columns.ts[row]), self._now_ms, "ns")
                self._reject(int(point) + 1, reason, self._metric_of_point(int(point)))
        return wrong[0][0] | wrong[1][0]

    def _metric_of_point(self, point: int) -> str:
        """Returns the name of the metric that has this point."""
        place = int(np.searchsorted(self._rows[:, FIRST_POINT], point, "right")) - 1
        return excerpt(self._part(self._rows[max(place, 0)], NAME))

    def _reject(self, line: int, reason: str, shown: str) -> None:
        if len(self._rejections) < REJECTIONS_MAX:
            self._rejections.append(Rejection(line, reason, shown))


def _kind(row: I64) -> str:
    """Returns the metric's type as Prometheus names it; a sum that is not monotonic is a gauge."""
    if row[KIND] == SUM:
        return "counter" if row[MONOTONIC] else "gauge"
    return "gauge" if row[KIND] == GAUGE else "summary" if row[KIND] == SUMMARY else "histogram"


def _pairs(labels: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in labels.items()]


def _check_fault(fault: int, state: I64) -> None:
    if fault < 0:
        raise damage_error(fault, int(state[WHERE]), WHAT)
