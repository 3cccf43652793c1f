"""Claims about hours that are sealed and what comes too late for them, about upgrades and about repeated runs."""

import hashlib
from collections.abc import Callable

import msgspec
import pytest

from rollups.crash_points import ignore_point
from rollups.decide.plan import PlanContext, count_outdated
from rollups.run.local import LocalExecutor
from rollups.run.progress import DayReport
from rollups.run.rollback import roll_back
from spm.errors import Refused
from spm.limits import HOUR_MS
from spm.store import epochs, keys, manifest
from spm.store.keys import HASH, PlacementTable
from spm.store.ledger import commit_records
from spm.store.manifest import SEALED, SEALING, Manifest
from spm.store.rollup import rows as rollup_rows
from spm.store.versions import generations
from tests.model.world import APP, DAY, FIRST, NEXT_DAY, START, Crash, World, crash_at, days_in_force, whole_day


def seals(state: int) -> Callable[[Manifest], Manifest]:
    """What a sealer changes."""
    return lambda now: msgspec.structs.replace(now, seals={**now.seals, FIRST: state})


def put(world: World, change: Callable[[Manifest], Manifest]) -> None:
    """Change the day's manifest by check-and-put."""
    [row] = world.store.get("manifest", [keys.manifest(APP, DAY)])
    now = manifest.decode(row[b"v"] if row else None)
    value = msgspec.structs.replace(change(now), nonce=now.nonce + 1)
    assert world.store.check_and_put(
        "manifest", keys.manifest(APP, DAY), b"v", row[b"v"] if row else None, manifest.encode(value)
    )


def finish(world: World, at: Callable[[str], None] = ignore_point) -> DayReport:
    """Merge and aggregate the first hour, and seal it by one check-and-put."""
    executor = LocalExecutor(world.store, at)
    return world.driver(at).finish_hour(executor, 99, APP, FIRST, now_ms=NEXT_DAY, change=seals(SEALED))


def filled() -> World:
    """Two hours; the first has minor generations and pending data, and is sealing."""
    world = World()
    world.send((0, 1, 1.0), (2, 1, 2.0), (0, HOUR_MS + 1, 5.0))
    world.roll(minor=True)
    world.send((1, 2, 3.0))
    put(world, seals(SEALING))
    return world


def outcomes(world: World) -> dict[int, int]:
    """Return the number of samples by outcome, over all ledger rows."""
    by_hour: dict[int, int] = {}
    for _, cells in world.store.scan("ledger", *keys.ledger_range(APP)):
        commit, outcome, _ = commit_records.decode_ledger_row(cells[b"v"])
        by_hour[outcome] = by_hour.get(outcome, 0) + commit.sample_count
    return by_hour


def test_a_sealing_hour_is_left_to_its_sealer() -> None:
    world = filled()
    before = {p: e.state for p, e in world.manifest().entries.items() if p[1] == FIRST}
    world.roll()
    assert {p: e.state for p, e in world.manifest().entries.items() if p[1] == FIRST} == before
    assert world.pending_rows() == 1
    assert world.answer() == world.truth


def test_all_of_a_hour_and_its_seal_go_into_force_at_once() -> None:
    world = filled()
    report = finish(world)
    assert (report.published, report.errors) == (True, ())
    now = world.manifest()
    assert now.seal(FIRST) == SEALED
    assert {len(e.state.generations) for (_, hour), e in now.entries.items() if hour == FIRST} == {1}
    assert {shard for shard, pack in now.hours.items() if FIRST in pack.hours} == {11, 13}
    assert world.pending_rows() == 0
    assert outcomes(world) == {commit_records.STORED: 4}
    world.model.seal(FIRST)
    assert world.hours() == world.recount()


def test_a_hour_that_is_whole_already_is_only_sealed() -> None:
    world = World()
    world.send((0, 1, 1.0))
    world.roll()
    put(world, seals(SEALING))
    report = finish(world)
    assert (report.published, report.hour_shards) == (True, 0)
    assert world.manifest().seal(FIRST) == SEALED


