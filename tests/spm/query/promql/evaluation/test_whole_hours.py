"""Windows of whole hours give equal numbers from hourly aggregates and from samples."""

from __future__ import annotations

import hypothesis
import numpy as np
from hypothesis import strategies as st

from spm.limits import HOUR_MS
from spm.query.fake import STALE, FakeStorage
from spm.query.promql.engine import Engine
from spm.query.promql.evaluation import whole_hours
from spm.query.promql.kernels import over_time, windows
from spm.query.promql.kernels.windows import Steps
from spm.query.request.batches import Matcher
from spm.query.samples.sample_runs import SampleRuns

FIRST_HOUR = 472_222
ALL = (Matcher("__name__", "=", "m"),)
EXACT = sorted(name for name in over_time.FUNCTIONS if whole_hours.exact_cells(name, Steps(0, HOUR_MS, 1), HOUR_MS))


def long_series(seed: int, *, strange: bool) -> FakeStorage:
    """Four series of thirty hours: dense, sparse, counters with resets, hours without data."""
    rng = np.random.default_rng(seed)
    storage = FakeStorage()
    for number in range(4):
        count = int(rng.choice([1, 40, 400, 1_800]))
        # Borders of hours are the point: many samples lie exactly on one.
        ts = FIRST_HOUR * HOUR_MS + np.unique(rng.integers(1, 30 * 60, count)) * 60_000
        values = rng.normal(50, 20, len(ts))
        if number % 2:
            values = np.cumsum(np.abs(values))
            for reset in rng.integers(0, len(ts), 4):
                values[reset:] -= values[reset]
        if strange:
            values[rng.random(len(ts)) < 0.02] = np.nan
            values[rng.random(len(ts)) < 0.002] = np.inf
        values[rng.random(len(ts)) < 0.02] = STALE
        storage.add("m", {"n": str(number)}, ts, values)
    return storage


@hypothesis.settings(max_examples=150, deadline=None)
@hypothesis.given(
    seed=st.integers(0, 2**32),
    strange=st.booleans(),
    function=st.sampled_from(EXACT),
    first=st.integers(-2, 26),
    width=st.sampled_from((1, 2, 6, 24)),
    stride=st.sampled_from((1, 2, 5)),
    count=st.integers(1, 8),
)
def test_hours_agree_with_samples(
    seed: int, strange: bool, function: str, first: int, width: int, stride: int, count: int
) -> None:
    storage = long_series(seed, strange=strange)
    steps = Steps((FIRST_HOUR + first) * HOUR_MS, stride * HOUR_MS, count)
    cells = whole_hours.exact_cells(function, steps, width * HOUR_MS)
    assert cells is not None
    batch = storage.select_cells(ALL, cells.borders, whole_hours.columns(function))
    combined = whole_hours.combine(function, batch, whole_hours.CellWindows.of(cells, steps, width * HOUR_MS))
    if combined.doubtful:
        assert strange, "samples without NaN and infinity must be answered from hours"
        assert function in {"rate", "increase", "delta"}, "only what counters gained is hidden by a NaN"
        return
    samples = storage.select(ALL, steps.first_ms - width * HOUR_MS, steps.last_ms)
    expected, present = windows.sweep(function, SampleRuns.of(samples), steps, width * HOUR_MS, np.zeros(count))
    rows = [batch.labels.index(labels) for labels in samples.labels]
    assert (combined.present[rows] == present).all()
    assert combined.present.sum() == present.sum()
    np.testing.assert_allclose(combined.values[rows][present], expected[present], rtol=1e-12)


@hypothesis.settings(deadline=None)
@hypothesis.given(
    first=st.integers(-60, 60), width=st.integers(1, 80), stride=st.integers(0, 60), count=st.integers(1, 6)
)
def test_a_day_is_one_cell_exactly_where_no_border_of_a_window_cuts_it(
    first: int, width: int, stride: int, count: int
) -> None:
    ends = [first + stride * i for i in range(count)]
    borders = {*ends, *(end - width for end in ends)}
    cells, at = [], min(borders)
    while at < max(borders):
        is_day = at % 24 == 0 and at + 24 <= max(borders) and not borders & set(range(at + 1, at + 24))
        cells.append(at)
        at += 24 if is_day else 1
    hour_cells = whole_hours.hour_cells(Steps(first * HOUR_MS, stride * HOUR_MS, count), width * HOUR_MS)
    assert hour_cells is not None
    assert hour_cells.borders.tolist() == [*cells, at]
    assert hour_cells.borders[hour_cells.low].tolist() == [end - width for end in ends]
    assert hour_cells.borders[hour_cells.high].tolist() == ends


def test_engine_reads_hours_when_all_borders_lie_on_hours() -> None:
    engine = Engine(long_series(1, strange=False))
    start = FIRST_HOUR * HOUR_MS + 5 * HOUR_MS
    aligned = engine.range("max_over_time(m[2h])", start, start + 5 * HOUR_MS, HOUR_MS)
    beside = engine.range("max_over_time(m[2h])", start + 1, start + 5 * HOUR_MS, HOUR_MS)
    assert aligned.notes == ["hour aggregates: 2023-11-15T01:00Z to 2023-11-15T08:00Z"]
    assert beside.notes == []


def test_engine_reads_samples_when_an_offset_moves_the_borders_off_the_hours() -> None:
    engine = Engine(long_series(1, strange=False))
    start = FIRST_HOUR * HOUR_MS + 5 * HOUR_MS
    assert engine.instant("sum_over_time(m[1h] offset 2h)", start).notes[0].startswith("hour aggregates: ")
    assert engine.instant("sum_over_time(m[1h] offset 5m)", start).notes == []


def test_engine_reads_samples_when_a_nan_hides_what_an_hour_gained() -> None:
    hour = FIRST_HOUR * HOUR_MS
    storage = FakeStorage().add("m", {}, [hour + 1, hour + 2, hour + 3, hour + HOUR_MS + 1], [1, 5, np.nan, 9])
    result = Engine(storage).instant("increase(m[2h])", hour + 2 * HOUR_MS)
    assert result.values[0, 0] > 8
