"""A state machine of a store's life against a dict: whatever happens, every answer is right at every step."""

import tempfile

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rollups.points import POINTS
from rollups.purge import purge
from rollups.rollback import roll_back
from spm.errors import Refused
from spm.limits import HOUR_MS
from spm.store.backends.base import Backend
from spm.store.backends.lmdb import LmdbBackend
from spm.store.backends.memory import MemoryBackend
from spm.wire import Envelope
from tests.rollups.world import APP, START, Crash, World, crash_at, days_in_force, whole_day

samples = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3).flatmap(lambda h: st.integers(1, 3).map(lambda t: h * HOUR_MS + t)),
              st.integers(-9, 9).map(float)),
    min_size=1, max_size=5, unique_by=lambda s: s[:2],
)  # fmt: skip
hours = st.integers(0, 26)


class Life(RuleBasedStateMachine):
    """One app's store on the memory back end."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.open())
        self.sent: list[Envelope] = []

    def open(self) -> Backend:
        """A new store."""
        return MemoryBackend()

    @rule(samples=samples, source=st.sampled_from(["a", "b"]))
    def send(self, samples: list[tuple[int, int, float]], source: str) -> None:
        """New, late and corrected samples."""
        self.sent.append(self.world.send(*samples, source=source))

    @rule(data=st.data())
    def redeliver(self, data: st.DataObject) -> None:
        """A worker writes messages again, that were written long ago."""
        if self.sent:
            self.world.store_again(*data.draw(st.lists(st.sampled_from(self.sent), min_size=1, max_size=3)))

    @rule(minor=st.booleans(), hour=hours)
    def roll(self, minor: bool, hour: int) -> None:
        """A run, at some hour of the day or the next."""
        self.world.roll(minor=minor, now_ms=START + hour * HOUR_MS)

    @rule(minor=st.booleans(), hour=hours, point=st.sampled_from(POINTS[:12]), times=st.integers(1, 3))
    def crash(self, minor: bool, hour: int, point: str, times: int) -> None:
        """A run that is killed somewhere, if it comes there."""
        try:
            self.world.roll(minor=minor, now_ms=START + hour * HOUR_MS, at=crash_at(point, times))
        except Crash:
            return

    @rule(outer=st.booleans(), inner=st.booleans(), point=st.sampled_from(["planned", "compacted", "hours written"]))
    def race(self, outer: bool, inner: bool, point: str) -> None:
        """A second run goes all the way while a first one is under way."""
        left = [point]

        def second(reached: str) -> None:
            if left and reached == left[0]:
                left.clear()
                self.world.roll(minor=inner)

        self.world.roll(minor=outer, at=second)

    @rule(which=st.integers(0, 3))
    def roll_back(self, which: int) -> None:
        """Take back one of the last runs, if the rules allow it."""
        runs = {f.run for e in self.world.manifest().entries.values() for f in e.history}
        for run in sorted(runs, reverse=True)[which : which + 1]:
            try:
                roll_back(self.world.store, run, [APP])
            except Refused:
                return

    @rule(keep=st.integers(0, 2), point=st.sampled_from([None, "purge fenced", "purge deleting"]))
    def purge(self, keep: int, point: str | None) -> None:
        """Delete what is superseded, perhaps not to the end."""
        buckets = self.world.distribution.all(APP)
        try:
            if point is None:
                purge(self.world.store, APP, buckets, keep=keep)
            else:
                purge(self.world.store, APP, buckets, keep=keep, at=crash_at(point))
        except Crash:
            return

    @rule()
    def a_full_run_leaves_all_exact(self) -> None:
        """After a full run nothing waits, and hours and days in force are right."""
        self.world.roll()
        self.world.roll()  # a replay list that came with a race is taken in by the next
        assert self.world.pending_rows() == 0
        assert days_in_force(self.world) == whole_day(self.world)
        for entry in self.world.manifest().entries.values():
            assert len(entry.state.generations) == 1
            assert entry.state.replay == ()

    @invariant()
    def raw_is_right(self) -> None:
        """Every sample once, the winner of each, from empty caches and from full ones."""
        assert self.world.answer() == self.world.truth
        self.world.clock.advance(1_500)  # older than the tail may be
        assert self.world.answer(self.world.readers) == self.world.truth

    @invariant()
    def hours_are_right(self) -> None:
        """Hourly aggregates, from the tier or from raw."""
        assert self.world.hours() == self.world.recount()


class LifeOnDisk(Life):
    """The same on LMDB."""

    def open(self) -> Backend:
        """A store in a folder of its own."""
        self.folder = tempfile.TemporaryDirectory()
        return LmdbBackend(self.folder.name, map_bytes=1 << 26)

    def teardown(self) -> None:
        """The folder goes."""
        self.world.store.close()
        self.folder.cleanup()


_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]
TestLife = Life.TestCase
TestLife.settings = settings(max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=_QUIET)
TestLifeOnDisk = LifeOnDisk.TestCase
TestLifeOnDisk.settings = settings(max_examples=6, stateful_step_count=20, deadline=None, suppress_health_check=_QUIET)
