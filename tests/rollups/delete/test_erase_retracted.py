"""Claims about deleting a retraction's samples for good: they are in no row any more, all else is as it was."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollups import retraction
from rollups.crash_points import Hook, ignore_point
from rollups.delete.erase_retracted import erase_retracted, narrow_to_rows, preview
from rollups.delete.purge import every_shard, purge
from rollups.move.redistribute import close_epoch
from rollups.run.local import LocalExecutor
from rollups.run.rollback import roll_back
from spm.errors import Refused
from spm.limits import HOUR_MS
from spm.query.request.provenance import DAYS, RAW
from spm.store import epochs, keys, manifest
from spm.store.backends.base import Backend
from spm.store.backends.memory import MemoryBackend
from spm.store.encoding.blocks import TimelinesPage
from spm.store.encoding.chunk_page import ChunkPage
from spm.store.manifest import SEALED, Generation
from spm.store.versions import generations, retractions
from spm.store.versions.generations import HourShard
from spm.store.versions.merge import Piece, merge
from tests.model.world import APP, DAY, NEXT_DAY, START, Crash, World, crash_at, meanwhile

BAD = 666.0  # what is taken out
Forms = dict[str, Callable[[bytes], object]]


def scan(world: World, table: str) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """The app's rows of a table."""
    return [r for b in every_shard(world.store, APP) for r in world.store.scan(table, *keys.app_range(b, APP))]


def stored(world: World) -> list[tuple[int, int, float, int, str]]:
    """Every version in any row of `log` and of `chunks`, whether a manifest names it or not: (series, ts, value, …)."""
    versions = []
    for shard in every_shard(world.store, APP):
        for _, row in world.store.scan("log", *keys.app_range(shard, APP)):
            versions += _versions(Piece.of_row(row))
        for key, row in world.store.scan("inputs", *keys.app_range(shard, APP)):
            _, _, hour, number = keys.parse_inputs(key)
            versions += _generation(world, HourShard(shard, APP, hour), number, generations.decode_inputs(row[b"v"]))
    return sorted(set(versions))


