"""The sort of kernels: right for all floats, and not slower for an order made against it."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numba.misc.quicksort import make_quicksort_impl

from spm.arrays import F64
from spm.query.promql.kernels.sorting import ascending


def _killer(count: int) -> F64:
    """The order that costs numba's quicksort most: it is made while that sorts (McIlroy, 1999)."""
    undecided = count
    values, state = [undecided] * count, {"next": 0, "candidate": 0}

    def less(first: int, second: int) -> bool:
        if values[first] == undecided and values[second] == undecided:
            fixed = first if first == state["candidate"] else second
            values[fixed], state["next"] = state["next"], state["next"] + 1
        if values[first] == undecided:
            state["candidate"] = first
        elif values[second] == undecided:
            state["candidate"] = second
        return values[first] < values[second]

    quicksort = make_quicksort_impl(lambda function: function, lt=less)  # type: ignore[no-untyped-call]
    quicksort.run_quicksort(list(range(count)))
    return np.array(values, np.float64)


def _seconds(values: F64) -> float:
    """The shortest time of several tries."""
    took = []
    for _ in range(15):
        began = time.perf_counter()
        ascending(values)
        took.append(time.perf_counter() - began)
    return min(took)


@given(
    st.sampled_from([3, 999, 1_000, 1_001, 3_000]).flatmap(
        lambda count: arrays(np.float64, count, elements=st.floats(allow_nan=False), fill=st.floats(allow_nan=False))
    )
)
def test_all_floats_are_sorted(values: F64) -> None:
    before = values.copy()
    assert ascending(values).tolist() == sorted(values.tolist())
    assert np.array_equal(values, before)


@pytest.mark.parametrize("scale", [1e-320, 1.0, 1e300])
def test_many_floats_are_sorted(scale: float) -> None:
    rng = np.random.default_rng(3)
    values = np.concatenate((rng.normal(size=5_000), np.round(rng.normal(size=5_000), 1), [np.inf, -np.inf])) * scale
    assert np.array_equal(ascending(values), np.sort(values))


@pytest.mark.timed
def test_an_order_made_against_quicksort_costs_what_any_other_does() -> None:
    count = 4_000
    assert _seconds(_killer(count)) < 3 * _seconds(
        np.random.default_rng(0).permutation(float(count) + np.arange(count))
    )
