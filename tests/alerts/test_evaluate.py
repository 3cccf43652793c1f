"""Looks at rules: states and messages in one transaction, each change told once, whatever dies or doubles."""

from collections.abc import Callable
from contextlib import suppress
from unittest.mock import patch

import pytest
from django.contrib.auth.models import User
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alerts import evaluate, journal, rulebook
from alerts.models import Alert, AlertEvent, Outbox, Rule
from alerts.readings import Reading, fingerprint
from alerts.rules import Standing, step
from spm import limits
from spm.accounts.models import App
from spm.clock import FakeClock
from spm.errors import BadQuery, StoreUnavailable
from tests.alerts.conftest import PERIOD_MS, START_MS, Machine, Watch, draft

pytestmark = pytest.mark.django_db
MakeRule = Callable[..., Rule]


def told() -> list[str]:
    """The states in the outbox, in order."""
    return [message.payload["state"] for message in Outbox.objects.order_by("pk")]


def events() -> list[str]:
    return [event.state for event in AlertEvent.objects.order_by("pk")]


def test_crossing_and_coming_back_is_one_pair_of_messages(make_rule: MakeRule, watch: Watch) -> None:
    make_rule(for_ms=20_000)
    watch.see(50, 95, 95, 95, 95, 50, 50)
    assert told() == ["firing", "resolved"]
    assert events() == ["pending", "firing", "resolved"]


def test_a_spike_shorter_than_for_is_history_without_a_message(make_rule: MakeRule, watch: Watch) -> None:
    make_rule(for_ms=20_000)
    watch.see(95, 50)
    assert (told(), events()) == ([], ["pending", "inactive"])
    assert not Alert.objects.exists()


def test_each_series_has_a_state_of_its_own(make_rule: MakeRule, watch: Watch) -> None:
    make_rule()
    watch.machine.values = {"a": 95, "b": 50, "c": 99}
    watch.tick()
    assert {alert.labels["host"] for alert in Alert.objects.all()} == {"a", "c"}
    assert len(told()) == 2


def test_the_message_holds_what_people_need(make_rule: MakeRule, watch: Watch) -> None:
    rule = make_rule(severity="critical")
    watch.see(97.5)
    message = Outbox.objects.get()
    assert message.key == f"{rule.pk}:{fingerprint({'__name__': 'cpu', 'host': 'a'})}:{START_MS}:firing"
    assert message.payload["value"] == "97.5"
    assert message.payload["receivers"] == ["ops@example.org"]
    assert message.app_id == rule.app_id


def test_a_rule_is_judged_once_per_period_on_the_grid(make_rule: MakeRule, watch: Watch) -> None:
    make_rule()
    watch.clock.advance(3_456)
    assert [watch.tick().judged for _ in range(3)] == [1, 0, 0]
    assert watch.machine.asked[0][2] == START_MS


def test_a_watchman_who_slept_looks_at_now_only(make_rule: MakeRule, watch: Watch) -> None:
    make_rule(for_ms=60_000)
    watch.see(95)
    watch.clock.advance(3_600_000)
    watch.see(95)
    assert told() == ["firing"]
    assert len(watch.machine.asked) == 2


def test_a_rule_switched_off_is_not_looked_at(make_rule: MakeRule, watch: Watch) -> None:
    make_rule(enabled=False)
    watch.see(95)
    assert watch.machine.asked == []


@pytest.mark.parametrize("error", [BadQuery("what is this"), StoreUnavailable("away")])
def test_an_error_stands_on_the_rule_and_keeps_its_states(
    make_rule: MakeRule, watch: Watch, error: BadQuery | StoreUnavailable
) -> None:
    rule = make_rule()
    watch.see(95)
    watch.machine.error = error
    watch.see(95)
    rule.refresh_from_db()
    assert rule.error == str(error)
    assert Alert.objects.get().state == "firing"
    watch.machine.error = None
    watch.see(50)
    rule.refresh_from_db()
    assert (rule.error, told()) == ("", ["firing", "resolved"])


def test_one_rule_that_crashes_does_not_keep_the_others_waiting(make_rule: MakeRule, watch: Watch) -> None:
    make_rule(expr="broken")
    make_rule(expr="good")

    def ask(app: int, expr: str, at_ms: int) -> list[Reading]:
        if expr == "broken":
            raise ZeroDivisionError
        return [Reading({"host": "a"}, 95.0)]

    tally = evaluate.tick(ask=ask, clock=watch.clock)
    assert (tally.judged, tally.failed, tally.messages) == (1, 1, 1)


