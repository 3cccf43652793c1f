"""Operations that work on some rows or steps at a time give the result of one pass."""

from __future__ import annotations

import numpy as np
import pytest

from spm.query.promql.operators import binary, select_elements
from spm.query.promql.operators.aggregate import _CELLS_AT_ONCE, _CODES, aggregate
from spm.query.promql.operators.vector import Vector, make_vector
from spm.query.promql.planning.plan import Matching
from spm.query.series.label_table import group_by

SERIES, STEPS = 30_000, 20
RNG = np.random.default_rng(11)


def vector(metric: str, series: int = SERIES) -> Vector:
    """Return series with half of their elements present: small whole numbers and some infinities."""
    labels = [{"__name__": metric, "n": str(n), "g": str(n % (SERIES // 2))} for n in range(series)]
    values = RNG.integers(-9, 9, (series, STEPS)).astype(np.float64)
    values[RNG.random(values.shape) < 0.01] = np.inf
    return make_vector(labels, values, RNG.random(values.shape) < 0.5, nameless=False)


def columns(vector: Vector, first: int, end: int) -> Vector:
    """Return some steps of a vector."""
    values, present = vector.values[:, first:end], vector.present[:, first:end]
    return Vector(vector.labels, np.ascontiguousarray(values), np.ascontiguousarray(present), vector.nameless)


@pytest.mark.parametrize("op", _CODES)
def test_an_aggregation_over_many_groups_is_the_same_step_by_step(op: str) -> None:
    elements = vector("m")
    groups = group_by(elements.labels, ("g",))
    assert len(groups.labels) * STEPS > _CELLS_AT_ONCE
    result = aggregate(op, elements, groups, np.zeros(STEPS))
    for step in range(STEPS):
        one = aggregate(op, columns(elements, step, step + 1), groups, np.zeros(1))
        np.testing.assert_array_equal(result.present[:, step], one.present[:, 0])
        np.testing.assert_array_equal(result.values[:, step], one.values[:, 0])


@pytest.mark.parametrize("op", ["-", ">"])
def test_an_operator_between_many_series_is_that_of_their_arrays(op: str) -> None:
    left, right = vector("a"), vector("b")
    assert left.values.size > binary._CELLS_AT_ONCE
    with np.errstate(invalid="ignore"):
        result = binary.vector_vector(op, left, right, Matching(on=True, labels=("n",)), as_bool=False)
        both = left.present & right.present
        expected = both if op == "-" else both & (left.values > right.values)
        values = left.values - right.values if op == "-" else left.values
    np.testing.assert_array_equal(result.present, expected)
    np.testing.assert_array_equal(result.values[expected], values[expected])


def test_values_of_many_series_are_counted_as_those_of_all() -> None:
    elements = vector("m")
    assert elements.values.size > select_elements._ELEMENTS_AT_ONCE
    result = select_elements.count_values(elements, "v", labels=(), without=False)
    rows = {labels["v"]: row for row, labels in enumerate(result.labels)}
    numbers = np.unique(elements.values[elements.present])
    assert len(rows) == len(numbers)
    for number in numbers:
        text = "+Inf" if np.isinf(number) else f"{number:g}"
        expected = ((elements.values == number) & elements.present).sum(axis=0)
        np.testing.assert_array_equal(np.where(result.present[rows[text]], result.values[rows[text]], 0), expected)
