"""Claims about moving an app to other shards while it is written, read and rolled up (PROTOCOL 22)."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rollups.crash_points import Hook, ignore_point
from rollups.decide.plan import PlanContext
from rollups.move.redistribute import EpochClosing, close_epoch, metrics_of, migrate, widen, wider_spread
from rollups.run import agenda
from rollups.run.local import LocalExecutor
from rollups.run.progress import RunReport
from rollups.run.rollback import roll_back
from spm.errors import Refused
from spm.limits import HISTORY_MAX, HOUR_MS, SPREAD_HOUR_SHARD_SAMPLES
from spm.store import epochs
from spm.store.backends.base import Backend
from spm.store.backends.lmdb import LmdbBackend
from spm.store.backends.memory import MemoryBackend
from spm.store.keys import BYTE, CLOSED, CLOSING, HASH, OPEN, PlacementEpoch, PlacementTable
from tests.model.world import APP, DAY, NEXT_DAY, Crash, World, crash_at, days_in_force, whole_day

NARROW = PlacementTable.single(spread=1)  # all metrics in shard 11
WIDER: tuple[str, int, int] = (HASH, 16, 3)  # m0 and m1 in shard 13, m2 in 11
BYTES: tuple[str, int, int] = (BYTE, 16, 1)  # m0 and m2 in shard 0, m1 in 4
MOVE_POINTS = [
    "planned",
    "blocks read",
    "pages written",
    "inputs written",
    "hours written",
    "compacted",
    "publish sent",
    "moved",
]
CLOSE_POINTS = ["epoch closing", "epoch ending", "histories cut", "epoch closed"]


@pytest.fixture(params=["memory", "lmdb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """A store of each kind that runs here."""
    backend: Backend = MemoryBackend() if request.param == "memory" else LmdbBackend(str(tmp_path), map_bytes=1 << 28)
    yield backend
    backend.close()


def filled(store: Backend | None = None, to: tuple[str, int, int] = WIDER) -> World:
    """Three hours, rolled up in one shard; then another epoch is opened."""
    world = World(store or MemoryBackend(), placement=NARROW)
    for hour in range(3):
        world.send(*((series, hour * HOUR_MS + 1 + series, float(series + hour)) for series in range(4)))
    world.roll()
    strategy, shards, spread = to
    epochs.open_epoch(world.store, APP, function=strategy, shards=shards, spread=spread)
    world.clock.advance(2_000)
    return world


def move(world: World, at: Hook = ignore_point) -> RunReport:
    """Move all data that is not where the newest epoch puts it."""
    return migrate(world.driver(at), LocalExecutor(world.store, at), APP, now_ms=NEXT_DAY)


def close(world: World, at: Hook = ignore_point) -> EpochClosing:
    """Close the first epoch."""
    return close_epoch(world.store, APP, 0, at)


def right(world: World) -> None:
    """Samples, hours and days as a reader gets them."""
    assert world.answer() == world.truth
    assert world.hours() == world.recount()
    assert world.days() == world.model.days()


def settled(world: World) -> None:
    """Assert that after a full run all answers come from day rows."""
    right(world)
    world.roll()
    right(world)
    assert days_in_force(world) == whole_day(world)
    assert world.resolutions() == {"day aggregates"}


def holding(world: World) -> set[int]:
    """Shards with anything in force."""
    return {b for (b, _), entry in world.manifest().entries.items() if entry.state.generations or entry.state.replay}


@pytest.mark.parametrize(("to", "shards"), [(WIDER, {11, 13}), (BYTES, {0, 4})])
def test_data_moves_to_the_shards_of_the_newest_epoch_and_no_answer_changes(
    store: Backend, to: tuple[str, int, int], shards: set[int]
) -> None:
    world = filled(store, to)
    seen = []

    def look(point: str) -> None:
        ignore_point(point)
        seen.append(point)
        right(world)

    report = move(world, look)
    assert (report.errors, report.remaining, len(report.days)) == ([], 0, 1)
    assert set(MOVE_POINTS) <= set(seen)
    assert holding(world) == shards
    right(world)
    assert close(world, look) == EpochClosing(True)
    assert set(CLOSE_POINTS) <= set(seen)
    assert epochs.read(world.store, APP).has_one_live_epoch
    settled(world)


def test_a_second_migration_finds_nothing(store: Backend) -> None:
    world = filled(store)
    move(world)
    assert move(world).days == ()


def test_hours_come_with_the_move_and_need_no_recount(store: Backend) -> None:
    world = filled(store)
    move(world)
    close(world)
    plans = world.driver().plan_app(APP, PlanContext(NEXT_DAY)).plans
    assert plans == []


def test_data_that_comes_while_epochs_change_is_where_it_belongs(store: Backend) -> None:
    world = filled(store)
    world.send((0, 5 * HOUR_MS, 1.0), (2, 2, 9.0), (0, 1, 50.0))
    right(world)
    world.roll()
    right(world)
    move(world)
    right(world)
    world.send((0, 1, 60.0))
    world.roll()
    assert close(world).closed
    settled(world)


def test_hours_of_a_hour_in_two_shards_are_not_made_until_it_is_moved() -> None:
    world = filled()
    world.send((0, 9 * HOUR_MS, 7.0))  # after this the writer knows the newest epoch
    world.send((0, HOUR_MS + 1, 7.0))
    world.roll()
    first = DAY * 24
    assert world.manifest().entry(13, first + 1).state.generations
    assert [s for s in world.manifest().hours[11].hours if s == first + 1] == [first + 1]  # of before, used by nobody
    assert 13 not in world.manifest().hours
    right(world)
    move(world)
    assert 13 in world.manifest().hours
    right(world)


@pytest.mark.parametrize("point", MOVE_POINTS)
def test_a_move_killed_anywhere_changes_no_answer_and_the_next_one_does_its_work(point: str) -> None:
    world = filled()
    with pytest.raises(Crash):
        move(world, crash_at(point))
    right(world)
    move(world)
    right(world)
    assert close(world).closed
    settled(world)


@pytest.mark.parametrize("point", CLOSE_POINTS)
def test_a_close_killed_anywhere_is_finished_by_the_next(point: str) -> None:
    world = filled()
    move(world)
    with pytest.raises(Crash):
        close(world, crash_at(point))
    right(world)
    assert close(world).closed
    settled(world)


@pytest.mark.parametrize("point", MOVE_POINTS)
@pytest.mark.parametrize("act", ["retract", "undo", "minor run", "full run", "late data", "move", "roll back"])
def test_whatever_happens_inside_a_move_answers_stay_right(point: str, act: str) -> None:
    world = filled()
    number = world.retract(series=1)
    world.send((1, 9, 1.0), (0, 5 * HOUR_MS, 3.0))
    run = world.roll().run
    acts: dict[str, Callable[[], object]] = {
        "retract": lambda: world.retract(series=0),
        "undo": lambda: world.undo(number),
        "minor run": lambda: (world.send((2, 11, 1.0)), world.roll(minor=True)),
        "full run": lambda: (world.send((2, 11, 1.0)), world.roll()),
        "late data": lambda: world.send((1, HOUR_MS + 5, 1.0)),
        "move": lambda: move(world),
        "roll back": lambda: roll_back(world.store, run, [APP]) if point not in ("publish sent", "moved") else None,
    }
    left = [point]

    def inside(reached: str) -> None:
        ignore_point(reached)
        if left and reached == point:
            left.clear()
            acts[act]()
            right(world)

    move(world, inside)
    assert not left
    right(world)
    for _ in range(2):
        world.roll()
        move(world)
    assert close(world).closed
    settled(world)


@pytest.mark.parametrize("point", ["planned", "compacted", "publish sent", "published"])
def test_a_move_inside_a_run_changes_no_answer(point: str) -> None:
    world = filled()
    world.send((0, 3, 1.0), (1, HOUR_MS + 3, 1.0))
    left = [point]

    def inside(reached: str) -> None:
        ignore_point(reached)
        if left and reached == point:
            left.clear()
            move(world)
            right(world)

    world.roll(at=inside)
    assert not left
    right(world)
    world.roll()
    move(world)
    assert close(world).closed
    settled(world)


def test_a_move_is_rolled_back_in_all_its_hour_shards(store: Backend) -> None:
    world = filled(store)
    before = {p: e.state for p, e in world.manifest().entries.items()}
    run = move(world).run
    roll_back(world.store, run, [APP])
    after = {p: e.state for p, e in world.manifest().entries.items() if e.state.generations or e.state.replay}
    assert after == before
    right(world)
    move(world)
    assert close(world).closed
    settled(world)


def test_a_move_that_a_later_run_builds_on_in_one_shard_is_not_rolled_back() -> None:
    world = filled()
    run = move(world).run
    world.send((2, 7, 1.0))
    world.roll()
    with pytest.raises(Refused):
        roll_back(world.store, run, [APP])
    right(world)


def test_a_move_missing_from_the_history_of_one_hour_shard_is_not_rolled_back_in_the_others() -> None:
    world = filled()
    run = move(world).run
    for i in range(HISTORY_MAX):
        world.send((2, 7 + i, 1.0), (2, HOUR_MS + 7 + i, 1.0), (2, 2 * HOUR_MS + 7 + i, 1.0))
        world.roll(minor=True)
    with pytest.raises(Refused, match="moved data"):
        roll_back(world.store, run, [APP])
    right(world)


def test_replayed_batches_move_too() -> None:
    world = filled()
    world.send((2, 7, 1.0), (1, 7, 1.0))
    roll_back(world.store, world.roll().run, [APP])
    right(world)
    move(world)
    right(world)
    assert {len(e.state.replay) for e in world.manifest().entries.values()} == {0}
    assert close(world).closed
    settled(world)


def test_an_epoch_with_anything_in_its_shards_is_not_closed() -> None:
    world = filled()
    result = close(world)
    assert not result.closed
    assert "3 hour(s)" in result.obstacles[0]
    assert epochs.read(world.store, APP).epochs[0].state == CLOSING
    move(world)
    assert close(world).closed


def test_pending_cells_prevent_the_closing_of_their_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    world = filled()
    move(world)
    monkeypatch.setattr("ingest.writer.epochs.tables_of", lambda apps, rows, default: dict.fromkeys(apps, NARROW))
    world.send((0, 40, 1.0))
    monkeypatch.undo()
    result = close(world)
    assert result == EpochClosing(False, ("1 pending record(s) of it wait for a run",))
    right(world)
    world.roll()
    assert not close(world).closed
    right(world)
    move(world)
    assert close(world).closed
    settled(world)


def test_rows_that_a_stale_writer_leaves_in_a_closed_epoch_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer was about to write the batch again in the right shard and had acknowledged nothing yet."""
    world = filled()
    move(world)
    assert close(world).closed
    world.roll()
    truth = dict(world.truth)
    monkeypatch.setattr("ingest.writer.epochs.tables_of", lambda apps, rows, default: dict.fromkeys(apps, NARROW))
    envelope = world.send((0, 40, 1.0), (2, 40, 1.0))
    monkeypatch.undo()
    world.roll()
    result = world.answer()
    assert {k: v for k, v in result.items() if k in truth} == truth
    states = {place: entry.state for place, entry in world.manifest().entries.items()}
    newest = epochs.read(world.store, APP).newest
    for (shard, _), metrics in metrics_of(world.store, APP, states).items():
        assert (newest.place(APP, metrics) == shard).all()
    world.store_again(envelope)  # under the newest
    right(world)
    settled(world)


