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
from spm.store import keys
from spm.store.backends.memory import MemoryBackend
from spm.store.dictionary import COLUMN
from spm.store.keys import BYTE, HASH, PlacementTable
from spm.store.ledger import commit_records, watermarks
from spm.store.ledger.balance import Balance, read_balance
from spm.store.ledger.commit_records import ABANDONED
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


class Killed(BaseException):
    """The process ends here."""


@dataclass
class Story:
    """A world that moves to other shards, a close under way, and one writer that knows nothing of either."""

    epochs: tuple[str, int, int]
    at: int
    store: MemoryBackend = field(default_factory=MemoryBackend)
    messages: int = 0
    ats: tuple[int, ...] = ()  # of the samples of the message; by default all lie at ``at``

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
        ats = self.ats or (self.at,) * 3
        samples = [(series, at + series, 1.0) for series, at in enumerate(ats)]
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

    def balance(self) -> Balance:
        return read_balance(self.store, APP, self.world.clock.now_ms())

    def samples(self) -> tuple[int, int]:
        """(stored, waiting) by the balance."""
        samples = self.balance().samples
        return samples.stored, samples.waiting

    def pending_hours(self) -> list[int]:
        """The hours of the stale batch whose commit records are there."""
        batch = keys.PendingKey.parse(dict(self.batch.steps)["pending"][0][0]).batch
        return [item.hour for item in commit_records.scan(self.store, APP, list(range(256))) if item.key.batch == batch]

    def outcomes_of_the_batch(self) -> set[int]:
        """The outcomes of the ledger rows of the stale message."""
        rows = self.store.scan("ledger", *keys.ledger_range(APP))
        read = [commit_records.decode_ledger_row(row[commit_records.COLUMN])[:2] for _, row in rows]
        return {outcome for commit, outcome in read if self.message.stamp.ms in commit.messages.ms.tolist()}

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


def test_the_balance_counts_no_half_of_a_batch_that_a_closed_epoch_abandons() -> None:
    """One of its hours is in the ledger as abandoned, the other one still pending: its samples wait, all of them."""
    story = Story(EPOCHS["a shard of both epochs"], 9, ats=(9, NEW_DAY, NEW_DAY))
    while not close_epoch(story.store, APP, 0).closed:
        story.roll()
        migrate(story.driver(), LocalExecutor(story.store), APP, now_ms=NEXT_DAY)
    before = story.samples()
    story.put()
    seen: list[tuple[int, set[int]]] = []

    def note(_: str) -> None:
        seen.append((story.samples()[0], story.outcomes_of_the_batch()))
        if seen[-1][1] == {ABANDONED} and len(story.pending_hours()) == 1:
            raise Killed

    story.watched.hook = note
    with pytest.raises(Killed):
        Driver(story.watched, story.world.clock).roll(LocalExecutor(story.watched), [APP], now_ms=NEXT_DAY)
    assert {stored for stored, _ in seen} == {before[0]}
    assert story.samples() == before
    assert story.balance().adds_up
    story.stale.commit(story.batch)  # its writer goes on, and puts it where readers look
    assert story.samples() == (before[0] + 3, 0)
    story.roll()
    assert story.samples() == (before[0] + 3, 0)
    advance_watermarks(story.store, APP, story.world.clock.now_ms())
    assert story.samples() == (before[0] + 3, 0)
    assert story.balance().adds_up
