"""Claims about percentiles: within 1 % over any range and group, from any resolution; exact from samples."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spm import limits
from spm.errors import QueryTooLarge
from spm.limits import DAY_HOURS, HOUR_MS
from spm.query.fake import FakeStorage
from spm.query.promql.engine import Engine
from spm.query.request.batches import Matcher
from spm.query.rolled import percentiles
from tests.model.world import START, metric_of
from tests.spm.query.test_truth import EVERY, WorldAndModel

MINUTE = 60_000


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(-50, 3_000), st.integers(1, 4_000)), min_size=1, max_size=6))
def test_segments_cover_every_window_exactly(windows: list[tuple[int, int]]) -> None:
    starts = np.array([s for s, _ in windows]) * 13 * MINUTE
    ends = starts + np.array([w for _, w in windows]) * 7 * MINUTE
    segments = percentiles.window_segments(starts, ends)
    assert (segments.borders[segments.low] == starts).all()
    assert (segments.borders[segments.high] == ends).all()
    widths = np.diff(segments.borders)
    is_day = widths == DAY_HOURS * HOUR_MS
    assert (segments.borders[:-1][is_day] % (DAY_HOURS * HOUR_MS) == 0).all()
    assert (segments.borders[:-1][~is_day] // HOUR_MS == (segments.borders[1:][~is_day] - 1) // HOUR_MS).all()
    inside = [((segments.low <= i) & (i < segments.high)).any() for i in range(len(widths))]
    assert (segments.needed == inside).all()


def close(got: float, values: list[float], q: float) -> bool:
    """Whether a percentile lies between the two values around its rank, or within 1 % of them."""
    if not values:
        return bool(np.isnan(got))
    low, high = (float(np.quantile(values, q, method=m)) for m in ("lower", "higher"))
    return low - abs(low) * 0.01 - 1e-12 <= got <= high + abs(high) * 0.01 + 1e-12


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 18), st.integers(-3, 9)), min_size=1, max_size=60),
    st.booleans(),
    st.lists(st.tuples(st.integers(-3, 200), st.integers(1, 250)), min_size=1, max_size=4),
    st.sampled_from([0.0, 0.3, 0.5, 0.95, 1.0]),
)
def test_percentiles_of_any_range_and_group_are_within_a_hundredth(
    samples: list[tuple[int, int, int]], rolled: bool, windows: list[tuple[int, int]], q: float
) -> None:
    both = WorldAndModel()
    both.send(samples, "a")
    if rolled:
        both.world.roll()
    both.advance()
    starts = START + np.array([s for s, _ in windows]) * MINUTE
    ends = starts + np.array([w for _, w in windows]) * MINUTE
    result = percentiles.group_percentiles(both.world.fresh(), EVERY, starts, ends, qs=[q], by=["__name__"])
    truth = both.model.raw()
    for row, labels in enumerate(result.labels):
        for at, (start, end) in enumerate(zip(starts, ends, strict=True)):
            values = [v for (s, ts), v in truth.items() if start < ts <= end and metric_of(s) == labels["__name__"]]
            assert close(result.values[0][row, at], values, q)


def test_whole_days_and_hours_come_from_their_own_resolution() -> None:
    both = WorldAndModel()
    both.send([(s, at, at) for s in range(6) for at in range(1, 18)], "a")
    both.world.roll()
    both.advance()
    day = np.array([START]), np.array([START + DAY_HOURS * HOUR_MS])
    result = percentiles.group_percentiles(both.world.fresh(), EVERY, *day, qs=[0.5], by=[])
    assert [resolution for resolution, _ in result.provenance.ranges] == ["day aggregates"]
    hours = np.array([START + 1]), np.array([START + 3 * HOUR_MS])
    result = percentiles.group_percentiles(both.world.fresh(), EVERY, *hours, qs=[0.5], by=[])
    assert [resolution for resolution, _ in result.provenance.ranges] == ["raw samples", "hour aggregates"]


def test_quantile_over_time_of_sealed_hours_comes_from_sketches_and_says_so() -> None:
    both = WorldAndModel()
    both.send([(0, at, at) for at in range(1, 18)], "a")
    both.world.roll()
    both.advance()
    both.seal(0)
    assert both.model.sealed, "the hour must have been sealed"
    both.advance()
    result = Engine(both.world.fresh()).instant("quantile_over_time(0.5, m0[2h])", START + 2 * HOUR_MS)
    assert result.values[0, 0] == pytest.approx(6.5, rel=0.01)
    assert "percentiles of aggregated hours are within 1 %" in result.notes
    assert not result.warnings
    half = Engine(both.world.fresh()).instant("quantile_over_time(0.5, m0[90m])", START + 2 * HOUR_MS)
    assert len(half.labels) == 0
    assert "has expired" in half.warnings[0]


def test_overlapping_windows_are_merged_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(percentiles, "_BUCKETS_AT_ONCE", 20)
    storage = FakeStorage().add("m", {"n": "1"}, [h * HOUR_MS + 5 for h in range(48)], range(48))
    ends = np.arange(24, 49) * HOUR_MS
    result = percentiles.group_percentiles(
        storage, [Matcher("__name__", "=", "m")], ends - 24 * HOUR_MS, ends, qs=[1.0], by=[]
    )
    np.testing.assert_allclose(result.values[0][0], np.arange(23, 48), rtol=0.01)


def test_too_many_buckets_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "QUERY_BUCKETS_MAX", 3)
    both = WorldAndModel()
    both.send([(s, at, at) for s in range(6) for at in range(1, 9)], "a")
    both.advance()
    day = np.array([START]), np.array([START + DAY_HOURS * HOUR_MS])
    with pytest.raises(QueryTooLarge, match="buckets"):
        percentiles.group_percentiles(both.world.fresh(), EVERY, *day, qs=[0.5], by=[])
