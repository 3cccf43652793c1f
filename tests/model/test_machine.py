"""A state machine of a store's life against the model: whatever happens, every answer is right at every step.

After each step a process that has just started and one that lives on are asked for all samples, hours and days, now
and as of an earlier moment, and the account of every stamp is read. Memory, LMDB and a real HBase lead the same life;
``bin/test --proof MACHINE`` leads it for ``SPM_MACHINE_S`` seconds.
"""

import contextlib
import math
import os
import tempfile
from collections.abc import Callable
from typing import ClassVar, cast

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from ingest.writer import WriteBatch, Writer
from rollups.crash_points import POINTS, ignore_point
from rollups.delete.expire import RetentionPeriods
from rollups.delete.purge import purge
from rollups.move import redistribute
from rollups.run.rollback import roll_back
from spm.clock import SystemClock
from spm.errors import Refused
from spm.limits import HOUR_MS
from spm.query.reader import AppStorage
from spm.query.request.provenance import DAYS
from spm.store import epochs
from spm.store.backends import open_backend
from spm.store.backends.base import Backend
from spm.store.backends.lmdb import LmdbBackend
from spm.store.backends.memory import MemoryBackend
from spm.store.keys import CLOSED
from spm.store.manifest import SEALING
from spm.wire import Envelope
from tests.model.truth import EVER
from tests.model.world import APP, DAY, SPREAD, START, Crash, Sample, World, crash_at, parsed, versions_of

times = st.builds(lambda hour, ms: hour * HOUR_MS + ms, st.sampled_from([0, 1, 2, 25]), st.integers(1, 3))
samples = st.lists(st.tuples(st.integers(0, 3), times, st.integers(-9, 9).map(float)), min_size=1, max_size=5)
hours = st.integers(0, 50)
sources = st.sampled_from(["a", "b"])
RUN_POINTS = POINTS[: POINTS.index("late counted") + 1]
MOVE_POINTS = ("compacted", "publish sent", "moved", "epoch closing", "histories cut", "epoch closed")
SEAL_POINTS = (
    "sealing",
    "sealed",
    "publish sent",
    "published",
    "ledger written",
    "raw deleting",
    "expired",
    "late counted",
    "hours deleting",
    "days dropped",
)
ERASE_RETRACTED_POINTS = ("erasure marked", "erasure published", "publish sent", "purge fenced", "purge deleting")
SPREADS = [("byte", 16, 16), ("hash", 8, 2), ("byte", 8, 8), ("hash", 16, 16)]


