"""The cases by which an in-place merging table was once tested (HUT 1 to 13), shown on this store.

There is no merging scan, no write-time interval in a key and no client-side pre-merge here: where a case names such a
mechanism, the test shows the promise behind it, and its docstring says how that is kept.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollups.decide.plan import Thresholds
from rollups.decide.work import CompactionResult, HourShardTask
from rollups.run.local import LocalExecutor, ReportProgress
from rollups.run.rollback import roll_back
from spm import limits
from spm.limits import HOUR_MS
from spm.store import keys
from spm.store.backends.memory import MemoryBackend
from spm.store.manifest import Entry
from spm.wire import Parsed
from tests.model.world import APP, DAY, NEXT_DAY, START, World, parsed
from tests.support.faults import Faulty, flip, keys_of

Note = Callable[[str], None]


def last(world: World, series: int, count: int = 5) -> list[float]:
    """The last values of a series, as a reader gets them."""
    mine = sorted((ts, value) for (s, ts), value in world.answer().items() if s == series)
    return [value for _, value in mine][-count:]


def entry_of(world: World) -> Entry:
    """The only HourShard there is."""
    [entry] = world.manifest().entries.values()
    return entry


@pytest.mark.seed("HUT1", compares="the last 5 values of interleaved series, after each burst, with the list of writes")
@pytest.mark.parametrize("series", [2, 3])
@pytest.mark.parametrize("page", [limits.PAGE_SAMPLES_MAX, 3], ids=["one page", "pages smaller than a group"])
def test_hut1_merged_reads_of_interleaved_series_equal_the_list_of_writes(
    series: int, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page smaller than a series' samples stands for a scanner's cache smaller than a group."""
    monkeypatch.setattr(limits, "PAGE_SAMPLES_MAX", page)
    world, written = World(), [list[float]() for _ in range(series)]
    for burst in range(6):
        for n in range(4):
            value = float(burst * 10 + n)
            world.send(((burst + n) % series, burst * 1000 + n, value))
            written[(burst + n) % series].append(value)
        if burst % 2:
            world.roll(minor=burst % 4 == 1)
        assert [last(world, s) for s in range(series)] == [values[-5:] for values in written]
        assert last(world, 99) == []


@pytest.mark.seed("HUT2", compares="blocks read for an answer before and after a run; answers under more writes")
def test_hut2_what_was_merged_is_cheap_to_read_afterwards_and_stays_right(figure: Note) -> None:
    """A scan stores nothing here: a minor run does, and every reader, also a plain one, finds one page from then on."""
    world = World(store := Faulty(MemoryBackend()))
    read = []
    for burst in range(2):
        for n in range(10):
            world.send((0, burst * 1000 + n, float(n)))
        for _ in range(2):
            store.calls.clear()
            fetched: list[str] = []
            store.hook = fetched.append
            assert world.answer() == world.truth
            read.append("get log" in fetched)
            world.roll(minor=True)
    assert read == [True, False, True, False]
    assert len(entry_of(world).state.generations) == 2
    figure("0 blocks read after a run")


@pytest.mark.seed("HUT3", compares="the manifest and all answers after one, two and three compactions")
def test_hut3_compaction_twice_in_a_row_and_with_nothing_new_changes_nothing() -> None:
    world = World()
    world.send((0, 1, 1.0), (1, 1, 2.0))
    world.send((0, 1, 3.0))
    world.roll()
    before = world.manifest()
    for _ in range(2):
        assert world.roll().days == ()
        assert world.manifest() == before
        assert world.answer() == world.truth


@pytest.mark.seed("HUT4", compares="answers after two compactions that delete no input, with writes in between")
def test_hut4_compaction_that_leaves_its_inputs_reads_right() -> None:
    """No run deletes blocks or generations: that is the purge's, behind a fence."""
    world = World()
    for n in range(2):
        world.send((0, 1, float(n)), (0, 2 + n, 5.0))
        blocks = keys_of(world.store, "log")
        world.roll()
        assert keys_of(world.store, "log") == blocks
        assert world.answer() == world.truth
    assert len(keys_of(world.store, "chunks")) == 2
    assert world.hours() == world.recount()


