"""Lanes: every step judged once, in order; states, events and episodes in one transaction, whatever crashes."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alerts import episodes, evaluate, journal, rulebook
from alerts.judging.answers import Answer, Read
from alerts.judging.automaton import OK, Input, step
from alerts.judging.instances.keys import InstanceKey
from alerts.judging.knowledge.sight import Sight
from alerts.judging.lane_plan import Decision, News, OperationKind
from alerts.judging.lane_plan import Operation as Plan
from alerts.judging.selections import Traits, traits_of
from alerts.judging.versions import Steps
from alerts.models import AlertEvent, Episode, Instance, Lane, Operation, Rule, RuleVersionRow
from alerts.models.telling import LastWord
from alerts.pages.presenters import row_of
from alerts.telling import hook
from spm.accounts.models import App
from spm.clock import FakeClock
from spm.errors import BadQuery, StoreUnavailable
from tests.alerts.conftest import PERIOD_MS, START_MS, AlertingWorld, draft

pytestmark = pytest.mark.django_db
MakeRule = Callable[..., Rule]


def statuses() -> list[str]:
    """Return the statuses of all episodes, in the order in which they were written."""
    return list(Episode.objects.order_by("pk").values_list("status", flat=True))


def events() -> list[str]:
    return [event.state for event in AlertEvent.objects.order_by("pk") if event.before != event.state]


def recorded(values: Sequence[float | None], start_ms: int = START_MS) -> Callable[[int], Read]:
    """Return sessions that answer a value per step from ``start_ms`` on."""

    def open_session(app: int) -> Read:
        def read(expr: str, steps: Steps) -> Answer:
            places = [(steps.at_ms(n) - start_ms) // PERIOD_MS for n in range(len(steps))]
            column = [values[place] if 0 <= place < len(values) else None for place in places]
            row = np.array([[np.nan if value is None else value for value in column]])
            return Answer([{"host": "a"}], row, np.array([[value is not None for value in column]]))

        return read

    return open_session


def test_crossing_and_coming_back_is_one_episode(make_rule: MakeRule, world: AlertingWorld) -> None:
    make_rule(for_ms=20_000)
    world.evaluate_values(50, 95, 95, 95, 95, 50, 50)
    assert statuses() == ["ended"]
    assert events() == ["pending", "firing", "ok"]


def test_a_spike_shorter_than_for_is_history_without_an_episode(make_rule: MakeRule, world: AlertingWorld) -> None:
    make_rule(for_ms=20_000)
    world.evaluate_values(95, 50)
    assert (statuses(), events()) == ([], ["pending", "ok"])
    assert not Instance.objects.exists()


def test_each_series_has_a_state_of_its_own(make_rule: MakeRule, world: AlertingWorld) -> None:
    make_rule()
    world.machine.values = {"a": 95, "b": 50, "c": 99}
    world.evaluate()
    assert {instance.labels["host"] for instance in Instance.objects.all()} == {"a", "c"}
    assert statuses() == ["open", "open"]


def test_a_step_is_judged_once_and_never_before_its_time(make_rule: MakeRule, world: AlertingWorld) -> None:
    make_rule()
    world.clock.advance(3_456)
    assert [world.evaluate().evaluated for _ in range(3)] == [1, 0, 0]
    assert world.machine.queries[0][2] == START_MS


def test_after_a_stall_all_missed_steps_are_judged_in_order(make_rule: MakeRule, world: AlertingWorld) -> None:
    make_rule()
    world.clock.advance(500 * PERIOD_MS)
    values = [50.0] * 100 + [95.0] * 7 + [50.0] * 400
    counts = evaluate.evaluate_due_lanes(observe=evaluate.at_present(recorded(values), world.clock), clock=world.clock)
    assert counts.evaluated == 2
    episode = Episode.objects.get()
    assert (episode.start_ms, episode.end_ms) == (START_MS + 100 * PERIOD_MS, START_MS + 107 * PERIOD_MS)
    assert list(Operation.objects.order_by("seq").values_list("after_ms", "upto_ms")) == [
        (START_MS - PERIOD_MS, START_MS + 359 * PERIOD_MS),
        (START_MS + 359 * PERIOD_MS, START_MS + 500 * PERIOD_MS),
    ]


def test_steps_of_the_day_before_yesterday_are_skipped_on_record(make_rule: MakeRule, world: AlertingWorld) -> None:
    make_rule()
    world.clock.advance(30 * 3_600_000)
    world.evaluate()
    kinds = list(Operation.objects.order_by("seq").values_list("kind", flat=True))
    assert kinds[0] == "skip"
    assert set(kinds[1:]) == {"judge"}
    assert Lane.objects.get().position_ms == START_MS + 30 * 3_600_000


def test_an_edit_is_judged_from_its_step_on_even_after_a_stall(
    make_rule: MakeRule, world: AlertingWorld, people: dict[str, User]
) -> None:
    rule = make_rule()
    session = recorded([95.0] * 40)
    evaluate.evaluate_due_lanes(observe=evaluate.at_present(session, world.clock), clock=world.clock)
    rulebook.change(rule, draft(threshold=99.0), by=people["edda"], now_ms=world.clock.now_ms())
    world.clock.advance(30 * PERIOD_MS)
    evaluate.evaluate_due_lanes(observe=evaluate.at_present(session, world.clock), clock=world.clock)
    episode = Episode.objects.get()
    assert (episode.start_ms, episode.end_ms) == (START_MS, START_MS + PERIOD_MS)


def test_a_rule_switched_off_is_not_judged(make_rule: MakeRule, world: AlertingWorld) -> None:
    make_rule(enabled=False)
    world.evaluate_values(95)
    assert world.machine.queries == []


def test_an_error_is_recorded_and_keeps_the_states(make_rule: MakeRule, world: AlertingWorld) -> None:
    make_rule()
    world.evaluate_values(95)
    world.machine.error = BadQuery("what is this")
    world.evaluate_values(95)
    assert {each.aspect: (each.phase, each.detail) for each in Instance.objects.all()} == {
        "value": ("firing", ""),
        "error": ("pending", "what is this"),
    }
    world.machine.error = None
    world.evaluate_values(50)
    assert not Instance.objects.exists()
    assert statuses() == ["ended"]


def test_a_store_that_does_not_answer_delays_the_lane_and_loses_no_step(
    make_rule: MakeRule, world: AlertingWorld
) -> None:
    make_rule()
    world.machine.error = StoreUnavailable("away")
    world.evaluate_values(95, 95)
    assert Lane.objects.get().waiting == "away"
    assert not Operation.objects.exists()
    world.machine.error = None
    world.evaluate_values(95)
    assert Lane.objects.get().waiting == ""
    assert Episode.objects.get().start_ms == START_MS


def test_one_lane_that_crashes_does_not_keep_the_others_waiting(
    make_rule: MakeRule, world: AlertingWorld, foreign_app: App, people: dict[str, User]
) -> None:
    rule = make_rule()
    rulebook.write(foreign_app, draft(), by=people["mallory"], now_ms=world.clock.now_ms())
    world.machine.values = {"a": 95}

    def open_session(app: int) -> Read:
        if app == rule.app_id:
            raise ZeroDivisionError
        return world.machine.open_session(app)

    counts = evaluate.evaluate_due_lanes(observe=evaluate.at_present(open_session, world.clock), clock=world.clock)
    assert (counts.evaluated, counts.failed, statuses()) == (1, 1, ["open"])


def test_too_many_violated_series_are_reported_not_hidden(
    make_rule: MakeRule, world: AlertingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluate, "RULE_ACTIVE_MAX", 3)
    make_rule()
    world.machine.values = {f"host-{number}": 95.0 for number in range(5)}
    world.evaluate()
    assert Instance.objects.filter(aspect="value").count() == 3
    assert Instance.objects.get(aspect="error").detail.startswith("2 more series")


def test_of_two_overlapping_rounds_one_gets_the_lane(make_rule: MakeRule, world: AlertingWorld) -> None:
    make_rule()
    lane, now_ms = Lane.objects.get(), world.clock.now_ms()
    assert evaluate.claim(lane.pk, now_ms)
    assert not evaluate.claim(lane.pk, now_ms)
    assert world.evaluate().evaluated == 0
    world.clock.advance(60_000)
    assert world.evaluate().evaluated == 1


def test_a_judge_that_comes_second_writes_nothing(make_rule: MakeRule, world: AlertingWorld) -> None:
    make_rule()
    lane, plan = Lane.objects.get(), Plan(OperationKind.JUDGE, START_MS - PERIOD_MS, START_MS)
    world.evaluate_values(50)
    stale = evaluate.judge(
        lane, Decision(plan), evaluate.at_present(recorded([95.0]), world.clock)(lane), now_ms=START_MS
    )
    assert not stale
    assert not Instance.objects.exists()
    assert Operation.objects.count() == 1


def test_a_clock_that_was_ahead_is_put_right_and_what_it_saw_is_void(make_rule: MakeRule, world: AlertingWorld) -> None:
    make_rule()
    session = recorded([50.0] * 40 + [95.0] * 200)
    evaluate.evaluate_due_lanes(observe=evaluate.at_present(session, world.clock), clock=world.clock)
    world.clock.jump(600_000)
    evaluate.evaluate_due_lanes(observe=evaluate.at_present(session, world.clock), clock=world.clock)
    assert statuses() == ["open"]
    world.clock.jump(-600_000)
    evaluate.evaluate_due_lanes(observe=evaluate.at_present(session, world.clock), clock=world.clock)
    assert Operation.objects.first().kind == "rewind"  # type: ignore[union-attr]  # there is one
    assert (Episode.objects.get().status, Instance.objects.count()) == ("void", 0)
    assert AlertEvent.objects.filter(superseded_seq=None).count() == 0
    assert Lane.objects.get().position_ms == START_MS


def test_unchanged_rules_cost_two_rows_for_the_whole_lane(make_rule: MakeRule, world: AlertingWorld) -> None:
    for _ in range(20):
        make_rule()
    world.evaluate_values(95)
    with CaptureQueriesContext(connection) as queries:
        world.evaluate()
    writes = [each["sql"].split('"')[1] for each in queries if each["sql"].startswith(("UPDATE", "INSERT", "DELETE"))]
    assert writes == ["alerts_lane", "alerts_lane", "alerts_operation", "alerts_lane"]


def test_slow_rules_of_one_tenant_delay_another_by_less_than_a_period(
    make_rule: MakeRule, world: AlertingWorld, foreign_app: App, people: dict[str, User]
) -> None:
    """Five hundred rules take 50 s a step; meanwhile each beat of the schedule is another thread of the worker."""
    first = make_rule()
    slow_app, content = first.app, journal.content_of(first)
    times = {"created_ms": START_MS, "changed_ms": START_MS}
    rules = Rule.objects.bulk_create(Rule(app=slow_app, name="slow", expr="cpu", **times) for _ in range(499))
    RuleVersionRow.objects.bulk_create(
        RuleVersionRow(rule=rule, from_ms=START_MS, seq=0, content={**content, "expr": f"cpu + {rule.pk}"})
        for rule in rules
    )
    rulebook.write(foreign_app, draft(), by=people["mallory"], now_ms=START_MS)
    lags, beat_ms = list[int](), [START_MS]

    def beat() -> None:
        beat_ms[0] = world.clock.now_ms() + 2_000
        evaluate.evaluate_due_lanes(observe=evaluate.at_present(open_session, world.clock), clock=world.clock)
        lags.append(world.clock.now_ms() - Lane.objects.get(app=foreign_app).position_ms)

    def open_session(app: int) -> Read:
        read = world.machine.open_session(app)

        def read_slowly(expr: str, steps: Steps) -> Answer:
            if app == slow_app.pk:
                world.clock.advance(100)
                if world.clock.now_ms() >= beat_ms[0]:
                    beat()
            return read(expr, steps)

        return read_slowly

    for _ in range(2):
        world.clock.advance(PERIOD_MS)
        beat()
    assert Lane.objects.get(app=slow_app).position_ms >= START_MS + PERIOD_MS
    assert len(lags) > 40
    assert max(lags) < 2 * PERIOD_MS  # a step is a period old when the next one is due


class Crash(BaseException):
    """Simulates kill -9: nothing catches it."""


CRASHES = ["query", "operation", "events", "states", "episodes", "marks", "commit", ""]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.lists(st.sampled_from([50.0, 95.0, None]), min_size=1, max_size=12),
    crashes=st.lists(st.sampled_from(CRASHES), min_size=12, max_size=12),
    for_ms=st.sampled_from([0, 20_000]),
    keep_ms=st.sampled_from([0, 20_000]),
)
def test_a_crash_between_any_two_steps_and_a_retry_write_and_mark_each_episode_once(
    app: App, people: dict[str, User], values: list[float | None], crashes: list[str], for_ms: int, keep_ms: int
) -> None:
    for model in (Rule, Lane):
        model.objects.all().delete()
    clock = FakeClock(START_MS)
    rule_draft = draft(for_ms=for_ms, keep_firing_for_ms=keep_ms, hold_ms=30_000)
    rule = rulebook.write(app, rule_draft, by=people["edda"], now_ms=START_MS)
    session = recorded(values)
    for _, crash in zip(values, crashes, strict=False):
        _evaluate_and_crash(session, clock, crash)
        Lane.objects.update(lease_until_ms=0)  # as if the lease had run out
        evaluate.evaluate_due_lanes(observe=evaluate.at_present(session, clock), clock=clock)
        clock.advance(PERIOD_MS)

    phases = _plain_history(rule, values)
    assert events() == phases
    fires = AlertEvent.objects.filter(state="firing").exclude(before__in=("firing", "recovering"))
    assert Episode.objects.count() == fires.count()
    assert list(LastWord.objects.order_by("episode").values_list("episode")) == list(
        Episode.objects.order_by("pk").values_list("pk")
    )


def _evaluate_and_crash(session: Callable[[int], Read], clock: FakeClock, crash: str) -> None:
    """Run one round that crashes at the named step, or after its commit, or does not begin."""
    patches = {
        "query": (journal, "versions_between"),
        "operation": (Operation.objects, "create"),
        "events": (AlertEvent.objects, "bulk_create"),
        "states": (journal, "_write_instances"),
        "episodes": (episodes, "follow"),
        "marks": (hook, "_write_words"),
    }
    if crash in patches:
        with patch.object(*patches[crash], side_effect=Crash), suppress(Crash):
            evaluate.evaluate_due_lanes(observe=evaluate.at_present(session, clock), clock=clock)
    elif crash == "commit":
        evaluate.evaluate_due_lanes(observe=evaluate.at_present(session, clock), clock=clock)


def _plain_history(rule: Rule, values: list[float | None]) -> list[str]:
    """Return the phases that the automaton alone gives for the values."""
    state, changes = OK, []
    for number, value in enumerate(values):
        given_input = Input.MISSING if value is None else Input.VIOLATED if value > rule.threshold else Input.WELL
        after = step(rule.timing, state, given_input, START_MS + number * PERIOD_MS)
        if after.phase is not state.phase:
            changes.append(after.phase.value)
        state = after
    return changes


def faulty(expr: str, fault: Exception, values: Sequence[float | None]) -> Callable[[int], Read]:
    """Return sessions in which reading one expression fails, and all others answer these values."""

    def open_session(app: int) -> Read:
        good = recorded(values)(app)

        def read(text: str, steps: Steps) -> Answer:
            if text == expr:
                raise fault
            return good(text, steps)

        return read

    return open_session


def test_a_fault_while_one_rule_is_judged_is_its_error_and_the_other_rules_go_on(
    make_rule: MakeRule, world: AlertingWorld
) -> None:
    broken, well = make_rule(expr="broken"), make_rule(expr="cpu")
    world.clock.advance(3 * PERIOD_MS)
    evaluate.evaluate_due_lanes(
        observe=evaluate.at_present(faulty("broken", AssertionError("BUG: no column"), [95.0] * 20), world.clock),
        clock=world.clock,
    )
    [error] = Instance.objects.filter(rule=broken)
    assert (error.aspect, "AssertionError: BUG: no column" in error.detail) == ("error", True)
    assert row_of(broken).status == "error"
    assert [each.phase for each in Instance.objects.filter(rule=well)] == ["firing"]


def test_a_store_that_does_not_answer_is_no_error_of_a_rule(make_rule: MakeRule, world: AlertingWorld) -> None:
    rule = make_rule(expr="broken")
    position_ms = Lane.objects.get().position_ms
    world.clock.advance(3 * PERIOD_MS)
    away = faulty("broken", StoreUnavailable("away"), [])
    counts = evaluate.evaluate_due_lanes(observe=evaluate.at_present(away, world.clock), clock=world.clock)
    assert (counts.failed, Lane.objects.get().position_ms) == (1, position_ms)
    assert not Instance.objects.filter(rule=rule).exists()


def error_of(rule: Rule) -> str:
    """The text of the error of a rule."""
    return Instance.objects.get(rule=rule, aspect="error").detail


def test_a_version_that_cannot_be_read_is_its_rules_error_and_the_other_rules_go_on(
    make_rule: MakeRule, world: AlertingWorld
) -> None:
    broken, _ = make_rule(), make_rule()
    world.evaluate_values(95, 95)
    content = RuleVersionRow.objects.get(rule=broken).content
    RuleVersionRow.objects.filter(rule=broken).update(content={"expr": "cpu"})
    world.evaluate_values(95, 50, 50)
    assert "KeyError" in error_of(broken)
    phases = {each.rule_id: each.phase for each in Instance.objects.filter(aspect="value")}
    assert phases == {broken.pk: "firing"}, "the broken rule keeps its state, the other one has recovered"
    RuleVersionRow.objects.filter(rule=broken).update(content=content)
    world.evaluate_values(50)
    assert not Instance.objects.exists()
    assert statuses() == ["ended"] * 2 + ["ended"], "an alert of each rule, and one of the error"


def test_changes_that_cannot_be_written_are_their_rules_error_and_the_other_rules_go_on(
    make_rule: MakeRule, world: AlertingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = [make_rule() for _ in range(7)]
    broken, original = rules[2], journal._instance

    def refusing(key: InstanceKey, *rest: Any) -> Instance:
        if key.rule == broken.pk and key.aspect == "value":
            raise TypeError("no column takes this")
        return original(key, *rest)

    monkeypatch.setattr(journal, "_instance", refusing)
    world.evaluate_values(95, 95, 95)
    assert "TypeError: no column takes this" in error_of(broken)
    fired = Instance.objects.filter(phase="firing", aspect="value").order_by("rule")
    assert [each.rule for each in fired] == [each for each in rules if each != broken]
    assert not AlertEvent.objects.filter(rule=broken, aspect="value").exists()
    assert Operation.objects.count() == 3, "each step was committed once"


def test_an_expression_whose_traits_fail_stops_no_other_rule_when_data_comes_late(
    make_rule: MakeRule, world: AlertingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, well = make_rule(expr="broken"), make_rule()
    world.evaluate_values(50, 50, 50)

    def traits(expr: str) -> Traits:
        if expr == "broken":
            raise RecursionError("too deep")
        return traits_of(expr)

    monkeypatch.setattr(evaluate, "traits_of", traits)
    lane = Lane.objects.get()
    read = recorded([95.0] * 20)(broken.app_id)
    upto_ms = lane.position_ms
    plan = Plan(OperationKind.JUDGE, upto_ms - 2 * PERIOD_MS, upto_ms, None)
    now_ms = world.clock.now_ms()
    decision = Decision(plan, news=News(upto_ms - PERIOD_MS, traits_of("cpu").metrics))
    assert evaluate.judge(lane, decision, Sight(read, now_ms, now_ms, now_ms), now_ms=now_ms)
    assert {each.rule_id for each in Instance.objects.filter(phase="firing")} == {broken.pk, well.pk}


def test_a_lane_that_a_fault_stops_says_so(make_rule: MakeRule, world: AlertingWorld) -> None:
    make_rule()
    world.clock.advance(PERIOD_MS)

    def observe(lane: Lane) -> Sight:
        raise AssertionError("BUG: no sight")

    assert evaluate.evaluate_due_lanes(observe=observe, clock=world.clock).failed == 1
    assert Lane.objects.get().waiting == "A fault of this service: AssertionError: BUG: no sight"
