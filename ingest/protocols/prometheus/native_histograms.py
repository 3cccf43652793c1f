"""Native histograms of remote write become the series of a classic histogram: ``_bucket{le}``, ``_sum``, ``_count``.

The kernel reads and converts all of a request; Python resolves each series once. Enter by ``read_native``.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingest.protocols.common import naming
from ingest.protocols.common.histogram_kernels import (
    BAD_BOUNDS,
    BAD_BUCKETS,
    BAD_SCALE,
    BUCKET_ROLE,
    COUNT_ROLE,
    SUM_ROLE,
    TOO_MANY_BUCKETS,
)
from ingest.protocols.common.protobuf import damage_error
from ingest.protocols.common.series_cache import CacheGeneration, LabelPairs, limit_error
from ingest.protocols.common.times import before_1970, too_far_ahead
from ingest.protocols.otlp.labels import format_number
from ingest.protocols.prometheus.native_histogram_kernels import (
    AT,
    BAD_COUNT,
    BITS,
    EDGE,
    FULL,
    HISTOGRAM,
    PLACE,
    ROLE,
    ROW_COLUMNS,
    TABLE_ROWS,
    read_histograms,
)
from spm.arrays import I32, I64, U8, U64
from spm.limits import FUTURE_MS, HISTOGRAM_BUCKETS_MAX, MESSAGE_SAMPLES_MAX, REJECTIONS_MAX
from spm.wire import parse_canonical

FAULTS = {
    BAD_BUCKETS: "a histogram's spans do not fit its buckets",
    BAD_BOUNDS: "a histogram's custom bounds must be finite and ascend",
    BAD_SCALE: "a histogram's schema is neither -4 to 8 nor -53, or a bucket is out of range",
    BAD_COUNT: "a histogram's count is negative or not finite",
    TOO_MANY_BUCKETS: f"a histogram has {HISTOGRAM_BUCKETS_MAX} buckets or more",
}
_ENDINGS = {BUCKET_ROLE: "_bucket", SUM_ROLE: "_sum", COUNT_ROLE: "_count"}
_SERIES_FIELD, _HISTOGRAM_FIELD = {1: 1, 2: 5}, {1: 4, 2: 3}  # by the version of remote write
_HEAD = b"\0native "  # no encoded labels begin so

Reject = Callable[[int, str, int], None]  # the place of a series, the reason, how many of its histograms


class NativeSamples(NamedTuple):
    """The samples of all histograms; ``places``: the series of the request that each came from, from 0."""

    series: I32
    ts: I64
    bits: U64
    places: NDArray[np.intp]
    histograms: int


def read_native(
    raw: U8,
    version: int,
    numbers: dict[int, int],
    generation: CacheGeneration,
    budget: int,
    now_ms: int,
    reject: Reject,
) -> tuple[NativeSamples, int]:
    """Returns the samples of a request's histograms, and the rest of ``budget`` for new series.

    ``numbers``: the number of each series that has histograms, by its place; the others are rejected already.
    """
    rows = _read_rows(raw, version, numbers, reject)
    rows = rows[np.isin(rows[:, PLACE], np.array(list(numbers), np.uint64))]
    ts = rows[:, AT].view(np.int64)
    for wrong, describe in ((ts < 1, before_1970), (ts > now_ms + FUTURE_MS, too_far_ahead)):
        _, firsts = np.unique(rows[wrong][:, HISTOGRAM], return_index=True)
        places, at, counts = np.unique(rows[wrong][firsts][:, PLACE], return_index=True, return_counts=True)
        for place, first, count in zip(places.tolist(), ts[wrong][firsts][at].tolist(), counts.tolist(), strict=True):
            reject(place, describe(first, now_ms), count)
    rows = rows[(ts >= 1) & (ts <= now_ms + FUTURE_MS)]
    series, inverse = np.unique(rows[:, [PLACE, ROLE, EDGE]], axis=0, return_inverse=True)
    resolver = _Resolver(generation, numbers, budget)
    resolved: I32 = np.array([resolver.number(*key) for key in series.tolist()], np.int32)
    samples = NativeSamples(
        resolved[inverse.ravel()] if len(resolved) else np.empty(0, np.int32),
        np.ascontiguousarray(rows[:, AT]).view(np.int64),
        np.ascontiguousarray(rows[:, BITS]),
        rows[:, PLACE].astype(np.intp),
        len(np.unique(rows[:, HISTOGRAM])),
    )
    return samples, resolver.budget


def _read_rows(raw: U8, version: int, numbers: dict[int, int], reject: Reject) -> U64:
    capacity = len(raw) // 4 + TABLE_ROWS
    faulty: I64 = np.zeros((REJECTIONS_MAX, 2), np.int64)
    while True:
        state: I64 = np.zeros(3, np.int64)
        rows: U64 = np.empty((capacity, ROW_COLUMNS), np.uint64)
        fault = read_histograms(raw, _SERIES_FIELD[version], _HISTOGRAM_FIELD[version], rows, faulty, state)
        if state[0] > MESSAGE_SAMPLES_MAX or capacity > 2 * (MESSAGE_SAMPLES_MAX + TABLE_ROWS):
            raise limit_error("samples in one body", MESSAGE_SAMPLES_MAX)
        if fault != FULL:
            break
        capacity *= 2
    if fault < 0:
        raise damage_error(fault, 0, "a native histogram of remote write")
    for place, number in faulty[: state[2]].tolist():
        if place in numbers:
            reject(place, FAULTS[number], 1)
    return rows[: state[0]]


class _Resolver:
    """Resolves the series of histograms, each by the labels of its own series in the request."""

    def __init__(self, generation: CacheGeneration, numbers: dict[int, int], budget: int) -> None:
        self._generation, self._numbers, self.budget = generation, numbers, budget
        self._bases: dict[int, tuple[bytes, str, LabelPairs]] = {}  # by place: head, metric, labels

    def number(self, place: int, role: int, edge: int) -> int:
        """Returns the number of a series, which it adds if it is new."""
        head, metric, labels = self._base(place)
        if role == BUCKET_ROLE:
            bound = float(np.uint64(edge).view(np.float64))
            labels = [*labels, (b"le", format_number(bound).encode())]
        name = bytes([role]) + edge.to_bytes(8, "little")
        number, self.budget = self._generation.resolve_field(
            head, name, metric=(metric + _ENDINGS[role]).encode(), labels=labels, budget=self.budget
        )
        return number

    def _base(self, place: int) -> tuple[bytes, str, LabelPairs]:
        base = self._bases.get(place)
        if base is None:
            form = self._generation.canonical(self._numbers[place])
            metric, labels = parse_canonical(form)
            pairs = [(name.encode(), value.encode()) for name, value in labels.items() if name != "le"]
            base = self._bases[place] = _HEAD + form, metric, pairs
        return base


def name_fault(metric: str, labels: dict[str, str]) -> str | None:
    """Returns why no series of a histogram can have this name and these labels; ``None`` if they can."""
    pairs = [*((name.encode(), value.encode()) for name, value in labels.items() if name != "le"), (b"le", b"+Inf")]
    return naming.metric_fault(f"{metric}_bucket".encode()) or naming.labels_fault(pairs)
