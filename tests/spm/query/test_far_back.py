"""Claims about reads that go back further than ten years: all data, or a refusal with the reason."""

from collections.abc import Sequence

import pytest

from spm import limits
from spm.clock import FakeClock
from spm.errors import QueryTooLarge
from spm.limits import HOUR_MS
from spm.query.promql.engine import Engine
from spm.store.backends.base import Reader
from spm.store.manifest import Manifest
from tests.model.world import DAY_MS, START, World

YEAR_MS = 365 * DAY_MS
END = START + 12 * YEAR_MS


def a_long_life(*days: int) -> World:
    """An app with one sample on each of these days."""
    world = World(clock=FakeClock(END))
    world.send(*((0, day * DAY_MS + 600_000, 1.0) for day in days))
    return world


def counts(world: World, expr: str) -> list[float]:
    result = Engine(world.fresh()).instant(expr, END)
    assert not result.warnings
    return [float(value) for value in result.values[result.present]]


@pytest.mark.parametrize("compacted", [False, True], ids=["before a run", "after it"])
@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        ("count_over_time(m0[13y])", [2.0]),
        ("count_over_time(m0[1000y])", [2.0]),
        ("count_over_time(m0[13y] offset 1s)", [2.0]),
        ("count_over_time(m0[11y] offset 2y)", [1.0]),
        ("absent_over_time(m0[11y] offset 2y)", []),
        ("count_over_time(m0[11y])", [1.0]),
    ],
)
def test_data_of_more_than_ten_years_is_read_whether_compacted_or_not(
    expr: str, expected: list[float], compacted: bool
) -> None:
    world = a_long_life(0, 12 * 365 - 1)
    if compacted:
        world.roll(now_ms=END)
        world.clock.advance(2_000)
    assert counts(world, expr) == expected


@pytest.mark.parametrize("compacted", [False, True], ids=["before a run", "after it"])
def test_more_days_with_data_than_a_query_reads_are_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, compacted: bool
) -> None:
    world = a_long_life(0, 1, 4_000, 4_001)
    if compacted:
        world.roll(now_ms=END)
        world.clock.advance(2_000)
    monkeypatch.setattr(limits, "QUERY_DAYS_MAX", 4)
    assert counts(world, "count_over_time(m0[13y])") == [4.0]
    monkeypatch.setattr(limits, "QUERY_DAYS_MAX", 3)
    expected = r"4 days between 2022-.* and 2035-.* hold data; at most 3 are read by one query: ask for less time"
    with pytest.raises(QueryTooLarge, match=expected):
        counts(world, "count_over_time(m0[13y])")
    assert counts(world, "count_over_time(m0[2d] offset 4378d)") == [2.0]


def test_of_a_thousand_years_only_the_stored_days_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    world, day_counts = a_long_life(0, 12 * 365 - 1), list[int]()
    world.roll(now_ms=END)
    world.clock.advance(2_000)
    storage = world.fresh()
    rows = storage._state.rows
    plain = rows.manifests

    def counting(reader: Reader, days: Sequence[int]) -> dict[int, Manifest]:
        day_counts.append(len(days))
        return plain(reader, days)

    monkeypatch.setattr(rows, "manifests", counting)
    storage.select((), END - 1_000 * YEAR_MS, END + HOUR_MS)
    assert day_counts == [2]
