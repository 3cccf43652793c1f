"""Native histograms of remote write become classic buckets whose counts are those of the observations themselves."""

import math
import struct
from collections.abc import Sequence

import numpy as np
import pytest

from ingest.http.endpoints.base import AcceptedMessage
from ingest.http.endpoints.prometheus import remote_write_endpoint
from ingest.http.exchange import PushRequest
from ingest.protocols.common.series_cache import SeriesCache
from ingest.protocols.prometheus import native_histogram_kernels, remote_write
from spm.limits import HISTOGRAM_BUCKETS_MAX
from spm.query.promql.operators.annotations import Annotations
from spm.query.promql.operators.histogram_quantile import group_buckets
from spm.query.promql.operators.vector import Vector
from spm.wire import STALE_BITS, Parsed, parse_canonical
from tests.ingest.protocols.remote_bodies import Series, bits, part, real, request, request_v2, varint, whole

NOW = 1_700_000_000_000
LATENCY = [("__name__", "latency"), ("job", "api")]
OBSERVED = [0.0, 0.0, -3.0, -0.2, 0.003, 0.5, 0.7, 0.71, 1.0, 1.5, 9.0, 900.0]
FIELDS = {1: 4, 2: 3}
SPANS, DELTAS, COUNTS = {-1: 8, 1: 11}, {-1: 9, 1: 12}, {-1: 10, 1: 13}
Wire = tuple[bytes, ...]


def zigzag(value: int) -> int:
    return value << 1 if value >= 0 else ((-value) << 1) - 1


def buckets_of(schema: int, values: Sequence[float]) -> dict[int, int]:
    """The count of each bucket by its index, as Prometheus numbers them."""
    buckets: dict[int, int] = {}
    for value in values:
        index = math.ceil(math.log2(value) * 2.0**schema)
        buckets[index] = buckets.get(index, 0) + 1
    return buckets


def side(sign: int, buckets: dict[int, int], *, floats: bool) -> list[bytes]:
    """The spans and counts of positive or negative buckets, a span for each stretch without a gap."""
    indices = sorted(buckets)
    if not indices:
        return []
    starts = [k for k, index in enumerate(indices) if k == 0 or index != indices[k - 1] + 1]
    ends = [*starts[1:], len(indices)]
    fields, before = [], 0
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        gap = indices[start] - (before if number else 0)
        fields.append(part(SPANS[sign], whole(1, zigzag(gap)) + whole(2, end - start)))
        before = indices[end - 1] + 1
    counts = [buckets[index] for index in indices]
    if floats:
        return [*fields, part(COUNTS[sign], struct.pack(f"<{len(counts)}d", *counts))]
    deltas = np.diff(counts, prepend=0).tolist()
    return [*fields, part(DELTAS[sign], b"".join(varint(zigzag(delta)) for delta in deltas))]


def histogram(schema: int, values: Sequence[float], *, floats: bool = False, ts: int = NOW) -> bytes:
    positive, negative = [v for v in values if v > 0], [-v for v in values if v < 0]
    zeros = len(values) - len(positive) - len(negative)
    number = [real(2, len(values)), real(7, zeros)] if floats else [whole(1, len(values)), whole(6, zeros)]
    sides = [
        *side(-1, buckets_of(schema, negative), floats=floats),
        *side(1, buckets_of(schema, positive), floats=floats),
    ]
    fields = [number[0], real(3, sum(values)), whole(4, zigzag(schema)), real(5, 1e-100), number[1], *sides]
    return b"".join([*fields, whole(15, ts)])


def read(version: int, *histograms: bytes, labels: Sequence[tuple[str, str]] = LATENCY) -> Parsed:
    series = [Series(labels, extra=[part(FIELDS[version], one) for one in histograms])]
    if version == 1:
        return remote_write.parse(request(series), now_ms=NOW, cache=SeriesCache())
    return remote_write.parse_v2(request_v2(series), now_ms=NOW, cache=SeriesCache())


def samples(parsed: Parsed) -> dict[tuple[str, str], float]:
    """The values by name and bound; every series has the labels of the histogram."""
    values = {}
    for number, value in zip(parsed.series_index.tolist(), parsed.values.tolist(), strict=True):
        name, labels = parse_canonical(parsed.series.canonical(number))
        bound = labels.pop("le", "")
        assert labels == {"job": "api"}
        assert (name, bound) not in values
        values[name, bound] = value
    return values


@pytest.mark.parametrize("floats", [False, True], ids=["whole counts", "float counts"])
@pytest.mark.parametrize("schema", [-4, -1, 0, 2, 3, 8])
@pytest.mark.parametrize("version", [1, 2])
def test_buckets_hold_the_observations_up_to_their_bounds(version: int, schema: int, floats: bool) -> None:
    parsed = read(version, histogram(schema, OBSERVED, floats=floats))
    values = samples(parsed)
    assert (parsed.rejected, parsed.histograms, parsed.histogram_samples) == (0, 1, len(values))
    assert values.pop(("latency_sum", "")) == sum(OBSERVED)
    assert values.pop(("latency_count", "")) == len(OBSERVED)
    assert {name for name, _ in values} == {"latency_bucket"}
    assert values["latency_bucket", "+Inf"] == len(OBSERVED)
    expected = {key: sum(observed <= float(key[1]) for observed in OBSERVED) for key in values}
    assert values == expected
    assert len(values) > 4


@pytest.mark.parametrize("schema", [1, 3, 8])
def test_an_answer_over_exponential_buckets_says_so(schema: int) -> None:
    bounds = [bound for _, bound in samples(read(2, histogram(schema, OBSERVED))) if bound]
    assert infos_over(bounds) == [
        "PromQL info: buckets were made from those of a native or exponential histogram: exact to one bucket"
        ' for metric name "latency_bucket" (1:1)'
    ]


