"""OTLP's metrics in both forms: which series and samples they become, and what is rejected or reported."""

import json
import math
import struct
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.protocols.common.histogram_kernels import (
    BAD_BOUNDS,
    BAD_BUCKETS,
    BAD_SCALE,
    NO_TEMPORALITY,
    NO_TIME,
    NO_VALUE,
)
from ingest.protocols.common.series_cache import SeriesCache
from ingest.protocols.otlp import reader as otlp_reader
from ingest.protocols.otlp.answers import encode_answer, encode_error, message_of
from ingest.protocols.otlp.labels import format_number
from ingest.protocols.otlp.names import label_name, metric_name, unit_name
from ingest.protocols.otlp.point_kernels import FAULTS
from spm.errors import BadMessage, LimitExceeded
from spm.limits import FUTURE_MS, MESSAGE_SAMPLES_MAX, MESSAGE_SERIES_MAX
from spm.wire import STALE_BITS, Parsed, parse_canonical
from tests.ingest.protocols.otlp_bodies import NOW, Labels, Metric, Point, request, request_json
from tests.ingest.protocols.remote_bodies import bits, part, real, varint, whole

PROTOBUF, JSON = "application/x-protobuf", "application/json; charset=utf-8"
SHOP = {"service.name": "shop", "service.instance.id": "i1"}


def read(body: bytes, form: str = PROTOBUF, cache: SeriesCache | None = None) -> Parsed:
    """Reads a request at NOW."""
    return otlp_reader.parse(body, form, now_ms=NOW, cache=cache or SeriesCache())


def series_of(parsed: Parsed) -> dict[str, float]:
    """Returns the value of each series, by the series as text."""
    values = {}
    for number, value in zip(parsed.series_index, parsed.values, strict=True):
        metric, labels = parse_canonical(parsed.series.canonical(int(number)))
        values[f"{metric}{{{','.join(f'{name}={text}' for name, text in labels.items())}}}"] = float(value)
    return values


def one(metric: Metric, resource: Labels | None = None, scope: Labels | None = None) -> dict[str, float]:
    """The series of one metric."""
    return series_of(read(request(metric, resource=resource, scope=scope)))


HISTOGRAM = Point(count=6, total=10.5, counts=[1, 2, 3], bounds=[1.0, 2.5], least=0.5, most=9.0)
EXPONENTIAL = Point(count=10, total=7.5, scale=3, zero=1, positive=(0, [1, 2, 3]), negative=(1, [3]))
TABLE: dict[str, tuple[Metric, dict[str, float]]] = {
    "a gauge with unit": (Metric("mem.used", "gauge", [Point(5)], unit="By"), {"mem_used_bytes{}": 5}),
    "a ratio": (Metric("cpu.load", "gauge", [Point(0.5)], unit="1"), {"cpu_load_ratio{}": 0.5}),
    "a sum that only grows": (Metric("req", "sum", [Point(7)], monotonic=True), {"req_total{}": 7}),
    "a sum that may shrink": (Metric("queue.size", "sum", [Point(-7)], unit="{item}"), {"queue_size{}": -7}),
    "a delta": (Metric("d", "sum", [Point(2)], temporality=1, monotonic=True), {"d_total{__type__=delta}": 2}),
    "a histogram": (
        Metric("lat", "histogram", [HISTOGRAM], unit="ms"),
        {
            "lat_milliseconds_bucket{le=1}": 1,
            "lat_milliseconds_bucket{le=2.5}": 3,
            "lat_milliseconds_bucket{le=+Inf}": 6,
            "lat_milliseconds_min{}": 0.5,
            "lat_milliseconds_max{}": 9,
            "lat_milliseconds_sum{}": 10.5,
            "lat_milliseconds_count{}": 6,
        },
    ),
    "a delta histogram": (
        Metric("h", "histogram", [Point(count=2, total=1.0, least=1.0)], temporality=1),
        {
            "h_bucket{__type__=delta,le=+Inf}": 2,
            "h_min{}": 1,
            "h_sum{__type__=delta}": 1,
            "h_count{__type__=delta}": 2,
        },
    ),
    "an exponential histogram": (
        Metric("e", "exponentialHistogram", [EXPONENTIAL]),
        {
            "e_bucket{le=-1}": 3,
            "e_bucket{le=0}": 4,
            "e_bucket{le=1}": 4,
            "e_bucket{le=1.189207115002721}": 7,
            "e_bucket{le=1.4142135623730951}": 10,
            "e_bucket{le=+Inf}": 10,
            "e_sum{}": 7.5,
            "e_count{}": 10,
        },
    ),
    "a summary": (
        Metric("s", "summary", [Point(count=4, total=8.0, quantiles=[(0.5, 2.0), (0.99, 3.0)])]),
        {
            "s{quantile=0.5}": 2,
            "s{quantile=0.99}": 3,
            "s_sum{}": 8,
            "s_count{}": 4,
        },
    ),
}


