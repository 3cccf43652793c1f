"""Claims about purging: no answer changes, what is superseded goes, and what a roll back may need stays."""

from collections.abc import Callable

import pytest

from rollups.crash_points import ignore_point
from rollups.decide.superseded import COVERED, EXPIRED, ORPHAN, SUPERSEDED, ListedRows, References, deletion_reason
from rollups.delete.purge import TABLES, purge
from rollups.run.rollback import roll_back
from spm.limits import HOUR_MS
from spm.store import keys
from tests.model.world import APP, DAY, START, Crash, World, crash_at, days_in_force, meanwhile, whole_day


def filled() -> World:
    """Three runs over the same hours, the last two with late data."""
    world = World()
    world.send((0, 1, 1.0), (1, HOUR_MS + 1, 2.0))
    world.roll()
    world.send((0, 2, 3.0))
    world.roll()
    world.send((0, 3, 4.0))
    world.roll()
    return world


def rows(world: World, table: str) -> int:
    """Rows of the app in a table."""
    return sum(1 for b in world.placement.all_shards(APP) for _ in world.store.scan(table, *keys.app_range(b, APP)))


def clean(world: World, keep: int = 0) -> dict[str, int]:
    """Purge the whole app."""
    return purge(world.store, APP, world.placement.all_shards(APP), keep=keep).rows


def right(world: World) -> None:
    """Raw, hours and days are as they must be."""
    assert world.answer() == world.truth
    assert world.hours() == world.recount()
    assert days_in_force(world) == whole_day(world)


def test_a_purge_without_history_leaves_one_generation_and_no_block() -> None:
    world = filled()
    clean(world)
    right(world)
    assert rows(world, "log") == 0
    units = len(world.manifest().entries)
    packs = len(world.manifest().hours)
    assert rows(world, "timelines") == units
    assert rows(world, "inputs") == units + 2 * packs  # a pack of hours and one of days per shard
    assert rows(world, "hours") == rows(world, "days") == 2


def test_a_second_purge_finds_nothing() -> None:
    world = filled()
    clean(world)
    assert set(clean(world).values()) == {0}


def test_what_a_kept_history_needs_stays() -> None:
    world = filled()
    run = max(entry.history[-1].run for entry in world.manifest().entries.values())
    clean(world, keep=1)
    roll_back(world.store, run, [APP])
    assert world.answer() == world.truth
    assert world.hours() == world.recount()


def test_blocks_that_wait_for_a_run_stay() -> None:
    world = filled()
    world.send((0, 4, 9.0))
    clean(world)
    assert rows(world, "log") == 1
    world.roll()
    right(world)


def test_blocks_on_the_replay_list_stay() -> None:
    world = filled()
    run = max(entry.history[-1].run for entry in world.manifest().entries.values())
    roll_back(world.store, run, [APP])
    clean(world)
    assert world.answer() == world.truth
    world.roll()
    right(world)


def test_a_pending_cell_whose_block_was_purged_is_settled_by_the_next_run() -> None:
    """A run died between publishing and its last step; a purge then deleted the blocks, which the chunks hold."""
    world = World()
    world.send((0, 1, 1.0))
    with pytest.raises(Crash):
        world.roll(at=crash_at("published"))
    clean(world)
    assert rows(world, "log") == 0
    assert world.answer() == world.truth
    report = world.roll()
    assert report.errors == []
    assert world.pending_rows() == 0
    right(world)


@pytest.mark.parametrize("point", ["purge listed", "purge fenced", "purge deleting"])
def test_a_purge_killed_anywhere_changes_no_answer(point: str) -> None:
    world = filled()
    with pytest.raises(Crash):
        purge(world.store, APP, world.placement.all_shards(APP), keep=0, at=crash_at(point))
    right(world)
    clean(world)
    right(world)
    assert rows(world, "log") == 0


def test_rows_of_a_crashed_run_go() -> None:
    world = filled()
    world.send((0, 5, 6.0))
    before = rows(world, "chunks")
    with pytest.raises(Crash):
        world.roll(at=crash_at("compacted"))
    assert rows(world, "chunks") > before
    clean(world)
    assert rows(world, "chunks") == len(world.manifest().entries)
    world.roll()
    right(world)


