"""An answer with cached steps equals a computed one, whatever was written, rolled up or retracted in between."""

from __future__ import annotations

import copy
import dataclasses
import os
from collections.abc import Callable, Mapping
from contextlib import suppress

import hypothesis
import msgspec
import numpy as np
import pytest
from hypothesis import strategies as st

from rollups.decide.retention import RetentionPeriods
from rollups.move.redistribute import close_epoch
from rollups.run.rollback import roll_back
from spm import limits
from spm.errors import Refused
from spm.limits import HOUR_MS
from spm.query.promql import engine
from spm.query.promql.engine import Engine, QueryLimits, Result
from spm.query.promql.evaluation.sample_source import SampleSource
from spm.query.promql.planning import read_range
from spm.query.promql.planning.plan import Context
from spm.query.promql.planning.planner import parse
from spm.query.promql.result_cache.entries import AnswerKey, CachedAnswer, ResultCache
from spm.query.promql.result_cache.reuse import AppResultCache
from spm.query.reader import AppStorage
from spm.query.request.provenance import Provenance
from spm.query.view.fingerprint import Common, SampleFingerprint
from spm.query.view.tail import TailView
from spm.store.epochs import open_epoch
from spm.store.keys import BYTE, HASH
from spm.store.manifest import Manifest
from spm.store.versions.retractions import read
from tests.model.world import APP, START, World

MINUTE_MS = 60_000
HOURS = 5
HISTORIES = int(os.environ.get("SPM_KEPT_HISTORIES", "20"))  # of the long form
TEXTS = (
    "m0",
    "sum by (n) ({__name__=~'m.'})",
    "rate(m0[40m])",
    "increase({__name__=~'m[12]'}[35m])",
    "avg_over_time(m1[90m] offset 30m)",
    "sum(m2) or vector(0)",
    "absent(m0{n='0'})",
    "max_over_time(sum(m1)[1h:10m])",
    "topk(2, {__name__=~'m.'})",
    "m0 @ end()",
    "m1 offset -20m",
    "quantile_over_time(0.5, m1[50m])",
    "m0 > 0 unless on (n) m0 > 50",
    "stddev_over_time(m2[45m] @ start())",
)


