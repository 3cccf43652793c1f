"""Evaluations of rules: states and messages in one transaction, each change reported once despite crashes."""

from collections.abc import Callable
from contextlib import suppress
from unittest.mock import patch

import pytest
from django.contrib.auth.models import User
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alerts import evaluate, journal, rulebook
from alerts.expressions import SeriesValue, fingerprint
from alerts.models import Alert, AlertEvent, Outbox, Rule
from alerts.rules import SeriesState, step
from spm import limits
from spm.accounts.models import App
from spm.clock import FakeClock
from spm.errors import BadQuery, StoreUnavailable
from tests.alerts.conftest import PERIOD_MS, START_MS, AlertingWorld, Machine, draft

pytestmark = pytest.mark.django_db
MakeRule = Callable[..., Rule]


def reported_states() -> list[str]:
    """Return the states of the messages in the outbox, in order."""
    return [message.payload["state"] for message in Outbox.objects.order_by("pk")]


def events() -> list[str]:
    return [event.state for event in AlertEvent.objects.order_by("pk")]


def test_crossing_and_coming_back_is_one_pair_of_messages(make_rule: MakeRule, world: AlertingWorld) -> None:
    make_rule(for_ms=20_000)
    world.evaluate_values(50, 95, 95, 95, 95, 50, 50)
    assert reported_states() == ["firing", "resolved"]
    assert events() == ["pending", "firing", "resolved"]


def test_a_spike_shorter_than_for_is_history_without_a_message(make_rule: MakeRule, world: AlertingWorld) -> None:
    make_rule(for_ms=20_000)
    world.evaluate_values(95, 50)
    assert (reported_states(), events()) == ([], ["pending", "inactive"])
    assert not Alert.objects.exists()


def test_each_series_has_a_state_of_its_own(make_rule: MakeRule, world: AlertingWorld) -> None:
    make_rule()
    world.machine.values = {"a": 95, "b": 50, "c": 99}
    world.evaluate()
    assert {alert.labels["host"] for alert in Alert.objects.all()} == {"a", "c"}
    assert len(reported_states()) == 2


def test_the_message_holds_what_people_need(make_rule: MakeRule, world: AlertingWorld) -> None:
    rule = make_rule(severity="critical")
    world.evaluate_values(97.5)
    message = Outbox.objects.get()
    assert message.key == f"{rule.pk}:{fingerprint({'__name__': 'cpu', 'host': 'a'})}:{START_MS}:firing"
    assert message.payload["value"] == "97.5"
    assert message.payload["receivers"] == ["ops@example.org"]
    assert message.app_id == rule.app_id


def test_a_rule_is_evaluated_once_per_period_on_the_grid(make_rule: MakeRule, world: AlertingWorld) -> None:
    make_rule()
    world.clock.advance(3_456)
    assert [world.evaluate().evaluated for _ in range(3)] == [1, 0, 0]
    assert world.machine.queries[0][2] == START_MS


def test_after_a_pause_only_the_present_is_evaluated(make_rule: MakeRule, world: AlertingWorld) -> None:
    make_rule(for_ms=60_000)
    world.evaluate_values(95)
    world.clock.advance(3_600_000)
    world.evaluate_values(95)
    assert reported_states() == ["firing"]
    assert len(world.machine.queries) == 2


def test_a_rule_switched_off_is_not_evaluated(make_rule: MakeRule, world: AlertingWorld) -> None:
    make_rule(enabled=False)
    world.evaluate_values(95)
    assert world.machine.queries == []


@pytest.mark.parametrize("error", [BadQuery("what is this"), StoreUnavailable("away")])
def test_an_error_is_recorded_on_the_rule_and_keeps_its_states(
    make_rule: MakeRule, world: AlertingWorld, error: BadQuery | StoreUnavailable
) -> None:
    rule = make_rule()
    world.evaluate_values(95)
    world.machine.error = error
    world.evaluate_values(95)
    rule.refresh_from_db()
    assert rule.error == str(error)
    assert Alert.objects.get().state == "firing"
    world.machine.error = None
    world.evaluate_values(50)
    rule.refresh_from_db()
    assert (rule.error, reported_states()) == ("", ["firing", "resolved"])


def test_one_rule_that_crashes_does_not_keep_the_others_waiting(make_rule: MakeRule, world: AlertingWorld) -> None:
    make_rule(expr="broken")
    make_rule(expr="good")

    def query(app: int, expr: str, at_ms: int) -> list[SeriesValue]:
        if expr == "broken":
            raise ZeroDivisionError
        return [SeriesValue({"host": "a"}, 95.0)]

    tally = evaluate.evaluate_due_rules(querier=query, clock=world.clock)
    assert (tally.evaluated, tally.failed, tally.messages) == (1, 1, 1)


