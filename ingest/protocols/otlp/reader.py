"""OTLP's metrics over HTTP: the bytes of a request, protobuf or JSON, become a ``Parsed``.

Enter by ``parse``. Which series come of what: docs/protocols.md.

- Gauges and sums are one series; those of a sum that only grows end in ``_total``.
- Sums and histograms of delta temporality are stored as they come and never added up; their series have the label
  ``__type__="delta"``, so that ``increase`` of them is their sum.
- Histograms become classic ones; exponential ones, too, with at most four buckets per power of two.
- A data point is taken whole or refused whole. Exemplars are counted and told.

Compiled loops read what is known; only what is new to the process is read in Python. JSON is written as protobuf first.
"""

import struct
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingest.protocols.common import naming
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
from ingest.protocols.common.protobuf import damaged
from ingest.protocols.common.series_cache import Generation, SeriesCache, too_much, within_budget
from ingest.protocols.common.times import early, late
from ingest.protocols.influx.exact import example
from ingest.protocols.otlp import labels as otlp_labels
from ingest.protocols.otlp.answers import PROTOBUF, is_json
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
    ODDS,
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
from ingest.protocols.otlp.labels import WHAT, Origin, plain_number
from ingest.protocols.otlp.names import metric_name, unit_name
from ingest.protocols.otlp.points import (
    FAULTS,
    NOTHING,
    ODD_BITS,
    ODD_COLUMNS,
    ODD_HEAD,
    ODD_HEAD_END,
    ODD_ROLE,
    ODD_ROW,
    ODD_SAMPLE,
    TABLE_ROWS,
    read_points,
)
from ingest.protocols.prometheus.remote_write import localised
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
from spm.wire import Metadata, Parsed, Rejection

