"""The order of rules that read alerts: at each step after those that they see, and the others together before them."""

from dataclasses import replace

import numpy as np
import pytest

from alerts.expressions import evaluator_of
from alerts.judging.answers import Answer, Labels, Read
from alerts.judging.automaton import InstanceState, Phase, Timing
from alerts.judging.backtest import backtest
from alerts.judging.conditions import Condition
from alerts.judging.instances.keys import Aspect, InstanceKey, States
from alerts.judging.kinds import Kind
from alerts.judging.readers.order import may_read, order
from alerts.judging.readers.run_alerts import RunAlerts
from alerts.judging.run import Outcome, run
from alerts.judging.versions import AlertNaming, RuleVersion, Steps, by_rule
from alerts.recording.judged_alerts import with_run_alerts
from spm.query.fake import STALE, FakeStorage

STEPS = Steps(0, 50, 10)


def rule(number: int, expr: str, *, place: int = 0, file: str = "f", name: str = "") -> RuleVersion:
    naming = AlertNaming(name or f"R{number}", (), file, (0, place))
    return RuleVersion(number, 0, None, expr, Condition(), Timing(), alert=naming)


class Session:
    """Evaluates over a storage, and counts the evaluations that see no alerts of the run."""

    def __init__(self, storage: FakeStorage) -> None:
        self.storage, self.shared = storage, list[tuple[str, Steps]]()

    def __call__(self, expr: str, steps: Steps, /) -> Answer:
        self.shared.append((expr, steps))
        return evaluator_of(self.storage)(expr, steps)

    def with_alerts(self, alerts: RunAlerts) -> Read:
        return evaluator_of(with_run_alerts(self.storage, alerts))


CPU = {"cpu": [1.0, 1.0, 9.0, 9.0, 1.0, 1.0]}


def session() -> Session:
    storage = FakeStorage()
    for metric, values in CPU.items():
        storage.add(metric, {"host": "a"}, range(0, 60, 10), values)
    return Session(storage)


def judged(rules: list[RuleVersion], chunks: list[Steps]) -> tuple[Outcome, ...]:
    states: States = {}
    labels: dict[str, Labels] = {}
    outcomes: list[Outcome] = []
    for chunk in chunks:
        outcomes.append(run(rules, chunk, states, read=session(), active_max=10, labels=labels))
        states, labels = outcomes[-1].states, {**labels, **outcomes[-1].labels}
    return tuple(outcomes)


def fired(outcomes: tuple[Outcome, ...], number: int) -> list[tuple[int, str]]:
    """Return when a rule began and ended to fire."""
    return [
        (each.at_ms, each.after.phase.value) for one in outcomes for each in one.transitions if each.key.rule == number
    ]


BUSY, READS = "cpu > 5", 'ALERTS{alertname="R1", alertstate="firing"}'
AT_ONCE, A_STEP_LATER = [(20, "firing"), (40, "ok")], [(30, "firing"), (50, "ok")]
ORDERS = {
    "behind it in the file": ([rule(1, BUSY), rule(2, READS, place=1)], AT_ONCE),
    "before it in the file": ([rule(1, BUSY, place=1), rule(2, READS)], A_STEP_LATER),
    "before it in another file": ([rule(1, BUSY, place=1), rule(2, READS, file="e")], AT_ONCE),
    "in no file, and with a smaller number": ([rule(3, BUSY, file="", name="R1"), rule(2, READS, file="")], AT_ONCE),
}
CHUNKS = {"at once": [STEPS], "step by step": [Steps(at_ms, at_ms, 10) for at_ms in range(0, 60, 10)]}


@pytest.mark.parametrize("chunks", CHUNKS.values(), ids=CHUNKS.keys())
@pytest.mark.parametrize(("rules", "expected"), ORDERS.values(), ids=ORDERS.keys())
def test_a_reader_sees_what_rules_before_it_say_of_the_same_step(
    rules: list[RuleVersion], expected: list[tuple[int, str]], chunks: list[Steps]
) -> None:
    assert fired(judged(rules, chunks), 2) == expected


@pytest.mark.parametrize("chunks", CHUNKS.values(), ids=CHUNKS.keys())
def test_readers_of_readers_follow_each_other(chunks: list[Steps]) -> None:
    second = rule(3, 'ALERTS{alertname="R2"}', place=2)
    assert fired(judged([rule(1, BUSY), rule(2, READS, place=1), second], chunks), 3) == AT_ONCE


@pytest.mark.parametrize("chunks", CHUNKS.values(), ids=CHUNKS.keys())
def test_a_rule_that_reads_itself_sees_the_step_before(chunks: list[Steps]) -> None:
    lasting = rule(2, 'count(cpu > 5) or count(ALERTS{alertname="R2"})')
    assert fired(judged([lasting], chunks), 2) == [(20, "firing")]