def test_too_many_violated_series_are_reported_not_hidden(
    make_rule: MakeRule, world: AlertingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RULE_ACTIVE_MAX", 3)
    rule = make_rule()
    world.machine.values = {f"host-{number}": 95.0 for number in range(5)}
    world.evaluate()
    rule.refresh_from_db()
    assert Alert.objects.count() == 3
    assert rule.error.startswith("2 more series")


def test_of_two_overlapping_rounds_one_gets_the_rule(make_rule: MakeRule, world: AlertingWorld) -> None:
    rule = make_rule()
    now_ms = world.clock.now_ms()
    assert evaluate.claim(rule.pk, now_ms) is not None
    assert evaluate.claim(rule.pk, now_ms) is None
    assert world.evaluate().evaluated == 0


def test_the_claim_of_a_dead_process_expires(make_rule: MakeRule, world: AlertingWorld) -> None:
    rule = make_rule()
    evaluate.claim(rule.pk, world.clock.now_ms())
    world.clock.advance(limits.RULE_CLAIM_MS)
    assert world.evaluate().evaluated == 1


def test_a_process_that_lost_its_claim_writes_nothing(make_rule: MakeRule, world: AlertingWorld) -> None:
    rule = make_rule()
    claim_id = evaluate.claim(rule.pk, world.clock.now_ms())
    assert claim_id is not None
    world.clock.advance(limits.RULE_CLAIM_MS)
    world.evaluate_values(50)
    values = [SeriesValue({"host": "a"}, 95.0)]
    assert evaluate.record_evaluation(rule, claim_id, values, at_ms=START_MS, error="") is None
    assert not Alert.objects.exists()


def test_a_clock_that_was_ahead_does_not_stop_the_evaluation(make_rule: MakeRule, world: AlertingWorld) -> None:
    make_rule()
    world.clock.jump(86_400_000)
    world.evaluate_values(50)
    world.clock.jump(-86_400_000)
    assert world.evaluate().evaluated == 1


def test_a_change_cannot_be_reported_twice(make_rule: MakeRule, world: AlertingWorld) -> None:
    rule = make_rule()
    world.evaluate_values(95)
    Alert.objects.all().delete()
    Rule.objects.filter(pk=rule.pk).update(evaluated_ms=0)
    world.clock.advance(-PERIOD_MS)
    assert world.evaluate().failed == 1
    assert reported_states() == ["firing"]


def test_a_change_outside_a_transaction_is_our_own_mistake(make_rule: MakeRule) -> None:
    rule = make_rule()
    with pytest.raises(AssertionError, match="BUG"):
        _outside_transactions(rule)


def _outside_transactions(rule: Rule) -> None:
    with patch("alerts.journal.transaction.get_connection") as connection:
        connection.return_value.in_atomic_block = False
        journal.record(rule, [], {}, at_ms=1)


class Crash(BaseException):
    """Simulates kill -9: nothing catches it."""


STEPS = ["query", "confirm", "states", "events", "outbox", "commit"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.lists(st.sampled_from([50.0, 95.0, None]), min_size=1, max_size=12),
    crashes=st.lists(st.sampled_from([*STEPS, ""]), min_size=12, max_size=12),
    for_ms=st.sampled_from([0, 20_000]),
    keep_ms=st.sampled_from([0, 20_000]),
)
def test_a_crash_between_any_two_steps_and_a_retry_report_each_change_once(
    app: App, people: dict[str, User], values: list[float | None], crashes: list[str], for_ms: int, keep_ms: int
) -> None:
    Rule.objects.all().delete()
    Outbox.objects.all().delete()
    machine, clock = Machine(), FakeClock(START_MS)
    rule_draft = draft(for_ms=for_ms, keep_firing_for_ms=keep_ms)
    rule = rulebook.write(app, rule_draft, by=people["edda"], now_ms=START_MS)
    for value, crash in zip(values, crashes, strict=False):
        machine.values = {} if value is None else {"a": value}
        _evaluate_and_crash(machine, clock, crash)
        Rule.objects.filter(pk=rule.pk).update(claim_until_ms=0)  # as if the claim had expired
        evaluate.evaluate_due_rules(querier=machine.query, clock=clock)
        clock.advance(PERIOD_MS)

    states = [event.state for event in AlertEvent.objects.filter(rule=rule).order_by("pk")]
    assert states == _plain_history(rule, values)
    assert reported_states() == [state for state in states if state in ("firing", "resolved")]


def _evaluate_and_crash(machine: Machine, clock: FakeClock, crash: str) -> None:
    """Run one evaluation that crashes at the named step, or after its commit, or does not begin."""
    patches = {
        "query": (Machine, "query"),
        "confirm": (journal, "series_states"),
        "states": (journal, "_write_series_states"),
        "events": (AlertEvent.objects, "bulk_create"),
        "outbox": (Outbox.objects, "bulk_create"),
    }
    if crash in patches:
        with patch.object(*patches[crash], side_effect=Crash), suppress(Crash):
            evaluate.evaluate_due_rules(querier=machine.query, clock=clock)
    elif crash == "commit":
        evaluate.evaluate_due_rules(querier=machine.query, clock=clock)


def _plain_history(rule: Rule, values: list[float | None]) -> list[str]:
    """Return the states that the state machine alone gives for the values."""
    state, changes = SeriesState(), []
    for number, value in enumerate(values):
        after = step(rule.condition, state, value, START_MS + number * PERIOD_MS)
        if after.state is not state.state:
            changes.append(after.state.value)
        state = after
    return changes
