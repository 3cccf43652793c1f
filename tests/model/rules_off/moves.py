"""Rules of moves between shards and of retention, each with a switch and a history that goes wrong without it."""

import pytest

from ingest.writer import Writer
from rollups.decide import retention
from rollups.decide.retention import RetentionPeriods
from rollups.move import redistribute
from rollups.run import rollback, survey
from rollups.run.driver import Driver
from spm.errors import Refused
from spm.limits import HOUR_MS
from spm.query.rolled.resolutions import RollupReader
from spm.store import epochs, manifest
from spm.store.backends.base import Reader
from spm.store.backends.memory import MemoryBackend
from spm.store.keys import PlacementTable
from spm.store.ledger import commit_records
from spm.store.manifest import Manifest
from spm.store.versions import retractions
from tests.model.rules_off.reading import before
from tests.model.rules_off.switch import Rule, killed, patched, refused, right
from tests.model.world import APP, FIRST, World, crash_at, parsed, versions_of
from tests.support.faults import Faulty

Patch = pytest.MonkeyPatch
NARROW = PlacementTable.single(spread=1)  # all metrics in shard 11


def wide(*, moved: bool = True) -> tuple[World, int]:
    """A world whose newest epoch puts two of its three metrics into another shard; the run that moved them."""
    world = World(placement=NARROW)
    world.send((0, 1, 1.0), (1, 1, 2.0), (2, HOUR_MS + 1, 3.0))
    world.roll()
    epochs.open_epoch(world.store, APP, function="hash", shards=16, spread=3)
    return world, world.migrate().run if moved else 0


def close(world: World) -> redistribute.EpochClosing:
    """Close the first epoch."""
    return redistribute.close_epoch(world.store, APP, 0)


def late_batch(world: World, *, until_closed: bool) -> None:
    """A worker prepares a batch by the old epoch, and writes it when that one is closed."""
    samples = parsed([(0, 7, 7.0), (2, 7, 7.0)])
    message = world.acceptor.stamp_message(app=APP, source="slow", parsed=samples, message_id=bytes(16))
    writer = Writer(world.store, NARROW)
    with patched(epochs, "tables_of", lambda apps, rows, default: dict.fromkeys(apps, NARROW)):
        batch = writer.prepare([message])
    if until_closed:
        assert close(world).closed
    writer.commit(batch)
    world.model.accept(versions_of(message))


# --- 22: moves --------------------------------------------------------------------------------------------------------


def writers_look_once(patch: Patch) -> None:
    patch.setattr(Writer, "_misplaced", lambda self, parts, tables: ())


def a_slow_writer_over_a_close() -> None:
    world, _ = wide()
    late_batch(world, until_closed=True)
    right(world)


def closed_unseen(patch: Patch) -> None:
    patch.setattr(redistribute, "_pending_obstacles", lambda *args: [])
    patch.setattr(redistribute, "_hour_obstacles", lambda *args: [])


def a_close_before_the_move() -> None:
    world, _ = wide(moved=False)
    close(world)
    right(world)


def a_close_before_the_run_of_a_late_batch() -> None:
    world, _ = wide()
    with patched(Writer, "_misplaced", lambda self, parts, tables: ()):  # it was acked before the epoch was set closing
        late_batch(world, until_closed=False)
    close(world)
    right(world)


def histories_stay(patch: Patch) -> None:
    patch.setattr(redistribute, "_cut_histories", lambda *args: True)


def a_roll_back_of_a_move_after_the_close() -> None:
    world, run = wide()
    assert close(world).closed
    refused(lambda: rollback.roll_back(world.store, run, [APP]), Refused)
    right(world)


def each_unit_alone(patch: Patch) -> None:
    def tops(now: Manifest, run: int) -> list[tuple[int, int]]:
        return [unit for unit, entry in now.entries.items() if entry.history and entry.history[-1].run == run]

    patch.setattr(rollback, "entries_to_roll_back", tops)
    patch.setattr(rollback, "_later_runs", lambda now, run: set())


def a_roll_back_of_a_move_that_a_run_stands_on() -> None:
    world, run = wide()
    world.send((0, 7, 7.0))
    world.roll()
    refused(lambda: rollback.roll_back(world.store, run, [APP]), Refused)
    right(world)


# --- 23: retention ----------------------------------------------------------------------------------------------------


def pending_is_read_before_the_mark(patch: Patch) -> None:
    look, seen = survey.read_survey, list[survey.Survey]()

    def once(store: Reader, app: int, *rest: object) -> survey.Survey:
        seen.append(look(store, app, *rest))
        return seen[0]

    patch.setattr(survey, "read_survey", once)


def a_sample_between_the_look_and_the_mark() -> None:
    world = World(store := Faulty(MemoryBackend()))
    world.send((0, 1, 1.0))
    world.roll()
    before(store, "check manifest", lambda: world.send((0, 2, 2.0)))
    world.retain(RetentionPeriods(0), days_later=0)
    assert world.hours() == world.recount()
    assert world.accounts() == world.model.accounts()
    assert next(iter(world.hours().values()))["count"] == 2


def runs_know_no_seals(patch: Patch) -> None:
    roll = Driver.roll

    def blind(self: Driver, *args: object, **how: object) -> object:
        with patched(Manifest, "seal", lambda value, hour: manifest.OPEN):
            return roll(self, *args, **how)  # type: ignore[arg-type]

    patch.setattr(Driver, "roll", blind)