@pytest.mark.seed("HUT5", compares="generations of an hour after each of 12 minor runs, with groups of 2 to 10")
@pytest.mark.parametrize("k", range(2, 11))
def test_hut5_groups_are_merged_from_a_size_on_and_only_those(k: int) -> None:
    """An hour's generations are a group: the run that finds k of them makes one out of all."""
    world, counts = World(), []
    driver = replace(world.driver(), thresholds=Thresholds(generations=k))
    for n in range(12):
        world.send((0, 1 + n, float(n)))
        driver.roll(LocalExecutor(world.store), [APP], minor=True, now_ms=NEXT_DAY)
        counts.append(len(entry_of(world).state.generations))
    assert counts == [n % k + 1 for n in range(12)]
    assert world.answer() == world.truth


@pytest.mark.seed("HUT6", compares="answers, hours and a lone last hour, for batches and pages of all sizes")
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 10, 20])
@pytest.mark.parametrize("rows", [None, 3], ids=["large pages", "pages of 3 rows"])
def test_hut6_batches_and_pages_of_any_size_give_the_same(
    size: int, rows: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lone last hour is not closed: a full run leaves what is in one generation alone."""
    world = World()
    world.send((0, 20 * HOUR_MS + 1, 1.0))
    world.roll(minor=True)
    lone = next(e for (_, hour), e in world.manifest().entries.items() if hour == DAY * 24 + 20)
    sent = [world.acceptor.stamp_message(app=APP, source="a", parsed=one(n), message_id=bytes(16)) for n in range(20)]
    for start in range(0, 20, size):
        world.store_again(*sent[start : start + size])
    if rows:
        monkeypatch.setattr(limits, "PAGE_SAMPLES_MAX", rows)
        monkeypatch.setattr(limits, "ROLLUP_ROWS_MAX", rows)
    world.roll(now_ms=START + 10 * HOUR_MS)
    assert world.answer() == world.truth
    assert world.hours() == world.recount()
    assert next(e for (_, hour), e in world.manifest().entries.items() if hour == DAY * 24 + 20) == lone


def one(n: int) -> Parsed:
    """A message of two series."""
    return parsed([(n % 4, (n % 3) * HOUR_MS + n + 1, float(n)), (n % 4 + 1, n + 1, float(-n))])


@pytest.mark.seed("HUT7", compares="the hour each sample is compacted into, at and beside every boundary, with its own")
def test_hut7_parts_are_compacted_at_their_boundaries() -> None:
    """Groups are hours of sample time, open at their start: what a partial run takes is whole groups, exactly."""
    world = World()
    for at in range(4):
        for offset in (-1, 0, 1):
            world.send((0, at * HOUR_MS + 10 * HOUR_MS + offset, float(at * 10 + offset)))
    world.roll(now_ms=START + 12 * HOUR_MS + 5 * 60_000)
    closed = {hour - DAY * 24 for pack in world.manifest().hours.values() for hour in pack.hours}
    assert closed == {9, 10, 11}
    counts = {hour - DAY * 24: row["count"] for (_, hour), row in world.hours().items()}
    assert counts == {9: 2, 10: 3, 11: 3, 12: 3, 13: 1}


@pytest.mark.seed("HUT10", compares="answers while a batcher of 6 holds messages, after its flush, after compaction")
def test_hut10_what_is_merged_before_it_is_stored_answers_like_what_is_not() -> None:
    """A batch is one block per HourShard; nothing is summed up before it is stored, so no version is lost."""
    world, plain = World(), World()
    samples_ = []
    for n in range(20):
        message = world.acceptor.stamp_message(app=APP, source="a", parsed=one(n), message_id=bytes(16))
        plain.store_again(message)
        samples_.append(message)
        if len(samples_) == 6:
            world.store_again(*samples_)
            samples_.clear()
        assert world.answer() == world.truth
    world.store_again(*samples_)
    assert world.answer() == plain.answer() == plain.truth
    world.roll()
    assert world.answer() == plain.answer()
    assert world.hours() == plain.hours()


@pytest.mark.seed("HUT11", compares="the end of each hour's range with the start of the one before it, over all hours")
@given(st.integers(0, 255), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 2))
def test_hut11_ranges_of_hours_follow_each_other_without_gap_or_overlap(shard: int, app: int, hour: int) -> None:
    """Newer sorts first: the range of an hour begins where that of the next later one ends."""
    first = keys.LogKey(shard, app, hour, keys.U64, 0).to_bytes()
    last_of_next = keys.LogKey(shard, app, hour + 1, 0, keys.U64).to_bytes()
    assert keys.log_range(shard, app, hour)[0] <= first < keys.log_range(shard, app, hour)[1]
    assert last_of_next < keys.log_range(shard, app, hour + 1)[1] <= first
    assert keys.LogKey.parse(first).hour == hour


@pytest.mark.seed("HUT12", compares="sums by scan and by job, with a recount; a damaged and an absent row in the hours")
def test_hut12_sums_by_scan_and_by_job_are_equal_and_damage_is_left_out() -> None:
    world = World()
    for n in range(9):
        world.send((n % 3, n * HOUR_MS // 2 + 1, float(n)))
    by_scan = world.hours()
    world.roll()
    assert world.hours() == by_scan == world.recount()
    damaged, absent = keys_of(world.store, "hours")[:2]
    flip(world.store, "hours", damaged, next(iter(world.store.get("hours", [damaged])[0] or {})))
    world.store.delete("hours", [(absent, None)])
    assert world.hours() == by_scan  # counted from raw, which knows better


@pytest.mark.seed("HUT13", compares="versions of a late write inside a compacted stretch, with the model")
def test_hut13_a_late_write_inside_a_compacted_stretch_is_not_lost() -> None:
    """The old table merged by write time, and a buffered put with an older one vanished: here stamps are data."""
    world = World()
    late = world.acceptor.stamp_message(app=APP, source="slow", parsed=parsed([(0, 5, 1.0)]), message_id=bytes(16))
    world.clock.advance(1)
    world.send((0, 4, 2.0), (0, 6, 3.0))
    world.roll()
    world.store_again(late)
    assert world.answer() == world.truth
    world.roll()
    assert world.answer() == world.truth
    assert len(world.truth) == 3


@pytest.mark.seed("HUT13", compares="two processes' writes of one sample in one millisecond: every reader's winner")
def test_hut13_two_writers_in_one_millisecond_have_one_winner_everywhere() -> None:
    world = World()
    for process in (9, 3, 5):
        world.acceptor = type(world.acceptor)(process, world.clock)
        world.store_again(
            world.acceptor.stamp_message(
                app=APP, source="a", parsed=parsed([(0, 1, float(process))]), message_id=bytes(16)
            )
        )
    for _ in range(2):
        assert world.answer() == {(0, START + 1): 9.0}
        world.roll()
    assert len(world.model.versions) == 3


@pytest.mark.seed("HUT13", compares="answers when every task is done twice, with the model")
def test_hut13_a_retried_task_attempt_is_harmless() -> None:
    class Twice(LocalExecutor):
        """Every task is done again, as a speculating scheduler would; the second result counts."""

        def compact(self, run: int, tasks: Sequence[HourShardTask], done: ReportProgress) -> list[CompactionResult]:
            super().compact(run, tasks, done)
            return super().compact(run, tasks, done)

    world = World()
    world.send((0, 1, 1.0), (1, HOUR_MS + 1, 2.0))
    world.driver().roll(Twice(world.store), [APP], now_ms=NEXT_DAY)
    assert world.answer() == world.truth
    assert world.hours() == world.recount()
    assert {len(e.state.generations) for e in world.manifest().entries.values()} == {1}


@pytest.mark.seed("HUT13", compares="a scan cut in two at every key, as by a region split, with the scan in one")
def test_hut13_a_split_in_the_middle_of_a_group_loses_nothing() -> None:
    """No rule needs two rows of one region: a group is found by its manifest, wherever its rows lie."""
    world = World()
    for n in range(6):
        world.send((n % 3, n + 1, float(n)))
    world.roll(minor=True)
    for table in ("chunks", "timelines", "log", "pending"):
        whole = list(world.store.scan(table, b"", b"\xff" * 64))
        for key, _ in whole:
            assert [*world.store.scan(table, b"", key), *world.store.scan(table, key, b"\xff" * 64)] == whole


@pytest.mark.seed("HUT13", compares="answers after a roll back across a full merge and more writes, with the model")
def test_hut13_a_roll_back_inside_a_merged_group_restores_its_parts() -> None:
    """A merged group is not cut: its history holds the parts, and what came later is replayed from its blocks."""
    world = World()
    for n in range(3):
        world.send((0, 1, float(n)), (0, 2 + n, 1.0))
        world.roll(minor=True)
    merged = world.roll().run
    world.send((0, 1, 9.0))
    roll_back(world.store, merged, [APP])
    assert len(entry_of(world).state.generations) == 3
    assert world.answer() == world.truth
    world.roll()
    assert world.answer() == world.truth
