"""Claims about sealing: hours outlive their samples exactly, and samples that come too late are counted."""

from collections.abc import Callable

import msgspec
import pytest

from rollups.decide.retention import RetentionPeriods
from rollups.delete.expire import preview, seal_hours
from rollups.delete.purge import every_shard, purge
from rollups.manifest import cells
from rollups.run.local import LocalExecutor
from rollups.run.rollback import roll_back
from spm.limits import HOUR_MS
from spm.store import epochs, keys, manifest
from spm.store.backends.memory import MemoryBackend
from spm.store.ledger import commit_records
from spm.store.manifest import (
    OPEN,
    SEALED,
)
from tests.model.world import APP, DAY, NEXT_DAY, START, Crash, World, crash_at, meanwhile
from tests.rollups.delete.expiry import (
    DAY_MS,
    HOUR,
    HOURS,
    LATER,
    RAW,
    expire_app,
    filled,
    outcomes,
    rows,
    with_late_data,
)


def sealed(world: World) -> None:
    """The day is sealed: hours and days are what they must be, samples are gone, and so are their rows."""
    assert {world.manifest().seal(hour) for hour in HOURS} == {SEALED}
    for hour in HOURS:
        world.model.seal(hour)
    assert world.hours() == world.recount()
    assert world.days() == world.model.days()
    assert world.answer() == world.truth == {}
    purge(world.store, APP, keep=0)
    assert rows(world, *RAW) == 0
    assert world.hours() == world.recount()


# --- what an hour may be in when its time comes ---------------------------------------------------------------------


def only_pending() -> World:
    """Never compacted, but for a manifest that a minor run of another hour made."""
    world = World()
    world.send((3, 20 * HOUR_MS, 1.0))
    world.roll(minor=True)
    world.send((0, 1, 1.0), (2, 2, 2.0))
    return world


def minor_ones() -> World:
    """Three generations and no hours."""
    world = World()
    for n in range(3):
        world.send((0, n + 1, float(n)), (2, n + 1, 1.0))
        world.roll(minor=True)
    return world


def rolled_back() -> World:
    """A replay list."""
    world = filled()
    run = max(entry.history[-1].run for entry in world.manifest().entries.values())
    roll_back(world.store, run, [APP])
    return world


def retracted() -> World:
    """A retraction in force that the hours do not know of yet."""
    world = filled()
    world.retract(source="b")
    return world


def undone() -> World:
    """One that they leave out although it ended."""
    world = filled()
    number = world.retract(source="b")
    world.roll(now_ms=NEXT_DAY + HOUR_MS)
    world.undo(number)
    return world


def killed() -> World:
    """A run that died after it published: pending records of rows in force."""
    world = filled()
    world.send((0, 9, 9.0))
    with pytest.raises(Crash):
        world.roll(at=crash_at("published"))
    return world


CASES = [filled, only_pending, minor_ones, rolled_back, with_late_data, retracted, undone, killed]


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__.replace("_", "-"))
def test_a_sealed_day_answers_from_hours_what_its_samples_said(make: Callable[[], World]) -> None:
    world = make()
    done = expire_app(world)
    assert (done.sealed_hours, done.errors) == (list(HOURS), [])
    world.roll(now_ms=LATER)
    sealed(world)


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__.replace("_", "-"))
def test_what_would_go_is_what_a_day_of_samples_weighs(make: Callable[[], World]) -> None:
    world = make()
    world.roll(now_ms=LATER)
    purge(world.store, APP, keep=0)
    would = preview(world.store, APP, RetentionPeriods(raw_days=1), now_ms=LATER)
    assert expire_app(world).deletions.tallies == would["raw"].tallies != {}
    assert would["hours"].tallies == would["days"].tallies == {}


def test_nothing_is_sealed_before_its_time() -> None:
    world = filled()
    assert expire_app(world, now_ms=START + 2 * DAY_MS - 1).sealed_hours == []
    assert expire_app(world, raw=None, now_ms=START + 1000 * DAY_MS).sealed_hours == []
    assert world.answer() == world.truth


# --- crashes ----------------------------------------------------------------------------------------------------------

POINTS = [
    "sealing",
    "blocks read",
    "pages written",
    "inputs written",
    "compacted",
    "hours written",
    "publish sent",
    "published",
    "ledger written",
    "unpended",
    "sealed",
    "raw deleting",
]


TWICE = [
    (point, times) for point in POINTS for times in (1, 2) if (point, times) not in {("sealing", 2), ("sealed", 2)}
]


