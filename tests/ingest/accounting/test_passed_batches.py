"""Claims about a keeper's cost: it reads what is new, however many hours the bodies before that reach back."""

import pytest

from ingest.accounting import watermark_keeper
from ingest.accounting.passed_batches import PassedBatches
from spm import limits
from spm.limits import HOUR_MS
from spm.store.backends.memory import MemoryBackend
from spm.store.ledger import commit_columns
from spm.store.ledger.commit_columns import CellOrError, CommitCellCache
from tests.ingest.accounting.test_watermark_keeper import World
from tests.support.rows import APP

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
    look.seen.add(7)
    passed.end(APP, look)
    assert passed.of_app(store, APP, {1: 10, 2: 1}).has_passed(7)
    assert not passed.of_app(store, APP, {1: 9}).has_passed(7)
    assert not passed.of_app(store, APP, {}).has_passed(7)
