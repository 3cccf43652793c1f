"""Reads the exemplars of OTLP's data points: those of a histogram belong to the series of the bucket they fell into.

Labels are ``trace_id`` and ``span_id`` in hex, and the filtered attributes where there is room for them, as
Prometheus does it. Damage inside of an exemplar costs this exemplar alone. Enter by ``read_exemplars``.
"""

import math
import struct
from collections.abc import Mapping
from itertools import groupby

import numpy as np
from numba import njit

from ingest.exemplars.limits import EXEMPLAR_LABEL_CHARS_MAX
from ingest.protocols.common.exemplars import TOO_MANY, UNREADABLE, ExemplarCollector
from ingest.protocols.common.protobuf import read_fields
from ingest.protocols.common.protobuf_kernels import BYTES, FIXED64, read_field
from ingest.protocols.common.series_cache import CacheGeneration, LabelPairs
from ingest.protocols.otlp.kernels import DATA, DATA_END, EXPONENTIAL, FIRST_POINT, GAUGE, HISTOGRAM, KIND, SUM, Rows
from ingest.protocols.otlp.labels import attribute_labels, read_attributes
from spm.arrays import I32, I64, U8
from spm.errors import BadMessage
from spm.store.encoding.byte_kernels import uncounted
from spm.wire import parse_canonical

POINT_REJECTED = "their data points were rejected"
NO_BUCKET = "their data points have no bucket for them"
_WHAT = "an exemplar of OTLP"
_TIME, _DOUBLE, _SPAN_ID, _TRACE_ID, _INT, _ATTRIBUTES = 2, 3, 4, 5, 6, 7
_IDS = {_TRACE_ID: b"trace_id", _SPAN_ID: b"span_id"}
_POINT, _START, _END, _IN_BUCKETS = range(4)  # of a row of ``list_exemplars``


def read_exemplars(
    raw: U8,
    count: int,
    metrics: Rows,
    samples: tuple[I32, I32],
    generation: CacheGeneration,
    collector: ExemplarCollector,
) -> None:
    """Read the ``count`` exemplars of a request into ``collector``.

    ``metrics``: the rows of the metrics, after their points were read; ``samples``: series number and point of each
    accepted sample, by point.
    """
    taken = min(count, collector.room)
    collector.refuse(TOO_MANY, count - taken)
    places: I64 = np.empty((taken, 4), np.int64)
    list_exemplars(raw, metrics, places)
    series_of = _SeriesOfPoints(samples, generation)
    for (point, in_buckets), group in groupby(places.tolist(), lambda row: (row[_POINT], row[_IN_BUCKETS])):
        forms = series_of.forms(point, in_buckets=bool(in_buckets))
        for row in group:
            try:
                ts, value, labels = _read(raw[row[_START] : row[_END]].tobytes())
            except (BadMessage, struct.error):
                collector.refuse(UNREADABLE)
                continue
            form = next((form for edge, form in forms if math.isnan(value) or value <= edge), None)
            if form is None:
                collector.refuse(NO_BUCKET if forms else POINT_REJECTED)
            else:
                collector.add(form, ts, value, labels)


@njit(nogil=True, cache=True)
def list_exemplars(body: U8, metrics: Rows, places: I64) -> None:
    """Write the point, the bytes and the kind (1: of a histogram) of the first exemplars, as many as fit."""
    body, metrics = uncounted(body), uncounted(metrics)
    count = 0
    for place in range(len(metrics)):
        kind, point, at = metrics[place, KIND], metrics[place, FIRST_POINT], metrics[place, DATA]
        exemplar = 11 if kind == EXPONENTIAL else 8 if kind == HISTOGRAM else 5 if kind in (GAUGE, SUM) else -1
        while at < metrics[place, DATA_END]:
            number, wire_type, inner, end, _ = read_field(body, at, metrics[place, DATA_END])
            at = end
            if number != 1 or wire_type != BYTES:
                continue
            while inner < end:
                number, wire_type, start, inner, _ = read_field(body, inner, end)
                if number == exemplar and wire_type == BYTES:
                    if count == len(places):
                        return
                    places[count, _POINT], places[count, _START], places[count, _END] = point, start, inner
                    places[count, _IN_BUCKETS] = kind in (HISTOGRAM, EXPONENTIAL)
                    count += 1
            point += 1


class _SeriesOfPoints:
    """Finds the series of a point's exemplars: (greatest value, canonical form) of each, ascending."""

    def __init__(self, samples: tuple[I32, I32], generation: CacheGeneration) -> None:
        (self._series, self._points), self._generation = samples, generation
        self._buckets: dict[int, tuple[float, bytes] | None] = {}  # by series number; ``None``: it is no bucket

    def forms(self, point: int, *, in_buckets: bool) -> list[tuple[float, bytes]]:
        first, last = np.searchsorted(self._points, [point, point + 1]).tolist()
        numbers = self._series[first:last].tolist()
        if not in_buckets:  # its one sample comes first; the resource's ``target_info`` may follow
            return [(math.inf, self._generation.canonical(number)) for number in numbers[:1]]
        return sorted(bucket for bucket in map(self._bucket, numbers) if bucket is not None)

    def _bucket(self, number: int) -> tuple[float, bytes] | None:
        if number not in self._buckets:
            form = self._generation.canonical(number)
            metric, labels = parse_canonical(form)
            is_bucket = metric.endswith("_bucket") and "le" in labels
            self._buckets[number] = (float(labels["le"]), form) if is_bucket else None
        return self._buckets[number]


def _read(raw: bytes) -> tuple[int, float, LabelPairs]:
    """Return time in ms, value and labels of an exemplar."""
    ts, value, ids = 0, 0.0, dict[bytes, bytes]()
    for number, wire_type, content in read_fields(raw, _WHAT):
        if wire_type == FIXED64 and isinstance(content, bytes):
            if number == _TIME:
                ts = int.from_bytes(content, "little") // 1_000_000
            elif number == _DOUBLE:
                [value] = struct.unpack("<d", content)
            elif number == _INT:
                value = float(int.from_bytes(content, "little", signed=True))
        elif number in _IDS and wire_type == BYTES and isinstance(content, bytes) and content:
            ids[_IDS[number]] = content.hex().encode()
    return ts, value, [*ids.items(), *_fitting(attribute_labels(read_attributes(raw, _ATTRIBUTES)), ids)]


def _fitting(attributes: Mapping[str, str], ids: Mapping[bytes, bytes]) -> LabelPairs:
    """Return the attributes as labels if all of them have room beside the ids, else none."""
    own = {name: text for name, text in attributes.items() if name.encode() not in ids}
    size = sum(len(name) + len(text) for name, text in [*ids.items(), *own.items()])
    return [(name.encode(), text.encode()) for name, text in own.items()] if size <= EXEMPLAR_LABEL_CHARS_MAX else []
