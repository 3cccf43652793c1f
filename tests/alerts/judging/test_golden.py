"""Each kind over data of which the seconds of firing and resolving were computed by hand."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from alerts.expressions import evaluate
from alerts.judging import composites
from alerts.judging.answers import Answer, Read
from alerts.judging.automaton import Timing
from alerts.judging.backtest import KnownSteps, Line, backtest, notification_times, replay
from alerts.judging.conditions import Condition, MissingPolicy
from alerts.judging.kinds import Kind, Parameters
from alerts.judging.run import Outcome
from alerts.judging.versions import RuleVersion, Steps
from spm.errors import BadQuery
from spm.query.fake import FakeStorage

STEP, HALF_HOUR, WEEK = 10_000, 1_800_000, 7 * 86_400_000
START = 2_900 * WEEK  # a half hour begins here
Points = Sequence[tuple[float, float]]  # seconds after the start, value


def reading(series: Mapping[str, Mapping[str, Points]]) -> Read:
    """Return what evaluates over samples by metric and host."""
    storage = FakeStorage()
    for metric, hosts in series.items():
        for host, points in hosts.items():
            storage.add(metric, {"host": host}, [START + int(at * 1000) for at, _ in points], [v for _, v in points])

    def read(expr: str, steps: Steps) -> Answer:
        return evaluate(storage, expr, steps)

    return read


def every_ten(first: int, last: int, value: Callable[[int], float]) -> Points:
    return [(at, value(at)) for at in range(first, last + 1, 10)]


def judged(versions: Sequence[RuleVersion], read: Read, seconds: int) -> Line:
    return backtest(versions, Steps(START, START + seconds * 1000, STEP), {}, open_read=lambda: read, active_max=100)


def stretches(line: Line, rule: int = 1) -> list[tuple[str, float, float | None, str]]:
    """Return (host, first firing second, end second, reason) of a rule."""
    return [
        (
            line.labels[key.fingerprint].get("host", ""),
            (each.start_ms - START) / 1000,
            None if each.end_ms is None else (each.end_ms - START) / 1000,
            each.reason or "",
        )
        for key, each in line.stretches()
        if key.rule == rule and key.aspect == "value"
    ]


@dataclass(frozen=True)
class Golden:
    """A rule, its data, and when it fires and ends."""

    version: RuleVersion
    points: Points
    seconds: int
    expected: list[tuple[str, float, float | None, str]] = field(default_factory=list)


def rule(kind: Kind, condition: Condition, timing: Timing = Timing(), **parameters: object) -> RuleVersion:  # noqa: B008
    return RuleVersion(1, 0, None, "x", condition, timing, kind=kind, parameters=Parameters(**parameters))  # type: ignore[arg-type]


def past_weeks(count: int) -> Points:
    """Return 9, 10, 11, 9, 10, 11 at the six times of the half hour of each past week: median 10, MAD 1."""
    return [
        ((place * HALF_HOUR / 6 - week * WEEK) / 1000, 9.0 + place % 3)
        for week in range(count, 0, -1)
        for place in range(6)
    ]


NOW = [(0, 10.0), (10, 10.0), (20, 15.0), (30, 5.0), (40, 10.0)]
CASES = {
    "a threshold fires after for, and recovers below its recovery threshold": Golden(
        rule(Kind.THRESHOLD, Condition(">", 90.0, 80.0), Timing(20_000, 10_000)),
        [(at * 10, v) for at, v in enumerate([50, 95, 95, 95, 85, 85, 70, 70, 50])],
        80,
        [("a", 30, 70, "recovered")],
    ),
    # The window holds 6 samples over 50 s, so the rate is the increase / 50: 1 + 1.8 k at 60 + 10 k s, and
    # 10 − 1.8 j at 150 + 10 j s.
    "a rate above 5 fires with the third fast sample, and ends with the third slow one": Golden(
        rule(Kind.RATE, Condition(">", 5.0), window_ms=60_000),
        every_ten(0, 240, lambda at: 1e6 + at + 9 * min(max(at - 60, 0), 90)),
        240,
        [("a", 90, 180, "recovered")],
    ),
    # The difference over 50 s, extrapolated to 60: −12 k at 60 + 10 k s, and −60 + 12 j at 120 + 10 j s.
    "a change below -30 fires with the third falling sample, and ends with the third steady one": Golden(
        rule(Kind.CHANGE, Condition("<", -30.0), window_ms=60_000),
        every_ten(0, 200, lambda at: 100.0 - min(max(at - 60, 0), 60)),
        200,
        [("a", 90, 150, "recovered")],
    ),
    "a heartbeat fires above its window, and ends with the next sample": Golden(
        rule(Kind.HEARTBEAT, Condition(">", 60.0, None, MissingPolicy.GONE), window_ms=60_000),
        [*every_ten(0, 100, float), *every_ten(300, 320, float)],
        320,
        [("a", 170, 300, "recovered")],
    ),
    "a heartbeat that is silent for forget is gone": Golden(
        rule(Kind.HEARTBEAT, Condition(">", 60.0, None, MissingPolicy.GONE), window_ms=60_000, forget_ms=120_000),
        [*every_ten(0, 100, float), *every_ten(300, 320, float)],
        320,
        [("a", 170, 220, "gone")],
    ),
    # 1000 − 5 t falls below 0 within 100 s for t > 100 s; from 160 s on the window has 9 points.
    "a forecast fires when the line crosses, and ends without data after hold": Golden(
        rule(Kind.FORECAST, Condition("<", 0.0), Timing(0, 0, 30_000), window_ms=100_000, horizon_ms=100_000),
        every_ten(0, 150, lambda at: 1000.0 - 5 * at),
        200,
        [("a", 110, 190, "no data")],
    ),
    # s = 1.4826, so a distance of 3 is 4.4478: 15 and 5 are beyond it.
    "an anomaly is beyond three deviations of the same half hour": Golden(
        rule(Kind.ANOMALY, Condition(">", 3.0)), [*past_weeks(4), *NOW], 40, [("a", 20, 40, "recovered")]
    ),
    "an anomaly learns while there are two weeks": Golden(
        rule(Kind.ANOMALY, Condition(">", 3.0)), [*past_weeks(2), *NOW], 40, []
    ),
    "an anomaly has a floor for what hardly varies": Golden(
        rule(Kind.ANOMALY, Condition(">", 3.0), spread_min=2.0), [*past_weeks(4), *NOW], 40, []
    ),
    "an anomaly of series that are not there yet fires for none": Golden(
        rule(Kind.ANOMALY, Condition(">", 3.0)), [(10_000, 5.0)], 40, []
    ),
    "an expression without a comparator decides by being in the answer": Golden(
        replace(rule(Kind.THRESHOLD, Condition()), expr="x > 90"),
        [(0, 50.0), (10, 95.0), (20, 96.0), (30, 50.0)],
        30,
        [("a", 10, 30, "recovered")],
    ),
}


@pytest.mark.seed("A35", compares="the seconds at which rules of each kind fire and end, with those worked out by hand")
@pytest.mark.parametrize("golden", CASES.values(), ids=CASES.keys())
def test_a_kind_fires_and_ends_at_the_computed_seconds(golden: Golden) -> None:
    line = judged([golden.version], reading({"x": {"a": golden.points}}), golden.seconds)
    assert stretches(line) == golden.expected


def firing_in(steps: set[int], count: int = 8) -> Points:
    return [(at * 10, 95.0 if at in steps else 50.0) for at in range(count)]


def composite(text: str, number: int = 3, by: tuple[str, ...] = ("host",)) -> RuleVersion:
    parameters = Parameters(by=by)
    return RuleVersion(number, 0, None, text, Condition(), Timing(), kind=Kind.COMPOSITE, parameters=parameters)


def part(number: int, metric: str, for_ms: int = 0) -> RuleVersion:
    return RuleVersion(number, 0, None, metric, Condition(">", 90.0), Timing(for_ms))


PARTS = {"cpu": {"a": firing_in({1, 2, 3, 4, 5}), "b": firing_in({2, 3})}, "mem": {"a": firing_in({3, 4})}}


def test_a_composite_holds_for_each_host_by_itself() -> None:
    line = judged([composite("#1 and not #2"), part(1, "cpu"), part(2, "mem")], reading(PARTS), 70)
    assert sorted(stretches(line, 3)) == [
        ("a", 10, 30, "recovered"),
        ("a", 50, 60, "recovered"),
        ("b", 20, 40, "recovered"),
    ]


def test_a_composite_rests_on_firing_and_not_on_violated_parts() -> None:
    line = judged([composite("#1 or #2"), part(1, "cpu", for_ms=30_000), part(2, "mem", 60_000)], reading(PARTS), 70)
    assert stretches(line, 3) == [("a", 40, 60, "recovered")]


def test_composites_of_composites_are_judged_in_their_order() -> None:
    versions = [composite("#4 and #2", 3), part(2, "mem"), composite("#1", 4), part(1, "cpu")]
    assert stretches(judged(versions, reading(PARTS), 70), 3) == [("a", 30, 50, "recovered")]


def test_composites_that_name_each_other_are_errors_and_stop_no_other_rule() -> None:
    line = judged([composite("#4", 3), composite("#3", 4), part(1, "cpu")], reading(PARTS), 70)
    assert {each.key.rule for each in line.transitions if each.key.aspect == "error"} == {3, 4}
    assert stretches(line, 1)


REFUSED = {
    "nothing but not": "not #1",
    "an expression": "cpu > 5",
    "an open bracket": "(#1 and #2",
    "two rules side by side": "#1 #2",
    "no rule": "()",
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED.keys())
def test_a_composite_is_refused_that_names(text: str) -> None:
    with pytest.raises(BadQuery):
        composites.parse(text)


def test_chunks_of_a_backtest_give_what_single_steps_give() -> None:
    version = CASES["a threshold fires after for, and recovers below its recovery threshold"].version
    points = [(at * 10, v) for at, v in enumerate([50, 95, 95, 95, 85, 85, 70, 70, 50] * 3)]
    read, steps = reading({"x": {"a": points}}), Steps(START, START + 260_000, STEP)
    whole = backtest([version], steps, {}, open_read=lambda: read, active_max=9)
    line = Line({})
    for at in range(len(steps)):
        own = Steps(steps.at_ms(at), steps.at_ms(at), STEP)
        states = line.states_at(own.first_ms - STEP)
        part = backtest([version], own, states, open_read=lambda: read, active_max=9)
        outcome = Outcome(tuple(part.transitions), part.states_at(own.last_ms), part.labels)
        line.replace_after(own.first_ms - STEP, outcome)
    assert line.transitions == whole.transitions


def test_a_replay_knows_the_labels_of_what_is_missing_at_an_operation() -> None:
    read = reading({"cpu": {"a": firing_in({0, 1, 2, 3}, 4)}, "mem": {"b": firing_in(set(), 60)}})
    versions = [replace(part(1, "last_over_time(cpu[5s])"), timing=Timing(hold_ms=300_000)), composite("#1")]
    operations = [KnownSteps(START - STEP, START + 30_000, read), KnownSteps(START + 30_000, START + 90_000, read)]
    *_, said = replay(versions, operations, {}, period_ms=STEP, active_max=9)
    assert stretches(said.line, 3) == [("a", 0, None, "")]


def test_a_receiver_gets_one_notification_in_an_interval() -> None:
    line = judged([part(1, "cpu")], reading({"cpu": {"a": firing_in({1, 3, 5}), "b": firing_in({1})}}), 70)
    own = [each for _, each in line.stretches()]
    assert len(notification_times(own, wait_ms=5_000, interval_ms=10_000)) == 6
    assert len(notification_times(own, wait_ms=5_000, interval_ms=60_000)) == 2
