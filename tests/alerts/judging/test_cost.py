"""What judging does once, however many rules there are: comparing, distances, parsing, looking."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from alerts import evaluate, journal, rulebook
from alerts.judging import limits
from alerts.judging import run as runs
from alerts.judging.answers import Answer, Read
from alerts.judging.automaton import Timing
from alerts.judging.backtest import KnownSteps, replay
from alerts.judging.conditions import Condition, MissingPolicy
from alerts.judging.instances import rows
from alerts.judging.kinds import Kind
from alerts.judging.knowledge.sight import Sight
from alerts.judging.run import run
from alerts.judging.versions import RuleVersion, Steps
from alerts.models import Lane
from spm.accounts.models import App
from tests.alerts.conftest import PERIOD_MS, AlertingWorld, draft

STEPS = Steps(0, 90, 10)
OVER = Condition(">", 90.0)


def version(rule: int, **changes: Any) -> RuleVersion:
    return replace(RuleVersion(rule, 0, None, "cpu", OVER, Timing(for_ms=10 * rule)), **changes)


def session(value: float) -> Read:
    """Answer as a session does: the same expression at the same steps with the same answer."""
    answers: dict[tuple[str, Steps], Answer] = {}

    def read(expr: str, steps: Steps) -> Answer:
        values = np.full((1, len(steps)), value)
        return answers.setdefault((expr, steps), Answer([{"host": "a"}], values, np.ones(values.shape, np.bool_)))

    return read


def calls_of(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[tuple[Any, ...]]:
    """Return a list that gets the arguments of each call of a function."""
    calls, real = list[tuple[Any, ...]](), getattr(module, name)

    def called(*arguments: Any) -> Any:
        calls.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(module, name, called)
    return calls


def test_rules_that_differ_in_their_durations_compare_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = calls_of(monkeypatch, rows, "classify")
    versions = [version(rule) for rule in range(1, 9)] + [version(9, condition=Condition(">", 80.0))]
    outcome = run(versions, STEPS, {}, read=session(95.0), active_max=9)
    assert len(calls) == 2
    assert [outcome.states[key].start_ms for key in sorted(outcome.states)] == [10 * rule for rule in range(1, 10)]


def test_a_rule_of_absences_compares_nothing_while_nothing_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = calls_of(monkeypatch, rows, "classify")
    alert = Condition(">", 90.0, missing=MissingPolicy.ALERT)
    assert not run([version(1, condition=alert)], STEPS, {}, read=session(50.0), active_max=9).states
    assert calls == []


def test_rules_of_one_anomaly_look_at_past_weeks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = calls_of(monkeypatch, runs, "distances")
    run([version(rule, kind=Kind.ANOMALY) for rule in range(1, 9)], STEPS, {}, read=session(50.0), active_max=9)
    assert len(calls) == 1


def test_an_operation_changes_the_end_of_a_line_and_copies_none() -> None:
    read = session(95.0)
    operations = [KnownSteps(10 * at, 10 * at + 10, read) for at in range(50)]
    versions = [version(1, timing=Timing())]
    lines = [each.line for each in replay(versions, operations, {}, period_ms=10, active_max=9)]
    assert {id(line) for line in lines} == {id(lines[0])}


@pytest.mark.django_db
def test_what_begins_to_fire_costs_as_many_statements_for_many_rules_as_for_few(app: App, world: AlertingWorld) -> None:
    def statements(rules: int) -> int:
        for number in range(rules):
            rulebook.write(app, draft(name=f"r{number}"), by=None, now_ms=world.clock.now_ms())
        world.evaluate_values(50.0)
        with CaptureQueriesContext(connection) as queries:
            world.evaluate_values(95.0)
        world.evaluate_values(50.0)
        return len(queries)

    few = statements(3)
    assert statements(30) <= few


@pytest.mark.django_db
def test_a_version_is_parsed_once(app: App, world: AlertingWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    rulebook.write(app, draft(expr="cpu * 17"), by=None, now_ms=world.clock.now_ms())
    calls = calls_of(monkeypatch, journal, "version_from")
    world.evaluate_values(50.0, 50.0, 50.0)
    assert len(calls) == 1


@pytest.mark.django_db
def test_an_app_is_looked_at_once_for_steps_that_are_one_chunk(app: App, world: AlertingWorld) -> None:
    rulebook.write(app, draft(), by=None, now_ms=world.clock.now_ms())
    observe, looks = evaluate.at_present(world.machine.open_session, world.clock), list[int]()

    def look(lane: Lane) -> Sight:
        looks.append(lane.position_ms)
        return observe(lane)

    evaluate.evaluate_due_lanes(observe=look, clock=world.clock)
    assert len(looks) == 1
    world.clock.advance(2 * limits.CHUNK_STEPS_MAX * PERIOD_MS)
    counts = evaluate.evaluate_due_lanes(observe=look, clock=world.clock)
    assert (counts.evaluated, len(looks)) == (2, 4)
    assert Lane.objects.get().position_ms == world.clock.now_ms()
