"""Claims about several writers at once while an app's shards change from 8 to 32 to 12 (PROTOCOL 22).

Each writer has a view of the distribution of its own, some make a batch long before they put it. After every step of
opening, moving and closing an epoch a reader that has just started and one that lives on are compared with the model.
"""

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ingest.accept.stamper import Stamper
from ingest.writer import WriteBatch, Writer
from rollups.crash_points import Hook, ignore_point
from rollups.move.redistribute import close_epoch
from spm.limits import HOUR_MS
from spm.store import epochs
from spm.store.backends.base import Backend
from spm.store.backends.lmdb import LmdbBackend
from spm.store.backends.memory import MemoryBackend
from spm.store.keys import HASH, PlacementTable
from spm.wire import Envelope
from tests.model.world import APP, START, World, parsed, versions_of

pytestmark = pytest.mark.slow
Note = Callable[[str], None]
EIGHT = PlacementTable.single(shards=8, spread=8)
NEXT = (32, 12)
WRITERS = 3
ROUNDS_MAX = 6  # of compacting, moving and closing, while writers go on
SAMPLES = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 3 * HOUR_MS), st.integers(-9, 9).map(float)), min_size=1, max_size=4
)


class Writers:
    """Some writers of one world, and the batches they have made but not put."""

    def __init__(self, world: World) -> None:
        self.world, self.looks = world, 0
        self.all = [Writer(world.store, EIGHT) for _ in range(WRITERS)]
        self.unsent: list[tuple[Writer, WriteBatch, Envelope]] = []

    def act(self, data: st.DataObject) -> None:
        """Let one writer write, prepare a batch for later, or put the oldest prepared batch."""
        what = data.draw(st.sampled_from(["write", "make", "put"]))
        if what == "put" and self.unsent:
            writer, batch, message = self.unsent.pop(0)
            writer.commit(batch)
            self.world.model.accept(versions_of(message))
        elif what == "make":
            self.world.clock.advance(1)
            message = self.world.acceptor.stamp_message(
                app=APP, source="slow", parsed=parsed(data.draw(SAMPLES)), message_id=bytes(16)
            )
            writer = data.draw(st.sampled_from(self.all))
            self.unsent.append((writer, writer.prepare([message]), message))
        else:
            self.world.writer = data.draw(st.sampled_from(self.all))
            self.world.send(*data.draw(SAMPLES))

    def look(self) -> None:
        """Assert that both readers answer as the model does."""
        self.looks += 1
        self.world.clock.advance(1_100)  # older than a cached tail may be
        for storage in (self.world.fresh(), self.world.readers):
            assert self.world.answer(storage) == self.world.truth

    def whole(self) -> None:
        """Assert that hours and days answer as the model does."""
        self.look()
        assert self.world.hours() == self.world.model.hours()
        assert self.world.days() == self.world.model.days()


@pytest.mark.seed("WD7", compares="answers of two readers with the model, at each step of 8 -> 32 -> 12 shards")
@pytest.mark.seed("A29", compares="the same, under three writers that look at the distribution at different times")
@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(st.data())
def test_writers_that_look_at_different_times_lose_and_double_nothing_while_shards_change(data: st.DataObject) -> None:
    world = World(placement=EIGHT)
    writers = Writers(world)
    for _ in range(3):
        writers.act(data)
    world.roll()

    def between(point: str) -> None:
        ignore_point(point)
        if data.draw(st.booleans()):
            writers.act(data)
            writers.look()

    for number, shards in enumerate(NEXT):
        epochs.open_epoch(world.store, APP, function=HASH, shards=shards, spread=shards)
        between("planned")
        for _ in range(ROUNDS_MAX):
            world.migrate(between)
            writers.look()
            if close_epoch(world.store, APP, number, between).closed:
                break
            world.roll(at=between)
        writers.whole()
    while writers.unsent:  # whatever was made by an epoch that is closed by now
        writer, batch, message = writers.unsent.pop(0)
        writer.commit(batch)
        world.model.accept(versions_of(message))
    writers.whole()
    settled(world)
    assert world.spread().has_one_live_epoch
    assert world.spread().newest.shards == 12
    writers.whole()


Keys = set[tuple[int, int]]  # series, ts
LEAVE = 4  # messages that may be written for each look: else writers outrun the reader, who reads everything


@dataclass(slots=True)
class Sending:
    """Threads that write until stopped, each as a process of its own; what they sent and what is acknowledged."""

    world: World
    leave: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(LEAVE))
    sent: Keys = field(default_factory=set)
    acked: Keys = field(default_factory=set)
    failed: list[Exception] = field(default_factory=list)
    stop: bool = False

    def work(self, number: int) -> None:
        """Write in one thread."""
        acceptor, writer = Stamper(100 + number, self.world.clock), Writer(self.world.store, EIGHT)
        try:
            for ts in itertools.count(1):
                self.leave.acquire()
                if self.stop:
                    return
                samples = [(number * 3 + s, s * HOUR_MS + ts, 1.0) for s in range(3)]
                message = acceptor.stamp_message(
                    app=APP, source=f"s{number}", parsed=parsed(samples), message_id=bytes(16)
                )
                self.sent.update((s, START + at) for s, at, _ in samples)
                writer.write([message])
                self.world.model.accept(versions_of(message))
                self.acked.update((s, START + at) for s, at, _ in samples)
        except Exception as error:
            self.failed.append(error)

    def look(self, point: str) -> None:
        """Assert that the answer holds everything acknowledged by now, and nothing that was not sent."""
        ignore_point(point)
        known = set(self.acked)
        answer = self.world.answer().keys()
        assert known <= answer <= set(self.sent)
        self.leave.release(LEAVE)

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Run all threads until the body has ended."""
        threads = [threading.Thread(target=self.work, args=(number,)) for number in range(WRITERS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stop = True
            self.leave.release(WRITERS)
            for thread in threads:
                thread.join()
        assert self.failed == []


def settled(world: World, at: Hook = ignore_point) -> None:
    """Compact, move and close until every former epoch is closed."""
    for _ in range(ROUNDS_MAX):
        world.roll(at=at)
        world.migrate(at)
        closings = [close_epoch(world.store, APP, epoch.number, at) for epoch in world.spread().epochs[:-1]]
        if all(closing.closed for closing in closings):
            break


@pytest.mark.seed("WD7", compares="answers with what was acked before and what was sent until then, by threads")
@pytest.mark.parametrize("kind", ["memory", "lmdb"])
def test_threads_that_write_all_the_while_lose_and_double_nothing(kind: str, tmp_path: Path, figure: Note) -> None:
    store: Backend = MemoryBackend() if kind == "memory" else LmdbBackend(str(tmp_path), map_bytes=1 << 28)
    world = World(store, placement=EIGHT)
    threads = Sending(world)
    with threads.going_on():
        for shards in NEXT:
            epochs.open_epoch(world.store, APP, function=HASH, shards=shards, spread=shards)
            settled(world, threads.look)
    settled(world)
    assert world.spread().has_one_live_epoch
    assert world.answer() == world.truth
    assert world.truth.keys() == threads.acked == threads.sent
    assert world.hours() == world.model.hours()
    store.close()
    figure(f"{len(threads.acked):,} samples of {WRITERS} threads on {kind} over 8, 32 and 12 shards, 0 lost or doubled")