@pytest.mark.parametrize("bounds", [["0.1", "0.25", "+Inf"], ["1", "2", "4", "8", "+Inf"], ["1.189207115", "+Inf"]])
def test_an_answer_over_classic_buckets_says_nothing(bounds: list[str]) -> None:
    assert infos_over(bounds) == []


def infos_over(bounds: Sequence[str]) -> list[str]:
    """The infos of a query over the buckets of one histogram."""
    labels = [{"__name__": "latency_bucket", "le": bound} for bound in bounds]
    shape = len(labels), 1
    vector = Vector(labels, np.ones(shape), np.ones(shape, np.bool_), np.zeros(len(labels), np.bool_))
    annotations = Annotations("histogram_quantile(0.5, latency_bucket)")
    group_buckets(vector, annotations, 0)
    return annotations.infos


def test_custom_buckets_keep_their_bounds() -> None:
    bounds = struct.pack("<3d", 0.1, 0.5, 2.5)
    spans = part(11, whole(1, zigzag(0)) + whole(2, 2)) + part(11, whole(1, zigzag(1)) + whole(2, 1))
    body = whole(1, 9) + real(3, 7.5) + whole(4, zigzag(-53)) + spans + part(16, bounds) + whole(15, NOW)
    values = samples(read(1, body + part(12, b"".join(varint(zigzag(d)) for d in (2, 1, 1)))))  # 2, 3, none, 4
    assert values == {
        ("latency_bucket", "0.1"): 2.0,
        ("latency_bucket", "0.5"): 5.0,
        ("latency_bucket", "2.5"): 5.0,
        ("latency_bucket", "+Inf"): 9.0,
        ("latency_sum", ""): 7.5,
        ("latency_count", ""): 9.0,
    }


def test_a_stale_marker_ends_sum_count_and_the_last_bucket() -> None:
    values = read(2, bits(3, STALE_BITS) + whole(15, NOW)).values
    assert values.view(np.uint64).tolist() == [STALE_BITS] * 3


def test_samples_beside_histograms_are_stored_and_places_are_those_of_the_series() -> None:
    body = part(4, histogram(0, [1.0, 2.0]))
    series = [Series([("__name__", "up")], [(NOW, 1.0)]), Series(LATENCY, [(NOW, 5.0)], extra=[body, body])]
    for _ in range(2):
        parsed = remote_write.parse(request(series), now_ms=NOW)
        assert (parsed.rejected, parsed.histograms) == (0, 2)
        assert parsed.places is not None
        assert parsed.places(range(len(parsed.ts))) == [1] + [2] * (len(parsed.ts) - 1)


def test_the_answer_counts_histograms_apart_from_samples() -> None:
    series = [Series([("__name__", "up")], [(NOW, 1.0)]), Series(LATENCY, extra=[part(4, histogram(0, [1.0]))])]
    parsed = remote_write.parse(request(series), now_ms=NOW)
    head = PushRequest("POST", "/api/v1/write", "", {})
    answer = remote_write_endpoint("write").respond(head, AcceptedMessage(parsed, parsed, bytes(16)))
    prefix = "X-Prometheus-Remote-Write-"
    assert answer.status == 204
    assert {name: answer.headers[f"{prefix}{name}-Written"] for name in ("Samples", "Histograms")} == {
        "Samples": "1",
        "Histograms": "1",
    }


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (whole(4, zigzag(9)), "schema"),
        (real(2, math.nan), "count is negative"),
        (real(2, -1.0), "count is negative"),
        (part(11, whole(2, 2)) + part(12, varint(2)), "spans"),
        (part(12, varint(2)), "spans"),
        (part(11, whole(2, 1)) + part(12, varint(zigzag(-2))), "count is negative"),
        (part(11, whole(2, 1)) + part(11, whole(1, zigzag(-1)) + whole(2, 1)) + part(12, b"\x02\x02"), "spans"),
        (part(11, whole(2, 1)) + part(11, whole(1, zigzag(1 << 30)) + whole(2, 1)) + part(12, b"\x02\x02"), "buckets"),
        (part(12, b"\x02" * HISTOGRAM_BUCKETS_MAX), "buckets or more"),
        (whole(4, zigzag(-53)) + part(16, struct.pack("<2d", 2.0, 1.0)), "ascend"),
        (whole(4, zigzag(-53)) + part(11, whole(2, 2)) + part(12, b"\x02\x02"), "spans"),
        (whole(15, 5 * NOW), "more than 24 h"),
        (whole(15, 0), "before 1970"),
    ],
    ids=range(13),
)
def test_a_broken_histogram_is_rejected_alone(broken: bytes, reason: str) -> None:
    parsed = read(1, whole(1, 1) + whole(15, NOW) + broken, histogram(0, [1.0]))
    assert (parsed.rejected, parsed.histograms) == (1, 1)
    assert reason in parsed.rejections[0].reason
    assert parsed.rejections[0].line == 1


def test_names_that_leave_no_room_for_a_suffix_are_rejected() -> None:
    parsed = read(1, histogram(0, [1.0]), labels=[("__name__", "m" * 1_000_000), ("job", "api")])
    assert (len(parsed.ts), parsed.rejected) == (0, 1)


def test_an_offset_beyond_its_type_cannot_leave_the_buckets() -> None:
    field = np.frombuffer(b"\x08\xfe" + b"\xff" * 8 + b"\x01", np.uint8)  # 2^63 - 1, where a sint32 is due
    spans = np.zeros((1, 2), np.int64)
    assert native_histogram_kernels._read_span(field, 0, len(field), spans, 0) == 1
    assert abs(int(spans[0, 0])) < 2**31
