"""Rows that come to have the same labels are one series, or an error where they meet."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spm.errors import QueryFailed
from spm.query.promql.vector import Vector, stacked, united

STEPS = 4
VALUE = st.sampled_from([0.0, -0.0, 1.5, np.nan, np.inf])


@st.composite
def vectors(draw: st.DrawFn) -> Vector:
    """Some rows of three labels, few elements in each."""
    rows = draw(st.integers(0, 4))
    labels = [{"n": draw(st.sampled_from("abc"))} for _ in range(rows)]
    cells = [[draw(VALUE) for _ in range(STEPS)] for _ in range(rows)]
    there = [[draw(st.integers(0, 5)) == 0 for _ in range(STEPS)] for _ in range(rows)]
    shape = (rows, STEPS)
    nameless = np.array([draw(st.booleans()) for _ in range(rows)], np.bool_)
    return Vector(labels, np.array(cells).reshape(shape), np.array(there, np.bool_).reshape(shape), nameless)


def elements(vector: Vector) -> list[tuple[str, bool, int, str]]:
    """Every element: its label, whether its row loses its name, its step, its value to the sign of zero."""
    return [
        (labels["n"], bool(nameless), step, repr(float(vector.values[row, step])))
        for row, (labels, nameless) in enumerate(zip(vector.labels, vector.nameless, strict=True))
        for step in range(STEPS)
        if vector.present[row, step]
    ]


@given(st.lists(vectors(), min_size=1, max_size=3))
def test_joined_rows_have_the_elements_of_all_or_there_is_a_refusal(parts: list[Vector]) -> None:
    wanted = sorted(each for part in parts for each in elements(part))
    met = [(label, step) for label, _, step, _ in wanted]
    if len(set(met)) < len(met):
        with pytest.raises(QueryFailed, match="same labelset"):
            united(parts)
        return
    found = united(parts)
    assert sorted(elements(found)) == wanted
    rows = [(labels["n"], bool(nameless)) for labels, nameless in zip(found.labels, found.nameless, strict=True)]
    assert len(set(rows)) == len(rows)


def test_vectors_without_rows_cost_no_copy() -> None:
    full = Vector([{"n": "a"}], np.ones((1, STEPS)), np.ones((1, STEPS), np.bool_), np.zeros(1, np.bool_))
    none = Vector([], np.empty((0, STEPS)), np.empty((0, STEPS), np.bool_), np.empty(0, np.bool_))
    assert stacked([none, full, none]) is full
    assert stacked([none, none]) is none