def test_a_dry_run_counts_and_deletes_nothing() -> None:
    world = filled()
    would = purge(world.store, APP, world.placement.all_shards(APP), keep=0, dry_run=True)
    before = world.manifest()
    assert would.rows["chunks"] > 0
    assert world.manifest() == before
    assert clean(world) == would.rows


def test_a_purge_without_any_run_deletes_nothing() -> None:
    world = World()
    world.send((0, 1, 1.0))
    with pytest.raises(Crash):
        world.roll(at=crash_at("compacted"))
    clean(world)
    assert world.answer() == world.truth


# --- reasons, bytes, fences -------------------------------------------------------------------------------------------


def reasons(world: World, *, keep: int = 0, dry_run: bool = False) -> set[str]:
    """Why anything goes."""
    done = purge(world.store, APP, world.placement.all_shards(APP), keep=keep, dry_run=dry_run)
    return {reason for _, reason in done.tallies}


def superseded() -> World:
    """An hour shard that was merged twice, without its blocks and pending rows."""
    world = filled()
    clean(world, keep=1)
    return world


def covered() -> World:
    """An hour shard with one generation and no history, and its block."""
    world = World()
    world.send((0, 1, 1.0))
    world.roll(minor=True)
    return world


def died() -> World:
    """A run that died before it published a day for the first time; its block is pending."""
    world = World()
    world.send((0, 1, 1.0))
    with pytest.raises(Crash):
        world.roll(at=crash_at("compacted"))
    return world


def half_written() -> World:
    """A run that died between its pages and the row that lists them."""
    world = World()
    world.send((0, 1, 1.0))
    with pytest.raises(Crash):
        world.roll(at=crash_at("pages written"))
    return world


def rolled_back() -> World:
    """A run that was taken back: its generation is nobody's, its block is read again."""
    world = covered()
    [entry] = world.manifest().entries.values()
    roll_back(world.store, entry.history[-1].run, [APP])
    return world


CASES = {
    "a merge replaced it": (superseded, {SUPERSEDED, COVERED}),
    "chunks hold its block": (covered, {COVERED}),
    "its run died before it published": (died, {ORPHAN}),
    "its run died before its inputs": (half_written, {ORPHAN}),
    "its run was rolled back": (rolled_back, {ORPHAN}),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case).replace(" ", "-"))
def test_a_purge_says_why_it_deletes(case: str) -> None:
    make, wanted = CASES[case]
    world = make()
    assert reasons(world, dry_run=True) == wanted
    assert reasons(world) == wanted
    assert reasons(world) == set()
    assert world.answer() == world.truth


def bytes_of(world: World) -> int:
    """Bytes in all tables that a purge looks into."""
    return sum(
        len(value)
        for table in TABLES
        for b in world.placement.all_shards(APP)
        for _, row in world.store.scan(table, *keys.app_range(b, APP))
        for value in row.values()
    )


@pytest.mark.parametrize("make", [filled, covered, died, half_written, rolled_back], ids=lambda make: make.__name__)
def test_a_dry_run_tells_the_bytes_that_the_purge_then_frees(make: Callable[[], World]) -> None:
    world = make()
    shards = world.placement.all_shards(APP)
    would = purge(world.store, APP, shards, keep=0, dry_run=True)
    before = bytes_of(world)
    assert purge(world.store, APP, shards, keep=0).tallies == would.tallies
    assert before - bytes_of(world) == would.size_bytes > 0


def test_a_purge_that_deletes_nothing_moves_no_manifest() -> None:
    """A fence makes runs under way drop their work: it is put up only where something goes."""
    world = filled()
    clean(world)
    before = world.manifest()
    clean(world)
    assert world.manifest() == before


