"""Rows that get equal labels become one series, or are an error if they have a step in common."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spm.errors import QueryFailed, QueryTimeout
from spm.query.promql.operators.relabel import relabel
from spm.query.promql.operators.vector import Vector, finish, merge_rows, stack
from spm.store import matchers

STEPS = 4
VALUE = st.sampled_from([0.0, -0.0, 1.5, np.nan, np.inf])


@st.composite
def vectors(draw: st.DrawFn) -> Vector:
    """Draw rows with three labels, with and without a name, with few elements in each."""
    rows = draw(st.integers(0, 4))
    names = [draw(st.sampled_from([{}, {"__name__": "m"}])) for _ in range(rows)]
    labels = [name | {"n": draw(st.sampled_from("abc"))} for name in names]
    cells = [[draw(VALUE) for _ in range(STEPS)] for _ in range(rows)]
    there = [[draw(st.integers(0, 5)) == 0 for _ in range(STEPS)] for _ in range(rows)]
    shape = (rows, STEPS)
    nameless = np.array([draw(st.booleans()) for _ in range(rows)], np.bool_)
    return Vector(labels, np.array(cells).reshape(shape), np.array(there, np.bool_).reshape(shape), nameless)


def series(vector: Vector) -> list[tuple[tuple[str, str], bool]]:
    """Return the identity of each row: its labels, and whether its name is to be removed."""
    keys = [(labels.get("__name__", ""), labels["n"]) for labels in vector.labels]
    return [(key, bool(nameless) and key[0] != "") for key, nameless in zip(keys, vector.nameless, strict=True)]


def elements(vector: Vector) -> list[tuple[tuple[str, str], bool, int, str]]:
    """Return every element with its row's series, its step, and its value to the sign of zero."""
    return [
        (*which, step, repr(float(vector.values[row, step])))
        for row, which in enumerate(series(vector))
        for step in range(STEPS)
        if vector.present[row, step]
    ]


@settings(deadline=None)  # the first example may load compiled kernels
@given(st.lists(vectors(), min_size=1, max_size=3))
def test_merged_rows_have_the_elements_of_all_or_merging_is_refused(parts: list[Vector]) -> None:
    expected = sorted(each for part in parts for each in elements(part))
    met = [(labels, step) for labels, _, step, _ in expected]
    if len(set(met)) < len(met):
        with pytest.raises(QueryFailed, match="same labelset"):
            merge_rows(parts)
        return
    merged = merge_rows(parts)
    assert sorted(elements(merged)) == expected
    assert len(set(series(merged))) == len(merged.labels)


@settings(deadline=None)  # the first example may load compiled kernels
@given(vectors())
def test_rows_that_lose_their_name_are_merged_with_rows_that_lost_it_before(vector: Vector) -> None:
    try:
        merged = merge_rows([vector])
        shown = finish(merged.with_elements(merged.values, merged.present))
    except QueryFailed:  # two elements at one step
        return
    labels = [tuple(sorted(each.items())) for each in shown.labels]
    assert len(set(labels)) == len(labels)


def test_vectors_without_rows_cost_no_copy() -> None:
    full = Vector([{"n": "a"}], np.ones((1, STEPS)), np.ones((1, STEPS), np.bool_), np.zeros(1, np.bool_))
    none = Vector([], np.empty((0, STEPS)), np.empty((0, STEPS), np.bool_), np.empty(0, np.bool_))
    assert stack([none, full, none]) is full
    assert stack([none, none]) is none


def test_label_replace_checks_the_deadline_between_portions_and_answers_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call of RE2 for all values took 22 s at a time limit of 5 s."""
    labels = [{"__name__": "m", "n": f"a{number}"} for number in range(500)]
    ones = np.ones((500, STEPS))
    vector = Vector(labels, ones, ones > 0, np.zeros(500, np.bool_))
    texts = ("to", "$1", "n", "a(.*)")
    whole, checks = relabel("label_replace", vector, texts), list[int]()
    assert {one["to"] for one in whole.labels} == {str(number) for number in range(500)}
    monkeypatch.setattr(matchers, "MATCHED_BYTES_AT_ONCE", 100)
    assert relabel("label_replace", vector, texts, lambda: checks.append(1)).labels == whole.labels
    assert len(checks) > 10

    def late() -> None:
        raise QueryTimeout("late")

    with pytest.raises(QueryTimeout):
        relabel("label_replace", vector, texts, late)
