"""The increase of a delta series in a window is the sum of its samples, computed from samples or from hours."""

import numpy as np
import pytest

from spm.clock import FakeClock
from spm.limits import HOUR_MS
from spm.query.fake import FakeStorage
from spm.query.promql.engine import Engine

DAY = 20_000 * 24 * HOUR_MS
MINUTE = 60_000


@pytest.fixture(name="engine")
def an_engine() -> Engine:
    """Return ten hours of a delta series that adds 1, 2, 3 … each minute, and of a counter that grows equally."""
    storage = FakeStorage()
    ts = DAY + MINUTE * np.arange(1, 601, dtype=np.int64)
    added = np.arange(1, 601, dtype=np.float64)
    storage.add("req_total", {"__type__": "delta", "job": "a"}, ts, added)
    storage.add("req_total", {"job": "b"}, ts, np.cumsum(added))
    storage.add("lone_total", {"__type__": "delta"}, ts[:1], added[:1])
    return Engine(storage, clock=FakeClock(DAY + 11 * HOUR_MS))


def values(engine: Engine, question: str, at_ms: int) -> dict[str, float]:
    """Return the values of an instant query by job."""
    result = engine.instant(question, at_ms)
    return {labels.get("job", ""): float(v) for labels, v in zip(result.labels, result.values[:, 0], strict=True)}


@pytest.mark.parametrize("minutes", [5, 60, 120, 600])
def test_the_increase_of_a_delta_is_the_sum_of_its_samples(engine: Engine, minutes: int) -> None:
    expected = sum(range(601 - minutes, 601))
    assert values(engine, f"increase(req_total[{minutes}m])", DAY + 10 * HOUR_MS)["a"] == expected


def test_the_rate_of_a_delta_is_its_sum_per_second(engine: Engine) -> None:
    assert values(engine, "rate(req_total[1h])", DAY + 10 * HOUR_MS)["a"] == sum(range(541, 601)) / 3600


def test_counters_beside_a_delta_are_evaluated_as_counters(engine: Engine) -> None:
    at = DAY + 10 * HOUR_MS
    alone = values(engine, 'rate(req_total{job="b"}[10m])', at)
    assert values(engine, "rate(req_total[10m])", at)["b"] == alone["b"]


def test_one_sample_of_a_delta_is_enough(engine: Engine) -> None:
    assert values(engine, "increase(lone_total[5m])", DAY + 2 * MINUTE) == {"": 1.0}


def test_an_anchored_increase_of_a_delta_is_its_sum_too(engine: Engine) -> None:
    assert values(engine, "increase(req_total[5m] anchored)", DAY + 10 * HOUR_MS)["a"] == sum(range(596, 601))


def test_sums_of_deltas_have_no_type_label(engine: Engine) -> None:
    result = engine.instant("sum by (job) (increase(req_total[1h]))", DAY + 10 * HOUR_MS)
    assert [set(labels) for labels in result.labels] == [{"job"}, {"job"}]
