"""An answer whose steps were kept is the one that is computed, whatever was written, run or taken out between."""

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

from rollups.decide.retention import Keep
from rollups.move.redistribute import close_epoch
from rollups.run.rollback import roll_back
from spm import limits
from spm.errors import Refused
from spm.limits import HOUR_MS
from spm.query.promql import engine
from spm.query.promql.engine import Engine, QueryLimits, Result
from spm.query.promql.evaluation.sample_source import Reader
from spm.query.promql.planning import reach
from spm.query.promql.planning.plan import Context
from spm.query.promql.planning.planner import parse
from spm.query.promql.result_cache.entries import Entry, Key, Results
from spm.query.promql.result_cache.reuse import Kept
from spm.query.reader import AppStorage
from spm.query.request.provenance import Basis
from spm.query.view.fingerprint import Common, Standing
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
    """A random one, from a seed; every question of it is asked twice."""

    def __init__(self, seed: int) -> None:
        self.rng, self.world = np.random.default_rng(seed), World()
        self.results = Results(samples_min=0)
        self.kept = 0
        self.runs: list[int] = []
        rng = self.rng
        self.asked = [
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
            self.shred,
            self.retain,
            self.roll_back,
            self.spread,
            self.spread,
        ]

    def go(self, acts: int) -> int:
        """So many acts, each with questions behind it; how many steps were kept in all."""
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
        return self.kept

    def question(self) -> None:
        """One of the questions, somewhere near."""
        self.world.clock.advance(limits.TAIL_AGE_MS + 1)
        text, step, phase = self.asked[self.rng.integers(len(self.asked))]
        first = START + (phase + step * int(self.rng.integers(-5, 60 * HOURS // step))) * MINUTE_MS
        last = first + int(self.rng.integers(0, 60 * HOURS // step)) * step * MINUTE_MS
        back = int(self.rng.choice([5, 5, 5, 25])) * MINUTE_MS
        asof = self.world.clock.now_ms() - 5 * HOUR_MS if self.rng.random() < 0.1 else None
        app = self.world.readers if asof is None else self.world.readers.asof(asof)
        fresh = self.world.fresh() if asof is None else self.world.fresh().asof(asof)
        asks = text, first, last, step * MINUTE_MS
        found = Engine(app, QueryLimits(lookback_ms=back), kept=Kept(self.results, app)).range(*asks)
        assert_same(found, Engine(fresh, QueryLimits(lookback_ms=back)).range(*asks))
        self.kept += found.kept

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
        for found in read(self.world.store, APP)[:1]:
            if found.active() and not found.purged_ms:
                self.world.undo(found.number)

    def shred(self) -> None:
        for found in read(self.world.store, APP)[-1:]:
            if found.active():
                self.world.shred(found.number)
                self.roll()

    def retain(self) -> None:
        if self.rng.random() < 0.1:
            self.world.roll(now_ms=START + 60 * HOUR_MS)
            self.world.retain(Keep(raw_days=1), days_later=3)

    def roll_back(self) -> None:
        with suppress(Refused):
            roll_back(self.world.store, self.runs[-1], [APP])

    def spread(self) -> None:
        """Another way of spreading is opened, data goes there, or the way before is closed."""
        settled = self.world.spread().settled
        if settled:
            strategy, width = (HASH, BYTE)[self.rng.integers(2)], int(self.rng.integers(1, 5))
            with suppress(Refused):  # it is spread so already
                open_epoch(self.world.store, APP, strategy=strategy, shards=16, spread=width)
            self.world.clock.advance(int(self.rng.integers(0, 2 * limits.TAIL_AGE_MS)))
        if self.rng.random() < 0.6:
            self.runs.append(self.world.migrate().run)
        elif not settled:
            self.roll_minor()
            with suppress(Refused):
                close_epoch(self.world.store, APP, self.world.spread().epochs[-2].number)


def assert_same(found: Result, wanted: Result) -> None:
    """To the last bit; stretches of raw samples may be said to begin and end a little wider."""
    assert list(found.labels) == list(wanted.labels)
    assert found.present.tolist() == wanted.present.tolist()
    held = wanted.present
    assert (found.values[held].view(np.int64) == wanted.values[held].view(np.int64)).all()
    assert found.warnings == wanted.warnings
    assert _said(found) == _said(wanted)
    assert all(any(a <= c and d <= b for _, (a, b) in found.basis.runs) for _, (c, d) in wanted.basis.runs)


def _said(result: Result) -> set[str]:
    return {note for note in result.notes if not note.startswith("raw samples")}


@hypothesis.settings(max_examples=3, deadline=None)
@hypothesis.given(seed=st.integers(0, 2**32))
def test_kept_steps_are_those_that_are_computed_whatever_happens_between(seed: int) -> None:
    History(seed).go(12)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_kept_steps_are_those_that_are_computed_in_many_histories() -> None:
    kept, first = 0, int(os.environ.get("SPM_KEPT_SEED", "0"))
    for number in range(HISTORIES):
        history = History(first + number)
        try:
            kept += history.go(12)
        except AssertionError as error:
            raise AssertionError(f"history {first + number}: {error}") from error
        if number % 100 == 99:
            print(f"{number + 1} of {HISTORIES} histories, {kept} steps were kept", flush=True)
    assert kept > HISTORIES


def _standing_as_of_now(storage: AppStorage, start_ms: int, end_ms: int) -> Standing | None:
    then = copy.copy(storage)
    then._asof_ms = None
    return STANDING(then, start_ms, end_ms)


STANDING = AppStorage.standing


def _key_without(**gone: object) -> Callable[..., Key]:
    return lambda *values: dataclasses.replace(Key(*values), **gone)  # type: ignore[arg-type]


def _standing_without(part: str) -> Callable[..., Standing]:
    whole, nothing = Standing.of, TailView({}, {}, 0)

    def of(common: Common, manifests: Mapping[int, Manifest], tail: TailView) -> Standing:
        open_ = {day: msgspec.structs.replace(found, seals={}) for day, found in manifests.items()}
        found = whole(
            (common[0], common[2]) if part == "retractions" else common,
            open_ if part == "seals" else manifests,
            nothing if part == "tail" else tail,
        )
        return dataclasses.replace(found, marks={}) if part == "generations" else found

    return of


class Asker:
    """Questions to a world, each compared with what a process that has just started computes."""

    def __init__(self) -> None:
        """Four hours of a ramp with a gap in each, after a run."""
        self.world, self.results = World(), Results(samples_min=0)
        for hour in range(4):
            minutes = [minute for minute in range(1, 60) if not 20 < minute < 40]
            times = [hour * HOUR_MS + minute * MINUTE_MS + 20_000 for minute in minutes]
            self.world.send(*((0, time, time / HOUR_MS) for time in times))
        self.run()
        self.world.clock.advance(HOUR_MS)

    def run(self) -> None:
        """A full run, long after."""
        self.world.roll()

    def late(self) -> None:
        """A sample in the second hour that was not there."""
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
        """The same some times; how many steps were kept in the last."""
        asked = text, START + int(hours[0] * HOUR_MS), START + int(hours[1] * HOUR_MS), step_s * 1000
        for _ in range(times):
            self.world.clock.advance(limits.TAIL_AGE_MS + 1)
            ours, fresh = self.world.readers, self.world.fresh()
            if asof_ms is not None:
                ours, fresh = ours.asof(asof_ms), fresh.asof(asof_ms)
            looking = QueryLimits(lookback_ms=back * MINUTE_MS)
            found = Engine(ours, looking, kept=Kept(self.results, ours)).range(*asked)
            assert_same(found, Engine(fresh, looking).range(*asked))
        return found.kept


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
    asker.world.retain(Keep(raw_days=1), days_later=3)
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
    "text": (engine, "Key", _key_without(text=""), _other_text),
    "step": (engine, "Key", _key_without(step_ms=0), _other_step),
    "phase": (engine, "Key", _key_without(phase_ms=0), _other_phase),
    "look-back": (engine, "Key", _key_without(lookback_ms=0), _other_look_back),
    "generations": (Standing, "of", _standing_without("generations"), _late_and_run),
    "tail": (Standing, "of", _standing_without("tail"), _late),
    "retractions": (Standing, "of", _standing_without("retractions"), _retracted),
    "seals": (Standing, "of", _standing_without("seals"), _sealed),
    "as of when": (AppStorage, "standing", _standing_as_of_now, _as_of_before),
    "what stands still": (reach, "_check_moves", lambda node: None, _what_it_stands_at_changes),
    "end()": (reach, "depends_on_query", lambda text: False, _other_end),
    "what is said of it": (Reader, "from_samples", True, _beside_a_retraction),
}


@pytest.mark.parametrize("part", FAULTS)
def test_question_after_a_change_is_answered_as_computed(part: str) -> None:
    asker = Asker()
    assert asker.ask(times=3) == 61
    FAULTS[part][3](asker)


@pytest.mark.parametrize("left_out", FAULTS)
def test_question_after_a_change_is_wrong_when_a_part_of_what_steps_rest_on_is_left_out(
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
    """The standing of a storage under another app's number."""

    storage: AppStorage
    app: int

    def standing(self, start_ms: int, end_ms: int) -> Standing | None:
        return self.storage.standing(start_ms, end_ms)


def rolled(value: float) -> World:
    """An hour of one series, of one value, after a run."""
    world = World()
    world.send(*((0, minute * MINUTE_MS, value) for minute in range(1, 60)))
    world.clock.advance(10 * HOUR_MS)
    world.roll()
    return world


def ask(world: World, results: Results, app: int = APP) -> Result:
    engine = Engine(world.readers, kept=Kept(results, Renamed(world.readers, app)))
    return engine.range("m0", START + 5 * MINUTE_MS, START + 55 * MINUTE_MS, MINUTE_MS)


def test_steps_are_kept_from_the_second_question_on() -> None:
    world, results = rolled(1.0), Results(samples_min=0)
    assert [ask(world, results).kept for _ in range(3)] == [0, 0, 51]


def test_steps_of_few_samples_are_not_kept() -> None:
    world, results = rolled(1.0), Results(samples_min=60)
    assert [ask(world, results).kept for _ in range(3)] == [0, 0, 0]
    assert len(results) == 0


def test_steps_of_another_app_are_not_taken_though_all_else_is_alike() -> None:
    one, other, results = rolled(1.0), rolled(2.0), Results(samples_min=0)
    for _ in range(3):
        ask(one, results)
    assert ask(other, results, APP + 1).values[0, 0] == 2.0


def test_answers_take_no_more_bytes_than_they_may_and_the_oldest_go() -> None:
    key = Key(1, "m", 1, 0, 1)
    entry = Entry(
        0, [{}], np.zeros((1, 1_000)), np.ones((1, 1_000), np.bool_), (), Basis(), Standing((), {}, frozenset(), {})
    )
    results = Results(bytes_max=10 * entry.size)
    for app in range(50):
        results.keep(dataclasses.replace(key, app=app), entry)
        assert results.size <= 10 * entry.size
    assert results.find(dataclasses.replace(key, app=49)) is entry
    assert not results.knows(dataclasses.replace(key, app=0))
    small = Results(bytes_max=3 * entry.size)
    small.keep(key, entry)
    assert small.find(key) is None


@pytest.mark.parametrize(
    ("text", "wanted"),
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
def test_reach_is_what_a_step_looks_at(text: str, wanted: tuple[int, int] | None) -> None:
    found = reach.reach(text, parse(text, Context(0, 60_000, 1_000)), 300_000)
    assert (found and (found.before_ms, found.after_ms)) == wanted
