"""Claims about a keeper's cost: it reads what is new, however many hours the bodies before that reach back."""

import random

import pytest
from msgspec.structs import replace

from ingest.accounting import passed_batches, watermark_keeper
from ingest.accounting.passed_batches import PassedBatches
from spm import limits
from spm.limits import HOUR_MS
from spm.store import keys
from spm.store.backends.memory import MemoryBackend
from spm.store.keys import PlacementTable
from spm.store.ledger import commit_columns
from spm.store.ledger import watermarks as marks
from spm.store.ledger.commit_columns import CellOrError, CommitCellCache
from spm.store.ledger.outcomes import Outcomes, read_outcomes
from spm.store.ledger.watermarks import pack_place
from spm.wire import Envelope
from tests.ingest.accounting.test_watermark_keeper import World
from tests.model.world import APP, SPREAD

HOURS = 40


class Keeper:
    """A keeper that remembers passed batches, but hardly any cell; and how many cells it decodes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world, self.passed, self.decoded = World(), PassedBatches(), 0
        self.cells = CommitCellCache(bytes_max=1_000)
        opened = commit_columns.open_cells

        def noted(raws: list[bytes], kind: int, *, copy: bool = False) -> list[CellOrError]:
            self.decoded += len(raws)
            return opened(raws, kind, copy=copy)

        monkeypatch.setattr(commit_columns, "open_cells", noted)

    def look(self) -> int:
        """Return how many cells a look decodes."""
        before, world = self.decoded, self.world
        watermark_keeper.advance_watermarks(
            world.store, APP, world.clock.now_ms(), cells=self.cells, passed=self.passed
        )
        return self.decoded - before

    def store_wide(self, bodies: int) -> None:
        """Store bodies of an hour after another."""
        for _ in range(bodies):
            self.world.stored(*((0, hour * HOUR_MS + 1, 1.0) for hour in range(HOURS)))

    def send_wide(self, bodies: int = 1) -> None:
        """Store bodies of an hour after another, and announce them."""
        for _ in range(bodies):
            self.world.stored(*((0, hour * HOUR_MS + 1, 1.0) for hour in range(HOURS)))
            self.world.process.announce()


@pytest.fixture
def keeper(monkeypatch: pytest.MonkeyPatch) -> Keeper:
    return Keeper(monkeypatch)


def test_of_bodies_of_many_hours_a_look_reads_those_that_are_new(keeper: Keeper) -> None:
    keeper.send_wide(5)
    assert keeper.look() == 5 * HOURS
    place = keeper.world.mark()
    assert keeper.look() == 0
    keeper.send_wide()
    assert keeper.look() == HOURS
    assert keeper.world.mark() > place


def test_rows_of_a_run_are_not_read_again_either(keeper: Keeper) -> None:
    keeper.send_wide(3)
    keeper.look()
    keeper.world.compact()
    assert keeper.look() == 0


def test_a_message_that_is_not_settled_is_looked_for_again(keeper: Keeper) -> None:
    keeper.send_wide()
    waiting = keeper.world.accept((0, 1, 1.0))
    keeper.send_wide()
    for _ in range(3):
        keeper.look()
    place = keeper.world.mark()
    keeper.world.writer.write([waiting])
    keeper.look()
    assert keeper.world.mark() > place


def test_of_more_than_one_look_reads_the_oldest_pass_first_and_no_batch_is_cut(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "KEEP_ROWS_MAX", HOURS // 2)
    keeper.send_wide(6)
    assert [keeper.look() for _ in range(7)] == [HOURS] * 6 + [0]
    assert keeper.world.marks.settled


@pytest.mark.parametrize("compacted", [False, True], ids=["waiting for a run", "accounted for"])
def test_a_watermark_reaches_an_announcement_over_more_rows_than_a_look_reads(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch, compacted: bool
) -> None:
    monkeypatch.setattr(limits, "KEEP_ROWS_MAX", HOURS // 2)
    keeper.store_wide(5)
    keeper.world.process.announce()
    if compacted:
        keeper.world.compact()
    assert [keeper.look() for _ in range(6)] == [HOURS] * 5 + [0]
    assert keeper.world.marks.settled
    assert keeper.world.marks.watermark.totals.stored == 5 * HOURS


def test_whole_batches_above_a_watermark_are_not_read_again(keeper: Keeper) -> None:
    waiting = keeper.world.accept((0, 1, 1.0))
    keeper.send_wide(3)
    assert [keeper.look() for _ in range(3)] == [3 * HOURS, 0, 0]
    keeper.send_wide()
    assert keeper.look() == HOURS
    assert keeper.world.mark() == (0, 0)
    keeper.world.compact()
    keeper.world.writer.write([waiting])
    assert keeper.look() == 1
    assert keeper.world.marks.settled
    assert keeper.world.marks.watermark.totals.stored == 4 * HOURS + 1


def test_what_is_remembered_of_batches_has_a_bound(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passed_batches, "WHOLE_BYTES_MAX", 5_000)
    waiting = keeper.world.accept((0, 1, 1.0))
    keeper.send_wide(40)
    keeper.look()
    assert 0 < keeper.look() < 40 * HOURS
    keeper.world.writer.write([waiting])
    keeper.look()
    assert keeper.world.marks.settled


def counts(outcomes: Outcomes) -> dict[tuple[int, int], tuple[int, ...]]:
    """Process and stamp -> its samples by outcome, and whether it is settled."""
    columns = (outcomes.stored, outcomes.late, outcomes.rejected, outcomes.dead, outcomes.are_settled)
    stamps = zip(outcomes.process.tolist(), outcomes.stamps.tolist(), strict=True)
    return dict(zip(stamps, zip(*(column.tolist() for column in columns), strict=True), strict=True))


@pytest.mark.parametrize("seed", range(12))
def test_a_look_that_remembers_sees_the_outcomes_of_one_that_reads_everything(seed: int) -> None:
    rng, world, passed = random.Random(seed), World(), PassedBatches()
    sent, waiting = list[Envelope](), list[Envelope]()
    for _ in range(60):
        act = rng.choice(["store", "store", "wide", "together", "accept", "write", "again", "compact", "announce"])
        if act == "store":
            sent.append(world.stored())
        elif act == "wide":
            sent.append(world.stored(*((n % 3, n * HOUR_MS + 1, 1.0) for n in range(5)), rejected=rng.randrange(2)))
        elif act == "accept":
            waiting.append(world.accept(*((n, (n + 1) * HOUR_MS + 1, 1.0) for n in range(3))))
        elif act == "write" and waiting:
            sent.append(waiting.pop(rng.randrange(len(waiting))))
            world.writer.write(sent[-1:])
        elif act in ("together", "again") and sent:
            world.writer.write(rng.choices(sent[-4:], k=rng.randrange(1, 4)) + waiting[:1])
        elif act == "compact":
            world.compact()
        elif act == "announce":
            world.process.announce()
        if rng.random() < 0.3:
            world.advance_watermarks()
        processes = marks.read(world.store, APP)
        places = {number: pack_place(process.watermark.place) for number, process in processes.items()}
        look = passed.of_app(world.store, APP, places)
        remembering = read_outcomes(world.store, APP, 0, beyond=places, batches=look)
        passed.end(APP, look)
        assert counts(remembering) == counts(read_outcomes(world.store, APP, 0, beyond=places))


def test_a_batch_by_an_epoch_that_closes_is_read_again() -> None:
    world, passed = World(), PassedBatches()
    world.stored()
    look = passed.of_app(world.store, APP, {})
    read_outcomes(world.store, APP, 0, batches=look)
    passed.end(APP, look)
    [batch] = look.whole
    look = passed.of_app(world.store, APP, {})
    assert look.has_passed(batch)
    [epoch] = SPREAD.epochs
    assert look.recall(PlacementTable((replace(epoch, state=keys.CLOSED),))) is None
    assert not look.has_passed(batch)


def test_another_store_is_read_from_its_beginning(keeper: Keeper) -> None:
    keeper.send_wide()
    keeper.look()
    assert keeper.look() == 0
    keeper.world = World(MemoryBackend())
    keeper.send_wide()
    assert keeper.look() == HOURS


def test_watermarks_that_went_back_are_those_of_a_store_that_was_replaced() -> None:
    passed, store = PassedBatches(), MemoryBackend()
    look = passed.of_app(store, APP, {1: 10})
    look.tops[7] = {1: 10}
    passed.end(APP, look)
    assert passed.of_app(store, APP, {1: 10, 2: 1}).has_passed(7)
    assert not passed.of_app(store, APP, {1: 9}).has_passed(7)
    assert not passed.of_app(store, APP, {}).has_passed(7)
