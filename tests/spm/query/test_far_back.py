"""Claims about reads that go back further than ten years: all that there is, or a refusal in words."""

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


def counted(world: World, asked: str) -> list[float]:
    found = Engine(world.fresh()).instant(asked, END)
    assert not found.warnings
    return [float(value) for value in found.values[found.present]]


@pytest.mark.parametrize("compacted", [False, True], ids=["before a run", "after it"])
@pytest.mark.parametrize(
    ("asked", "wanted"),
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
    asked: str, wanted: list[float], compacted: bool
) -> None:
    world = a_long_life(0, 12 * 365 - 1)
    if compacted:
        world.roll(now_ms=END)
        world.clock.advance(2_000)
    assert counted(world, asked) == wanted


@pytest.mark.parametrize("compacted", [False, True], ids=["before a run", "after it"])
def test_more_days_with_data_than_a_query_reads_are_refused_in_words(
    monkeypatch: pytest.MonkeyPatch, compacted: bool
) -> None:
    world = a_long_life(0, 1, 4_000, 4_001)
    if compacted:
        world.roll(now_ms=END)
        world.clock.advance(2_000)
    monkeypatch.setattr(limits, "QUERY_DAYS_MAX", 4)
    assert counted(world, "count_over_time(m0[13y])") == [4.0]
    monkeypatch.setattr(limits, "QUERY_DAYS_MAX", 3)
    wanted = r"4 days between 2022-.* and 2035-.* hold data; at most 3 are read by one query: ask for less time"
    with pytest.raises(QueryTooLarge, match=wanted):
        counted(world, "count_over_time(m0[13y])")
    assert counted(world, "count_over_time(m0[2d] offset 4378d)") == [2.0]


def test_a_thousand_years_are_looked_for_among_the_days_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    world, asked = a_long_life(0, 12 * 365 - 1), list[int]()
    world.roll(now_ms=END)
    world.clock.advance(2_000)
    storage = world.fresh()
    rows = storage._state.rows
    plain = rows.manifests

    def counting(reader: Reader, days: Sequence[int]) -> dict[int, Manifest]:
        asked.append(len(days))
        return plain(reader, days)

    monkeypatch.setattr(rows, "manifests", counting)
    storage.select((), END - 1_000 * YEAR_MS, END + HOUR_MS)
    assert asked == [2]