@pytest.mark.parametrize(("point", "times"), TWICE)
def test_retention_killed_anywhere_is_finished_by_the_next(point: str, times: int) -> None:
    world = with_late_data()
    with pytest.raises(Crash):
        expire_app(world, at=crash_at(point, times))
    assert world.hours() == world.recount()
    if world.manifest().seal(HOUR) < SEALED:
        assert world.answer() == world.truth or SEALED in world.manifest().seals.values()
    expire_app(world)
    world.roll(now_ms=LATER)
    sealed(world)
    assert outcomes(world, commit_records.EXPIRED_HOUR) == 0


# --- late data --------------------------------------------------------------------------------------------------------


def test_data_for_a_sealed_hour_is_counted_as_late_and_changes_nothing() -> None:
    world = filled()
    expire_app(world)
    sealed(world)
    before = world.hours()
    world.send((0, 3, 100.0), (5, 7 * HOUR_MS, 100.0))  # also for an hour nobody had written to
    assert world.hours() == before
    assert expire_app(world).late == 2
    assert (world.pending_rows(), outcomes(world, commit_records.EXPIRED_HOUR)) == (0, 2)
    assert world.hours() == before
    assert rows(world, *RAW) == 0


@pytest.mark.parametrize("by", ["retention", "run"])
def test_what_a_writer_puts_once_more_after_the_seal_stays_accounted_for_as_stored(by: str) -> None:
    """Its first put was taken for lost, and had come in."""
    world = World()
    world.send((0, 1, 1.0), (1, 2, 2.0))
    ranges = [(t, keys.app_range(b, APP)) for t in ("log", "pending") for b in every_shard(world.store, APP)]
    puts = [(table, list(world.store.scan(table, *between))) for table, between in ranges]
    world.roll()
    expire_app(world)
    sealed(world)
    world.store.put([step for step in puts if step[1]])
    late = expire_app(world).late if by == "retention" else world.roll(now_ms=LATER).late
    assert (late, world.pending_rows()) == (0, 0)
    assert world.accounts() == world.model.accounts()
    sealed(world)


def test_a_run_counts_late_data_too() -> None:
    world = filled()
    expire_app(world)
    world.send((0, 3, 100.0))
    assert world.roll(now_ms=LATER).late == 1
    assert outcomes(world, commit_records.EXPIRED_HOUR) == 1


def test_what_was_merged_by_the_seal_is_stored_though_its_settling_died() -> None:
    """Rows of `inputs` go last: they say which batches came in time."""
    world = with_late_data()
    with pytest.raises(Crash):
        expire_app(world, at=crash_at("published"))
    stored = outcomes(world, commit_records.STORED)
    assert world.pending_rows() > 0
    assert expire_app(world).late == 0
    assert (world.pending_rows(), outcomes(world, commit_records.EXPIRED_HOUR)) == (0, 0)
    assert outcomes(world, commit_records.STORED) > stored


# --- others at work meanwhile -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", POINTS)
def test_a_sample_acked_while_its_hour_is_sealed_is_in_or_counted_as_late(point: str) -> None:
    world = with_late_data()
    expire_app(world, at=meanwhile(point, lambda: world.send((4, 4, 44.0))))
    expire_app(world)
    world.roll(now_ms=LATER)
    inside = (4, HOUR) in world.hours()
    assert (inside, outcomes(world, commit_records.EXPIRED_HOUR)) in {(True, 0), (False, 1)}
    assert inside == (point == "sealing")
    assert (world.pending_rows(), {world.manifest().seal(s) for s in HOURS}) == (0, {SEALED})
    purge(world.store, APP, keep=0)
    assert rows(world, *RAW) == 0


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("minor", [True, False], ids=["minor", "full"])
def test_a_run_at_the_same_time_neither_hinders_nor_spoils_a_seal(point: str, minor: bool) -> None:
    world = with_late_data()
    expire_app(world, at=meanwhile(point, lambda: world.roll(minor=minor, now_ms=LATER)))
    expire_app(world)
    world.roll(now_ms=LATER)
    sealed(world)


@pytest.mark.parametrize("point", ["planned", "compacted", "hours written", "days written"])
def test_a_run_under_way_drops_its_work_on_hours_that_were_sealed_meanwhile(point: str) -> None:
    world = with_late_data()
    world.roll(now_ms=LATER, at=meanwhile(point, lambda: expire_app(world)))
    world.roll(now_ms=LATER)
    sealed(world)
    assert outcomes(world, commit_records.EXPIRED_HOUR) == 0


def test_hours_counted_before_an_undo_do_not_come_in_over_a_seal() -> None:
    """The run only recounts hours: it changes no entry, so only the fence of the seal stops it."""
    world = filled()
    number = world.retract(source="b")

    def seal() -> None:
        world.undo(number)
        expire_app(world)

    world.roll(now_ms=LATER, at=meanwhile("hours written", seal))
    sealed(world)