def test_a_seal_is_never_rebased() -> None:
    world = filled()
    left = ["compacted"]

    def inside(reached: str) -> None:
        ignore_point(reached)
        if left and reached == left[0]:
            left.clear()
            world.roll(minor=True)
            put(world, lambda now: now)

    report = finish(world, inside)
    assert not report.published
    assert "meanwhile" in report.errors[0]
    assert world.manifest().seal(FIRST) == SEALING
    assert finish(world).published


def test_a_hour_with_a_missing_block_is_not_sealed() -> None:
    world = filled()
    rows = [k for b in (11, 13) for k, _ in world.store.scan("log", *keys.log_range(b, APP, FIRST))]
    world.store.delete("log", [(key, None) for key in rows])
    report = finish(world)
    assert not report.published
    assert "missing" in report.errors[0]
    assert world.manifest().seal(FIRST) == SEALING


def test_a_hour_in_two_places_is_not_sealed() -> None:
    world = World(placement=PlacementTable.single())
    world.send((0, 1, 1.0))
    world.roll()
    epochs.open_epoch(world.store, APP, function=HASH, shards=16, spread=3)
    world.send((0, 2, 1.0))
    world.send((0, 3, 1.0))
    report = finish(world)
    assert not report.published
    assert "two places" in report.errors[0]


@pytest.mark.parametrize("minor", [True, False])
def test_what_comes_for_a_sealed_hour_is_counted_late_and_removed(minor: bool) -> None:
    world = filled()
    finish(world)
    before = world.manifest().entries
    world.send((0, 3, 7.0), (1, 3, 7.0))
    report = world.roll(minor=minor)
    assert report.late == 2
    assert world.pending_rows() == 0
    assert outcomes(world) == {commit_records.STORED: 4, commit_records.EXPIRED_HOUR: 2}
    assert {p: e for p, e in world.manifest().entries.items() if p[1] == FIRST} == {
        p: e for p, e in before.items() if p[1] == FIRST
    }


def test_what_a_sealer_took_in_and_did_not_settle_is_not_late() -> None:
    world = filled()
    with pytest.raises(Crash):
        finish(world, crash_at("published"))
    assert world.manifest().seal(FIRST) == SEALED
    report = world.roll(minor=True)
    assert report.late == 0
    assert world.pending_rows() == 0
    assert outcomes(world) == {commit_records.STORED: 4}


def test_a_run_killed_after_counting_what_is_late_counts_it_once() -> None:
    world = filled()
    finish(world)
    world.send((0, 3, 7.0))
    for point in ("ledger written", "unpended", "late counted"):
        with pytest.raises(Crash):
            world.roll(minor=True, at=crash_at(point))
        world.send((0, 4, 7.0))
    world.roll(minor=True)
    assert outcomes(world)[commit_records.EXPIRED_HOUR] == 4
    assert world.pending_rows() == 0


def test_a_run_is_not_rolled_back_in_a_sealed_hour() -> None:
    world = World()
    world.send((0, 1, 1.0))
    run = world.roll().run
    put(world, seals(SEALING))
    finish(world)
    with pytest.raises(Refused, match="sealed"):
        roll_back(world.store, run, [APP])


def test_a_day_over_a_sealed_hour_keeps_the_retractions_of_its_seal() -> None:
    world = World()
    world.send((0, 1, 1.0), (0, HOUR_MS + 1, 5.0))
    world.roll()
    put(world, seals(SEALED))
    world.model.seal(FIRST)
    world.retract(source="host")
    world.roll()
    assert days_in_force(world) == whole_day(world)
    assert world.days() == world.model.days()


# --- upgrades ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def aged(monkeypatch: pytest.MonkeyPatch) -> World:
    """A world that an older release wrote: three hours of two hour shards each."""
    world = World()
    world.send(*((series, hour * HOUR_MS + 1, 1.0) for series in range(3) for hour in range(3)))
    world.roll()
    monkeypatch.setattr(generations, "FORM", generations.FORM + 1)
    monkeypatch.setattr(rollup_rows, "FORM", rollup_rows.FORM + 1)
    return world


def upgrade(world: World, at: Callable[[str], None] = ignore_point) -> int:
    """Upgrades; returns how many hour shards remain."""
    executor = LocalExecutor(world.store, at)
    return world.driver(at).roll(executor, [APP], upgrade=True, now_ms=NEXT_DAY).remaining


