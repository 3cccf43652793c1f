"""Answers computed by hand from the documented semantics, one row each."""

from __future__ import annotations

import math

import numpy as np
import pytest

from spm.errors import BadQuery, QueryFailed
from spm.query.fake import STALE, FakeStorage
from spm.query.promql.engine import Engine

M = 60_000  # a minute; all times of these tables are ms after 0
Table = dict[str, float]


def storage() -> FakeStorage:
    """Return a gauge of three hosts, a counter with one reset, and some special series."""
    return (
        FakeStorage()
        .add("gauge", {"host": "a", "dc": "x"}, [1 * M, 2 * M, 3 * M, 4 * M], [1, 4, 2, 3])
        .add("gauge", {"host": "b", "dc": "x"}, [1 * M, 2 * M, 3 * M, 4 * M], [10, 40, 20, 30])
        .add("gauge", {"host": "c"}, [1 * M, 2 * M], [100, 400])
        .add("limit", {"dc": "x"}, [4 * M], [25])
        .add("steady_total", {}, [i * 15_000 for i in range(1, 41)], [float(i) for i in range(1, 41)])
        .add("reset_total", {}, [1 * M, 2 * M, 3 * M, 4 * M], [100, 130, 10, 30])
        .add("ended", {}, [1 * M, 2 * M], [7, STALE])
        .add("odd", {"n": "nan"}, [4 * M], [math.nan])
        .add("odd", {"n": "inf"}, [4 * M], [math.inf])
        .add("odd", {"n": "one"}, [4 * M], [1])
        .add("far", {}, [115_000, 215_000, 315_000], [1_000, 1_010, 1_020])
        .add("near", {}, [109_000, 209_000, 309_000], [1_000, 1_010, 1_020])
        .add("twin_one", {"host": "a"}, [4 * M], [5])
        .add("twin_two", {"host": "a"}, [4 * M], [6])
    )


def instant(expr: str, at_ms: int = 4 * M) -> Table:
    """Return `{labels: value}` of an instant vector, or `{"": value}` of a scalar."""
    result = Engine(storage()).instant(expr, at_ms)
    keys = [",".join(f"{name}={labels[name]}" for name in sorted(labels)) for labels in result.labels]
    return {key: float(value) for key, value in zip(keys, result.values[:, 0], strict=True)}


