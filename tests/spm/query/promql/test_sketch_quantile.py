"""`sketch_quantile_over_time` is within 1 % of `quantile_over_time`, says so, and takes stored samples only."""

from __future__ import annotations

import numpy as np
import pytest

from spm.errors import BadQuery
from spm.limits import HOUR_MS
from spm.query.fake import FakeStorage
from spm.query.promql.engine import Engine

START = 480_000 * HOUR_MS


@pytest.fixture(scope="module")
def engine() -> Engine:
    rng = np.random.default_rng(5)
    storage = FakeStorage()
    for n in range(3):
        ts = START + np.arange(1, 30 * 60) * 60_000
        storage.add("latency", {"n": str(n)}, ts, rng.lognormal(n, 1, len(ts)))
    return Engine(storage)


@pytest.mark.parametrize("q", ["0", "0.5", "0.99", "1"])
@pytest.mark.parametrize("span", ["1h", "90m", "25h"])
def test_sketches_are_within_one_percent(engine: Engine, q: str, span: str) -> None:
    times = (START + 26 * HOUR_MS, START + 29 * HOUR_MS, HOUR_MS // 2)
    exact = engine.range(f"quantile_over_time({q}, latency[{span}])", *times)
    result = engine.range(f"sketch_quantile_over_time({q}, latency[{span}])", *times)
    assert result.labels == exact.labels == [{"n": str(n)} for n in range(3)]
    assert (result.present == exact.present).all()
    np.testing.assert_allclose(result.values, exact.values, rtol=0.01)
    assert "percentiles of aggregated hours are within 1 %" in result.notes


def test_a_varying_quantile_is_evaluated_on_a_fixed_window(engine: Engine) -> None:
    end = START + 20 * HOUR_MS
    expr = f"sketch_quantile_over_time((time() - {end // 1000}) / 2, latency{{n='0'}}[5h] @ {end // 1000})"
    result = engine.range(expr, end, end + 2_000, 1_000)
    assert (np.diff(result.values[0]) > 0).all()


def test_no_quantile_is_warned_about(engine: Engine) -> None:
    result = engine.instant("sketch_quantile_over_time(2, latency[1h])", START + 20 * HOUR_MS)
    assert result.warnings == ["PromQL warning: quantile value should be between 0 and 1, got 2 (1:27)"]


def test_subqueries_are_refused(engine: Engine) -> None:
    with pytest.raises(BadQuery, match=r"1:32: parse error: .* needs stored samples, not a subquery"):
        engine.instant("sketch_quantile_over_time(0.5, latency[1h:1m])", START)
