"""Where samples have expired, a window is answered from the whole hours and days that remain of it, or not at all.

The world has three days: only days remain of the first, only hours of the second, samples of the third.
"""

from __future__ import annotations

from functools import cache

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from rollups.delete.expire import RetentionPeriods
from spm.clock import FakeClock
from spm.limits import HOUR_MS
from spm.query.fake import FakeStorage
from spm.query.promql.engine import Engine, Result
from spm.query.promql.evaluation.whole_hours import has_exact_aggregates
from spm.query.promql.kernels.over_time import FUNCTIONS
from spm.query.rolled.trimmed_windows import SHARE, Expiry, trim
from spm.store.backends.memory import MemoryBackend
from tests.model.world import DAY_MS, START, World

HOURS_FROM, SAMPLES_FROM, END = START + DAY_MS, START + 2 * DAY_MS, START + 3 * DAY_MS
MINUTE_MS = 60_000
EXACT = sorted(filter(has_exact_aggregates, FUNCTIONS))
FROM_SAMPLES = ("changes", "stddev_over_time", "deriv")
GRAINS = ((DAY_MS, HOURS_FROM), (HOUR_MS, SAMPLES_FROM))
SERIES, COUNTERS, SPARSE = (0, 3, 6), (3, 6), 6  # all of m0


def samples(series: int) -> list[tuple[int, float]]:
    """A gauge and two counters with resets, one of them sparse, to the minute."""
    rng = np.random.default_rng(series)
    at = np.flatnonzero(rng.random(3 * 24 * 60) < (0.01 if series == SPARSE else 0.1)) + 1
    values = np.cumsum(rng.integers(0, 9, len(at))) if series in COUNTERS else rng.integers(-50, 50, len(at))
    for reset in rng.integers(0, len(at), 5 if series in COUNTERS else 0):
        values[reset:] -= values[reset]
    return [(int(minute) * MINUTE_MS, float(value)) for minute, value in zip(at, values, strict=True)]


@cache
def expired() -> World:
    """The three days, rolled up, and expired as the retention says."""
    world = World(MemoryBackend(), clock=FakeClock(END + 6 * HOUR_MS))
    for series in SERIES:
        world.send(*((series, at, value) for at, value in samples(series)))
    world.roll(now_ms=END + 6 * HOUR_MS)
    world.clock.advance(2_000)
    world.retain(RetentionPeriods(1, 2), days_later=2)
    world.clock.advance(2_000)
    return world


@cache
def everything() -> Engine:
    """All samples of these series, none expired."""
    storage = FakeStorage()
    for series in SERIES:
        at, values = zip(*samples(series), strict=True)
        storage.add("m0", {"n": str(series)}, [START + each for each in at], list(values))
    return Engine(storage)


def by_series(result: Result) -> list[dict[str, float]]:
    """Values by series, a dict per step."""
    names = [labels["n"] for labels in result.labels]
    return [
        {
            name: float(value)
            for name, value, there in zip(names, result.values[:, t], result.present[:, t], strict=True)
            if there
        }
        for t in range(len(result.times))
    ]


