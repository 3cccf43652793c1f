"""Thinned lines keep their extremes in each pixel, their gaps, and their order."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from frontend.presenters.charting.thinning import DIGITS, extremes, outline, round_digits

VALUES = st.lists(st.one_of(st.floats(-1e9, 1e9), st.just(float("nan"))), min_size=7, max_size=200)


@given(VALUES, st.integers(3, 40))
def test_each_pixel_keeps_its_lowest_and_highest_value_and_no_other(values: list[float], width: int) -> None:
    line = np.array(values)
    times, thin = extremes(np.arange(len(line)), line[None, :], width)
    assert thin.shape == (1, len(times))
    assert len(times) <= 2 * -(-len(line) // width)
    assert np.all(np.diff(times) > 0)
    for pixel, first in enumerate(range(0, len(line), width)):
        some = line[first : first + width]
        pair = thin[0, 2 * pixel : 2 * pixel + 2]
        assert np.array_equal(np.isnan(pair), np.full(len(pair), np.isnan(some).all()))
        if not np.isnan(some).all():
            assert (pair.min(), pair.max()) == (np.nanmin(some), np.nanmax(some))


@given(VALUES, st.integers(3, 40))
def test_a_band_keeps_its_outer_edges(values: list[float], width: int) -> None:
    line = np.array(values)
    times, thin = extremes(np.arange(len(line)), line[None, :], width)
    low, high = outline(line, line, width, len(times))
    some = ~np.isnan(thin[0])
    assert np.all(low[some] <= thin[0][some])
    assert np.all(thin[0][some] <= high[some])


@given(st.lists(st.floats(-1e200, 1e200), min_size=1, max_size=50))
def test_rounded_values_differ_by_less_than_their_last_digit(values: list[float]) -> None:
    line = np.array(values)
    error = np.abs(round_digits(line) - line)
    assert np.all(error <= np.abs(line) * 10.0 ** (1 - DIGITS))