TABLE: list[tuple[str, str, int, Table]] = [
    ("a constant needs no data and no year", "1+1", 4_000, {"": 2}),
    ("powers bind to the right", "2^3^2", 0, {"": 512}),
    ("a sign binds weaker than a power", "-1^2", 0, {"": -1}),
    ("a scalar comparison with bool is a number", "1 < bool 2", 0, {"": 1}),
    ("time is in seconds", "time()", 4_500, {"": 4.5}),
    ("a selector takes the newest sample", 'gauge{host="a"}', 4 * M, {"__name__=gauge,dc=x,host=a": 3}),
    ("a sample is seen until five minutes later", "limit", 9 * M - 1, {"__name__=limit,dc=x": 25}),
    ("a sample exactly five minutes old is gone", "limit", 9 * M, {}),
    ("a stale marker ends a series at once", "ended", 2 * M, {}),
    ("before the marker the series is there", "ended", 2 * M - 1, {"__name__=ended": 7}),
    ("a range passes over stale markers", "count_over_time(ended[5m])", 2 * M, {"": 1}),
    ("a range leaves out its own start", 'count_over_time(gauge{host="a"}[1m])', 2 * M, {"dc=x,host=a": 1}),
    ("a range holds its end", 'sum_over_time(gauge{host="a"}[2m])', 2 * M, {"dc=x,host=a": 5}),
    ("not-equal also holds for a label that is absent", 'limit{host!="a"}', 4 * M, {"__name__=limit,dc=x": 25}),
    ("an empty value means an absent label", 'gauge{dc=""}', 4 * M, {"__name__=gauge,host=c": 400}),
    ("a regex is anchored at both ends", 'gauge{host=~"a|.b"}', 4 * M, {"__name__=gauge,dc=x,host=a": 3}),
    ("a negated regex", 'gauge{host!~"[ab]"}', 4 * M, {"__name__=gauge,host=c": 400}),
    ("an offset looks back", 'gauge{host="a"} offset 2m', 4 * M, {"__name__=gauge,dc=x,host=a": 4}),
    ("a negative offset looks ahead", 'gauge{host="a"} offset -1m', 1 * M, {"__name__=gauge,dc=x,host=a": 4}),
    (
        "@ stands still, and the offset counts from there",
        'gauge{host="a"} @ 180 offset 1m',
        9_000 * M,
        {"__name__=gauge,dc=x,host=a": 4},
    ),
    # 40 samples 15 s apart, one more each: the window (0, 240 s] holds 1…16 and grows 15 in 225 s; both borders are
    # within 1.1 intervals, so 240/225 of 15; the line meets zero exactly at the window's start.
    ("increase reaches the borders of its window", "increase(steady_total[4m])", 4 * M, {"": 16}),
    # 20 in 200 s; the start is 115 s away, more than 1.1 of the 100 s between samples: half of these, 50 s, are added.
    ("increase goes half an interval towards a far border", "increase(far[400s])", 400_000, {"": 20 * 335 / 200}),
    ("increase reaches a border 1.09 intervals away", "increase(near[400s])", 400_000, {"": 20 * 400 / 200}),
    ("rate is increase per second", "rate(steady_total[4m])", 4 * M, {"": 16 / 240}),
    # Samples 9…16, of the time (120 s, 240 s]: 7 in 105 s, extended by 15 s to the start.
    ("increase in a later window", "increase(steady_total[2m])", 4 * M, {"": 8}),
    # 30 - 100 + 130 = 60 in 180 s; 60 s to the start are within 66 s, and zero is farther than that.
    ("a counter that falls has begun again", "increase(reset_total[4m])", 4 * M, {"": 80}),
    ("a gauge's change may be negative", "delta(reset_total[4m])", 4 * M, {"": -70 * 240 / 180}),
    ("irate takes the last two samples", "irate(reset_total[4m])", 4 * M, {"": 20 / 60}),
    ("irate of a fall counts from zero", "irate(reset_total[4m])", 3 * M, {"": 10 / 60}),
    ("idelta of a fall is negative", "idelta(reset_total[4m])", 3 * M, {"": -120}),
    ("rate needs two samples", "rate(limit[5m])", 4 * M, {}),
    ("last_over_time keeps the name", "last_over_time(limit[5m])", 4 * M, {"__name__=limit,dc=x": 25}),
    ("avg_over_time", 'avg_over_time(gauge{host="a"}[4m])', 4 * M, {"dc=x,host=a": 2.5}),
    ("stdvar_over_time is of the population", 'stdvar_over_time(gauge{host="a"}[4m])', 4 * M, {"dc=x,host=a": 1.25}),
    (
        "quantile_over_time goes between ranks",
        'quantile_over_time(0.5, gauge{host="a"}[4m])',
        4 * M,
        {"dc=x,host=a": 2.5},
    ),
    ("sum by keeps only what is named", "sum by (dc) (gauge)", 4 * M, {"dc=x": 33, "": 400}),
    ("sum without keeps the rest, but no name", "sum without (host) (gauge)", 4 * M, {"dc=x": 33, "": 400}),
    ("count", "count(gauge)", 4 * M, {"": 3}),
    (
        "names live until the end",
        'sum by (__name__) (rate({__name__=~"steady_total|reset_total"}[4m]))',
        4 * M,
        {"__name__=reset_total": 80 / 240, "__name__=steady_total": 16 / 240},
    ),
    ("min passes over NaN", "min(odd)", 4 * M, {"": 1}),
    ("max of infinity", "max(odd)", 4 * M, {"": math.inf}),
    ("a sum with NaN is NaN", "sum(odd)", 4 * M, {"": math.nan}),
    ("topk ranks NaN last", "topk(2, odd)", 4 * M, {"__name__=odd,n=inf": math.inf, "__name__=odd,n=one": 1}),
    ("quantile ranks NaN first", "quantile(0, odd)", 4 * M, {"": math.nan}),
    (
        "a comparison keeps the element",
        "gauge > 3",
        4 * M,
        {"__name__=gauge,dc=x,host=b": 30, "__name__=gauge,host=c": 400},
    ),
    (
        "a scalar on the left changes nothing about it",
        "3 < gauge",
        4 * M,
        {"__name__=gauge,dc=x,host=b": 30, "__name__=gauge,host=c": 400},
    ),
    ("bool keeps all and takes the name", "odd == bool 1", 4 * M, {"n=nan": 0, "n=inf": 0, "n=one": 1}),
    (
        "NaN differs from everything",
        "odd != 1",
        4 * M,
        {"__name__=odd,n=nan": math.nan, "__name__=odd,n=inf": math.inf},
    ),
    ("vectors match on all labels", "gauge - gauge", 4 * M, {"dc=x,host=a": 0, "dc=x,host=b": 0, "host=c": 0}),
    ("on() names what must be equal", 'limit - on (dc) gauge{host="a"}', 4 * M, {"dc=x": 22}),
    ("many to one", "gauge / on (dc) group_left () limit", 4 * M, {"dc=x,host=a": 0.12, "dc=x,host=b": 1.2}),
    (
        "one to many keeps the value of the left",
        "limit > on (dc) group_right () gauge",
        4 * M,
        {"__name__=gauge,dc=x,host=a": 25},
    ),
    ("and", 'gauge and on (host) gauge{host="c"}', 4 * M, {"__name__=gauge,host=c": 400}),
    ("unless", "gauge unless on (dc) limit", 4 * M, {"__name__=gauge,host=c": 400}),
    ("or", "limit or ended", 4 * M, {"__name__=limit,dc=x": 25}),
    ("scalar() of several is NaN", "scalar(gauge)", 4 * M, {"": math.nan}),
    ("vector()", "vector(2) * 3", 4 * M, {"": 6}),
    ("round goes up in the middle", "round(vector(-2.5))", 4 * M, {"": -2}),
    ("round goes up in the middle of positive numbers too", "round(vector(2.5))", 4 * M, {"": 3}),
    ("round to a fraction", "round(vector(0.37), 0.1)", 4 * M, {"": 0.4}),
    ("clamp with crossed bounds is empty", "clamp(limit, 5, 1)", 4 * M, {}),
    ("the remainder has the sign of the left", "vector(-7) % 3", 4 * M, {"": -1}),
]