NO_NAME = "the metric has no name that can be used"
_ENDINGS = {BUCKET_ROLE: "_bucket", SUM_ROLE: "_sum", COUNT_ROLE: "_count", MIN_ROLE: "_min", MAX_ROLE: "_max"}
_EDGES = {BUCKET_ROLE: "le", QUANTILE_ROLE: "quantile"}
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

    ``BadMessage``: it is no such request; ``LimitExceeded``: it holds more than one may. ``over_quota``: the app has
    more series than its quota allows; its names must not fill the common cache.
    """
    if is_json(content_type):
        body = to_protobuf(body)
    generation = (cache or (_OVER_QUOTA_CACHE if over_quota else _CACHE)).generation()
    return _Reading(body, generation, now_ms).parsed()


class _Columns(NamedTuple):
    series: I32
    ts: I64
    bits: U64
    points: I32  # the place of each sample's point in the body, from 0

    def where(self, rows: NDArray[np.intp]) -> "_Columns":
        """These samples alone."""
        return _Columns(self.series[rows], self.ts[rows], self.bits[rows], self.points[rows])


class _Reading:
    """One request on its way."""

    def __init__(self, body: bytes, generation: Generation, now_ms: int) -> None:
        self._body, self._raw = body, np.frombuffer(body, np.uint8)
        self._generation, self._now_ms = generation, now_ms
        self._budget = MESSAGE_SERIES_BYTES_MAX
        self._rejections: list[Rejection] = []
        self._metadata: dict[str, Metadata] = {}
        self._origins: dict[bytes, Origin] = {}
        self._scopes: dict[tuple[bytes, bytes], dict[str, str]] = {}
        self._met: dict[tuple[bytes, bytes], tuple[int, str | None]] = {}
        self._heads: dict[bytes, dict[str, str]] = {}
        self._rows = self._listed()

    def parsed(self) -> Parsed:
        """Reads all points, looks up new series, and leaves out the rejected points."""
        columns, state = self._points()
        bad = self._refused_times(columns)
        bad |= columns.series < 0
        wrong = np.unique(columns.points[bad])
        good = ~np.isin(columns.points, wrong) if len(wrong) else np.ones(len(columns.ts), np.bool_)
        series = columns.series[good]
        table = self._generation.table(localised(series, self._generation))
        within_budget(MESSAGE_SERIES_BYTES_MAX - int((table.ends - table.starts).sum()))
        exemplars = int(state[EXEMPLARS])
        if exemplars:
            self._reject(0, f"{exemplars} exemplars: not supported, the points are kept", "")
        return Parsed(
            series=table,
            series_index=series,
            ts=columns.ts[good],
            values=columns.bits[good].view(np.float64),
            rejections=tuple(sorted(self._rejections, key=lambda one: one.line)),
            rejected=int(state[FAULTY]) + len(wrong),
            metadata=tuple(self._metadata.values()),
            places=lambda rows: (columns.points[good][rows] + 1).tolist(),
        )

    def _listed(self) -> Rows:
        """The metrics, each with the number of its context."""
        state: I64 = np.zeros(STATES, np.int64)
        _check(count_metrics(self._raw, state), state)
        count = int(state[COUNT])
        if count > MESSAGE_SERIES_MAX:
            raise too_much("metrics in one body", MESSAGE_SERIES_MAX)
        rows: Rows = np.zeros((count, ROW_COLUMNS), np.int64)
        text: U8 = np.empty(min(MESSAGE_SERIES_BYTES_MAX, (len(self._body) + 64) * (count + 1)), np.uint8)
        fault = list_metrics(self._raw, self._generation.view(), state, text, rows)
        if fault == FULL:
            raise too_much("bytes of resources and metrics in one body", MESSAGE_SERIES_BYTES_MAX)
        _check(fault, state)
        for place in np.flatnonzero(rows[:, CONTEXT] < 0):
            row = rows[place]
            row[CONTEXT] = self._generation.head(text[row[CONTEXT_TEXT] : row[CONTEXT_TEXT_END]].tobytes())
            self._describe(row)
        return rows

    def _points(self) -> tuple[_Columns, I64]:
        """The kernel's columns, in arrays large enough, and what is new looked up."""
        text: U8 = np.empty(2 * len(self._body) + 1024, np.uint8)
        room = len(self._body) // 16 + TABLE_ROWS
        faulty: Rows = np.zeros((REJECTIONS_MAX, 2), np.int64)
        while True:
            state: I64 = np.zeros(STATES, np.int64)
            columns = _Columns(
                np.empty(room, np.int32), np.empty(room, np.int64), np.empty(room, np.uint64), np.empty(room, np.int32)
            )
            odd: Rows = np.empty((room, ODD_COLUMNS), np.int64)
            known = self._generation.view()
            fault = read_points(self._raw, known, self._rows, state, text, odd, faulty, *columns)
            if state[COUNT] > MESSAGE_SAMPLES_MAX or room > 2 * (MESSAGE_SAMPLES_MAX + TABLE_ROWS):
                raise too_much("samples in one body", MESSAGE_SAMPLES_MAX)
            if fault != FULL:
                break
            room *= 2
        _check(fault, state)
        for place, why in faulty[: state[FAULTY]]:
            self._reject(int(place) + 1, FAULTS[int(why)], self._shown(int(place)))
        for one in odd[: state[ODDS]]:
            self._take(one, columns, text)
        count = int(state[COUNT])
        return columns.where(np.flatnonzero(columns.series[:count] != NOTHING)), state

    def _take(self, odd: I64, columns: _Columns, text: U8) -> None:
        """One sample of a series that is new."""
        head = text[odd[ODD_HEAD] : odd[ODD_HEAD_END]].tobytes()
        role, edge = int(odd[ODD_ROLE]), struct.pack("<q", int(odd[ODD_BITS]))
        name = bytes([role]) + (edge if role in _EDGES else b"")
        met = self._met.get((head, name))
        if met is None:
            met = self._met[head, name] = self._entered(head, name, role, self._rows[odd[ODD_ROW]])
        number, fault = met
        columns.series[odd[ODD_SAMPLE]] = number
        if fault is not None:
            self._reject(
                int(columns.points[odd[ODD_SAMPLE]]) + 1, fault, self._shown(int(columns.points[odd[ODD_SAMPLE]]))
            )

    def _entered(self, head: bytes, name: bytes, role: int, row: I64) -> tuple[int, str | None]:
        """The number of a series that is new, or why it cannot be."""
        if role == TARGET_ROLE:
            target = self._origin(row).target
            if target is None or naming.tags_fault(_pairs(target)):
                return self._generation.enter_nothing(head, name, NOTHING), None
            metric, found = "target_info", target
        else:
            base = self._metric(row)
            if not base:
                return -1, NO_NAME
            metric, found = base + _ENDINGS.get(role, ""), self._labels(head, row)
            if role in (MIN_ROLE, MAX_ROLE):  # not to be added up
                found = {label: value for label, value in found.items() if label != "__type__"}
            if role in _EDGES:
                found = {**found, _EDGES[role]: plain_number(struct.unpack("<d", name[1:])[0])}
        tags = _pairs(found)
        fault = naming.metric_fault(metric.encode()) or naming.tags_fault(tags)
        if fault is not None:
            return -1, fault
        number, self._budget = self._generation.enter(
            head, name, metric=metric.encode(), tags=tags, budget=self._budget
        )
        return number, None

    def _labels(self, head: bytes, row: I64) -> dict[str, str]:
        """The labels of all series of a point."""
        found = self._heads.get(head)
        if found is None:
            number = otlp_labels.POINT_ATTRIBUTES[int(row[KIND])]
            own = otlp_labels.labels(otlp_labels.attributes(head[8:], number))
            found = {**own, **self._origin(row).labels, **self._scope(row)}
            if row[DELTA] == _DELTA and row[KIND] not in (GAUGE, SUMMARY):
                found["__type__"] = "delta"
            self._heads[head] = found
        return found

    def _origin(self, row: I64) -> Origin:
        raw = self._part(row, RESOURCE)
        if raw not in self._origins:
            self._origins[raw] = otlp_labels.origin(raw)
        return self._origins[raw]

    def _scope(self, row: I64) -> dict[str, str]:
        key = self._part(row, SCOPE), self._part(row, SCHEMA)
        if key not in self._scopes:
            self._scopes[key] = otlp_labels.scope(*key)
        return self._scopes[key]

    def _metric(self, row: I64) -> str:
        name, unit = (self._part(row, part).decode("utf-8", "replace") for part in (NAME, UNIT))
        return metric_name(
            name, unit, counter=bool(row[KIND] == SUM and row[MONOTONIC]), gauge=bool(row[KIND] == GAUGE)
        )

    def _describe(self, row: I64) -> None:
        """Keep what a metric that is new says about itself."""
        metric = self._metric(row)
        if naming.metric_fault(metric.encode()) is None and len(self._metadata) < METADATA_MESSAGE_MAX:
            told = self._part(row, HELP)[: 4 * METADATA_HELP_CHARS_MAX].decode("utf-8", "replace")
            unit = unit_name(self._part(row, UNIT).decode("utf-8", "replace"))
            self._metadata[metric] = Metadata(metric, _kind(row), told[:METADATA_HELP_CHARS_MAX], unit)

    def _part(self, row: I64, part: int) -> bytes:
        return self._body[row[part] : row[part + 1]]

    def _refused_times(self, columns: _Columns) -> NDArray[np.bool_]:
        """Which samples have a time that cannot be; each of their points is told."""
        wrong: tuple[tuple[NDArray[np.bool_], Callable[[int, int, str], str]], ...] = (
            (columns.ts < 1, early),
            (columns.ts > self._now_ms + FUTURE_MS, late),
        )
        for which, worded in wrong:
            found, first = np.unique(columns.points[which], return_index=True)
            for point, at in zip(found[:REJECTIONS_MAX], np.flatnonzero(which)[first], strict=False):
                self._reject(int(point) + 1, worded(int(columns.ts[at]), self._now_ms, "ns"), self._shown(int(point)))
        return wrong[0][0] | wrong[1][0]

    def _shown(self, point: int) -> str:
        """The metric that the point in this place belongs to."""
        place = int(np.searchsorted(self._rows[:, FIRST_POINT], point, "right")) - 1
        return example(self._part(self._rows[max(place, 0)], NAME))

    def _reject(self, line: int, reason: str, shown: str) -> None:
        if len(self._rejections) < REJECTIONS_MAX:
            self._rejections.append(Rejection(line, reason, shown))


def _kind(row: I64) -> str:
    """The metric's type in Prometheus' words; a sum that may shrink is a gauge."""
    if row[KIND] == SUM:
        return "counter" if row[MONOTONIC] else "gauge"
    return "gauge" if row[KIND] == GAUGE else "summary" if row[KIND] == SUMMARY else "histogram"


def _pairs(labels: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in labels.items()]


def _check(fault: int, state: I64) -> None:
    if fault < 0:
        raise damaged(fault, int(state[WHERE]), WHAT)
