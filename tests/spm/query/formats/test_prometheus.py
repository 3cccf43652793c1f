"""Answers are written as Prometheus writes them, and times are read as its clients write them."""

from __future__ import annotations

import json
import math
import struct
import subprocess
import sys
from collections.abc import Callable

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from spm.errors import BadQuery
from spm.query.fake import FakeStorage
from spm.query.formats import prometheus
from spm.query.promql.engine import Engine

NUMBERS = {
    0.0: "0",
    2.0: "2",
    -1.5: "-1.5",
    0.1: "0.1",
    1e-6: "0.000001",
    1e-7: "1e-07",
    1.5e-10: "1.5e-10",
    1e16: "10000000000000000",
    123456789012345680000.0: "123456789012345680000",
    1e21: "1e+21",
    -1e300: "-1e+300",
    math.inf: "+Inf",
    -math.inf: "-Inf",
    5e-324: "5e-324",
    0.00001234: "0.00001234",
}


@pytest.mark.parametrize(("value", "text"), NUMBERS.items())
def test_number_is_written_as_go_writes_it(value: float, text: str) -> None:
    assert prometheus.number(value) == text


def test_negative_zero_keeps_its_sign() -> None:
    assert prometheus.number(-0.0) == "-0"


def test_nan_is_written_as_a_word_whatever_its_payload() -> None:
    assert prometheus.number(math.nan) == "NaN"
    assert prometheus.number(struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0007))[0]) == "NaN"


@hypothesis.given(st.floats(allow_nan=False))
def test_number_reads_back_to_the_same_bits(value: float) -> None:
    back = float(prometheus.number(value))
    assert struct.pack("<d", back) == struct.pack("<d", value)


@hypothesis.settings(deadline=None)
@hypothesis.given(st.lists(st.floats() | st.integers(-(10**17), 10**17).map(float) | st.floats(-1e12, 1e12)))
def test_column_of_numbers_is_written_as_each_of_them(values: list[float]) -> None:
    assert prometheus.numbers(np.array(values, np.float64)).to_pylist() == [prometheus.number(v) for v in values]


def gauges() -> FakeStorage:
    return FakeStorage().add("up", {"job": "b"}, [1_000, 2_500], [1, math.nan]).add("up", {"job": "a"}, [2_500], [0.5])


def body(raw: bytes) -> object:
    return json.loads(raw)["data"]


def test_scalar_is_what_grafana_tests_a_data_source_with() -> None:
    raw = prometheus.query_body(Engine(FakeStorage()).instant("1+1", 4_000))
    assert raw == b'{"status":"success","data":{"resultType":"scalar","result":[4,"2"]}}'


def test_vector_has_one_value_per_series() -> None:
    assert body(prometheus.query_body(Engine(gauges()).instant("up", 2_500))) == {
        "resultType": "vector",
        "result": [
            {"metric": {"__name__": "up", "job": "b"}, "value": [2.5, "NaN"]},
            {"metric": {"__name__": "up", "job": "a"}, "value": [2.5, "0.5"]},
        ],
    }


def test_matrix_is_sorted_by_labels_and_leaves_out_absent_points() -> None:
    assert body(prometheus.query_body(Engine(gauges()).range("up", 1_000, 3_000, 1_000))) == {
        "resultType": "matrix",
        "result": [
            {"metric": {"__name__": "up", "job": "a"}, "values": [[3, "0.5"]]},
            {"metric": {"__name__": "up", "job": "b"}, "values": [[1, "1"], [2, "1"], [3, "NaN"]]},
        ],
    }


def test_range_of_samples_has_their_own_times() -> None:
    assert body(prometheus.query_body(Engine(gauges()).instant('up{job="b"}[1m]', 3_000))) == {
        "resultType": "matrix",
        "result": [{"metric": {"__name__": "up", "job": "b"}, "values": [[1, "1"], [2.5, "NaN"]]}],
    }