@pytest.mark.parametrize("case", TABLE)
def test_metrics_become_the_series_prometheus_would_make_of_them(case: str) -> None:
    metric, expected = TABLE[case]
    assert one(metric) == expected


@pytest.mark.parametrize("case", TABLE)
def test_json_means_what_protobuf_means_and_a_warm_cache_what_a_cold_one_does(case: str) -> None:
    metric, expected = TABLE[case]
    cache = SeriesCache()
    body = json.dumps(request_json(metric)).encode()
    assert [series_of(read(body, JSON, cache)), series_of(read(request(metric), cache=cache))] == [expected, expected]


def test_json_takes_names_as_in_the_proto_file_and_texts_for_enumerations() -> None:
    body = {
        "resource_metrics": [
            {
                "scope_metrics": [
                    {
                        "metrics": [
                            {
                                "name": "m",
                                "sum": {
                                    "aggregation_temporality": "AGGREGATION_TEMPORALITY_DELTA",
                                    "data_points": [
                                        {"time_unix_nano": NOW * 10**6, "as_double": "Infinity", "unknown": [1]}
                                    ],
                                },
                            }
                        ]
                    }
                ]
            }
        ]
    }
    assert series_of(read(json.dumps(body).encode(), JSON)) == {"m{__type__=delta}": math.inf}


GAUGE = Metric("g", "gauge", [Point(1, labels={"http.method": "GET"})])


@pytest.mark.parametrize(
    ("resource", "scope", "expected"),
    [
        (SHOP, {}, ["g{http_method=GET,instance=i1,job=shop}"]),
        ({**SHOP, "service.namespace": "eu"}, {}, ["g{http_method=GET,instance=i1,job=eu/shop}"]),
        (
            {**SHOP, "os.type": "linux"},
            {},
            ["g{http_method=GET,instance=i1,job=shop}", "target_info{instance=i1,job=shop,os_type=linux}"],
        ),
        (
            {"service.name": "shop", "host.name": "h1"},
            {},
            ["g{http_method=GET,instance=h1,job=shop}", "target_info{host_name=h1,instance=h1,job=shop}"],
        ),
        ({"cloud.zone": "a"}, {}, ["g{cloud_zone=a,http_method=GET}"]),
        ({}, {"name": "lib", "version": "2"}, ["g{http_method=GET,otel_scope_name=lib,otel_scope_version=2}"]),
        ({}, {"version": "2"}, ["g{http_method=GET}"]),
    ],
)
def test_resources_and_scopes_become_labels_by_the_rules(resource: Labels, scope: Labels, expected: list[str]) -> None:
    assert list(one(GAUGE, resource, scope)) == expected


def test_a_resource_repeated_in_later_requests_has_their_latest_time() -> None:
    cache = SeriesCache()
    for step in range(3):
        points = [Point(1, at_ms=NOW - 9 + step), Point(2, at_ms=NOW - 5 + step)]
        parsed = read(request(Metric("g", "gauge", points), resource={**SHOP, "os.type": "l"}), cache=cache)
        assert [int(ts) - NOW for ts in parsed.ts] == [-9 + step, -5 + step, -5 + step]


