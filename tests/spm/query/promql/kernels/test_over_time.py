"""Range functions whose kernel takes another way than their definition."""

import numpy as np
import pytest

from spm.arrays import F64
from spm.query.promql.kernels.over_time import FUNCTIONS, value

MAD = FUNCTIONS["mad_over_time"]


def _median_of_distances(values: F64) -> float:
    return float(np.median(np.abs(values - np.median(values))))


def _mad(values: F64) -> float:
    return float(value(MAD, np.arange(len(values)), values, len(values), len(values), 0.0, 0.0))


@pytest.mark.parametrize("kind", ["spread", "many equal", "ordered", "one outlier"])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 101, 1_000])
def test_mad_is_the_median_of_the_distances_from_the_median(kind: str, count: int) -> None:
    rng = np.random.default_rng(count)
    values: F64 = rng.normal(size=count)
    if kind == "many equal":
        values = np.asarray(rng.integers(0, 3, count) * 0.5 - 0.5, np.float64)
    elif kind == "ordered":
        values.sort()
    elif kind == "one outlier":
        values[rng.integers(count)] = -1e300
    assert _mad(values) == pytest.approx(_median_of_distances(values), rel=1e-15)


def test_mad_of_zeros_of_both_signs_is_plus_zero() -> None:
    assert str(_mad(np.array([-0.0, 0.0, -0.0, 0.0, 0.0]))) == "0.0"


@pytest.mark.parametrize("values", [[np.inf, 1.0, 2.0], [np.nan, 1.0], [-np.inf, np.inf, 0.0, 1.0]])
def test_mad_of_infinities_is_that_of_the_definition(values: list[float]) -> None:
    quantile = FUNCTIONS["quantile_over_time"]
    numbers = np.array(values)

    def median(of: F64) -> float:
        return float(value(quantile, np.arange(len(of)), of, len(of), len(of), 0.5, 0.0))

    expected = np.nan if np.isnan(numbers).any() else median(np.abs(numbers - median(numbers)))
    assert _mad(numbers) == pytest.approx(expected, nan_ok=True)