def test_too_many_violated_series_are_said_not_hidden(
    make_rule: MakeRule, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RULE_ACTIVE_MAX", 3)
    rule = make_rule()
    watch.machine.values = {f"host-{number}": 95.0 for number in range(5)}
    watch.tick()
    rule.refresh_from_db()
    assert Alert.objects.count() == 3
    assert rule.error.startswith("2 more series")


def test_of_two_overlapping_ticks_one_gets_the_rule(make_rule: MakeRule, watch: Watch) -> None:
    rule = make_rule()
    now_ms = watch.clock.now_ms()
    assert evaluate.claim(rule.pk, now_ms) is not None
    assert evaluate.claim(rule.pk, now_ms) is None
    assert watch.tick().judged == 0


def test_a_claim_whose_holder_died_runs_out(make_rule: MakeRule, watch: Watch) -> None:
    rule = make_rule()
    evaluate.claim(rule.pk, watch.clock.now_ms())
    watch.clock.advance(limits.RULE_CLAIM_MS)
    assert watch.tick().judged == 1


def test_a_holder_who_comes_back_too_late_writes_nothing(make_rule: MakeRule, watch: Watch) -> None:
    rule = make_rule()
    ticket = evaluate.claim(rule.pk, watch.clock.now_ms())
    assert ticket is not None
    watch.clock.advance(limits.RULE_CLAIM_MS)
    watch.see(50)
    late = [Reading({"host": "a"}, 95.0)]
    assert evaluate.settle_look(rule, ticket, late, at_ms=START_MS, error="") is None
    assert not Alert.objects.exists()


def test_a_clock_that_was_ahead_does_not_stop_the_watch(make_rule: MakeRule, watch: Watch) -> None:
    make_rule()
    watch.clock.jump(86_400_000)
    watch.see(50)
    watch.clock.jump(-86_400_000)
    assert watch.tick().judged == 1


def test_the_same_change_cannot_be_told_twice(make_rule: MakeRule, watch: Watch) -> None:
    rule = make_rule()
    watch.see(95)
    Alert.objects.all().delete()
    Rule.objects.filter(pk=rule.pk).update(evaluated_ms=0)
    watch.clock.advance(-PERIOD_MS)
    assert watch.tick().failed == 1
    assert told() == ["firing"]


def test_a_change_outside_a_transaction_is_our_own_mistake(make_rule: MakeRule) -> None:
    rule = make_rule()
    with pytest.raises(AssertionError, match="BUG"):
        _outside_transactions(rule)


def _outside_transactions(rule: Rule) -> None:
    with patch("alerts.journal.transaction.get_connection") as connection:
        connection.return_value.in_atomic_block = False
        journal.record(rule, [], {}, at_ms=1)


class Crash(BaseException):
    """Stands for kill -9: nothing catches it."""


STEPS = ["ask", "confirm", "standings", "events", "outbox", "commit"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.lists(st.sampled_from([50.0, 95.0, None]), min_size=1, max_size=12),
    crashes=st.lists(st.sampled_from([*STEPS, ""]), min_size=12, max_size=12),
    for_ms=st.sampled_from([0, 20_000]),
    keep_ms=st.sampled_from([0, 20_000]),
)
def test_a_crash_between_any_two_steps_and_a_retry_tell_each_change_once(
    app: App, people: dict[str, User], values: list[float | None], crashes: list[str], for_ms: int, keep_ms: int
) -> None:
    Rule.objects.all().delete()
    Outbox.objects.all().delete()
    machine, clock = Machine(), FakeClock(START_MS)
    wanted = draft(for_ms=for_ms, keep_firing_for_ms=keep_ms)
    rule = rulebook.write(app, wanted, by=people["edda"], now_ms=START_MS)
    for value, crash in zip(values, crashes, strict=False):
        machine.values = {} if value is None else {"a": value}
        _tick_and_crash(machine, clock, crash)
        Rule.objects.filter(pk=rule.pk).update(claim_until_ms=0)  # as if the claim had run out
        evaluate.tick(ask=machine.ask, clock=clock)
        clock.advance(PERIOD_MS)

    states = [event.state for event in AlertEvent.objects.filter(rule=rule).order_by("pk")]
    assert states == _plain_history(rule, values)
    assert told() == [state for state in states if state in ("firing", "resolved")]


def _tick_and_crash(machine: Machine, clock: FakeClock, crash: str) -> None:
    """One look that dies at the named step, or after its commit, or does not even begin."""
    places = {
        "ask": (Machine, "ask"),
        "confirm": (journal, "standings"),
        "standings": (journal, "_write_standings"),
        "events": (AlertEvent.objects, "bulk_create"),
        "outbox": (Outbox.objects, "bulk_create"),
    }
    if crash in places:
        with patch.object(*places[crash], side_effect=Crash), suppress(Crash):
            evaluate.tick(ask=machine.ask, clock=clock)
    elif crash == "commit":
        evaluate.tick(ask=machine.ask, clock=clock)


def _plain_history(rule: Rule, values: list[float | None]) -> list[str]:
    """What the state machine alone makes of the values."""
    standing, changes = Standing(), []
    for number, value in enumerate(values):
        after = step(rule.condition, standing, value, START_MS + number * PERIOD_MS)
        if after.state is not standing.state:
            changes.append(after.state.value)
        standing = after
    return changes
