"""A12 to A14: no acknowledged sample without a commit record, one run at a time for an hour, rebuilt records."""

from collections.abc import Callable

import pytest

from ingest.writer import Writer
from rollups.check.fsck import fsck
from rollups.crash_points import ignore_point
from rollups.decide.plan import PlanContext
from spm.errors import StoreUnavailable
from spm.limits import HOUR_MS
from spm.store.backends.memory import MemoryBackend
from spm.store.ledger import commit_records
from tests.model.world import APP, NEXT_DAY, SPREAD, START, World, parsed, versions_of
from tests.support.faults import Faulty, keys_of

Note = Callable[[str], None]
SAMPLES = ((0, 1, 1.0), (1, 2, 2.0), (2, HOUR_MS + 1, 3.0), (3, 2 * HOUR_MS, 4.0))


@pytest.mark.seed("A12", compares="after a failure at every call: what was acked with the marks, and with the answers")
@pytest.mark.parametrize("lost_answer", [False, True], ids=["before the act", "after it"])
def test_a12_no_acked_sample_is_without_its_mark_whatever_call_fails(lost_answer: bool, figure: Note) -> None:
    """The pending record is commit and mark in one cell; the blocks it names are there before it, the ack is after."""
    refused = 0
    for fails_at in range(20):
        inner = MemoryBackend()
        world = World(inner)
        envelope = world.acceptor.stamp_message(app=APP, source="a", parsed=parsed(SAMPLES), message_id=bytes(16))
        try:
            Writer(Faulty(inner, fails_at=fails_at, lost_answer=lost_answer), SPREAD).write([envelope])
        except StoreUnavailable:
            refused += 1
            world.store_again(envelope)  # as a sender or a queue does
        marked = sum(
            commit_records.decode(record.cell).sample_count
            for record in commit_records.scan(inner, APP, list(SPREAD.all_shards(APP)))
        )
        assert marked >= len(SAMPLES)
        world.model.accept(versions_of(envelope))
        assert world.answer() == world.truth
        world.roll()
        assert world.answer() == world.truth
    assert 3 <= refused < 20
    figure(f"{refused} places to fail, 0 acked samples without a mark")


@pytest.mark.seed("A13", compares="two runs of one hour: publishes made, and answers with the model")
@pytest.mark.parametrize("point", ["planned", "blocks read", "inputs written", "hours written", "compacted"])
def test_a13_of_two_full_runs_of_one_hour_shard_one_publishes_and_the_other_drops_its_work(
    point: str, figure: Note
) -> None:
    """No lock says whose turn it is: the loser's check-and-put is refused, and answers are equal all the while."""
    world = World()
    world.send((0, 1, 1.0))
    world.roll()
    world.send((0, 1, 2.0), (0, 5, 3.0))
    published: list[bool] = []
    left = [point]

    def second(reached: str) -> None:
        ignore_point(reached)
        if left == [reached]:
            left.clear()
            published.extend(day.published for day in world.roll().days)

    published += [day.published for day in world.roll(at=second).days]
    assert published == [True, False]
    assert world.answer() == world.truth
    assert world.hours() == world.recount()
    figure("1 of 2 runs published")


@pytest.mark.seed("A13", compares="two runs of different hours at once: publishes made, and answers with the model")
def test_a13_runs_of_different_hours_go_on_side_by_side(figure: Note) -> None:
    """A publish that lost to one of other hours is rebased: no single processor is needed for all."""
    world = World()
    world.send((0, 1, 1.0))
    left = ["compacted"]
    published: list[bool] = []

    def second(reached: str) -> None:
        ignore_point(reached)
        if left == [reached]:
            left.clear()
            world.send((1, HOUR_MS + 1, 2.0))
            published.extend(day.published for day in world.roll(minor=True).days)

    published += [day.published for day in world.roll(minor=True, at=second).days]
    assert published == [True, True]
    assert world.pending_rows() == 0
    assert world.answer() == world.truth
    figure("2 of 2 runs published")


@pytest.mark.seed("A13", compares="versions of one sample taken in by twelve runs in turn: the newest wins after each")
def test_a13_runs_of_one_series_take_its_writes_in_their_order() -> None:
    world = World()
    for value in range(12):
        world.send((0, 1, float(value)))
        world.roll(minor=value % 3 > 0, now_ms=NEXT_DAY)
        assert world.answer() == {(0, START + 1): float(value)}


@pytest.mark.seed("A14", compares="the work list before commit records were dropped, with that after their repair")
@pytest.mark.parametrize("rolled", [False, True], ids=["never compacted", "compacted before"])
def test_a14_dropped_commit_records_are_rebuilt_from_the_blocks(rolled: bool, figure: Note) -> None:
    """What a generation in force holds already is no work and gets no record again."""
    world = World()
    world.send(*SAMPLES)
    if rolled:
        world.roll()
    for n in range(5):
        world.send((n % 4, n * HOUR_MS // 2 + 7, float(n)), source=f"host{n % 2}")

    def work() -> list[tuple[int, int, object]]:
        plans = world.driver().plan_app(APP, PlanContext(NEXT_DAY), sweep=True).plans
        return [(unit.shard, unit.hour, unit.fresh) for plan in plans for unit in plan.hour_shards if unit.fresh]

    before = work()
    world.store.delete("pending", [(key, None) for key in keys_of(world.store, "pending")])
    assert work() == []
    fsck(world.store, APP, now_ms=NEXT_DAY, repair=True)
    assert work() == before
    assert world.answer() == world.truth
    world.roll()
    assert world.hours() == world.recount()
    assert world.accounts() == world.model.accounts()
    figure(f"{len(before)} hours of work, before and after")