class History:
    """A random history, from a seed, of writes, runs and retractions, with queries in between."""

    def __init__(self, seed: int) -> None:
        self.rng, self.world = np.random.default_rng(seed), World()
        self.results = ResultCache(samples_min=0)
        self.cached_steps = 0
        self.runs: list[int] = []
        rng = self.rng
        self.queries = [
            (TEXTS[rng.integers(len(TEXTS))], int(rng.choice([7, 10, 30])), int(rng.choice([0, 3]))) for _ in "ab"
        ]
        self.acts: list[Callable[[], object]] = [
            self.send,
            self.send,
            self.send,
            self.roll,
            self.roll,
            self.roll_minor,
            self.retract,
            self.undo,
            self.erase_retracted,
            self.retain,
            self.roll_back,
            self.spread,
            self.spread,
        ]

    def go(self, acts: int) -> int:
        """Perform acts, each with queries after it; returns the number of cached steps that were used."""
        for hour in range(HOURS):
            self.world.send(
                *((s, hour * HOUR_MS + m * MINUTE_MS, s + m / 4) for s in range(6) for m in range(1, 60, 6))
            )
        self.world.clock.advance(10 * HOUR_MS)
        self.roll()
        for _ in range(acts):
            for _ in range(3):
                self.question()
            if self.rng.random() < 0.6:
                self.acts[self.rng.integers(len(self.acts))]()
        return self.cached_steps

    def question(self) -> None:
        """Run one of the queries at a random time, and compare it with an answer without a cache."""
        self.world.clock.advance(limits.TAIL_AGE_MS + 1)
        text, step, phase = self.queries[self.rng.integers(len(self.queries))]
        first = START + (phase + step * int(self.rng.integers(-5, 60 * HOURS // step))) * MINUTE_MS
        last = first + int(self.rng.integers(0, 60 * HOURS // step)) * step * MINUTE_MS
        back = int(self.rng.choice([5, 5, 5, 25])) * MINUTE_MS
        asof = self.world.clock.now_ms() - 5 * HOUR_MS if self.rng.random() < 0.1 else None
        app = self.world.readers if asof is None else self.world.readers.asof(asof)
        fresh = self.world.fresh() if asof is None else self.world.fresh().asof(asof)
        query = text, first, last, step * MINUTE_MS
        result = Engine(app, QueryLimits(lookback_ms=back), cache=AppResultCache(self.results, app)).range(*query)
        assert_same(result, Engine(fresh, QueryLimits(lookback_ms=back)).range(*query))
        self.cached_steps += result.cached_steps

    def send(self) -> None:
        hour, series = self.rng.integers(HOURS + 1), self.rng.integers(0, 8, 5)
        self.world.send(
            *(
                (int(s), int(hour * HOUR_MS + self.rng.integers(1, HOUR_MS)), self.rng.integers(0, 400) / 4)
                for s in series
            )
        )

    def roll(self) -> None:
        self.runs.append(self.world.roll().run)

    def roll_minor(self) -> None:
        self.world.roll(minor=True)

    def retract(self) -> None:
        start = int(self.rng.integers(0, HOURS)) * HOUR_MS
        if len([r for r in read(self.world.store, APP) if r.active()]) < 3:
            self.world.retract(
                data_from=START + start, data_to=START + start + HOUR_MS // 2, series=int(self.rng.integers(6))
            )

    def undo(self) -> None:
        for retraction in read(self.world.store, APP)[:1]:
            if retraction.active() and not retraction.erased_ms:
                self.world.undo(retraction.number)

    def erase_retracted(self) -> None:
        for retraction in read(self.world.store, APP)[-1:]:
            if retraction.active():
                self.world.erase_retracted(retraction.number)
                self.roll()

    def retain(self) -> None:
        if self.rng.random() < 0.1:
            self.world.roll(now_ms=START + 60 * HOUR_MS)
            self.world.retain(RetentionPeriods(raw_days=1), days_later=3)

    def roll_back(self) -> None:
        with suppress(Refused):
            roll_back(self.world.store, self.runs[-1], [APP])

    def spread(self) -> None:
        """Open another placement epoch, migrate data to it, or close the epoch before."""
        settled = self.world.spread().has_one_live_epoch
        if settled:
            function, width = (HASH, BYTE)[self.rng.integers(2)], int(self.rng.integers(1, 5))
            with suppress(Refused):  # it is spread so already
                open_epoch(self.world.store, APP, function=function, shards=16, spread=width)
            self.world.clock.advance(int(self.rng.integers(0, 2 * limits.TAIL_AGE_MS)))
        if self.rng.random() < 0.6:
            self.runs.append(self.world.migrate().run)
        elif not settled:
            self.roll_minor()
            with suppress(Refused):
                close_epoch(self.world.store, APP, self.world.spread().epochs[-2].number)


def assert_same(result: Result, expected: Result) -> None:
    """Compare two results bit by bit; the ranges of raw samples in the provenance may be a little wider."""
    assert list(result.labels) == list(expected.labels)
    assert result.present.tolist() == expected.present.tolist()
    present = expected.present
    assert (result.values[present].view(np.int64) == expected.values[present].view(np.int64)).all()
    assert result.warnings == expected.warnings
    assert _notes_beside_ranges(result) == _notes_beside_ranges(expected)
    assert all(
        any(a <= c and d <= b for _, (a, b) in result.provenance.ranges) for _, (c, d) in expected.provenance.ranges
    )


def _notes_beside_ranges(result: Result) -> set[str]:
    return {note for note in result.notes if not note.startswith("raw samples")}


@hypothesis.settings(max_examples=3, deadline=None)
@hypothesis.given(seed=st.integers(0, 2**32))
def test_cached_steps_equal_computed_ones_whatever_happens_between(seed: int) -> None:
    History(seed).go(12)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_cached_steps_equal_computed_ones_in_many_histories() -> None:
    cached, first = 0, int(os.environ.get("SPM_KEPT_SEED", "0"))
    for number in range(HISTORIES):
        history = History(first + number)
        try:
            cached += history.go(12)
        except AssertionError as error:
            raise AssertionError(f"history {first + number}: {error}") from error
        if number % 100 == 99:
            print(f"{number + 1} of {HISTORIES} histories, {cached} steps came from the cache", flush=True)
    assert cached > HISTORIES


def _fingerprint_as_of_now(storage: AppStorage, start_ms: int, end_ms: int) -> SampleFingerprint | None:
    then = copy.copy(storage)
    then._asof_ms = None
    return FINGERPRINT(then, start_ms, end_ms)


FINGERPRINT = AppStorage.fingerprint


def _key_without(**changed: object) -> Callable[..., AnswerKey]:
    return lambda *values: dataclasses.replace(AnswerKey(*values), **changed)  # type: ignore[arg-type]


def _fingerprint_without(part: str) -> Callable[..., SampleFingerprint]:
    take, nothing = SampleFingerprint.of, TailView({}, {}, 0)

    def of(common: Common, manifests: Mapping[int, Manifest], tail: TailView) -> SampleFingerprint:
        open_ = {day: msgspec.structs.replace(manifest, seals={}) for day, manifest in manifests.items()}
        fingerprint = take(
            (common[0], common[2]) if part == "retractions" else common,
            open_ if part == "seals" else manifests,
            nothing if part == "tail" else tail,
        )
        return dataclasses.replace(fingerprint, hour_states={}) if part == "generations" else fingerprint

    return of


class Asker:
    """Runs queries on a world, and compares each with the answer of a process that has just started."""

    def __init__(self) -> None:
        """Start with four hours of a ramp with a gap in each, after a run."""
        self.world, self.results = World(), ResultCache(samples_min=0)
        for hour in range(4):
            minutes = [minute for minute in range(1, 60) if not 20 < minute < 40]
            times = [hour * HOUR_MS + minute * MINUTE_MS + 20_000 for minute in minutes]
            self.world.send(*((0, time, time / HOUR_MS) for time in times))
        self.run()
        self.world.clock.advance(HOUR_MS)

    def run(self) -> None:
        """Do a full run, long after."""
        self.world.roll()

    def late(self) -> None:
        """Send a new sample of the second hour."""
        self.world.send((0, HOUR_MS + 50 * MINUTE_MS + 30_000, 99.0))

    def ask(
        self,
        text: str = "m0",
        *,
        hours: tuple[float, float] = (1, 2),
        step_s: int = 60,
        back: int = 5,
        asof_ms: int | None = None,
        times: int = 1,
    ) -> int:
        """Run one query several times; returns the number of cached steps in the last answer."""
        query = text, START + int(hours[0] * HOUR_MS), START + int(hours[1] * HOUR_MS), step_s * 1000
        for _ in range(times):
            self.world.clock.advance(limits.TAIL_AGE_MS + 1)
            ours, fresh = self.world.readers, self.world.fresh()
            if asof_ms is not None:
                ours, fresh = ours.asof(asof_ms), fresh.asof(asof_ms)
            looking = QueryLimits(lookback_ms=back * MINUTE_MS)
            result = Engine(ours, looking, cache=AppResultCache(self.results, ours)).range(*query)
            assert_same(result, Engine(fresh, looking).range(*query))
        return result.cached_steps


def _other_text(asker: Asker) -> None:
    asker.ask("m0 * 2")


def _other_step(asker: Asker) -> None:
    asker.ask(step_s=120)


def _other_phase(asker: Asker) -> None:
    asker.ask(hours=(1 + 30 / 3600, 2))


def _other_look_back(asker: Asker) -> None:
    asker.ask(back=25)


def _late_and_run(asker: Asker) -> None:
    asker.late()
    asker.run()
    asker.ask()


def _late(asker: Asker) -> None:
    asker.late()
    asker.ask()


def _retracted(asker: Asker) -> None:
    asker.world.retract(data_from=START + HOUR_MS, data_to=START + HOUR_MS + HOUR_MS // 2)
    asker.ask()


def _sealed(asker: Asker) -> None:
    asker.world.roll(now_ms=START + 60 * HOUR_MS)
    asker.world.retain(RetentionPeriods(raw_days=1), days_later=3)
    asker.ask()


def _as_of_before(asker: Asker) -> None:
    then = asker.world.clock.now_ms()
    asker.late()
    asker.run()
    asker.ask(times=3)
    asker.ask(asof_ms=then)


def _what_it_stands_at_changes(asker: Asker) -> None:
    text = f"m0 @ {(START + HOUR_MS) / 1000 + 3045}"
    asker.ask(text, hours=(3, 4), times=3)
    asker.late()
    asker.run()
    asker.ask(text, hours=(3, 4))


def _other_end(asker: Asker) -> None:
    asker.ask("m0 * 0 + end()", hours=(1, 1.75), times=3)
    asker.ask("m0 * 0 + end()")


def _beside_a_retraction(asker: Asker) -> None:
    asker.world.retract(data_from=START + HOUR_MS, data_to=START + HOUR_MS + 10 * MINUTE_MS)
    asker.ask(times=3)
    asker.ask(hours=(1.5, 1.9))


FAULTS: dict[str, tuple[object, str, object, Callable[[Asker], None]]] = {
    "text": (engine, "AnswerKey", _key_without(text=""), _other_text),
    "step": (engine, "AnswerKey", _key_without(step_ms=0), _other_step),
    "phase": (engine, "AnswerKey", _key_without(phase_ms=0), _other_phase),
    "look-back": (engine, "AnswerKey", _key_without(lookback_ms=0), _other_look_back),
    "generations": (SampleFingerprint, "of", _fingerprint_without("generations"), _late_and_run),
    "tail": (SampleFingerprint, "of", _fingerprint_without("tail"), _late),
    "retractions": (SampleFingerprint, "of", _fingerprint_without("retractions"), _retracted),
    "seals": (SampleFingerprint, "of", _fingerprint_without("seals"), _sealed),
    "as of when": (AppStorage, "fingerprint", _fingerprint_as_of_now, _as_of_before),
    "what stands still": (read_range, "_check_relative", lambda node: None, _what_it_stands_at_changes),
    "end()": (read_range, "depends_on_query", lambda text: False, _other_end),
    "what is said of it": (SampleSource, "rests_on_samples", lambda self, provenance: True, _beside_a_retraction),
}


@pytest.mark.parametrize("part", FAULTS)
def test_query_after_a_change_equals_a_computed_answer(part: str) -> None:
    asker = Asker()
    assert asker.ask(times=3) == 61
    FAULTS[part][3](asker)


@pytest.mark.parametrize("left_out", FAULTS)
def test_query_after_a_change_is_wrong_when_a_part_of_the_fingerprint_is_missing(
    left_out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, name, fault, change = FAULTS[left_out]
    asker = Asker()
    monkeypatch.setattr(place, name, fault)
    asker.ask(times=3)
    with pytest.raises(AssertionError):
        change(asker)


@dataclasses.dataclass(frozen=True)
class Renamed:
    """The fingerprints of a storage under another app's number."""

    storage: AppStorage
    app: int

    def fingerprint(self, start_ms: int, end_ms: int) -> SampleFingerprint | None:
        return self.storage.fingerprint(start_ms, end_ms)


def rolled(value: float) -> World:
    """Return an hour of one series with one value, after a run."""
    world = World()
    world.send(*((0, minute * MINUTE_MS, value) for minute in range(1, 60)))
    world.clock.advance(10 * HOUR_MS)
    world.roll()
    return world


def ask(world: World, results: ResultCache, app: int = APP) -> Result:
    engine = Engine(world.readers, cache=AppResultCache(results, Renamed(world.readers, app)))
    return engine.range("m0", START + 5 * MINUTE_MS, START + 55 * MINUTE_MS, MINUTE_MS)


def test_steps_are_cached_from_the_second_query_on() -> None:
    world, results = rolled(1.0), ResultCache(samples_min=0)
    assert [ask(world, results).cached_steps for _ in range(3)] == [0, 0, 51]


def test_steps_of_few_samples_are_not_cached() -> None:
    world, results = rolled(1.0), ResultCache(samples_min=60)
    assert [ask(world, results).cached_steps for _ in range(3)] == [0, 0, 0]
    assert len(results) == 0


def test_steps_of_another_app_are_not_used_though_all_else_is_equal() -> None:
    one, other, results = rolled(1.0), rolled(2.0), ResultCache(samples_min=0)
    for _ in range(3):
        ask(one, results)
    assert ask(other, results, APP + 1).values[0, 0] == 2.0


def test_cache_stays_within_its_bytes_and_drops_the_oldest_answers() -> None:
    key = AnswerKey(1, "m", 1, 0, 1)
    entry = CachedAnswer(
        0,
        [{}],
        np.zeros((1, 1_000)),
        np.ones((1, 1_000), np.bool_),
        (),
        Provenance(),
        SampleFingerprint((), {}, frozenset(), {}),
    )
    results = ResultCache(bytes_max=10 * entry.size)
    for app in range(50):
        results.put(dataclasses.replace(key, app=app), entry)
        assert results.size <= 10 * entry.size
    assert results.get(dataclasses.replace(key, app=49)) is entry
    assert not results.has_key(dataclasses.replace(key, app=0))
    small = ResultCache(bytes_max=3 * entry.size)
    small.put(key, entry)
    assert small.get(key) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("m", (300_000, 0)),
        ("m offset 1m", (360_000, -60_000)),
        ("m offset -1h", (-3_300_000, 3_600_000)),
        ("rate(m[5m])", (600_000, 0)),
        ("rate(m[5m] smoothed)", (900_000, 300_000)),
        ("max_over_time(rate(m[5m])[1h:1m] offset 1m)", (4_260_000, -60_000)),
        ("m + n offset 10m", (900_000, 0)),
        ("vector(1)", None),
        ("m @ 5", None),
        ("m @ end()", None),
        ("m[step()]", None),
        ("info(m)", None),
    ],
)
def test_read_range_is_what_a_step_looks_at(text: str, expected: tuple[int, int] | None) -> None:
    actual = read_range.read_range(text, parse(text, Context(0, 60_000, 1_000)), 300_000)
    assert (actual and (actual.before_ms, actual.after_ms)) == expected