def test_a_run_whose_pages_a_purge_has_listed_never_comes_into_force() -> None:
    """Without the fence of PROTOCOL 20 this run would name deleted rows: the day has no manifest yet."""
    world = World()
    world.send((0, 1, 1.0))
    done: list[str] = []

    def meanwhile(point: str) -> None:
        ignore_point(point)
        if point == "compacted" and not done:
            done.append(point)
            clean(world)

    report = world.roll(at=meanwhile)
    assert [day.published for day in report.days] == [False]
    assert world.answer() == world.truth
    world.roll()
    right(world)


def test_a_run_that_publishes_while_a_purge_lists_keeps_its_rows() -> None:
    """What is named by the time the fence stands is not deleted, though it was nobody's when it was listed."""
    world = died()
    purge(world.store, APP, world.placement.all_shards(APP), keep=0, at=meanwhile("purge listed", lambda: world.roll()))
    right(world)


def test_a_generation_made_after_the_listing_is_left_alone() -> None:
    world = filled()

    def later() -> None:
        world.send((0, 9, 9.0))
        world.roll()

    purge(world.store, APP, world.placement.all_shards(APP), keep=0, at=meanwhile("purge listed", later))
    right(world)
    world.roll()
    right(world)


def test_a_purge_of_one_day_leaves_others_alone() -> None:
    world = filled()
    world.send((0, 30 * HOUR_MS, 5.0))
    world.roll(now_ms=START + 60 * HOUR_MS)
    purge(world.store, APP, world.placement.all_shards(APP), keep=0, days=[DAY + 1])
    assert {keys.LogKey.parse(key).hour // 24 for key in blocks(world)} == {DAY}


def blocks(world: World) -> list[bytes]:
    """The keys of all blocks."""
    return [key for b in world.placement.all_shards(APP) for key, _ in world.store.scan("log", *keys.app_range(b, APP))]


def test_a_generation_with_damaged_inputs_is_counted_and_left() -> None:
    world = died()
    [place] = [
        key for b in world.placement.all_shards(APP) for key, _ in world.store.scan("inputs", *keys.app_range(b, APP))
    ][:1]
    world.store.put([("inputs", [(place, {b"v": b"damaged"})])])
    done = purge(world.store, APP, world.placement.all_shards(APP), keep=0)
    assert done.damaged == 1
    assert place in [
        key for b in world.placement.all_shards(APP) for key, _ in world.store.scan("inputs", *keys.app_range(b, APP))
    ]


HOUR = DAY * 24
WORD = References(
    named=frozenset({(1, HOUR, 10), (1, HOUR + 1, 20)}),
    parents=frozenset({(1, HOUR, 9)}),
    sealed=frozenset({HOUR + 1}),
    covered={(1, HOUR): frozenset({77})},
)
VERDICTS = {
    "a page in force stays": (ListedRows("chunks", 1, HOUR, 10), None),
    "its number in another shard is another generation": (ListedRows("chunks", 2, HOUR, 10), ORPHAN),
    "a parent is superseded": (ListedRows("inputs", 1, HOUR, 9), SUPERSEDED),
    "what nobody names is an orphan": (ListedRows("timelines", 1, HOUR, 8), ORPHAN),
    "a block inside chunks is covered": (ListedRows("log", 1, HOUR, 77), COVERED),
    "a block outside them stays": (ListedRows("log", 1, HOUR, 78), None),
    "a block of a sealed hour has expired": (ListedRows("log", 1, HOUR + 1, 78), EXPIRED),
    "a sealed hour's generation is deleted by who sealed it": (ListedRows("chunks", 1, HOUR + 1, 20), None),
    "other pages of a sealed hour have expired": (ListedRows("chunks", 1, HOUR + 1, 21), EXPIRED),
}


@pytest.mark.parametrize("case", VERDICTS, ids=lambda case: str(case).replace(" ", "-"))
def test_a_verdict_follows_from_the_manifests_word(case: str) -> None:
    listed, wanted = VERDICTS[case]
    assert deletion_reason(listed, WORD) == wanted


def test_watchers_see_every_day() -> None:
    world = filled()
    seen: list[tuple[int, int]] = []
    purge(world.store, APP, world.placement.all_shards(APP), watch=lambda done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == list(range(1, seen[-1][1] + 1))