def a_run_over_late_data_of_a_sealed_hour() -> None:
    world = World()
    world.send((0, 1, 1.0))
    world.roll()
    world.retain(RetentionPeriods(0), days_later=0)
    world.send((0, 2, 2.0))
    world.roll(minor=True)
    assert world.pending_rows() == 0
    assert world.accounts() == world.model.accounts()


def only_what_has_an_entry_is_sealed(patch: Patch) -> None:
    marked = retention.with_seal

    def partly(now: Manifest, hours: tuple[int, ...], state: int, nonce: int) -> Manifest:
        pack = {hour for _, hour in now.entries}
        return marked(now, tuple(hour for hour in hours if hour in pack), state, nonce)

    patch.setattr(retention, "with_seal", partly)


def late_data_for_an_empty_hour_of_a_sealed_day() -> None:
    world = World()
    world.send((0, 1, 1.0))
    world.roll()
    world.retain(RetentionPeriods(0), days_later=0)
    world.send((0, 5 * HOUR_MS, 5.0))
    assert world.answer() == {}
    assert world.hours().keys() == {(0, FIRST)}


def sealed_hours_must_fit_today(patch: Patch) -> None:
    take = RollupReader._take_sealed

    def checked(self: RollupReader, hour: int, state: int, packs: object) -> None:
        day = self.view.manifests[hour // 24]
        if all(self._hour_is_exact(shard, hour) for shard, pack in day.hours.items() if hour in pack.hours):
            take(self, hour, state, packs)  # type: ignore[arg-type]

    patch.setattr(RollupReader, "_take_sealed", checked)


def a_retraction_after_a_seal() -> None:
    world = World()
    world.send((0, 1, 1.0))
    world.roll()
    world.retain(RetentionPeriods(0), days_later=0)
    world.retract()
    assert world.hours() == world.recount() != {}


def late_data_is_stored(patch: Patch) -> None:
    patch.setattr(commit_records, "EXPIRED_HOUR", commit_records.STORED)


def sealed_hours_answer_any_moment(patch: Patch) -> None:
    def take(self: RollupReader, hour: int, state: int, packs: dict[object, object]) -> None:
        for shard, pack in self.view.manifests[hour // 24].hours.items():
            if hour in pack.hours:
                self._take_hour(packs, shard, hour, self.plan.everything)  # type: ignore[arg-type]

    patch.setattr(RollupReader, "_take_sealed", take)


def an_earlier_moment_of_a_sealed_hour() -> None:
    world = World()
    world.send((0, 1, 1.0))
    then = world.clock.now_ms()
    world.send((0, 1, 2.0))
    world.roll()
    world.retain(RetentionPeriods(0), days_later=0)
    assert world.hours(world.fresh().asof(then)) == world.model.hours(then) == {}


# --- 17: the purge of a retraction ------------------------------------------------------------------------------------


def purges_leave_no_mark(patch: Patch) -> None:
    def unmarked(store: Reader, app: int, number: int, now_ms: int) -> object:
        return next(r for r in retractions.read(store, app) if r.number == number)

    patch.setattr(retractions, "mark_erased", unmarked)


def an_undo_in_the_middle_of_a_purge() -> None:
    world = World()
    world.send((0, 1, 1.0))
    world.send((0, 1, 9.0), source="wrong")
    world.roll()
    number = world.retract(source="wrong")
    killed(lambda: world.erase_retracted(number, crash_at("erasure published")))
    refused(lambda: world.undo(number), Refused)
    right(world)


RULES = (
    Rule("close_recheck", "writers look at the epochs once", writers_look_once, a_slow_writer_over_a_close),
    Rule("close_verify", "epochs close unseen", closed_unseen, a_close_before_the_move),
    Rule("close_verify of pending cells", "the same", closed_unseen, a_close_before_the_run_of_a_late_batch),
    Rule("close_floor", "a close leaves the histories", histories_stay, a_roll_back_of_a_move_after_the_close),
    Rule("mig_together", "units are rolled back alone", each_unit_alone, a_roll_back_of_a_move_that_a_run_stands_on),
    Rule(
        "seal_two_step",
        "pending is read, then the mark",
        pending_is_read_before_the_mark,
        a_sample_between_the_look_and_the_mark,
    ),
    Rule("seal_stops_runs", "runs know no seals", runs_know_no_seals, a_run_over_late_data_of_a_sealed_hour),
    Rule(
        "seal_hour",
        "hours without an entry are not sealed",
        only_what_has_an_entry_is_sealed,
        late_data_for_an_empty_hour_of_a_sealed_day,
    ),
    Rule("seal_ret", "seals must fit today's retractions", sealed_hours_must_fit_today, a_retraction_after_a_seal),
    Rule(
        "as-of over sealed",
        "sealed hours answer any moment",
        sealed_hours_answer_any_moment,
        an_earlier_moment_of_a_sealed_hour,
    ),
    Rule("purge ends undoing", "purges leave no mark", purges_leave_no_mark, an_undo_in_the_middle_of_a_purge),
    Rule("late", "late data is called stored", late_data_is_stored, a_run_over_late_data_of_a_sealed_hour),
)