@pytest.mark.parametrize(
    ("expr", "limit", "jobs"),
    [("up[1m]", 0, "ab"), ("up[1m]", 1, "a"), ("up[1m]", 2, "ab"), ("up[1m:1s]", 1, "a"), ('up{job="c"}[1m]', 1, "")],
)
def test_range_of_samples_is_sorted_by_labels_and_cut_with_a_warning(expr: str, limit: int, jobs: str) -> None:
    storage = gauges().add("up", {"job": "0"}, [70_000], [1])
    answer = json.loads(prometheus.query_body(Engine(storage).instant(expr, 3_000), limit=limit))
    assert [one["metric"]["job"] for one in answer["data"]["result"]] == list(jobs)
    assert (prometheus.TRUNCATED in answer.get("warnings", [])) is (len(jobs) == limit == 1)


def test_string_is_answered_as_it_is() -> None:
    assert body(prometheus.query_body(Engine(gauges()).instant('"hi"', 1_000))) == {
        "resultType": "string",
        "result": [1, "hi"],
    }


def test_notes_become_infos() -> None:
    hour = 3_600_000
    storage = FakeStorage().add("m", {}, [5], np.array([1.0]))
    raw = prometheus.query_body(Engine(storage).instant("sum_over_time(m[1h])", hour))
    assert json.loads(raw)["infos"] == ["hour aggregates: 1970-01-01T00:00Z to 1970-01-01T01:00Z"]


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("4", 4_000),
        ("1.0015", 1_002),
        ("-1", -1_000),
        ("1970-01-01T00:00:01.5Z", 1_500),
        ("1970-01-01T01:00:00+01:00", 0),
    ],
)
def test_time_is_seconds_or_rfc3339(text: str, ms: int) -> None:
    assert prometheus.instant_ms(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "nan",
        "inf",
        "1e300",
        "1_0",
        "1970-01-01T00:00:00",
        "now",
        "١",
        " 1",
        "1\n",
        "20200101T000000Z",
        "2020-W01-1",
        "2020-01-01",
        "2020-01-01T00:00Z",
        "٢020-01-01T00:00:00Z",
    ],
)
def test_time_is_refused_when_it_is_none(text: str) -> None:
    with pytest.raises(BadQuery):
        prometheus.instant_ms(text)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("15", 15_000),
        ("0.5", 500),
        ("1h30m", 5_400_000),
        ("1d", 86_400_000),
        ("250ms", 250),
        ("0" * 5_000 + "1h", 3_600_000),
        ("8000y", 252_288_000_000_000),
    ],
)
def test_duration_is_seconds_or_units(text: str, ms: int) -> None:
    assert prometheus.duration_ms(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "m",
        "5x",
        "1m1h",
        "inf",
        "9999999999999y",
        "-5m",
        "٥m",
        " 5",
        "9" * 5_000 + "s",
        "9" * 5_000,
        "8036y",
        "5" + "0" * 297 + "y27" + "0" * 298 + "w",
        "1d" * 9,
    ],
)
def test_duration_is_refused_when_it_is_none(text: str) -> None:
    with pytest.raises(BadQuery):
        prometheus.duration_ms(text)


@pytest.mark.parametrize(
    ("read", "expected"),
    [(prometheus.instant_ms, "RFC 3339"), (prometheus.duration_ms, "1h30m")],
    ids=["time", "duration"],
)
def test_unreadable_text_is_quoted_in_part_with_what_was_expected(read: Callable[[str], int], expected: str) -> None:
    with pytest.raises(BadQuery, match=expected) as caught:
        read("x" * 900_000)
    assert 'cannot parse "xxx' in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("text", "name"), [("job", "job"), ("U__a_2e_b", "a.b"), ("U__a__b", "a_b"), ("U___1f600_", "\U0001f600")]
)
def test_label_name_may_come_escaped(text: str, name: str) -> None:
    assert prometheus.label_name(text) == name


def test_answering_imports_no_pandas() -> None:
    program = (
        "import sys; from spm.query.formats import prometheus as p; from spm.query.fake import FakeStorage as F;"
        "from spm.query.promql.engine import Engine as E;"
        "s = F().add('m', {}, [1], [1e20]).add('m', {'a': 'b'}, [1], [2]);"
        "print(p.query_body(E(s).range('m{a=~\".*\"}', 1, 2, 1))); assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
