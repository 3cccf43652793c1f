"""Claims about sketches: what they answer is near the truth, and it does not matter how they were put together."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spm.store.rollup import sketch
from spm.store.rollup.sketch import GAMMA, INFINITE, RELATIVE_ERROR, Sketches

STALE = np.array([0x7FF0000000000002], np.uint64).view(np.float64)[0]
GREATEST, LEAST, NORMAL = np.finfo(float).max, 5e-324, np.finfo(float).tiny
BORDERS = [2.0**e * GAMMA**j for e in (-3, 0, 52) for j in range(36)]

sketch.warm()  # compiling would look like a slow example

hostile = st.one_of(
    st.floats(width=64),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda v: v * 2.0**-1040),
    st.integers(-100, 100).map(float),
    st.sampled_from([0.0, -0.0, np.inf, -np.inf, np.nan, STALE, GREATEST, -GREATEST, LEAST, -LEAST, NORMAL, *BORDERS]),
)
groups = st.lists(st.lists(hostile, max_size=40), max_size=6)
quantiles = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.25, 0.5, 0.99, 1.0]))


def sketches_of(*series: list[float]) -> Sketches:
    starts = np.cumsum([0, *map(len, series)])
    return sketch.of_winners(starts, np.array([v for values in series for v in values]))


def flat(sketches: Sketches) -> list[tuple[str, bytes]]:
    return [(c.dtype.str, c.tobytes()) for c in (sketches.starts, sketches.keys, sketches.counts)]


def near(mine: float, true: float) -> bool:
    """Within the error that is promised; below the least normal number a step between floats comes on top."""
    return mine == true or abs(mine - true) <= RELATIVE_ERROR * 1.000001 * abs(true) + (
        LEAST if abs(true) < NORMAL else 0
    )


def neighbours(values: list[float], q: float) -> tuple[float, float]:
    numbers = np.sort(np.array([v for v in values if not np.isnan(v)]))
    rank = q * (len(numbers) - 1)
    return float(numbers[int(np.floor(rank))]), float(numbers[int(np.ceil(rank))])


def test_the_error_is_below_one_percent() -> None:
    assert RELATIVE_ERROR < 0.01


@given(st.lists(hostile, min_size=1, max_size=60), quantiles)
@example([1.0, 1.0], 0.1)
@example([GREATEST], 1.0)
@example([LEAST, 2 * LEAST], 0.0)
def test_a_quantile_is_near_the_true_one(values: list[float], q: float) -> None:
    [mine] = sketch.quantile(sketches_of(values), q)
    if all(np.isnan(v) for v in values):
        assert np.isnan(mine)
        return
    below, above = neighbours(values, q)
    if below == -np.inf and above == np.inf and q * (len(values) - 1) % 1:
        assert np.isnan(mine) or np.isinf(mine)
    elif below == above or np.isinf(below) or np.isinf(above):
        assert near(mine, below) or near(mine, above)
    elif np.sign(below) * np.sign(above) >= 0:
        assert min(abs(below), abs(above)) * 0.9900 - LEAST <= abs(mine) <= max(abs(below), abs(above)) * 1.0100 + LEAST
    else:
        assert below * 1.01 - LEAST <= mine <= above * 1.01 + LEAST


@given(st.lists(st.floats(1e-300, 1e300), min_size=1, max_size=200), quantiles)
def test_a_quantile_interpolates_as_numpy_does(values: list[float], q: float) -> None:
    [mine] = sketch.quantile(sketches_of(values), q)
    assert mine == pytest.approx(np.quantile(values, q), rel=0.01)


@given(groups, st.lists(st.integers(0, 40), max_size=4))
def test_merged_parts_equal_the_sketch_of_the_whole_byte_for_byte(series: list[list[float]], cuts: list[int]) -> None:
    """However each series is cut into stretches, and in whatever order they come."""
    edges = [0, *sorted(cuts), 41]
    parts = [part for values in series for part in [values[a:b] for a, b in pairwise(edges)][::-1]]
    heads = np.arange(len(series) + 1) * (len(edges) - 1)
    assert flat(sketch.merge_groups(sketches_of(*parts), heads)) == flat(sketches_of(*series))


@given(groups)
def test_a_sketch_counts_every_number_and_no_nan(series: list[list[float]]) -> None:
    sketches = sketches_of(*series)
    assert sketches.sizes.tolist() == [sum(not np.isnan(v) for v in values) for values in series]
    assert (sketches.counts > 0).all()
    for i in range(len(sketches)):
        assert (np.diff(sketches.keys[sketches.starts[i] : sketches.starts[i + 1]]) > 0).all()


@given(groups, st.data())
def test_rows_taken_are_the_sketches_of_these_rows(series: list[list[float]], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, len(series) - 1), max_size=8) if series else st.just([]))
    assert flat(sketches_of(*series).take(np.array(rows, np.int64))) == flat(sketches_of(*(series[i] for i in rows)))
    chosen = np.array(data.draw(st.lists(st.booleans(), min_size=len(series), max_size=len(series))), np.bool_)
    assert flat(sketches_of(*series).take(chosen)) == flat(
        sketches_of(*(v for v, c in zip(series, chosen, strict=True) if c))
    )


@given(groups, groups)
def test_sketches_side_by_side_are_those_of_all_series(first: list[list[float]], second: list[list[float]]) -> None:
    assert flat(sketch.concat([sketches_of(*first), Sketches.empty(2), sketches_of(*second)])) == flat(
        sketches_of(*first, [], [], *second)
    )


@given(st.lists(hostile.filter(lambda v: not np.isnan(v)), min_size=2, max_size=40))
def test_keys_are_ordered_like_their_values(values: list[float]) -> None:
    ordered = np.sort(np.array(values))
    keys = sketch.keys_of(ordered)
    assert (np.diff(keys) >= 0).all()
    assert all(near(mine, true) for mine, true in zip(sketch.values_of(keys), ordered, strict=True))


def test_a_cell_of_an_octave_contains_one_border_at_most() -> None:
    cells = 1.0 + np.arange(sketch._CELLS + 1) / sketch._CELLS
    borders = GAMMA ** np.arange(sketch.PER_OCTAVE)
    assert np.histogram(borders, cells)[0].max() == 1


def test_every_bucket_begins_where_the_one_before_it_ends() -> None:
    """Key by key over the whole range: a bucket's representative lies in it, and neighbours are a factor apart."""
    keys = np.arange(-INFINITE, INFINITE + 1, dtype=np.int32)
    values = sketch.values_of(keys)
    assert values[0] == -np.inf
    assert values[-1] == np.inf
    normal = np.abs(values) > 100 * NORMAL
    assert (sketch.keys_of(values)[normal] == keys[normal]).all()
    inner = values[(values > NORMAL) & np.isfinite(values)]
    np.testing.assert_allclose(inner[1:] / inner[:-1], GAMMA, rtol=1e-12)


@pytest.mark.parametrize(
    ("q", "answer"),
    [
        pytest.param(np.nan, np.nan, id="not a number"),
        pytest.param(-0.1, -np.inf, id="below zero"),
        pytest.param(1.1, np.inf, id="above one"),
    ],
)
def test_a_quantile_that_is_none_is_answered_as_promql_does(q: float, answer: float) -> None:
    np.testing.assert_array_equal(sketch.quantile(sketches_of([1.0], []), q), [answer, np.nan])


def test_far_apart_numbers_take_no_more_buckets_than_there_are() -> None:
    """The key's whole range lies between them: they are sorted, not searched for."""
    sketches = sketches_of([-np.inf, np.inf, GREATEST, -LEAST, 0.0, -0.0])
    assert sketches.keys.tolist() == [-INFINITE, -1, 0, INFINITE - 1, INFINITE]
    assert sketches.counts.tolist() == [1, 1, 2, 1, 1]


def test_nothing_makes_nothing() -> None:
    assert len(sketches_of()) == len(Sketches.empty()) == len(sketch.concat([])) == 0
    assert np.isnan(sketch.quantile(Sketches.empty(1), 0.5)).all()
