"""Claims about the bounds of runs: one over each, and everything is still right."""

import pytest
import zstandard

from rollups.decide.work import ATTEMPT_BITS, RUN_MAX, generation_number
from rollups.manifest import cells
from rollups.run.local import LocalExecutor
from rollups.run.rollback import roll_back
from spm import limits
from spm.errors import LimitExceeded, StoreUnavailable
from spm.limits import HOUR_MS
from spm.store import manifest
from spm.store.backends.memory import MemoryBackend
from spm.store.encoding import blocks
from tests.model.world import APP, NEXT_DAY, World, days_in_force, whole_day


def right(world: World) -> None:
    """Raw, hours and days are as they must be."""
    assert world.answer() == world.truth
    assert world.hours() == world.recount()
    assert days_in_force(world) == whole_day(world)


def test_a_heap_larger_than_a_run_takes_is_taken_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ROLL_CELLS_MAX", 4)
    world = World()
    for i in range(6):
        world.send((0, 10 + i, float(i)))
    world.roll()
    assert world.pending_rows() == 2
    assert world.answer() == world.truth
    world.roll()
    assert world.pending_rows() == 0
    right(world)


def test_a_pack_over_its_page_is_cut_by_the_bits_of_the_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ROLLUP_ROWS_MAX", 4)
    world = World()
    world.send(*((s, h * HOUR_MS + 1, float(s)) for s in range(12) for h in range(3)))
    world.roll()
    assert {pack.generation.page_bits for pack in world.manifest().hours.values()} == {2}
    right(world)


def test_waves_smaller_than_a_backlog_do_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    class Counting(LocalExecutor):
        def forget(self) -> None:
            seen.append(1)
            super().forget()

    monkeypatch.setattr("rollups.decide.plan.cut_into_waves.__defaults__", (2,))
    world = World()
    world.send((0, 1, 1.0), (0, 2, 2.0), (0, 25 * HOUR_MS, 3.0), (0, 26 * HOUR_MS, 4.0))
    driver = world.driver()
    driver.roll(Counting(world.store), [APP], now_ms=NEXT_DAY + 48 * HOUR_MS)
    assert len(seen) == 3  # two waves and the end
    assert world.answer() == world.truth
    assert world.hours() == world.recount()


def test_a_day_that_nobody_could_read_is_not_published_and_nothing_of_it_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.send((0, 1, 1.0), (1, 25 * HOUR_MS, 2.0))
    waiting = world.pending_rows()
    with monkeypatch.context() as patch:
        patch.setattr(blocks, "RECORD_BYTES_MAX", 60)
        report = world.roll(minor=True)
    assert [day.errors[0][:14] for day in report.days] == ["LimitExceeded:"] * 2
    assert world.pending_rows() == waiting
    assert world.answer() == world.truth
    world.roll()
    right(world)


def test_a_roll_back_that_nobody_could_read_is_refused_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.send((0, 1, 1.0))
    run = world.roll(minor=True).run
    before = world.manifest()
    with monkeypatch.context() as patch:
        patch.setattr(blocks, "RECORD_BYTES_MAX", 60)
        patch.setattr(blocks, "_unzstd", lambda body: zstandard.ZstdDecompressor().decompress(body))
        with pytest.raises(LimitExceeded):
            roll_back(world.store, run, [APP])
    assert world.manifest() == before


@pytest.mark.parametrize("source", ["host", "other"])
def test_an_hour_of_unnamed_sources_answers_right_whatever_source_is_retracted(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "SOURCES_BYTES_MAX", 3)
    world = World()
    world.send((0, 1, 1.0))
    world.send((1, 2, 2.0), source="other")
    world.roll()
    assert {entry.sources for entry in world.manifest().entries.values()} == {()}
    number = world.retract(source=source)
    assert (world.answer(), world.hours()) == (world.truth, world.recount())
    world.roll()
    right(world)
    world.undo(number)
    assert (world.answer(), world.hours()) == (world.truth, world.recount())


class Moving(MemoryBackend):
    """A store in which somebody else is always faster with the manifest."""

    moving = False

    def check_and_put(self, table: str, key: bytes, column: bytes, expected: bytes | None, value: bytes) -> bool:
        if self.moving and table == "manifest":
            return False
        return super().check_and_put(table, key, column, expected, value)


def test_a_run_that_always_loses_gives_its_work_up() -> None:
    store = Moving()
    world = World(store)
    world.send((0, 1, 1.0))
    store.moving = True
    assert [day.published for day in world.roll().days] == [False]
    store.moving = False
    world.roll()
    right(world)


def test_a_roll_back_that_always_loses_says_so() -> None:
    store = Moving()
    world = World(store)
    world.send((0, 1, 1.0))
    run = world.roll().run
    store.moving = True
    with pytest.raises(StoreUnavailable, match="kept changing"):
        roll_back(store, run, [APP])
    store.moving = False
    right(world)


def test_run_numbers_are_never_given_twice() -> None:
    store = MemoryBackend()
    assert [cells.take_run(store) for _ in range(3)] == [1, 2, 3]


def test_generation_numbers_hold_run_and_attempt() -> None:
    assert generation_number(RUN_MAX - 1, (1 << ATTEMPT_BITS) - 1) >> ATTEMPT_BITS == RUN_MAX - 1
    with pytest.raises(AssertionError):
        generation_number(RUN_MAX, 1)
    with pytest.raises(AssertionError):
        generation_number(1, 1 << ATTEMPT_BITS)