def cut(first: int, last: int) -> tuple[int, int]:
    """Trim a window to the whole hours and days that are stored."""
    for grain, before in GRAINS:
        if first < before:
            first = min(-(-first // grain) * grain, before) if first % grain else first
            break
    for grain, before in GRAINS:
        if last < before:
            last = last // grain * grain
            break
    return first, last


def test_the_world_has_three_resolutions() -> None:
    beside = Engine(expired().fresh()).instant("count_over_time(m0[3d])", END - MINUTE_MS)
    assert [note.split(":")[0] for note in beside.notes[:3]] == ["day aggregates", "hour aggregates", "raw samples"]


@hypothesis.settings(max_examples=120, deadline=None)
@hypothesis.given(
    function=st.sampled_from((*EXACT, *FROM_SAMPLES, "quantile_over_time", "sketch_quantile_over_time")),
    first=st.integers(0, 60 * 4),
    beside=st.sampled_from((0, 0, 0, 7, 30)),
    minutes=st.sampled_from((10, 60, 90, 6 * 60, 24 * 60, 25 * 60 + 10, 30 * 60, 48 * 60, 70 * 60)),
    stride=st.sampled_from((15, 60, 90, 6 * 60, 24 * 60)),
    count=st.integers(1, 9),
)
@hypothesis.example("count_over_time", 0, 0, 24 * 60, 6 * 60, 5)  # a day that borders of other steps cut
@hypothesis.example("rate", 40 * 4, 7, 25 * 60 + 10, 60, 1)
def test_an_answer_is_that_of_the_whole_hours_and_days_that_remain_or_none(
    function: str, first: int, beside: int, minutes: int, stride: int, count: int
) -> None:
    range_ms = minutes * MINUTE_MS
    start = START + range_ms + first * 15 * MINUTE_MS + beside * MINUTE_MS
    q = "0.5, " if "quantile" in function else ""
    result = Engine(expired().fresh()).range(
        f"{function}({q}m0[{minutes}m])", start, start + (count - 1) * stride * MINUTE_MS, stride * MINUTE_MS
    )
    missing = False
    for t, values in zip(result.times, by_series(result) or [{}] * count, strict=True):
        window = int(t) - range_ms, int(t)
        trimmed = cut(*window) if function not in FROM_SAMPLES else tuple(max(each, SAMPLES_FROM) for each in window)
        missing |= trimmed != window
        length = trimmed[1] - trimmed[0]
        expected: dict[str, float] = {}
        if length > 0 and length >= SHARE * range_ms:
            [expected] = by_series(everything().instant(f"{function}({q}m0[{length}ms])", trimmed[1])) or [{}]
        assert values.keys() == expected.keys()
        tolerance = 0.011 if q else 1e-9
        np.testing.assert_allclose([values[n] for n in expected], list(expected.values()), rtol=tolerance, atol=1e-9)
    assert bool(result.warnings) == missing, "warnings name what is missing, and nothing else"


@pytest.mark.parametrize("function", ["sum_over_time", "max_over_time", "rate", "quantile_over_time"])
def test_the_answer_at_a_step_does_not_depend_on_the_other_steps(function: str) -> None:
    engine, q = Engine(expired().fresh()), "0.5, " if "quantile" in function else ""
    times = np.arange(START + DAY_MS, END + 1, 6 * HOUR_MS).tolist()
    alone = [by_series(engine.instant(f"{function}({q}m0[1d])", t)) or [{}] for t in times]
    together = by_series(engine.range(f"{function}({q}m0[1d])", times[0], times[-1], 6 * HOUR_MS))
    assert together == [values for [values] in alone]


@pytest.mark.parametrize("is_expired", [False, True], ids=["with samples", "without samples"])
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("function", EXACT)
def test_what_is_no_number_in_one_series_changes_nothing_in_another(
    function: str, odd: float, is_expired: bool
) -> None:
    def answered(*strange: tuple[int, int, float]) -> list[dict[str, float]]:
        world = World(MemoryBackend(), clock=FakeClock(END))
        world.send(*((s, at * 600_000 + 1, float(at * (s + 1))) for s in (0, 3) for at in range(36)), *strange)
        world.roll(now_ms=END)
        world.clock.advance(2_000)
        if is_expired:
            world.retain(RetentionPeriods(0), days_later=40)
            world.clock.advance(2_000)
        return by_series(Engine(world.fresh()).range(f"{function}(m0[2h])", START, START + 8 * HOUR_MS, HOUR_MS))

    clean, result = answered(), answered((3, 2 * HOUR_MS + 1_800_000, odd))
    assert [values.get("0") for values in result] == [values.get("0") for values in clean]
    assert [values.keys() for values in result] == [values.keys() for values in clean]
    for index in set(range(9)) - {3, 4}:  # windows without the odd sample
        assert result[index].get("3") == clean[index].get("3")


def test_a_sum_beyond_the_range_of_floats_comes_from_samples_while_they_are_stored() -> None:
    world = World(MemoryBackend(), clock=FakeClock(END))
    world.send(*((0, at * 600_000 + 1, 1.5e308) for at in range(6)))
    world.roll(now_ms=END)
    world.clock.advance(2_000)
    result = Engine(world.fresh()).instant("avg_over_time(m0[1h])", START + HOUR_MS)
    assert result.values.tolist() == [[1.5e308]]
    assert result.notes[0].startswith("raw samples")
    assert not any("aggregates" in note for note in result.notes)


@pytest.mark.parametrize("seen_from", ["as of a time", "as known at a moment"])
def test_answers_of_the_past_have_none_for_windows_that_lack_samples(seen_from: str) -> None:
    world = expired()
    storage = world.fresh()
    if seen_from == "as of a time":
        storage = storage.asof(world.clock.now_ms())
    else:
        storage = storage.known_at(storage.knowledge()[0])
    engine = Engine(storage)
    for width, there in (("12h", True), ("36h", False), ("48h", False), ("24h", True)):
        result = engine.instant(f"sum_over_time(m0[{width}])", END)
        assert (len(result.labels) > 0, bool(result.warnings)) == (there, not there)


@pytest.mark.parametrize(
    ("window", "expiry", "expected"),
    [
        ((0, 10), Expiry(), (0, 10, True)),
        ((-5 * HOUR_MS - 1, 7), Expiry(), (-5 * HOUR_MS - 1, 7, True)),
        ((1, 40 * HOUR_MS + 5), Expiry(20 * HOUR_MS), (HOUR_MS, 40 * HOUR_MS + 5, True)),
        ((1, 10 * HOUR_MS + 5), Expiry(20 * HOUR_MS), (HOUR_MS, 10 * HOUR_MS, False)),
        ((1, 30 * DAY_MS), Expiry(9 * DAY_MS, 8 * DAY_MS), (DAY_MS, 30 * DAY_MS, True)),
        ((1, 30 * DAY_MS), Expiry(9 * DAY_MS, samples_only=True), (9 * DAY_MS, 30 * DAY_MS, False)),
        ((1, 5), Expiry(9 * DAY_MS, samples_only=True), (9 * DAY_MS, 9 * DAY_MS, False)),
    ],
)
def test_windows_are_cut_to_what_is_stored(
    window: tuple[int, int], expiry: Expiry, expected: tuple[int, int, bool]
) -> None:
    result = trim(np.array(window[:1]), np.array(window[1:]), expiry)
    assert (int(result.first_ms[0]), int(result.last_ms[0]), bool(result.answered[0])) == expected