@pytest.mark.parametrize(
    ("sent", "unit", "counter", "gauge", "expected"),
    [
        ("http.server.duration", "s", False, False, "http_server_duration_seconds"),
        ("mem__used..bytes", "By", False, True, "mem_used_bytes"),
        ("requests.total.count", "1", True, False, "requests_count_total"),
        ("io", "By/s", False, True, "io_bytes_per_second"),
        ("io", "{packet}/s", False, True, "io_per_second"),
        ("ratio.of", "1", False, True, "of_ratio"),
        ("1st", "", False, True, "_1st"),
        ("température", "Cel", False, True, "temp_rature_celsius"),
        ("…", "", False, True, ""),
        ("speed", "m/s²", False, True, "speed_meters_per_s"),
    ],
)
def test_metric_names_are_translated_as_prometheus_does(
    sent: str, unit: str, counter: bool, gauge: bool, expected: str
) -> None:
    assert metric_name(sent, unit, counter=counter, gauge=gauge) == expected


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ("http.method", "http_method"),
        ("1x", "key_1x"),
        ("a--b", "a_b"),
        ("__a.b__", "__a_b__"),
        ("_x", "_x"),
        ("…", ""),
    ],
)
def test_label_names_are_translated_as_prometheus_does(sent: str, expected: str) -> None:
    assert label_name(sent) == expected


def test_attributes_that_become_one_label_are_joined() -> None:
    assert list(one(Metric("g", "gauge", [Point(1, labels={"a.b": "2", "a-b": "1"})]))) == ["g{a_b=1;2}"]


def test_units_have_names_in_metadata() -> None:
    assert [unit_name(unit) for unit in ("By/s", "{x}", "1", "ms")] == ["bytes_per_second", "", "", "milliseconds"]


VALUES = {
    b"\x0a\x01x": "x",
    b"\x10\x01": "true",
    b"\x10\x00": "false",
    whole(3, -5): "-5",
    real(4, 0.5): "0.5",
    part(5, part(1, part(1, "a")) + part(1, whole(3, 2))): '["a","2"]',
    part(7, b"\x00\x01"): "AAE=",
    part(6, part(1, part(1, "k") + part(2, part(1, "v")))): '{"k":"v"}',
}


@pytest.mark.parametrize("raw", VALUES, ids=VALUES.values())
def test_values_of_attributes_of_every_kind_are_texts(raw: bytes) -> None:
    point = bits(3, NOW * 10**6) + bits(6, 1) + part(7, part(1, "a") + part(2, raw))
    body = part(1, part(2, part(2, part(1, "g") + part(5, part(1, point)))))
    assert list(series_of(read(body))) == [f"g{{a={VALUES[raw]}}}"]


def test_no_recorded_value_is_the_marker_of_staleness() -> None:
    points = [Point(None, flags=1), Point(3, labels={"a": "b"})]
    parsed = read(request(Metric("g", "gauge", points), Metric("h", "histogram", [Point(flags=1, total=0.0)])))
    assert [int(n) == STALE_BITS for n in parsed.values.view(np.uint64)] == [True, False, True, True, True]


def value_of(bits_of: int) -> float:
    """The float64 of 64 bits."""
    (value,) = struct.unpack("<d", struct.pack("<Q", bits_of))
    return float(value)


@pytest.mark.parametrize("expected", [0x7FF8000000000001, 0xFFF0000000000000, 1, 1 << 63], ids=hex)
def test_doubles_keep_their_very_bits(expected: int) -> None:
    parsed = read(request(Metric("g", "gauge", [Point(value_of(expected))])))
    assert parsed.values.view(np.uint64).tolist() == [expected]


