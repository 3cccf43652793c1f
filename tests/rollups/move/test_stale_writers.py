"""Claims about a writer that goes by an epoch which is being closed (PROTOCOL 22, 24, 26).

It has put its batch, and is about to look at the distribution again, or is dead: until the same lies where readers
look, its message must not count as settled. The histories are exhaustive: the batch is put before each call that a
close makes to the store, a keeper looks and a run works before each later one, and whatever E holds a reader must find.
"""

import itertools
from dataclasses import dataclass, field

import pytest

from ingest.accounting.watermark_keeper import advance_watermarks
from ingest.writer import WriteBatch
from rollups.crash_points import Hook, ignore_point
from rollups.move.redistribute import close_epoch, migrate
from rollups.run.driver import Driver
from rollups.run.local import LocalExecutor
from spm.limits import HOUR_MS
from spm.query.reader import AppStorage
from spm.query.view.decoded_rows import PageCache
from spm.store import epochs as store_epochs
from spm.store.backends.memory import MemoryBackend
from spm.store.dictionary import COLUMN
from spm.store.keys import BYTE, HASH, PlacementTable
from spm.store.ledger import watermarks
from spm.store.ledger.outcomes import read_outcomes
from spm.store.ledger.watermarks import Announcement, WatermarkVector, pack_place
from spm.wire import Envelope
from tests.model.world import APP, NEXT_DAY, START, World, parsed
from tests.support.faults import Faulty

NARROW = PlacementTable.single(spread=1)  # all metrics in shard 11
NEW_DAY = 30 * HOUR_MS  # of which there is no manifest yet
EPOCHS = {"a shard of both epochs": (HASH, 16, 3), "shards of their own": (BYTE, 16, 1)}
TIMES = {"an hour that is rolled up": 9, "the first of its day": NEW_DAY}
every_epoch = pytest.mark.parametrize("epochs", EPOCHS.values(), ids=EPOCHS)
every_time = pytest.mark.parametrize("at", TIMES.values(), ids=TIMES)


@dataclass
class Story:
    """A world that moves to other shards, a close under way, and one writer that knows nothing of either."""

    epochs: tuple[str, int, int]
    at: int
    store: MemoryBackend = field(default_factory=MemoryBackend)
    messages: int = 0

    def __post_init__(self) -> None:
        self.world = World(self.store, placement=NARROW)
        self.watched = Faulty(self.store)
        for hour in range(2):
            self.said(self.world.send(*((series, hour * HOUR_MS + 1 + series, 1.0) for series in range(3))))
        self.stale = self.world.writer  # it has looked at the distribution, and will again after its next batch
        self.roll()
        strategy, shards, spread = self.epochs
        store_epochs.open_epoch(self.store, APP, function=strategy, shards=shards, spread=spread)
        migrate(self.driver(), LocalExecutor(self.store), APP, now_ms=NEXT_DAY)
        self.world.clock.advance(1)
        samples = [(series, self.at + series, 1.0) for series in range(3)]
        self.message = self.said(
            self.world.acceptor.stamp_message(app=APP, source="slow", parsed=parsed(samples), message_id=bytes(16))
        )
        self.batch: WriteBatch = self.stale.prepare([self.message])

    def said(self, message: Envelope) -> Envelope:
        """Announce the batch, which may happen before any of its rows is written."""
        self.messages += 1
        stamp = message.stamp
        word = Announcement(stamp.ms, stamp.sequence, self.messages, 3 * self.messages, 0, 0, 0, stamp.ms)
        watermarks.announce(self.store, APP, stamp.process, word)
        return message

    def driver(self, at: Hook = ignore_point) -> Driver:
        """Of runs and moves."""
        return Driver(self.store, self.world.clock, at=at)

    def roll(self, at: Hook = ignore_point) -> None:
        """Run a full merge over everything."""
        self.driver(at).roll(LocalExecutor(self.store, at), [APP], now_ms=NEXT_DAY)

    def put(self) -> None:
        """The stale writer has put its batch and has not read the placement table again yet."""
        self.store.put_new("series", COLUMN, self.batch.series.rows, self.batch.steps)

    def look(self) -> None:
        """Run the keeper; then a reader must find everything that E or the ledger counts."""
        advance_watermarks(self.store, APP, self.world.clock.now_ms())
        vector = WatermarkVector.of(watermarks.read(self.store, APP))
        stamp = self.message.stamp
        outcomes = read_outcomes(self.store, APP, 0)
        is_settled = bool(outcomes.are_settled[outcomes.stamps == pack_place((stamp.ms, stamp.sequence))].any())
        if is_settled or stamp.ms <= vector.views[stamp.process].watermark >> 16:
            self.world.clock.advance(2_000)  # older than a cached tail may be
            reader = AppStorage(
                self.store, APP, placement=self.world.spread(), clock=self.world.clock, cache=PageCache()
            )
            wanted = {(series, START + self.at + series) for series in range(3)}
            assert wanted <= self.world.answer(reader).keys(), "it counts as settled, and nobody finds it"

    def close(self, act: dict[int, str]) -> list[str]:
        """Close the former epoch, with acts and reads before its store calls; return the calls."""

        def hook(call: str) -> None:
            number = len(self.watched.calls) - 1
            if number in act:
                getattr(self, act[number])()
            if number >= min(act, default=number + 1) and self.watched.calls[-2:] != [call] * 2:
                self.look()

        self.watched.hook = hook
        close_epoch(self.watched, APP, 0)
        self.look()
        return self.watched.calls

    def end(self) -> None:
        """The writer goes on, or another one takes over: nothing is lost, and everything is settled."""
        self.stale.commit(self.batch)
        while not (closing := close_epoch(self.store, APP, 0)).closed:
            assert closing.obstacles
            self.roll()
            migrate(self.driver(), LocalExecutor(self.store), APP, now_ms=NEXT_DAY)
        self.roll()
        self.look()
        [mark] = watermarks.read(self.store, APP).values()
        assert mark.settled


def moments(epochs: tuple[str, int, int], at: int) -> list[int]:
    """The calls of a close that nobody disturbs, from the first on that looks for anything; one of each row of equals.

    What is put before that is what every writer puts: it is found.
    """
    calls = Story(epochs, at).close({})
    first = calls.index("scan pending")
    return [i for i, call in enumerate(calls) if i > first and calls[i - 1] != call]


@every_epoch
@every_time
def test_rows_of_a_stale_writer_are_not_settled_before_readers_find_them(epochs: tuple[str, int, int], at: int) -> None:
    for moment in moments(epochs, at):
        story = Story(epochs, at)
        story.close({moment: "put"})
        story.end()


@every_epoch
@every_time
def test_a_run_that_takes_it_in_does_not_make_it_settled_either(epochs: tuple[str, int, int], at: int) -> None:
    when = moments(epochs, at)
    for put, run in [*itertools.pairwise(when), *zip(when[::2], when[2::2], strict=False), (when[1], when[-1])]:
        story = Story(epochs, at)
        story.close({put: "put", run: "roll"})
        story.end()