def _generation(
    world: World, unit: HourShard, number: int, inputs: generations.Inputs
) -> list[tuple[int, int, float, int, str]]:
    """A generation's versions by its pages alone; packs have none."""
    if not inputs.timeline_pages:
        return []
    named = [g for (b, s), e in world.manifest(unit.hour // 24).entries.items() for g in _all(e) if g.number == number]
    generation = named[0] if named else Generation(number)
    pages: Forms = {
        "chunks": ChunkPage.from_bytes,
        "timelines": TimelinesPage.from_bytes,
    }

    def fetch(table: str, names: object) -> list[object | None]:
        rows = world.store.get(table, list(names))  # type: ignore[call-overload]
        return [None if row is None else pages[table](row[b"v"]) for row in rows]

    return _versions(merge(generations.read_generation(fetch, lambda: inputs, unit, generation, None)))


def _all(entry: manifest.Entry) -> list[Generation]:
    return [g for state in [entry.state, *(f.state for f in entry.history)] for g in state.generations]


def _versions(piece: Piece) -> list[tuple[int, int, float, int, str]]:
    owner = np.repeat(piece.series, piece.counts)
    sources = [piece.messages.sources[i] for i in piece.messages.source[piece.message]]
    ms = piece.messages.ms[piece.message]
    return list(zip(owner.tolist(), piece.ts.tolist(), piece.values.tolist(), ms.tolist(), sources, strict=True))


def good(world: World) -> list[tuple[int, int, float, int, str]]:
    """The versions that must stay."""
    return [version for version in stored(world) if version[2] != BAD]


def right(world: World) -> None:
    """Every answer is that of the model."""
    assert world.answer() == world.truth
    assert world.hours() == world.recount()
    assert world.days() == world.model.days()


def delete(world: World, number: int, at: Hook = ignore_point) -> None:
    """Delete its samples, and tell the model."""
    world.model.purge(number)
    done = erase_retracted(world.store, APP, number, now_ms=world.clock.now_ms(), at=at)
    assert done.errors == []


# --- where the bad samples may be -------------------------------------------------------------------------------------


def merged(store: Backend | None = None) -> World:
    """In chunks of two shards, with hours and days; good and bad ones of one message time and series."""
    world = World(store or MemoryBackend())
    world.send((0, 1, 1.0), (1, 2, 2.0), (2, 5 * HOUR_MS, 3.0), source="good")
    world.send((0, 1, BAD), (0, 7, BAD), (2, 5 * HOUR_MS + 1, BAD), (3, 25 * HOUR_MS, BAD), source="bad")
    world.roll(now_ms=START + 60 * HOUR_MS)
    return world


def waiting() -> World:
    """In blocks that no run has seen."""
    world = World()
    world.send((0, 1, 1.0), (2, 2, 2.0), source="good")
    world.roll()
    world.send((0, 3, BAD), (2, 2, BAD), source="bad")
    return world


def minor_ones() -> World:
    """In one of several generations, without hours."""
    world = World()
    world.send((0, 1, 1.0), source="good")
    world.roll(minor=True)
    world.send((0, 2, BAD), (0, 1, BAD), source="bad")
    world.roll(minor=True)
    world.send((0, 3, 3.0), source="good")
    world.roll(minor=True)
    return world


def replayed() -> World:
    """In blocks of a replay list, and in a generation that was rolled back."""
    world = merged()
    run = max(entry.history[-1].run for entry in world.manifest().entries.values())
    roll_back(world.store, run, [APP])
    return world


def in_history() -> World:
    """In former states as well."""
    world = merged()
    for n in range(3):
        world.send((0, 20 + n, 1.0 * n), source="good")
        world.roll()
    return world


def alone() -> World:
    """Nothing else is in the hour."""
    world = World()
    world.send((0, 1, BAD), source="bad")
    world.send((2, 7 * HOUR_MS, 1.0), source="good")
    world.roll()
    return world


def of_a_dead_run() -> World:
    """Also in pages of a run that died before it published."""
    world = merged()
    world.send((0, 9, 9.0), source="good")
    with pytest.raises(Crash):
        world.roll(at=crash_at("pages written"))
    return world


def moved() -> World:
    """In former states and blocks of the shards it was moved from, too, and pending there once more."""
    world = merged()
    epochs.open_epoch(world.store, APP, function="byte", shards=16, spread=16)
    assert world.migrate().days
    world.send((0, 11, BAD), (1, 11, BAD), source="bad")
    return world


def moved_for_good() -> World:
    """In blocks of an epoch that is closed."""
    world = moved()
    for _ in range(2):
        world.roll(now_ms=START + 60 * HOUR_MS)
        world.migrate()
    assert close_epoch(world.store, APP, 0).closed
    return world


def moved_and_back() -> World:
    """In pages of a move that was rolled back."""
    world = merged()
    epochs.open_epoch(world.store, APP, function="byte", shards=16, spread=16)
    roll_back(world.store, world.migrate().run, [APP])
    return world


CASES = [
    merged, waiting, minor_ones, replayed, in_history, alone, of_a_dead_run, moved, moved_for_good, moved_and_back,
]  # fmt: skip


@pytest.mark.parametrize("compacted", [False, True], ids=["at-once", "after-a-run"])
@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__.replace("_", "-"))
def test_a_purged_retraction_is_in_no_row_and_all_else_is_as_it_was(make: Callable[[], World], compacted: bool) -> None:
    world = make()
    number = world.retract(source="bad")
    if compacted:
        world.roll(now_ms=NEXT_DAY + 40 * HOUR_MS)
    answer, wanted = world.answer(), good(world)
    delete(world, number)
    assert stored(world) == wanted
    assert world.answer() == answer
    right(world)
    world.roll(now_ms=NEXT_DAY + 40 * HOUR_MS)
    right(world)
    assert (stored(world), world.pending_rows()) == (wanted, 0)
    assert not _keys_of_pages(world) - _listed(world)


def _keys_of_pages(world: World) -> set[tuple[int, int]]:
    rows = [
        key for b in every_shard(world.store, APP) for key, _ in world.store.scan("chunks", *keys.app_range(b, APP))
    ]
    return {(keys.parse_chunk(key)[3], keys.parse_chunk(key)[4]) for key in rows}


def _listed(world: World) -> set[tuple[int, int]]:
    rows = [
        key for b in every_shard(world.store, APP) for key, _ in world.store.scan("inputs", *keys.app_range(b, APP))
    ]
    return {keys.parse_inputs(key)[2:] for key in rows}


def test_hours_in_force_stay_in_force_and_only_days_wait_for_a_run() -> None:
    world = merged()
    number = world.retract(source="bad")
    world.roll(now_ms=NEXT_DAY + 40 * HOUR_MS)
    assert world.resolutions() == {DAYS}
    packs = {b: pack.generation for b, pack in world.manifest().hours.items()}
    delete(world, number)
    assert {b: pack.generation for b, pack in world.manifest().hours.items()} == packs
    assert RAW not in world.resolutions()
    world.roll(now_ms=NEXT_DAY + 41 * HOUR_MS)
    assert world.resolutions() == {DAYS}
    right(world)


# --- what it may not do -----------------------------------------------------------------------------------------------


def test_a_purged_retraction_cannot_be_undone() -> None:
    world = merged()
    number = world.retract(source="bad")
    delete(world, number)
    with pytest.raises(Refused, match="erased"):
        retraction.undo(world.store, APP, number, world.clock.now_ms())


def test_nobody_undoes_a_retraction_whose_purge_was_killed() -> None:
    """The mark comes before the first deleted row."""
    world = merged()
    number = world.retract(source="bad")
    with pytest.raises(Crash):
        erase_retracted(world.store, APP, number, now_ms=world.clock.now_ms(), at=crash_at("erasure published"))
    with pytest.raises(Refused, match="erased"):
        retraction.undo(world.store, APP, number, world.clock.now_ms())


@pytest.mark.parametrize("number", ["unknown", "undone"])
def test_only_a_retraction_in_force_is_purged(number: str) -> None:
    world = merged()
    inputs = world.retract(source="bad")
    world.undo(inputs)
    before = stored(world)
    with pytest.raises(Refused):
        erase_retracted(world.store, APP, inputs if number == "undone" else 99, now_ms=world.clock.now_ms())
    assert stored(world) == before


def test_what_another_retraction_hides_comes_back_with_its_undo() -> None:
    world = merged()
    world.send((1, 2, 5.0), source="other")
    number, other = world.retract(source="bad"), world.retract(source="other")
    delete(world, number)
    right(world)
    world.undo(other)
    assert 5.0 in world.answer().values()
    right(world)


def test_overlapping_retractions_lose_only_what_the_purged_one_hides() -> None:
    world = merged()
    wide = world.retract(data_from=START, data_to=START + HOUR_MS)
    narrow = world.retract(source="bad", data_from=START, data_to=START + HOUR_MS)
    delete(world, narrow)
    world.undo(wide)
    right(world)
    assert BAD not in [v for (_, ts), v in world.answer().items() if ts <= START + HOUR_MS]


def test_sealed_hours_are_named_and_left() -> None:
    world = merged()
    number = world.retract(source="bad")
    world.roll(now_ms=NEXT_DAY + 40 * HOUR_MS)
    hour = START // HOUR_MS
    key, value = keys.manifest(APP, DAY), world.manifest()
    after = manifest.Manifest(5, 5, value.entries, value.hours, {hour: SEALED})
    assert world.store.check_and_put("manifest", key, b"v", manifest.encode(value), manifest.encode(after))
    before = {unit: entry for unit, entry in world.manifest().entries.items() if unit[1] == hour}
    done = erase_retracted(world.store, APP, number, now_ms=world.clock.now_ms())
    assert done.sealed_hours == (hour,)
    assert {unit: entry for unit, entry in world.manifest().entries.items() if unit[1] == hour} == before


def test_a_damaged_unit_is_told_and_can_be_tried_again() -> None:
    world = waiting()
    number = world.retract(source="bad")
    place = scan(world, "log")[0][0]
    [row] = world.store.get("log", [place])
    assert row is not None
    world.store.put([("log", [(place, {b"v": b"damaged"})])])
    assert erase_retracted(world.store, APP, number, now_ms=1).errors != []
    world.store.put([("log", [(place, row)])])
    delete(world, number)
    right(world)
    assert good(world) == stored(world)


# --- preview ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [merged, waiting, minor_ones, alone], ids=lambda make: make.__name__.replace("_", "-"))
def test_a_preview_tells_what_the_purge_then_does(make: Callable[[], World]) -> None:
    world = make()
    number = world.retract(source="bad")
    bad = sum(version[2] == BAD for version in stored(world))
    before = stored(world), world.manifest()
    would = preview(world.store, APP, number)
    assert (stored(world), world.manifest()) == before
    assert would.versions == bad > 0
    done = erase_retracted(world.store, APP, number, now_ms=world.clock.now_ms())
    assert (done.versions, done.hour_shards, done.samples) == (would.versions, would.hour_shards, would.samples)
    assert would.deletions.size_bytes > 0
    gone = [
        done.deletions.rows[table] >= would.deletions.rows[table] > 0
        for table in ("chunks", "log")
        if would.deletions.rows[table]
    ]
    assert all(gone)


# --- crashes and others at work ---------------------------------------------------------------------------------------

POINTS = [
    "erasure marked", "pages written", "inputs written", "erasure published", "ledger written", "unpended",
    "purge listed", "purge fenced", "purge deleting",
]  # fmt: skip


def busy() -> World:
    """Bad samples in chunks, in history and in pending blocks of two days."""
    world = in_history()
    world.send((0, 30, BAD), (3, 26 * HOUR_MS, BAD), (2, 26 * HOUR_MS, 1.0), source="bad")
    return world


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("point", POINTS)
def test_a_purge_killed_anywhere_is_finished_by_the_next(point: str, times: int) -> None:
    world = busy()
    number = world.retract(source="bad")
    world.model.purge(number)
    try:
        erase_retracted(world.store, APP, number, now_ms=world.clock.now_ms(), at=crash_at(point, times))
    except Crash:
        right(world)
        erase_retracted(world.store, APP, number, now_ms=world.clock.now_ms())
    right(world)
    world.roll(now_ms=NEXT_DAY + 40 * HOUR_MS)
    right(world)
    assert good(world) == stored(world)


@pytest.mark.parametrize("point", POINTS)
def test_samples_that_come_in_meanwhile_are_kept(point: str) -> None:
    world = busy()
    number = world.retract(source="bad")
    at = meanwhile(point, lambda: world.send((0, 50, 50.0), (2, 26 * HOUR_MS + 3, 51.0), source="good"))
    delete(world, number, at)
    right(world)
    world.roll(now_ms=NEXT_DAY + 40 * HOUR_MS)
    right(world)
    assert {50.0, 51.0} <= set(world.answer().values())


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("minor", [True, False], ids=["minor", "full"])
def test_a_run_at_the_same_time_brings_nothing_back(point: str, minor: bool) -> None:
    world = busy()
    number = world.retract(source="bad")
    delete(world, number, meanwhile(point, lambda: world.roll(minor=minor, now_ms=NEXT_DAY + 40 * HOUR_MS)))
    erase_retracted(world.store, APP, number, now_ms=1)
    right(world)
    assert good(world) == stored(world)


@pytest.mark.parametrize("point", ["planned", "blocks read", "compacted", "hours written", "days written"])
def test_a_run_under_way_does_not_bring_back_what_was_purged_meanwhile(point: str) -> None:
    world = busy()
    number = world.retract(source="bad")
    world.roll(now_ms=NEXT_DAY + 40 * HOUR_MS, at=meanwhile(point, lambda: delete(world, number)))
    right(world)
    purge(world.store, APP, keep=0)
    right(world)
    assert good(world) == stored(world)


def test_a_minor_run_under_way_does_not_add_what_was_just_taken_out() -> None:
    """It replaces nothing that was deleted, so only the fence of the rewritten day stops it from publishing."""
    world = waiting()
    number = world.retract(source="bad")

    def half() -> None:
        with pytest.raises(Crash):
            erase_retracted(world.store, APP, number, now_ms=world.clock.now_ms(), at=crash_at("erasure published"))

    report = world.roll(minor=True, at=meanwhile("compacted", half))
    assert [day.published for day in report.days] == [False]


def test_no_roll_back_returns_to_a_state_that_held_it() -> None:
    world = in_history()
    number = world.retract(source="bad")
    run = max(f.run for entry in world.manifest().entries.values() for f in entry.history)
    delete(world, number)
    with pytest.raises(Refused):
        roll_back(world.store, run, [APP])
    right(world)


# --- any history ------------------------------------------------------------------------------------------------------

SAMPLE = st.tuples(st.integers(0, 5), st.integers(1, 3 * HOUR_MS), st.integers(0, 9).map(float))
STEP: st.SearchStrategy[tuple[str, list[tuple[int, int, float]]]] = st.one_of(
    st.lists(SAMPLE, min_size=1, max_size=6).map(lambda rows: ("send", rows)),
    st.sampled_from([("minor", []), ("full", [])]),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(STEP, min_size=1, max_size=8), st.integers(0, 2), st.sampled_from(["a", "b", ""]), st.booleans())
def test_any_purge_leaves_exactly_the_other_versions(
    steps: list[tuple[str, list[tuple[int, int, float]]]], metric: int, source: str, after: bool
) -> None:
    world = World()
    for n, (what, samples) in enumerate(steps):
        if what == "send":
            world.send(*samples, source="ab"[n % 2])
        else:
            world.driver().roll(LocalExecutor(world.store), [APP], minor=what == "minor", now_ms=NEXT_DAY)
    number = world.retract(source=source, metric=metric)
    if after:
        world.roll()
    taken = world.model.taken[number]
    wanted = {v for v in world.model.versions if not taken.hides(v)}
    delete(world, number)
    assert {version[1:5] for version in stored(world)} == {(v.ts, v.value, v.stamp[0], v.source) for v in wanted}
    right(world)


def test_rows_of_a_piece_are_taken_with_their_messages_alone() -> None:
    world = World()
    world.send((0, 1, 1.0), (1, 2, 2.0), source="a")
    world.send((0, 3, 3.0), source="b")
    piece = merge([Piece.of_row(row) for _, row in scan(world, "log")])
    left = narrow_to_rows(piece, piece.values == 3.0)
    assert (left.messages.sources, len(left.messages), left.counts.tolist(), left.values.tolist()) == (
        ("b",),
        1,
        [1],
        [3.0],
    )
    assert len(narrow_to_rows(piece, np.zeros(len(piece), np.bool_))) == 0
    assert _versions(narrow_to_rows(piece, np.ones(len(piece), np.bool_))) == _versions(piece)


def test_the_mark_stands_in_the_retraction() -> None:
    world = merged()
    number = world.retract(source="bad")
    delete(world, number)
    assert [bool(r.erased_ms) for r in retractions.read(world.store, APP)] == [True]
