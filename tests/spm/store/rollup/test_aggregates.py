"""Claims about spm/store/rollup/aggregates.py, against a reference in plain Python."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spm.store.rollup.aggregates import COLUMNS, Aggregates
from spm.store.rollup.sketch import Sketches
from tests.support.store_columns import aggregate_rows, merge_aggregates

STALE = np.array([0x7FF0000000000002], np.uint64).view(np.float64)[0]
ODD_NAN = np.array([0x7FF8000000000ABC], np.uint64).view(np.float64)[0]

Sample = tuple[int, int, float]

whole = st.integers(-(2**40), 2**40).map(float)
odd = st.sampled_from([STALE, math.nan, ODD_NAN, math.inf, -math.inf, 0.0, -0.0, 1e300, -1e300])
real = st.floats(allow_nan=False, allow_infinity=False, width=64)


def winners(values: st.SearchStrategy[float]) -> st.SearchStrategy[list[Sample]]:
    """Samples of few series and times: one per (series, ts), sorted."""
    keys = st.tuples(st.integers(0, 4), st.integers(1, 200))
    return st.dictionaries(keys, values, max_size=60).map(lambda d: [(s, t, d[s, t]) for s, t in sorted(d)])


def bits(number: float) -> int:
    return int(np.array([number]).view(np.uint64)[0])


def aggregates_of(samples: list[Sample]) -> Aggregates:
    return aggregate_rows(
        np.array([s for s, _, _ in samples], np.uint64),
        np.array([t for _, t, _ in samples], np.int64),
        np.array([v for _, _, v in samples], np.float64),
    )


def buckets(rows: Aggregates) -> tuple[np.ndarray, ...]:
    return rows.sketch.starts, rows.sketch.keys, rows.sketch.counts


aggregates_of([(0, 1, 0.0)])  # compiles the kernels, which would look like a slow example
merge_aggregates([aggregates_of([(0, 1, 0.0)]), aggregates_of([(0, 2, 0.0)])])


def neumaier(values: list[float]) -> float:
    """The sum, with what rounding loses on the way put back at the end; from infinity on nothing is lost."""
    total = lost = 0.0
    for v in values:
        result = total + v
        large, small = (total, v) if abs(total) >= abs(v) else (v, total)
        lost = 0.0 if math.isinf(result) else lost + ((large - result) + small)
        total = result
    return total + lost


def reference(samples: list[Sample]) -> dict[int, dict[str, float]]:
    """The aggregates of each series, one sample at a time."""
    rows: dict[int, dict[str, float]] = {}
    for series in sorted({s for s, _, _ in samples}):
        counted = [(t, v) for s, t, v in samples if s == series and bits(v) != 0x7FF0000000000002]
        if not counted:
            continue
        values = [v for _, v in counted]
        numbers = [v for v in values if not math.isnan(v)]
        squares = resets = 0.0
        for v in values:
            squares += v * v
        for before, after in pairwise(values):
            resets += before if after < before else 0.0
        rows[series] = {
            "count": len(values),
            "sum": neumaier(values),
            "sumsq": squares,
            "min": min(numbers, default=math.nan),
            "max": max(numbers, default=math.nan),
            "first": values[0],
            "first_ts": counted[0][0],
            "last": values[-1],
            "last_ts": counted[-1][0],
            "increase": values[-1] - values[0] + resets if len(values) > 1 else 0.0,
        }
    return rows


def same(mine: float, theirs: float) -> bool:
    return (math.isnan(mine) and math.isnan(theirs)) or mine == theirs


@given(winners(st.one_of(whole, odd, real)))
def test_aggregate_equals_the_reference(samples: list[Sample]) -> None:
    rows, wanted = aggregates_of(samples), reference(samples)
    assert rows.series.tolist() == sorted(wanted)
    for i, series in enumerate(rows.series.tolist()):
        for name, _ in COLUMNS:
            assert same(getattr(rows, name)[i], wanted[series][name]), (series, name)


@given(winners(st.one_of(odd, whole)))
def test_first_and_last_keep_their_bits(samples: list[Sample]) -> None:
    rows, wanted = aggregates_of(samples), reference(samples)
    for i, series in enumerate(rows.series.tolist()):
        assert bits(rows.first[i]) == bits(wanted[series]["first"])
        assert bits(rows.last[i]) == bits(wanted[series]["last"])


@given(winners(whole), st.lists(st.integers(1, 200), max_size=6))
def test_merge_of_parts_equals_the_whole_on_integers(samples: list[Sample], cuts: list[int]) -> None:
    """However time is cut, count, sum, min, max, first, last and increase are those of the uncut stretch."""
    edges = [0, *sorted(cuts), 201]
    parts = [aggregates_of([s for s in samples if a < s[1] <= b]) for a, b in pairwise(edges)]
    joined, uncut = merge_aggregates(parts), aggregates_of(samples)
    for f in fields(Aggregates):
        if f.name not in ("sumsq", "sketch"):
            assert getattr(joined, f.name).tolist() == getattr(uncut, f.name).tolist(), f.name
    np.testing.assert_allclose(joined.sumsq, uncut.sumsq, rtol=1e-12)


@given(winners(st.one_of(whole, odd, real)), st.lists(st.integers(1, 200), max_size=6))
def test_merge_of_parts_has_the_sketch_of_the_whole(samples: list[Sample], cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), 201]
    joined = merge_aggregates([aggregates_of([s for s in samples if a < s[1] <= b]) for a, b in pairwise(edges)])
    assert joined.has_sketch.all()
    assert [c.tolist() for c in buckets(joined)] == [c.tolist() for c in buckets(aggregates_of(samples))]


@given(winners(st.one_of(whole, odd)), winners(st.one_of(whole, odd)))
def test_a_whole_of_which_a_part_lacks_its_sketch_has_none(first: list[Sample], second: list[Sample]) -> None:
    """As when some hours of a day were written before there were sketches."""
    after = [(s, t + 200, v) for s, t, v in second]
    whole, bare = aggregates_of(after), replace(aggregates_of(first), sketch=Sketches.empty())
    joined = merge_aggregates([bare, whole])
    lacking = set(bare.series[~np.isnan(bare.min)].tolist())
    assert set(joined.series[~joined.has_sketch].tolist()) == lacking
    counted = joined.take(joined.has_sketch & ~np.isnan(joined.min))
    assert counted.sketch.sizes.tolist() == [
        whole.sketch.sizes[whole.series == s].sum() for s in counted.series.tolist()
    ]


@pytest.mark.parametrize(
    "values", [[1e100, 1.0, -1e100], [2.0**53, 1.0, 1.0, -(2.0**53)], [0.1, 0.2, -0.3] * 3], ids=str
)
def test_sums_of_hours_and_of_days_lose_nothing_that_cancels(values: list[float]) -> None:
    samples = [(0, at, value) for at, value in enumerate(values)]
    assert aggregates_of(samples).sum.tolist() == [math.fsum(values)]
    assert merge_aggregates([aggregates_of([sample]) for sample in samples]).sum.tolist() == [math.fsum(values)]


@given(winners(st.one_of(whole, odd)), st.integers(1, 200))
def test_merge_treats_odd_values_like_the_whole(samples: list[Sample], cut: int) -> None:
    joined, uncut = (
        merge_aggregates(
            [aggregates_of([s for s in samples if s[1] <= cut]), aggregates_of([s for s in samples if s[1] > cut])]
        ),
        aggregates_of(samples),
    )
    for name in ("count", "min", "max", "first_ts", "last_ts"):
        np.testing.assert_array_equal(getattr(joined, name), getattr(uncut, name), err_msg=name)
    for name in ("first", "last"):
        np.testing.assert_array_equal(
            getattr(joined, name).view(np.uint64), getattr(uncut, name).view(np.uint64), err_msg=name
        )


@pytest.mark.parametrize(
    ("values", "increase"),
    [
        pytest.param([5.0], 0.0, id="one sample has not grown"),
        pytest.param([5.0, 7.0, 9.0], 4.0, id="a growing counter"),
        pytest.param([5.0, 9.0, 2.0, 3.0], 7.0, id="a reset counts from zero"),
        pytest.param([5.0, 9.0, STALE, 2.0], 6.0, id="a stale marker is not there"),
    ],
)
def test_increase_counts_resets(values: list[float], increase: float) -> None:
    assert aggregates_of([(1, i + 1, v) for i, v in enumerate(values)]).increase.tolist() == [increase]


def test_merge_adds_the_border_of_a_counter_that_was_reset_between_hours() -> None:
    before, after = aggregates_of([(1, 1, 10.0), (1, 2, 15.0)]), aggregates_of([(1, 3, 4.0), (1, 4, 6.0)])
    assert merge_aggregates([before, after]).increase.tolist() == [5.0 + 4.0 + 2.0]


def test_series_with_stale_markers_alone_has_no_row() -> None:
    assert aggregates_of([(1, 1, STALE), (2, 1, 3.0)]).series.tolist() == [2]


def test_nothing_makes_nothing() -> None:
    assert len(aggregates_of([])) == len(merge_aggregates([])) == len(merge_aggregates([Aggregates.empty()])) == 0