REFUSED: dict[str, tuple[Metric, str]] = {
    "no time": (Metric("m", "gauge", [Point(1, at_ms=0)]), FAULTS[NO_TIME]),
    "no value": (Metric("m", "gauge", [Point(None)]), FAULTS[NO_VALUE]),
    "no temporality": (Metric("m", "sum", [Point(1)], temporality=0), FAULTS[NO_TEMPORALITY]),
    "an unknown temporality": (Metric("m", "sum", [Point(1)], temporality=7), FAULTS[NO_TEMPORALITY]),
    "too few buckets": (Metric("m", "histogram", [Point(counts=[1], bounds=[1.0])]), FAULTS[BAD_BUCKETS]),
    "bounds that fall": (Metric("m", "histogram", [Point(counts=[1, 1, 1], bounds=[2.0, 1.0])]), FAULTS[BAD_BOUNDS]),
    "a bound that is none": (Metric("m", "histogram", [Point(counts=[1, 1], bounds=[math.nan])]), FAULTS[BAD_BOUNDS]),
    "a scale out of range": (Metric("m", "exponentialHistogram", [Point(scale=21)]), FAULTS[BAD_SCALE]),
    "an offset out of range": (
        Metric("m", "exponentialHistogram", [Point(scale=0, positive=(1 << 30, [1]))]),
        FAULTS[BAD_SCALE],
    ),
    "no name": (Metric("…", "gauge", [Point(1)]), otlp_reader.NO_NAME),
    "a name too long": (Metric("m" * 300, "gauge", [Point(1)]), "the metric's name is longer than 256 bytes"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_fault_rejects_its_point_alone(case: str) -> None:
    metric, reason = REFUSED[case]
    exported = read(request(Metric("a", "gauge", [Point(1)]), metric, Metric("z", "gauge", [Point(2)])))
    assert series_of(exported) == {"a{}": 1, "z{}": 2}
    assert [(r.line, r.reason) for r in exported.rejections] == [(2, reason)]
    assert (exported.rejected, message_of(exported.rejections)) == (1, f"data point 2: {reason}")


def test_a_histogram_one_of_whose_series_is_not_valid_is_rejected_completely() -> None:
    exported = read(request(Metric("m" * 250, "histogram", [HISTOGRAM])))  # _bucket is too long, _sum is not
    assert (series_of(exported), exported.rejected) == ({}, 1)


def test_times_far_ahead_reject_their_points() -> None:
    exported = read(request(Metric("h", "histogram", [HISTOGRAM, Point(at_ms=NOW + FUTURE_MS + 1, count=1)])))
    assert (len(series_of(exported)), exported.rejected) == (7, 1)
    assert "ahead of the server" in message_of(exported.rejections)


def test_metadata_is_handed_on_once_per_metric() -> None:
    metric = Metric("lat", "histogram", [HISTOGRAM], unit="ms", help="How long.")
    cache = SeriesCache()
    results = [read(request(metric), cache=cache).metadata for _ in range(2)]
    assert [[(m.metric, m.type, m.help, m.unit) for m in each] for each in results] == [
        [("lat_milliseconds", "histogram", "How long.", "milliseconds")],
        [],
    ]


@settings(max_examples=100, deadline=None)
@given(
    scale=st.integers(-4, 8),
    offset=st.integers(-40, 40),
    counts=st.lists(st.integers(0, 9), max_size=30),
    zero=st.integers(0, 3),
)
def test_exponential_buckets_hold_what_lies_below_their_edges(
    scale: int, offset: int, counts: Sequence[int], zero: int
) -> None:
    point = Point(count=sum(counts) + zero, scale=scale, zero=zero, positive=(offset, counts))
    results = one(Metric("e", "exponentialHistogram", [point]))
    base = 2.0 ** (2.0**-scale)
    for name, value in results.items():
        if "le=" in name and "+Inf" not in name:
            edge = float(name.partition("le=")[2].rstrip("}"))
            below = zero + sum(n for k, n in enumerate(counts) if base ** (offset + k + 1) <= edge * (1 + 1e-9))
            assert value == (below if edge >= 0 else 0), (name, base)
    assert results["e_bucket{le=+Inf}"] == point.count


@given(st.floats(allow_nan=False))
def test_edges_are_written_without_exponent_and_read_back_as_they_were(value: float) -> None:
    text = format_number(value)
    assert float(text) == value
    assert math.isinf(value) or "e" not in text


def test_packed_and_single_numbers_mean_the_same() -> None:
    head = bits(3, NOW * 10**6) + bits(4, 3) + bits(6, 1) + bits(6, 2) + real(7, 5.0)
    exponential = bits(3, NOW * 10**6) + bits(4, 3) + part(8, whole(2, 1) + whole(2, 2))
    body = part(
        1,
        part(
            2,
            b"".join(
                part(2, part(1, name) + part(number, part(1, point) + whole(2, 2)))
                for name, number, point in (("h", 9, head), ("e", 10, exponential))
            ),
        ),
    )
    expected = {
        "h_bucket{le=5}": 1,
        "h_bucket{le=+Inf}": 3,
        "h_count{}": 3,
        "e_bucket{le=1}": 0,
        "e_bucket{le=2}": 1,
        "e_bucket{le=4}": 3,
        "e_bucket{le=+Inf}": 3,
        "e_count{}": 3,
    }
    assert series_of(read(body)) == expected


DAMAGED_DATA = part(1, part(2, part(2, part(1, "g") + part(5, b"\x0a\x7f"))))  # a gauge's points run out of it


@pytest.mark.parametrize(
    "body", [b"\x0a\x05\x12", b"\x0a\x04\x12\x02\x12\x05", b"\xff", b"\x0a\x02\x0b\x0b", DAMAGED_DATA]
)
def test_bytes_that_are_no_protobuf_are_rejected_completely(body: bytes) -> None:
    with pytest.raises(BadMessage, match="OTLP"):
        read(body)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"resourceMetrics": 1}', b"{" * 9999, b'{"resourceMetrics": [{"resource": []}]}', b"\xff"]
)
def test_json_that_is_no_request_is_rejected_completely(body: bytes) -> None:
    with pytest.raises(BadMessage, match="OTLP"):
        read(body, JSON)


