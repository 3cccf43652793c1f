"""The vectorised engine gives, for any data and any supported expression, what the plain reference gives."""

from __future__ import annotations

import math

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from spm.errors import QueryFailed
from spm.query.fake import FakeStorage
from spm.query.promql.engine import Engine, Result
from spm.query.promql.planning.planner import parse
from tests.spm.query.promql.expressions import START, expressions, random_samples, stored
from tests.spm.query.promql.reference import LabelSet, Reference, SameLabels, Samples

MINUTE_MS = 60_000


@pytest.mark.filterwarnings("error::RuntimeWarning")
@hypothesis.settings(max_examples=300, deadline=None)
@hypothesis.given(
    seed=st.integers(0, 2**32),
    expr=expressions(),
    start=st.integers(START - MINUTE_MS, START + 22 * MINUTE_MS),
    step_ms=st.sampled_from((1_000, 15_000, 37_001, 60_000, 300_000)),
    count=st.integers(1, 12),
)
@hypothesis.example(0, 'stddev({__name__=~"a|b"} + time())', 1_699_919_985_822, 15_000, 2)  # far from zero
def test_engine_agrees_with_the_reference(seed: int, expr: str, start: int, step_ms: int, count: int) -> None:
    samples = random_samples(seed)
    times = [start + i * step_ms for i in range(count)]
    expected = _reference(samples, expr, times)
    try:
        result = Engine(stored(samples)).range(expr, times[0], times[-1], step_ms)
    except QueryFailed:
        assert expected is None, "the engine refuses what the reference answers"
        return
    assert expected is not None, "the engine answers what the reference refuses"
    assert_same(result, expected, times)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_infinities_of_both_signs_are_no_scalar_and_no_warning() -> None:
    storage = FakeStorage()
    for number, value in enumerate((np.inf, -np.inf)):
        storage.add("m", {"n": str(number)}, [START + 1], np.array([value]))
    result = Engine(storage).instant("vector(scalar(m))", START + 2)
    assert np.isnan(result.values).all()
    assert result.present.all()


def test_border_drawn_from_an_infinity_is_no_number() -> None:
    storage = FakeStorage().add("m", {}, [START + 10_000, START + 20_000, START + 30_000], [1.0, -np.inf, 2.0])
    result = Engine(storage).instant("m[10s] smoothed", START + 25_000).samples
    assert result is not None
    assert (result.ts - START).tolist() == [15_000, 20_000, 25_000]
    assert result.values[1] == -np.inf
    assert np.isnan(result.values[2])


def _reference(samples: Samples, expr: str, times: list[int]) -> list[dict[LabelSet, float]] | None:
    node = parse(expr)
    try:
        return [Reference(samples, t, times[0], times[-1]).answer(node) for t in times]  # type: ignore[arg-type]
    except SameLabels:
        return None


def assert_same(result: Result, expected: list[dict[LabelSet, float]], times: list[int]) -> None:
    """Equal presence, and values equal to rounding."""
    for step, t in enumerate(times):
        answer = {
            tuple(sorted(labels.items())): float(result.values[row, step])
            for row, labels in enumerate(result.labels)
            if result.present[row, step]
        }
        assert answer.keys() == expected[step].keys(), f"other series at {t}"
        for key, value in expected[step].items():
            assert close(answer[key], value), f"{key} at {t}: {answer[key]!r} instead of {value!r}"


def close(a: float, b: float) -> bool:
    """Equal within 1e-12, relative, or of numbers that are zero but for rounding, absolute."""
    return (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-12)
