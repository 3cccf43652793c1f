"""Claims about every kind of answer: samples, hours and days equal a plain count of versions, now and as of any time.

Random small histories of writes, runs, retractions, undos, moves and sealed hours are applied to a store and to
``tests.model.truth``. Hours and days come from their tables where they are exact; the reader decides whether they are,
so any that is used wrongly shows as a difference.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.writer import Writer
from spm.limits import DAY_HOURS, HOUR_MS
from spm.query.reader import AppStorage
from spm.query.request.batches import HourBatch, Matcher, SeriesBatch
from spm.store import epochs, keys, manifest
from spm.store.manifest import SEALED, Manifest
from spm.store.rollup.aggregates import COLUMNS
from spm.store.versions import retractions
from spm.store.versions.retractions import Retraction
from spm.wire import parse_canonical
from tests.model.truth import Model, Row, Taken, Version
from tests.model.world import APP, DAY, START, World, metric_of

EVERY = [Matcher("__name__", "=~", "m.")]
FIRST = DAY * DAY_HOURS
HOURS_MAX = 3
SAMPLE = st.tuples(st.integers(0, 5), st.integers(1, HOURS_MAX * 6), st.integers(-3, 9))  # series, 10 minutes, value
MATCHERS = (
    (),
    (Matcher("__name__", "=", "m0"),),
    (Matcher("__name__", "=", "m1"), Matcher("n", "=~", "1|2")),
    (Matcher("n", "=~", "[0-3]"),),
)


@dataclass
class WorldAndModel:
    """A store and a model that see equal acts."""

    world: World = field(default_factory=World)
    model: Model = field(default_factory=Model)
    times: list[int] = field(default_factory=list)

    def send(self, samples: Iterable[tuple[int, int, int]], source: str) -> None:
        samples = [s for s in samples if FIRST + (s[1] * 600_000 - 1) // HOUR_MS not in self.model.sealed]
        if not samples:
            return
        stamped = self.world.send(*((s, at * 600_000, float(v)) for s, at, v in samples), source=source)
        stamp = stamped.stamp
        index = stamped.series_index.tolist()
        forms = [int(parse_canonical(stamped.series.canonical(i))[1]["n"]) for i in range(len(stamped.series))]
        rows = enumerate(zip(index, stamped.ts.tolist(), stamped.values.tolist(), strict=True))
        ranked = (stamp.ms, stamp.process, stamp.sequence)
        self.model.accept(Version(forms[i], ts, value, ranked, at, source) for at, (i, ts, value) in rows)
        self.times.append(stamp.ms)

    def retract(self, kind: int, matchers: tuple[Matcher, ...], source: str) -> None:
        now = self.advance()
        write_to = now if kind % 2 else (self.times[len(self.times) // 2] if self.times else now)
        data = (START + HOUR_MS, START + 2 * HOUR_MS) if kind % 3 == 0 else (0, 1 << 50)
        draft = Retraction(0, now, 0, 0, write_to, *data, source, matchers, "wrong", "me")
        retraction = retractions.add(self.world.store, APP, draft)
        selected = frozenset(n for n in range(6) if all(_holds(n, m) for m in matchers)) if matchers else None
        self.model.retract(retraction.number, Taken(now, 0, write_to, *data, source, selected))

    def undo(self, which: int) -> None:
        in_force = [number for number, taken in self.model.taken.items() if taken.active(None)]
        if in_force:
            number, now = in_force[which % len(in_force)], self.advance()
            retractions.end(self.world.store, APP, number, now)
            self.model.undo(number, now)

    def advance(self) -> int:
        """Advance two seconds: any tail is read anew, and the time can be queried."""
        self.world.clock.advance(2_000)
        self.times.append(self.world.clock.now_ms() - 1_000)
        return self.world.clock.now_ms()

    def move(self) -> None:
        """Writers use other shards from now on; stored rows stay where they are."""
        if epochs.read(self.world.store, APP).has_one_live_epoch:
            placement = epochs.open_epoch(self.world.store, APP, function="byte", shards=16, spread=3)
            self.world.writer = Writer(self.world.store, placement)

    def seal(self, hour: int) -> None:
        """Delete the samples of an hour if its aggregates are exact, as a seal requires: only these answer then."""
        key, now = keys.manifest(APP, DAY), self.world.manifest()
        tail = {keys.column_hour(c) for _, cells in self.world.store.scan("pending", b"", b"\xff" * 64) for c in cells}
        stored = [(b, entry) for (b, s), entry in now.entries.items() if s == FIRST + hour and entry.state.generations]
        in_force = [r for r in retractions.read(self.world.store, APP) if r.active()]
        for shard, entry in stored:
            pack = now.hours.get(shard)
            inputs = pack.hours.get(FIRST + hour) if pack else None
            current = retractions.ids(retractions.touching(in_force, entry, FIRST + hour))
            if inputs is None or inputs.inputs != manifest.fingerprint(entry.state) or inputs.retractions != current:
                return
        if not stored or FIRST + hour in tail:
            return
        after = Manifest(now.nonce + 1, now.fence, now.entries, now.hours, {**now.seals, FIRST + hour: SEALED})
        assert self.world.store.check_and_put("manifest", key, b"v", manifest.encode(now), manifest.encode(after))
        for shard, _ in stored:
            for table in ("chunks", "timelines"):
                rows = [k for k, _ in self.world.store.scan(table, b"", b"\xff" * 64)]
                expired = [k for k in rows if _is_of(table, k, shard, FIRST + hour)]
                self.world.store.delete(table, [(k, None) for k in expired])
        self.model.seal(FIRST + hour)

    def check(self, storage: AppStorage, asof_ms: int | None = None) -> None:
        """Check that every kind of answer equals the count."""
        then = storage if asof_ms is None else storage.asof(asof_ms)
        batch = then.select(EVERY, START - 1, START + 48 * HOUR_MS)
        assert samples_of(batch) == self.model.raw(asof_ms)
        hours = then.select_hours(EVERY, FIRST, FIRST + 2 * DAY_HOURS)
        same(cells_of(hours, 1), self.model.hours(asof_ms))
        days = then.select_cells(EVERY, np.array([FIRST, FIRST + DAY_HOURS]), [name for name, _ in COLUMNS])
        same(cells_of(days, DAY_HOURS), self.model.days(asof_ms))


def _holds(series: int, matcher: Matcher) -> bool:
    value = metric_of(series) if matcher.name == "__name__" else str(series)
    return {"=": value == matcher.value, "=~": value in ("1", "2") if "|" in matcher.value else series <= 3}[matcher.op]


def _is_of(table: str, key: bytes, shard: int, hour: int) -> bool:
    parsed = keys.parse_chunk(key) if table == "chunks" else keys.parse_timeline(key)
    return parsed[0] == shard and (parsed[3] if table == "chunks" else parsed[2]) == hour


def samples_of(batch: SeriesBatch) -> dict[tuple[int, int], float]:
    """(series number, ts) -> value."""
    values = {}
    for row, labels in enumerate(batch.labels):
        for i in range(int(batch.offsets[row]), int(batch.offsets[row + 1])):
            values[int(labels["n"]), int(batch.ts[i])] = float(batch.values[i])
    return values


def cells_of(batch: HourBatch, width: int) -> dict[tuple[int, int], Row]:
    """(series number, hour or day) -> aggregates."""
    return {
        (int(labels["n"]), hour // width): {name: getattr(batch, name)[row, column].item() for name, _ in COLUMNS}
        for row, labels in enumerate(batch.labels)
        for column, hour in enumerate(batch.hours.tolist())
        if batch.count[row, column]
    }


def same(got: dict[tuple[int, int], Row], want: dict[tuple[int, int], Row]) -> None:
    """Check for equal steps and equal numbers (sums are of small whole numbers)."""
    assert got.keys() == want.keys()
    for step, row in want.items():
        assert got[step] == row, step


ACT = st.one_of(
    st.tuples(st.just("send"), st.lists(SAMPLE, min_size=1, max_size=8), st.sampled_from(["a", "b"])),
    st.tuples(st.just("send"), st.lists(SAMPLE, min_size=1, max_size=8), st.sampled_from(["a", "b"])),
    st.tuples(st.just("roll"), st.booleans(), st.just(0)),
    st.tuples(st.just("roll"), st.just(False), st.just(0)),
    st.tuples(st.just("retract"), st.tuples(st.integers(0, 5), st.sampled_from(MATCHERS)), st.sampled_from(["", "a"])),
    st.tuples(st.just("undo"), st.integers(0, 3), st.just(0)),
    st.tuples(st.sampled_from(["move", "seal"]), st.integers(0, HOURS_MAX - 1), st.just(0)),
)


Acts = list[tuple[str, object, object]]


def compared(acts: Acts) -> None:
    """Play a history, and compare every answer after each act and as of some of its times."""
    both = WorldAndModel()
    old = both.world.fresh()
    for act in acts:
        both.advance()
        match act:
            case ("send", list() as samples, str() as source):
                both.send(samples, source)
            case ("roll", bool() as minor, _):
                both.world.roll(minor=minor)
            case ("retract", (int() as kind, tuple() as matchers), str() as source):
                both.retract(kind, matchers, source)
            case ("undo", int() as which, _):
                both.undo(which)
            case ("move", _, _):
                both.move()
            case ("seal", int() as hour, _):
                both.seal(hour)
        both.advance()
        both.check(old)
    both.check(both.world.fresh())
    for asof_ms in both.times[::4]:
        both.check(old, asof_ms)


@settings(deadline=None, max_examples=12)
@given(st.lists(ACT, min_size=3, max_size=9))
def test_every_answer_equals_a_plain_count_of_versions(acts: Acts) -> None:
    compared(acts)


@pytest.mark.slow
@settings(deadline=None, max_examples=350)
@given(st.lists(ACT, min_size=3, max_size=14))
def test_every_answer_of_many_histories_equals_a_plain_count(acts: Acts) -> None:
    """``bin/test --proof thousands_of_histories`` plays more."""
    compared(acts)


@pytest.mark.proof
@settings(deadline=None, max_examples=5_000)
@given(st.lists(ACT, min_size=3, max_size=14))
def test_every_answer_of_thousands_of_histories_equals_a_plain_count(acts: Acts) -> None:
    compared(acts)