def test_an_empty_request_is_one_without_points() -> None:
    assert [series_of(read(body, form)) for body, form in ((b"", PROTOBUF), (b"{}", JSON))] == [{}, {}]


def test_json_of_nothing_but_lists_in_lists_is_rejected_before_they_are_made() -> None:
    body = b'{"passed_over": [' + b"[[[{}]]]," * (MESSAGE_SAMPLES_MAX // 4) + b"[]]}"
    with pytest.raises(LimitExceeded, match="lists and objects"):
        read(body, JSON)


def test_too_many_metrics_are_rejected_before_they_are_read() -> None:
    with pytest.raises(LimitExceeded, match="too many metrics"):
        read(part(1, part(2, b"\x12\x00" * (MESSAGE_SERIES_MAX + 1))))


def test_too_many_samples_are_rejected() -> None:
    point = part(1, bits(3, NOW * 10**6) + part(8, part(2, b"\x01" * 500)) + zigzag_scale(6))
    with pytest.raises(LimitExceeded, match="too many samples"):
        read(part(1, part(2, part(2, part(1, "e") + part(10, point * 9_000 + whole(2, 2))))))


def zigzag_scale(number: int) -> bytes:
    """A scale of 2."""
    return varint(8 * number) + varint(4)


def answered(exported: Parsed, form: str) -> bytes:
    """The answer to a request."""
    return encode_answer(exported.rejected, message_of(exported.rejections), form)


def test_answers_are_in_the_form_of_the_request() -> None:
    exported = read(request(Metric("m", "gauge", [Point(None)])))
    assert json.loads(answered(exported, JSON)) == {
        "partialSuccess": {"rejectedDataPoints": "1", "errorMessage": f"data point 1: {FAULTS[NO_VALUE]}"}
    }
    message = f"data point 1: {FAULTS[NO_VALUE]}"
    assert answered(exported, PROTOBUF) == part(1, whole(1, 1) + part(2, message))
    assert (answered(read(b""), PROTOBUF), answered(read(b""), JSON)) == (b"", b"{}")
    assert (encode_error(3, "no", PROTOBUF), json.loads(encode_error(3, "no", JSON))) == (
        whole(1, 3) + part(2, "no"),
        {"code": 3, "message": "no"},
    )