class Life(RuleBasedStateMachine):
    """One app's store on the memory back end."""

    steps: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.open())
        self.sent: list[Envelope] = []
        self.moments = [self.world.clock.now_ms()]
        self.slow: list[tuple[Writer, WriteBatch, Envelope]] = []  # batches that are prepared and not written yet

    def open(self) -> Backend:
        """A new store."""
        return MemoryBackend()

    # --- writing

    @rule(samples=samples, source=sources)
    def send(self, samples: list[Sample], source: str) -> None:
        """New, late and corrected samples."""
        self.sent.append(self.world.send(*samples, source=source))

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def redeliver(self, data: st.DataObject) -> None:
        """A worker writes messages again, that were written long ago."""
        self.world.store_again(*data.draw(st.lists(st.sampled_from(self.sent), min_size=1, max_size=3)))

    @rule(samples=samples, source=sources)
    def prepare(self, samples: list[Sample], source: str) -> None:
        """A slow worker prepares its batch by the placement table it knows, and writes it later."""
        world = self.world
        message = world.acceptor.stamp_message(app=APP, source=source, parsed=parsed(samples), message_id=bytes(16))
        self.slow.append((world.writer, world.writer.prepare([message]), message))
        world.writer = Writer(world.store, SPREAD)

    @precondition(lambda self: self.slow)
    @rule()
    def commit(self) -> None:
        """It writes, and acknowledges."""
        writer, batch, message = self.slow.pop(0)
        writer.commit(batch)
        self.world.model.accept(versions_of(message))

    # --- runs

    @rule(minor=st.booleans(), hour=hours, upgrade=st.booleans())
    def roll(self, minor: bool, hour: int, upgrade: bool) -> None:
        """A run, at some hour of the day or the next, perhaps one that rewrites older forms."""
        self.world.roll(minor=minor, now_ms=START + hour * HOUR_MS, upgrade=upgrade and not minor)

    @rule(minor=st.booleans(), hour=hours, point=st.sampled_from(RUN_POINTS), times=st.integers(1, 3))
    def crash(self, minor: bool, hour: int, point: str, times: int) -> None:
        """A run that is killed somewhere, if it comes there."""
        try:
            self.world.roll(minor=minor, now_ms=START + hour * HOUR_MS, at=crash_at(point, times))
        except Crash:
            return

    @rule(outer=st.booleans(), inner=st.booleans(), point=st.sampled_from(RUN_POINTS), samples=samples)
    def race(self, outer: bool, inner: bool, point: str, samples: list[Sample]) -> None:
        """More samples and a second run come all the way while a first one is under way."""
        left = [point]

        def second(reached: str) -> None:
            if left and reached == left[0]:
                left.clear()
                self.sent.append(self.world.send(*samples))
                self.world.roll(minor=inner)

        self.world.roll(minor=outer, at=second)

    @rule(which=st.integers(0, 3), point=st.sampled_from([None, "roll back noted", "rolled back"]))
    def roll_back(self, which: int, point: str | None) -> None:
        """Take back one of the last runs, if the rules allow it, perhaps not to the end."""
        days = (self.world.manifest(day) for day in (DAY, DAY + 1))
        runs = {former.run for day in days for entry in day.entries.values() for former in entry.history}
        for run in sorted(runs, reverse=True)[which : which + 1]:
            try:
                roll_back(self.world.store, run, [APP], at=crash_at(point) if point else ignore_point)
            except (Refused, Crash):
                return

    # --- retractions

    @rule(
        source=st.just("") | sources,
        metric=st.none() | st.integers(0, 2),
        series=st.none() | st.integers(0, 3),
        writes=st.none() | st.tuples(st.integers(0, 50), st.integers(0, 50)),
        hour=st.none() | st.integers(0, 3),
    )
    def retract(
        self, source: str, metric: int | None, series: int | None, writes: tuple[int, int] | None, hour: int | None
    ) -> None:
        """Take out a range of writes, of data, a source, series, or all at once."""
        known = sorted({v.stamp[0] for v in self.world.model.versions} | {self.moments[0]})
        low, high = (known[w % len(known)] for w in writes) if writes else (0, None)
        data = (START + hour * HOUR_MS + 1, START + (hour + 1) * HOUR_MS) if hour is not None else (0, EVER)
        self.world.retract(
            write_from=low,
            write_to=high,
            data_from=data[0],
            data_to=data[1],
            source=source,
            metric=metric,
            series=series,
        )

    def active(self) -> list[int]:
        """Retractions that can be undone."""
        return [n for n, taken in self.world.model.taken.items() if not taken.end_ms and not taken.purged]

    @precondition(lambda self: self.active())
    @rule(data=st.data())
    def undo(self, data: st.DataObject) -> None:
        """Put one back, at any later time."""
        self.world.undo(data.draw(st.sampled_from(self.active())))

    @precondition(lambda self: any(not taken.end_ms for taken in self.world.model.taken.values()))
    @rule(data=st.data(), point=st.none() | st.sampled_from(ERASE_RETRACTED_POINTS), times=st.integers(1, 2))
    def erase_retracted(self, data: st.DataObject, point: str | None, times: int) -> None:
        """Delete for good what one hides, perhaps not to the end; or go on with it."""
        number = data.draw(st.sampled_from([n for n, taken in self.world.model.taken.items() if not taken.end_ms]))
        with contextlib.suppress(Crash):
            self.world.erase_retracted(number, crash_at(point, times) if point else ignore_point)

    # --- moving

    @rule(spread=st.sampled_from(SPREADS))
    def open_epoch(self, spread: tuple[str, int, int]) -> None:
        """Writers go elsewhere from now on, once they have noticed."""
        strategy, shards, width = spread
        with contextlib.suppress(Refused):
            epochs.open_epoch(self.world.store, APP, function=strategy, shards=shards, spread=width)

    @rule(point=st.none() | st.sampled_from(MOVE_POINTS[:3]))
    def migrate(self, point: str | None) -> None:
        """Move what lies elsewhere, perhaps not to the end."""
        with contextlib.suppress(Crash):
            self.world.migrate(crash_at(point) if point else ignore_point)

    @precondition(lambda self: not self.world.spread().has_one_live_epoch)
    @rule(point=st.none() | st.sampled_from(MOVE_POINTS[3:]))
    def close_epoch(self, point: str | None) -> None:
        """Close the oldest epoch, if nothing stands in the way."""
        oldest = next(epoch for epoch in self.world.spread().epochs if epoch.state != CLOSED)
        with contextlib.suppress(Crash):
            redistribute.close_epoch(self.world.store, APP, oldest.number, crash_at(point) if point else ignore_point)

    # --- letting go

    @rule(
        days_later=st.integers(0, 2),
        raw=st.sampled_from([0, 1, None]),
        hour=st.sampled_from([1, None]),
        day=st.sampled_from([2, None]),
        point=st.none() | st.sampled_from(SEAL_POINTS),
    )
    def retain(self, days_later: int, raw: int | None, hour: int | None, day: int | None, point: str | None) -> None:
        """Samples, hours and days go after their time, perhaps not to the end."""
        with contextlib.suppress(Crash):
            self.world.retain(
                RetentionPeriods(raw, hour, day), days_later=days_later, at=crash_at(point) if point else ignore_point
            )

    # --- purging

    @rule(keep=st.integers(0, 2), point=st.sampled_from([None, "purge listed", "purge fenced", "purge deleting"]))
    def purge(self, keep: int, point: str | None) -> None:
        """Delete what is superseded, perhaps not to the end."""
        shards = self.world.spread().all_shards(APP)
        try:
            purge(self.world.store, APP, shards, keep=keep, at=crash_at(point) if point else ignore_point)
        except Crash:
            return

    # --- what must be so

    @rule()
    def a_full_run_leaves_nothing_waiting(self) -> None:
        """After a full run nothing is pending, each HourShard has one generation, and past days have rollup rows."""
        for _ in range(2):  # a replay list that came with a race is taken in by the next
            self.world.roll(now_ms=START + 50 * HOUR_MS, sweep=True)
        value, next_day = self.world.manifest(), self.world.manifest(DAY + 1)
        if not self.world.spread().has_one_live_epoch or SEALING in {*value.seals.values(), *next_day.seals.values()}:
            return  # what lies in two places waits for its move, and an hour that is being sealed for its sealer
        assert self.world.pending_rows() == 0
        for (_, hour), entry in value.entries.items():
            assert len(entry.state.generations) <= 1
            assert entry.state.replay == () or value.seal(hour)
        if not value.seals:
            assert self.world.resolutions() <= {DAYS}

    @invariant()
    def every_answer_is_right(self) -> None:
        """Samples, hours and days, from empty caches and from full ones; the account of every stamp."""
        type(self).steps += 1
        world, model = self.world, self.world.model
        fresh = world.fresh()
        assert world.answer(fresh) == model.raw()
        assert world.hours(fresh) == model.hours()
        assert world.days(fresh) == model.days()
        assert world.accounts() == model.accounts()
        world.clock.advance(1_500)  # older than the tail may be
        assert world.answer(world.readers) == model.raw()
        assert world.days(world.readers) == model.days()
        self.percentiles_too(world.readers)
        self.as_of_an_earlier_moment_too(world.fresh())

    def percentiles_too(self, lasting: AppStorage) -> None:
        """Within one percent, of each day over all series."""
        q = len(self.moments) % 5 / 4
        for day, answers in zip((DAY, DAY + 1), self.world.quantiles(q, lasting), strict=True):
            wanted, size = self.world.model.quantile(day, q)
            assert math.isnan(answers) == math.isnan(wanted)
            assert not abs(answers - wanted) > 0.010_001 * size

    def as_of_an_earlier_moment_too(self, fresh: AppStorage) -> None:
        """The same as accepted by a time."""
        world, model = self.world, self.world.model
        self.moments.append(world.clock.now_ms())
        then = self.moments[len(self.moments) * 7_919 % 1_009 % len(self.moments)]
        lasting = world.readers.asof(then)
        assert world.answer(lasting) == model.raw(then)
        assert world.hours(fresh.asof(then)) == model.hours(then)
        assert world.days(lasting) == model.days(then)