def test_an_ordinary_run_leaves_older_forms_alone(aged: World) -> None:
    assert aged.roll().days == ()
    assert count_outdated(aged.manifest()) == 6


def test_an_upgrade_rewrites_units_hours_and_days_and_no_answer_changes(aged: World) -> None:
    assert upgrade(aged) == 0
    now = aged.manifest()
    assert {g.form for e in now.entries.values() for g in e.state.generations} == {generations.FORM}
    assert {pack.generation.form for pack in now.hours.values()} == {rollup_rows.FORM}
    assert aged.answer() == aged.truth
    assert aged.hours() == aged.recount()
    assert days_in_force(aged) == whole_day(aged)
    assert upgrade(aged) == 0
    assert aged.manifest() == now


def test_an_upgrade_is_no_correction(aged: World) -> None:
    report = aged.driver().roll(LocalExecutor(aged.store), [APP], upgrade=True, now_ms=NEXT_DAY)
    assert report.corrections == []
    assert report.samples == 9


@pytest.mark.parametrize("point", ["pages written", "compacted", "published", "unpended", "days written"])
def test_an_upgrade_goes_on_where_it_was_killed(aged: World, point: str) -> None:
    with pytest.raises(Crash):
        upgrade(aged, crash_at(point))
    assert aged.answer() == aged.truth
    assert upgrade(aged) == 0
    assert aged.answer() == aged.truth
    assert days_in_force(aged) == whole_day(aged)


def test_units_an_upgrade_could_not_read_are_left_and_counted(aged: World) -> None:
    [victim] = [k for k, _ in aged.store.scan("inputs", *keys.app_range(11, APP))][2:3]
    aged.store.delete("inputs", [(victim, None)])
    assert upgrade(aged) >= 1


# --- repeated runs ----------------------------------------------------------------------------------------------------


def rows_by_run(world: World) -> list[set[str]]:
    """A hash of every generated row without its generation's number, per run."""
    by_hour: dict[int, set[str]] = {}
    for table in ("chunks", "timelines", "hours"):
        for shard in world.placement.all_shards(APP):
            for key, cells in world.store.scan(table, *keys.app_range(shard, APP)):
                number, without = _parsed(table, key)
                mark = hashlib.sha256(repr((table, without, sorted(cells.items()))).encode()).hexdigest()
                by_hour.setdefault(number >> 24, set()).add(mark)
    return [by_hour[run] for run in sorted(by_hour)]


def _parsed(table: str, key: bytes) -> tuple[int, tuple[int, ...]]:
    if table == "timelines":
        shard, app, hour, number, page = keys.parse_timeline(key)
        return number, (shard, app, hour, page)
    shard, app, metric, period, number, page = keys.parse_chunk(key)
    return number, (shard, app, metric, period, page)


def spread_out() -> World:
    """Two sources whose series share few timelines, over three hours, with something retracted."""
    world = World()
    for hour in range(3):
        for source in ("a", "b"):
            samples = [(s, hour * HOUR_MS + s + 7 * i, i / 7) for s in range(4) for i in range(1, 9)]
            world.send(*samples, source=source)
    world.retract(source="a", data_to=START + HOUR_MS)
    return world


def test_a_run_after_a_crash_writes_the_same_bytes_again() -> None:
    world = spread_out()
    with pytest.raises(Crash):
        world.roll(at=crash_at("hours written", 2))
    world.roll()
    first, second = rows_by_run(world)
    assert first == second


def test_a_full_merge_that_was_rolled_back_is_made_of_the_same_bytes_again() -> None:
    world = spread_out()
    world.roll(minor=True)
    world.send((0, 1, 3.0))
    run = world.roll().run
    roll_back(world.store, run, [APP])
    world.roll()
    _, first, second = rows_by_run(world)
    assert second
    assert second <= first  # hours of the other shard are still those of the first


def test_nothing_is_due_while_the_order_is_minor() -> None:
    assert not PlanContext(NEXT_DAY, minor=True).due(FIRST)