@pytest.mark.parametrize("chunks", CHUNKS.values(), ids=CHUNKS.keys())
def test_a_composite_of_a_reader_follows_it(chunks: list[Steps]) -> None:
    composite = replace(rule(3, "#2", file=""), kind=Kind.COMPOSITE)
    assert fired(judged([rule(1, BUSY), rule(2, READS, place=1), composite], chunks), 3) == AT_ONCE


@pytest.mark.parametrize("chunk_steps", [1, 100])
def test_a_backtest_sees_alerts_of_the_chunks_before(chunk_steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alerts.judging.limits.BACKTEST_CHUNK_STEPS", chunk_steps)
    twice = rule(2, 'count_over_time(ALERTS{alertname="R1"}[1s]) >= 2', place=1)
    line = backtest([rule(1, BUSY), twice], STEPS, {}, open_read=session, active_max=10)
    assert [(each.at_ms, each.after.phase) for each in line.transitions if each.key.rule == 2] == [(30, Phase.FIRING)]


def test_rules_that_read_no_alerts_are_judged_together_before_all_readers() -> None:
    one = session()
    run([rule(1, BUSY, place=1), rule(2, READS), rule(3, BUSY, place=2)], STEPS, {}, read=one, active_max=10)
    assert one.shared == [(BUSY, STEPS), (BUSY, STEPS)]


def test_the_order_is_that_of_files_groups_and_places() -> None:
    rules = [rule(4, "ALERTS", place=1), rule(1, BUSY), rule(2, "ALERTS", place=5, file="a"), rule(3, "ALERTS")]
    judging_order = order(by_rule(rules))
    assert (judging_order.first, judging_order.late, judging_order.is_stepwise) == ([1], [2, 3, 4], True)


MATCHES = {
    'ALERTS{alertname="Busy"}': True,
    'ALERTS{alertname="Other"}': False,
    'ALERTS_FOR_STATE{alertname=~"B.*"}': True,
    'ALERTS{severity="critical"}': False,
    'ALERTS{team="a"}': True,  # the rule's label is a template
    '{alertname="Busy"}': True,
    '{__name__=~"AL.*"}': True,
    "cpu": False,
    "((": False,
}


@pytest.mark.parametrize(("expr", "expected"), MATCHES.items(), ids=MATCHES.keys())
def test_whether_an_expression_may_read_an_alert(expr: str, expected: bool) -> None:
    naming = AlertNaming("Busy", (("severity", "warning"), ("team", "{{ $labels.team }}")))
    assert may_read(expr, naming) is expected
    assert not may_read(expr, replace(naming, name=""))


def seen(stored: FakeStorage, alerts: RunAlerts, expr: str, at_ms: int) -> list[float]:
    answer = evaluator_of(with_run_alerts(stored, alerts))(expr, Steps(at_ms, at_ms, 10))
    return [float(value) for value in answer.values[answer.present]]


def alerts_of(states: dict[InstanceKey, InstanceState]) -> RunAlerts:
    naming = AlertNaming("Busy", (("team", "a"),))
    return RunAlerts(Steps(100, 120, 10), states, [], {1: 120}, {1: naming}, {"x": {"host": "h"}}, frozenset({"Busy"}))


FIRING = {InstanceKey(1, "x", Aspect.VALUE): InstanceState(Phase.FIRING, 60, 60, 50)}
LABELS = {"alertname": "Busy", "host": "h", "team": "a", "alertstate": "firing"}


def test_alerts_of_a_run_take_the_place_of_stored_ones() -> None:
    stored = FakeStorage().add("ALERTS", LABELS, [90, 100, 110], [1.0, STALE, STALE])
    assert seen(stored, alerts_of(FIRING), "ALERTS", 110) == [1.0]
    assert seen(stored, alerts_of(FIRING), "count_over_time(ALERTS[1m])", 110) == [3.0]
    assert seen(stored, alerts_of(FIRING), "ALERTS_FOR_STATE", 110) == [0.05]


def test_what_is_stored_of_an_alert_that_the_run_does_not_have_ends() -> None:
    stored = FakeStorage().add("ALERTS", LABELS, [80, 90, 100, 110], [1.0] * 4)
    assert seen(stored, alerts_of({}), "ALERTS", 90) == [1.0]
    assert seen(stored, alerts_of({}), "ALERTS", 110) == []


def test_alerts_that_others_sent_stay() -> None:
    stored = FakeStorage().add("ALERTS", {**LABELS, "alertname": "Theirs"}, [100, 110], [1.0, 1.0])
    assert seen(stored, alerts_of({}), "ALERTS", 110) == [1.0]
    assert np.isfinite(seen(stored, alerts_of(FIRING), "sum(ALERTS)", 110)).all()
