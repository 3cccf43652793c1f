"""Minimum, maximum, sum and count of a time range are equal at every zoom, and also after samples have expired.

Two days of samples are queried in windows from half an hour to both days at once: short ones are answered from samples,
others from hours, days or both. Each chart as a whole must give equal numbers.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollups.delete.expire import RetentionPeriods
from spm.clock import FakeClock
from spm.limits import HOUR_MS
from spm.query.promql.engine import Engine
from spm.query.reader import AppStorage
from tests.model.world import START, World

HOURS = 48
WHOLE: dict[str, Callable[[Any], float]] = {"min": np.min, "max": np.max, "sum": np.sum, "count": np.sum}
ZOOMS = ("30m", "1h", "2h", "3h", "4h", "6h", "8h", "12h", "24h", "48h")
MINUTES = {zoom: int(zoom[:-1]) * (60 if zoom.endswith("h") else 1) for zoom in ZOOMS}


def a_world(seed: int) -> tuple[World, np.ndarray]:
    """Two days with gaps, rolled up, and all values of their one series."""
    draw = np.random.default_rng(seed)
    world = World(clock=FakeClock(START + (HOURS + 30) * HOUR_MS))
    at = np.unique(draw.integers(1, HOURS * 60, int(draw.integers(20, 300)))) * 60_000
    gap = int(draw.integers(0, HOURS - 6)) * HOUR_MS
    at = at[(at <= gap) | (at > gap + int(draw.integers(0, 6)) * HOUR_MS)]
    values = draw.integers(-1_000, 1_000, len(at)).astype(float)
    world.send(*((0, int(t), float(v)) for t, v in zip(at, values, strict=True)))
    world.roll()
    world.clock.advance(2_000)
    return world, values


def chart(storage: AppStorage, name: str, zoom: str) -> float:
    """One aggregate over all points of the chart."""
    step = MINUTES[zoom] * 60_000
    result = Engine(storage).range(f"{name}_over_time(m0[{zoom}])", START + step, START + HOURS * HOUR_MS, step)
    return float(WHOLE[name](result.values[result.present]))


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_aggregates_of_a_chart_are_equal_at_every_zoom(seed: int) -> None:
    world, values = a_world(seed)
    storage = world.fresh()
    for name, aggregate in WHOLE.items():
        expected = float(aggregate(np.ones(len(values)) if name == "count" else values))
        assert {zoom: chart(storage, name, zoom) for zoom in ZOOMS} == dict.fromkeys(ZOOMS, expected)


@pytest.mark.parametrize(
    ("keep", "zooms", "warned"),
    [
        (RetentionPeriods(0), ZOOMS[1:], "raw data up to"),
        (RetentionPeriods(0, 0), ("24h", "48h"), "hour aggregates up to"),
    ],
    ids=["samples expired", "hours expired"],
)
def test_data_of_only_a_coarser_resolution_is_answered_from_it_with_a_warning(
    keep: RetentionPeriods, zooms: tuple[str, ...], warned: str
) -> None:
    world, values = a_world(7)
    world.retain(keep, days_later=40)
    world.clock.advance(2_000)
    for name, aggregate in WHOLE.items():
        expected = float(aggregate(np.ones(len(values)) if name == "count" else values))
        assert {zoom: chart(world.fresh(), name, zoom) for zoom in zooms} == dict.fromkeys(zooms, expected)
    finer = "30m" if zooms[0] == "1h" else "1h"
    step = MINUTES[finer] * 60_000
    short = Engine(world.fresh()).range(f"max_over_time(m0[{finer}])", START + step, START + 9 * HOUR_MS, step)
    assert not short.present.any()
    assert any(warned in warning for warning in short.warnings)
