"""Compensated sums in lanes are as exact as a sum can be, whatever their length; numbers that are not finite show."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spm.query.promql.kernels.over_time import AVG, SUM, value
from spm.query.promql.kernels.sums import compensated_sum

NUMBERS = st.one_of(
    st.floats(-1e200, 1e200, allow_nan=False),
    st.sampled_from([0.0, 1.0, -1.0, 0.1, 1e16, -1e16, 1e100, -1e100, 5e-324]),
)


@given(st.integers(1, 130), st.lists(NUMBERS, min_size=1, max_size=130))
def test_a_compensated_sum_of_any_length_is_the_exact_sum_rounded(length: int, numbers: list[float]) -> None:
    values = np.resize(numbers, length)
    total, lost = compensated_sum(values[1:], values[0])
    uncompensated = length**2 * 2.0**-104 * math.fsum(abs(values))  # the errors of the errors, which are not added up
    assert abs(total + lost - math.fsum(values)) <= math.ulp(total) + uncompensated


@pytest.mark.parametrize("length", [1, 31, 32, 33, 100])
@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_makes_the_sum_not_finite_at_any_place(length: int, odd: float) -> None:
    for place in range(length):
        values = np.arange(float(length))
        values[place] = odd
        for function in (SUM, AVG):
            np.testing.assert_equal(value(function, np.arange(length), values, 0, 1, 0.0, 0.0), odd)


def test_a_mean_of_numbers_whose_sum_is_too_large_is_their_mean() -> None:
    assert value(AVG, np.arange(64), np.full(64, 1.5e308), 0, 1, 0.0, 0.0) == pytest.approx(1.5e308)
    assert value(SUM, np.arange(64), np.full(64, 1.5e308), 0, 1, 0.0, 0.0) == math.inf