@pytest.mark.parametrize(("expr", "at_ms", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_answer_is_the_one_computed_by_hand(expr: str, at_ms: int, expected: Table) -> None:
    result = instant(expr, at_ms)
    assert result.keys() == expected.keys()
    np.testing.assert_allclose([result[key] for key in expected], list(expected.values()), rtol=1e-14)


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        ('{__name__=~"twin_.*"} * 2', "same labelset"),
        ("gauge * on (dc) gauge", "many-to-many"),
        ("gauge * on (dc) limit", "many-to-one matching must be explicit"),
        ("topk(scalar(gauge), gauge)", "NaN"),
    ],
)
def test_query_fails_when_labels_are_ambiguous(expr: str, message: str) -> None:
    with pytest.raises(QueryFailed, match=message):
        Engine(storage()).instant(expr, 4 * M)


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        ("rate(gauge)", "1:6: parse error: expected type range vector"),
        ("1 > 2", "BOOL"),
        ("sum(gauge", r"1:10: parse error: unexpected end of input .* expected ',' or '\)'"),
        ("  histogram_avg(gauge)", "1:3: parse error: native histograms are not supported"),
        ("gauge </ 5", "1:7: parse error: native histograms are not supported"),
        ("start_timestamp(gauge)", "1:1: parse error: .* no start times are stored"),
        ('gauge{a="b" or c="d"}', "1:13: parse error: 'or' between matchers is not supported"),
        ('gauge{host=~"a\\\\C"}', "1:1: parse error: regular expression"),
    ],
)
def test_query_is_refused_with_its_reason(expr: str, message: str) -> None:
    with pytest.raises(BadQuery, match=message):
        Engine(storage()).instant(expr, 4 * M)


def test_range_query_gives_a_point_per_step_where_there_is_data() -> None:
    result = Engine(storage()).range('gauge{host="c"} * 2', 0, 8 * M, 2 * M)
    assert result.labels == [{"host": "c"}]
    assert result.times.tolist() == [0, 2 * M, 4 * M, 6 * M, 8 * M]
    assert result.present.tolist() == [[False, True, True, True, False]]
    assert result.values[0, 1:4].tolist() == [800, 800, 800]


def test_sample_is_absent_at_the_step_exactly_five_minutes_later() -> None:
    result = Engine(FakeStorage().add("m", {}, [1 * M], [1])).range("m", 0, 7 * M, M)
    assert result.present[0].tolist() == [False, True, True, True, True, True, False, False]


def test_range_query_of_a_scalar_is_one_series_without_labels() -> None:
    result = Engine(storage()).range("time()", 0, 2_000, 1_000)
    assert (result.kind, result.labels, result.values.tolist()) == ("matrix", [{}], [[0, 1, 2]])


def test_instant_query_of_a_range_gives_the_samples_themselves() -> None:
    result = Engine(storage()).instant("ended[5m]", 4 * M)
    assert result.samples is not None
    assert (result.samples.ts.tolist(), result.samples.values.tolist()) == ([1 * M], [7])


def test_series_that_get_equal_labels_are_merged_when_they_have_no_common_step() -> None:
    parts = FakeStorage().add("one", {}, [1 * M], [1]).add("two", {}, [20 * M], [2])
    result = Engine(parts).range('{__name__=~"one|two"} * 1', 0, 20 * M, 10 * M)
    assert (result.labels, result.present.tolist()) == ([{}], [[False, False, True]])
    result = Engine(parts).range('last_over_time({__name__=~"one|two"}[10m]) * 1', 5 * M, 20 * M, 15 * M)
    assert result.values.tolist() == [[1, 2]]


def test_name_is_removed_only_at_steps_where_a_function_removes_it() -> None:
    parts = FakeStorage().add("m", {}, [2 * M], [7])
    result = Engine(parts).range("(m offset 1m) or count_over_time(m[1m])", 2 * M, 3 * M, M)
    assert result.labels == [{}, {"__name__": "m"}]
    assert result.present.tolist() == [[True, False], [False, True]]