class LifeOnDisk(Life):
    """The same on LMDB."""

    def open(self) -> Backend:
        """A store in a folder of its own."""
        self.folder = tempfile.TemporaryDirectory()
        return LmdbBackend(self.folder.name, map_bytes=1 << 26)

    def teardown(self) -> None:
        """Close the store and delete its folder."""
        self.world.store.close()
        self.folder.cleanup()


class LifeOnHBase(Life):
    """The same on a real HBase, each life in tables of its own."""

    url: ClassVar[str] = ""
    lives: ClassVar[int] = 0

    def open(self) -> Backend:
        """New tables."""
        LifeOnHBase.lives += 1
        return open_backend(f"{self.url}/life{self.lives}")

    def teardown(self) -> None:
        """The connections go."""
        self.world.store.close()


def lead(kind: type[Life], lives: int, steps: int, part: int | None = None) -> int:
    """Lead so many lives of so many steps; the steps done. Each part has lives of its own.

    Where examples are the same each time they follow from a machine's name: parts of one name would lead equal lives.
    """
    machine = kind if part is None else cast(type[Life], type(f"{kind.__name__}{part}", (kind,), {}))
    before = machine.steps
    quiet = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    phases = [Phase.explicit, Phase.reuse, Phase.generate, *([] if kind is LifeOnHBase else [Phase.shrink])]
    how = settings(
        max_examples=lives, stateful_step_count=steps, deadline=None, suppress_health_check=quiet, phases=phases
    )
    run_state_machine_as_test(machine, settings=how)
    return machine.steps - before