def test_nothing_is_rolled_back_into_a_closed_epoch() -> None:
    world = filled()
    run = move(world).run
    close(world)
    with pytest.raises(Refused, match="no history"):
        roll_back(world.store, run, [APP])


def test_a_run_under_way_does_not_publish_across_a_close() -> None:
    world = filled()
    move(world)
    world.send((2, 2, 1.0))  # the writer looks at the distribution after it
    world.roll()
    world.send((2, 3, 1.0))
    left = ["compacted"]

    def inside(reached: str) -> None:
        ignore_point(reached)
        if left and reached == left[0]:
            left.clear()
            assert close(world).closed  # the pending cell lies where the newest epoch puts it

    assert [day.published for day in world.roll(at=inside).days] == [False]
    settled(world)


def test_the_newest_epoch_is_not_closed_and_an_unknown_one_is_refused() -> None:
    world = filled()
    for number in (1, 7):
        with pytest.raises(Refused):
            close_epoch(world.store, APP, number)


@pytest.mark.parametrize(
    ("epoch", "rate", "wanted"),
    [
        pytest.param(PlacementEpoch(), SPREAD_HOUR_SHARD_SAMPLES, None, id="fits into one shard"),
        pytest.param(PlacementEpoch(), SPREAD_HOUR_SHARD_SAMPLES + 1, 2, id="one over"),
        pytest.param(PlacementEpoch(), 9 * SPREAD_HOUR_SHARD_SAMPLES, 16, id="doubles until it fits"),
        pytest.param(PlacementEpoch(), 999 * SPREAD_HOUR_SHARD_SAMPLES, 16, id="never over more than there are"),
        pytest.param(PlacementEpoch(spread=4), SPREAD_HOUR_SHARD_SAMPLES, None, id="never shrinks"),
        pytest.param(PlacementEpoch(spread=16), 999 * SPREAD_HOUR_SHARD_SAMPLES, None, id="all of them already"),
        pytest.param(
            PlacementEpoch(function=BYTE), 999 * SPREAD_HOUR_SHARD_SAMPLES, None, id="by byte it lies everywhere"
        ),
    ],
)
def test_the_spread_follows_the_rate(epoch: PlacementEpoch, rate: int, wanted: int | None) -> None:
    assert wider_spread(epoch, rate) == wanted


def test_an_app_that_is_being_moved_is_not_widened_again() -> None:
    store = MemoryBackend()
    backend = widen(store, APP, 3 * SPREAD_HOUR_SHARD_SAMPLES)
    assert backend is not None
    assert [(e.spread, e.state) for e in backend.epochs] == [(1, OPEN), (4, OPEN)]
    assert widen(store, APP, 9 * SPREAD_HOUR_SHARD_SAMPLES) is None


def test_a_closed_epoch_lets_the_next_run_look_at_every_day() -> None:
    world = filled()
    move(world)
    assert not agenda.is_sweep_due(agenda.read(world.store, APP), NEXT_DAY)
    close(world)
    assert agenda.is_sweep_due(agenda.read(world.store, APP), NEXT_DAY)
    assert epochs.read(world.store, APP).epochs[0].state == CLOSED