def test_a_roll_back_of_a_sealed_hour_finds_nothing_to_return_to() -> None:
    world = filled()
    run = max(entry.history[-1].run for entry in world.manifest().entries.values())
    expire_app(world)
    assert all(entry.history == () for entry in world.manifest().entries.values())
    with pytest.raises(Exception, match="in no history"):
        roll_back(world.store, run, [APP])


def test_a_retraction_after_the_seal_leaves_its_hours_as_they_are() -> None:
    world = filled()
    expire_app(world)
    sealed(world)
    before = world.hours()
    world.retract(source="b")
    world.roll(now_ms=LATER + HOUR_MS)
    assert world.hours() == before


# --- what cannot be sealed --------------------------------------------------------------------------------------------


def test_a_hour_in_two_places_waits_for_its_move_and_stays_open() -> None:
    world = filled()
    epochs.open_epoch(world.store, APP, function="hash", shards=16, spread=1)
    done = expire_app(world)
    assert [s for s in HOURS if f"hour {s} of app {APP} waits until its data has been moved" in done.errors] == [HOUR]
    assert done.sealed_hours == []
    assert {world.manifest().seal(hour) for hour in HOURS} == {OPEN}, "the others go where this one goes"


def left_behind() -> tuple[World, int]:
    """A move that was rolled back, and then something was taken out; the shard where the move's hours still stand."""
    world = World()
    world.send((0, 1, 1.0), (3, 2, 5.0))
    world.roll()
    epochs.open_epoch(world.store, APP, function="hash", shards=8, spread=2)
    roll_back(world.store, world.migrate().run, [APP])
    world.retract(series=3)
    value = world.manifest()
    [shard] = [b for b, pack in value.hours.items() if not value.entry(b, HOUR).state.generations]
    return world, shard


def test_hours_that_a_rolled_back_move_left_behind_go_with_the_seal() -> None:
    world, shard = left_behind()
    expire_app(world)
    sealed(world)
    assert shard not in world.manifest().hours
    assert [round(world.quantiles(q)[0], 1) for q in (0.0, 1.0)] == [1.0, 1.0]


def test_hours_that_a_rolled_back_move_left_behind_are_passed_over_where_a_seal_has_kept_them() -> None:
    world, shard = left_behind()
    before = world.manifest()
    expire_app(world)
    sealed(world)
    now = world.manifest()
    value = msgspec.structs.replace(now, hours={**now.hours, shard: before.hours[shard]})
    key = keys.manifest(APP, DAY)
    world.store.check_and_put("manifest", key, b"v", manifest.encode(now), manifest.encode(value))
    assert world.hours() == world.recount()
    assert [round(world.quantiles(q)[0], 1) for q in (0.0, 1.0)] == [1.0, 1.0]


def test_a_damaged_hour_is_opened_again_and_the_others_are_sealed() -> None:
    world = with_late_data()
    place = next(
        key for b in every_shard(world.store, APP) for key, _ in world.store.scan("log", *keys.log_range(b, APP, HOUR))
    )
    world.store.put([("log", [(place, {b"v": b"damaged"})])])
    done = expire_app(world)
    assert done.errors != []
    assert world.manifest().seal(HOUR) == OPEN
    assert set(done.sealed_hours) == set(HOURS) - {HOUR}


def test_single_hours_can_be_sealed() -> None:
    world = filled()
    run = cells.take_run(world.store)
    done, _ = seal_hours(world.driver(), LocalExecutor(world.store), APP, DAY, [HOUR + 1], now_ms=NEXT_DAY, run=run)
    assert done == [HOUR + 1]
    world.model.seal(HOUR + 1)
    assert world.answer() == world.truth != {}
    assert world.hours() == world.recount()


def test_a_day_that_is_merged_already_costs_two_publications() -> None:
    """And no row is written: hours made when the hours closed are in force."""
    store = Counting()
    world = World(store)
    world.send((0, 1, 1.0), (2, 2, 2.0), (0, HOUR_MS + 1, 3.0), (1, 20 * HOUR_MS, 4.0))
    world.roll(now_ms=LATER)
    store.manifests = store.puts = 0
    expire_app(world)
    assert (store.manifests, store.puts) == (2, 0)


class Counting(MemoryBackend):
    """Counts check-and-puts of manifests, and puts."""

    manifests = puts = 0

    def check_and_put(self, table: str, key: bytes, column: bytes, expected: bytes | None, value: bytes) -> bool:
        self.manifests += table == "manifest"
        return super().check_and_put(table, key, column, expected, value)

    def put(self, steps: object) -> None:
        self.puts += 1
        super().put(steps)  # type: ignore[arg-type]