def test_no_answer_in_memory_is_wrong_at_any_of_a_few_steps() -> None:
    lead(Life, 10, 20)


def test_a_batch_of_a_closed_epoch_is_abandoned_hour_by_hour_and_no_half_of_it_counts() -> None:
    life = Life()
    life.open_epoch(spread=("byte", 16, 16))
    life.prepare(samples=[(0, 25 * HOUR_MS + 2, 7.0), (0, 2, -5.0)], source="a")
    life.close_epoch(point=None)
    life.open_epoch(spread=("byte", 8, 8))
    life.send(samples=[(2, HOUR_MS + 2, 4.0)], source="a")
    life.roll(minor=False, hour=10, upgrade=False)
    life.close_epoch(point=None)
    life.retain(days_later=1, raw=0, hour=None, day=None, point="sealing")
    life.commit()
    life.every_answer_is_right()
    life.roll(minor=True, hour=12, upgrade=False)  # the first hour is being sealed: its row waits
    life.every_answer_is_right()


def test_parts_lead_other_lives_where_examples_are_the_same_each_time() -> None:
    def histories(part: int) -> list[str]:
        noted = []

        class Noting(Life):
            def teardown(self) -> None:
                noted.append(repr(self.world.truth))

        lead(Noting, 3, 10, part)
        return noted

    profile = settings.get_current_profile_name()
    settings.load_profile("integration")
    try:
        first, again, other = histories(0), histories(0), histories(1)
    finally:
        settings.load_profile(profile)
    assert first == again
    assert first != other


@pytest.mark.slow
@pytest.mark.timeout(1_200)
@pytest.mark.seed("A19", compares="every answer, now and as of earlier, after each step of random lives")
def test_no_answer_in_memory_is_wrong_at_any_of_two_thousand_steps(figure: Callable[[str], None]) -> None:
    """In continuous integration the same lives each time; ``bin/test --proof MACHINE`` leads some million steps."""
    figure(f"{lead(Life, 50, 50)} steps, 0 differences")


@pytest.mark.slow
@pytest.mark.timeout(1_200)
@pytest.mark.seed("A19", compares="the same on LMDB")
def test_no_answer_on_disk_is_wrong_at_any_of_a_thousand_steps(figure: Callable[[str], None]) -> None:
    """``bin/test --proof MACHINE`` leads a third of its lives on LMDB."""
    figure(f"{lead(LifeOnDisk, 20, 50)} steps, 0 differences")


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.timeout(1_200)
@pytest.mark.seed("A19", compares="the same on a real HBase")
def test_no_answer_on_hbase_is_wrong_at_any_of_two_hundred_steps(hbase_url: str, figure: Callable[[str], None]) -> None:
    """``bin/test --proof machine_on_hbase`` leads thousands of steps."""
    LifeOnHBase.url = hbase_url
    figure(f"{lead(LifeOnHBase, 4, 50)} steps, 0 differences")


@pytest.mark.real
@pytest.mark.proof
def test_the_machine_on_hbase_finds_no_wrong_answer_in_thousands_of_steps(hbase_url: str) -> None:
    """An hour or two."""
    LifeOnHBase.url = hbase_url
    for part in range(10):
        print(f"{lead(LifeOnHBase, 30, 50, part)} steps, 0 differences", flush=True)


@pytest.mark.proof
def test_the_machine_finds_no_wrong_answer_for_hours() -> None:
    """``bin/test --proof MACHINE``; ``SPM_MACHINE_S`` seconds, by default three hours: some million steps."""
    clock, done = SystemClock(), 0
    begun = clock.monotonic()
    length_s = float(os.environ.get("SPM_MACHINE_S", "10800"))
    while done == 0 or clock.monotonic() < begun + length_s:
        done += lead(Life, 20, 60) + lead(LifeOnDisk, 10, 60)
        print(f"{done:,} steps in {clock.monotonic() - begun:,.0f} of {length_s:,.0f} s, 0 differences", flush=True)
