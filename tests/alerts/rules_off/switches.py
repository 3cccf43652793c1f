"""The rules of judging, each with what is done instead when it is off, the switch, and the claims that then fail.

A switch breaks our own code in one place. A claim is a test of the suite, or a part of one; it gets the fixtures that
it names.
"""

import copy
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from alerts import evaluate, journal, watch
from alerts.judging import lane_plan, limits, reconciliation
from alerts.judging import run as run_module
from alerts.judging.answers import Labels, Read
from alerts.judging.automaton import Input, InstanceState, Timing, step
from alerts.judging.instances.keys import EndReason, InstanceKey
from alerts.judging.knowledge import frontier
from alerts.judging.knowledge.frontier import AcceptorSight, Frontier
from alerts.judging.knowledge.patience import SourceTimes, ready_ms
from alerts.judging.knowledge.sight import KeptKnowledge
from alerts.judging.lane_plan import Decision, News
from alerts.judging.versions import RuleVersion
from alerts.models import Instance, Lane, Operation
from alerts.recording.sessions import open_session
from alerts.telling import limits as telling_limits
from alerts.telling.decide import decision, inhibition
from ingest.accept import announcer
from spm.limits import RULE_PERIOD_MS
from spm.query.reader import AppStorage
from spm.store.backends.base import Backend
from spm.store.ledger import rounds
from tests.alerts import test_evaluate, test_knowledge
from tests.alerts.judging import test_reconciliation, test_run
from tests.alerts.judging.knowledge import test_frontier
from tests.alerts.rules_off import claims
from tests.alerts.telling.decide import test_decision, test_inhibition

Patch = pytest.MonkeyPatch


@dataclass(frozen=True, slots=True)
class Off:
    """One rule: its name, what is done instead, how our code is broken, and the claim that must fail."""

    name: str
    instead: str
    switch: Callable[[Patch], None]
    claim: Callable[..., object]


def _each(table: Any, claim: Callable[..., object]) -> Callable[[], None]:
    """Return a claim over all cases of a table."""

    def all_cases() -> None:
        for case in table.values():
            claim(*case)

    return all_cases


def keep_e(patch: Patch) -> None:
    def known_at_the_end(operation: Operation) -> KeptKnowledge:
        return KeptKnowledge(bytes(operation.lane.vector), tuple(operation.retractions))

    patch.setattr(Operation, "knowledge", property(known_at_the_end))


def keep_r(patch: Patch) -> None:
    def retracted_at_the_end(operation: Operation) -> KeptKnowledge:
        return KeptKnowledge(bytes(operation.vector), tuple(operation.lane.retractions))

    patch.setattr(Operation, "knowledge", property(retracted_at_the_end))


def keep_rules(patch: Patch) -> None:
    original = journal.versions_between

    def versions_between(lane: Lane, after_ms: int, upto_ms: int) -> list[RuleVersion]:
        newest = [each for each in original(lane, 0, 1 << 60) if each.until_ms is None]
        return [replace(each, from_ms=0) for each in newest]

    patch.setattr(journal, "versions_between", versions_between)


def e_first(patch: Patch) -> None:
    def open_with_news(app: int, known: AppStorage) -> Read:
        later = copy.copy(known)
        later._knowledge = None
        return open_session(app, later)

    patch.setattr(watch, "open_session", open_with_news)


def op_cas(patch: Patch) -> None:
    original = journal._take_number

    def take(lane: Lane, *others: Any) -> bool:
        lane.seq = Lane.objects.get(pk=lane.pk).seq
        return original(lane, *others)

    patch.setattr(journal, "_take_number", take)


def _deciding(patch: Patch, change: Callable[[Decision], Decision]) -> None:
    original = lane_plan.decide

    def decide(*arguments: Any, **named: Any) -> Decision | None:
        decided = original(*arguments, **named)
        return None if decided is None else change(decided)

    patch.setattr(evaluate, "decide", decide)


def in_order(patch: Patch) -> None:
    def newest(decided: Decision) -> Decision:
        operation = decided.operation
        return replace(decided, operation=replace(operation, after_ms=operation.upto_ms - RULE_PERIOD_MS))

    _deciding(patch, newest)


def catch_hold(patch: Patch) -> None:
    patch.setattr(telling_limits, "CATCH_UP_LAG_MS", 1 << 60)


def same_tx(patch: Patch) -> None:
    patch.setattr(journal, "transaction", SimpleNamespace(atomic=nullcontext))


def pipeline_time(patch: Patch) -> None:
    def ready(sources: dict[str, SourceTimes], frontier_ms: int) -> int:
        return min(frontier_ms, ready_ms(sources, frontier_ms + limits.WAIT_MAX_MS))

    patch.setattr(watch, "ready_ms", ready)


def causal(patch: Patch) -> None:
    def look(self: Frontier, at_ms: int, acceptors: dict[int, AcceptorSight]) -> int:
        return min((each.at_ms for each in acceptors.values()), default=at_ms)

    patch.setattr(Frontier, "look", look)


def probe_first(patch: Patch) -> None:
    original = Frontier.look
    patch.setattr(Frontier, "look", lambda self, at_ms, acceptors: original(self, at_ms + 3_000, acceptors))


def probe_all(patch: Patch) -> None:
    original = Frontier.look

    def look(self: Frontier, at_ms: int, acceptors: dict[int, AcceptorSight]) -> int:
        alive = {number: each for number, each in acceptors.items() if not self.is_gone(number, each, at_ms)}
        return original(self, at_ms, alive or acceptors)

    patch.setattr(Frontier, "look", look)


def register(patch: Patch) -> None:
    def put(backend: Backend, present: rounds.Round) -> None:
        if present.number:
            rounds.put(backend, present)

    patch.setattr(announcer, "rounds", SimpleNamespace(put=put))


def gone_words(patch: Patch) -> None:
    patch.setattr(AcceptorSight, "is_settled", property(lambda self: True))


def due_patience(patch: Patch) -> None:
    def ready(sources: dict[str, SourceTimes], frontier_ms: int) -> int:
        waits = [2 * each.period_ms + each.lag_ms for each in sources.values() if each.due_ms <= frontier_ms]
        return frontier_ms - max(waits, default=0)

    patch.setattr(watch, "ready_ms", ready)


def median_clock(patch: Patch) -> None:
    for module in (frontier, test_frontier):
        patch.setattr(module, "median_now", lambda judge_ms, acceptors_ms, sources_ms: judge_ms)


def rewind(patch: Patch) -> None:
    patch.setattr(limits, "REWIND_AFTER_MS", 1 << 60)


def behind_holds(patch: Patch) -> None:
    patch.setattr(evaluate, "incomplete_at", lambda steps, behind_ms: None)


def behind_again(patch: Patch) -> None:
    original = lane_plan._joined
    patch.setattr(lane_plan, "_joined", lambda reasons: original(list(reasons)[:2]))


def amend(patch: Patch) -> None:
    original = lane_plan.decide
    patch.setattr(evaluate, "decide", lambda *lane, **named: original(*lane, **{**named, "news": lambda: None}))


def amend_all(patch: Patch) -> None:
    original = lane_plan._begin

    def begin(lane: lane_plan.LaneState, news: News | None, period_ms: int) -> int:
        return max(original(lane, news, period_ms), lane.position_ms - 3 * period_ms)

    patch.setattr(lane_plan, "_begin", begin)


def match(patch: Patch) -> None:
    patch.setattr(
        reconciliation.Span, "meets", lambda span, start_ms, end_ms: (span.start_ms, span.end_ms) == (start_ms, end_ms)
    )


def merge(patch: Patch) -> None:
    original = reconciliation._without_stretch
    patch.setattr(
        reconciliation, "_without_stretch", lambda span, matched, position_ms: original(span, [], position_ms)
    )


def hold_bound(patch: Patch) -> None:
    def stepped(timing: Timing, state: InstanceState, given: Input, at_ms: int) -> InstanceState:
        return step(replace(timing, hold_ms=1 << 60), state, given, at_ms)

    patch.setattr(run_module, "step", stepped)


def edit_keeps(patch: Patch) -> None:
    original = run_module._Fold.judge

    def judge(fold: Any, rule: int, version: RuleVersion, before: RuleVersion | None, steps: Any) -> None:
        if before is not None:
            fold._end_all([key for key in fold.states if key.rule == rule], EndReason.EDITED, steps.first_ms)
        original(fold, rule, version, before, steps)

    patch.setattr(run_module._Fold, "judge", judge)


def delete_ends(patch: Patch) -> None:
    def forget(fold: Any, keys: Sequence[InstanceKey], reason: EndReason, at_ms: int) -> None:
        for key in list(keys):
            fold.states.pop(key)

    patch.setattr(run_module._Fold, "_end_all", forget)


def exposed(patch: Patch) -> None:
    patch.setattr(decision, "is_exposed", lambda covers, **times: True)


def inhibit_order(patch: Patch) -> None:
    patch.setattr(inhibition, "precedes", lambda source, target: source.id != target.id)


def quiet_writes(patch: Patch) -> None:
    original = journal._write_instances

    def write(before: journal.LaneStates, outcome: run_module.Outcome, labels: dict[str, Labels]) -> None:
        original(before, outcome, labels)
        for row in Instance.objects.all():
            row.save()

    patch.setattr(journal, "_write_instances", write)


RULES = (
    Off("keep_e", "a replay reads what is known at the end", keep_e, claims.a_replay_of_a_short_history_is_live),
    Off("keep_r", "a replay applies the retractions of the end", keep_r, claims.a_replay_of_a_short_history_is_live),
    Off(
        "keep_rules",
        "all steps are judged by the rules of today",
        keep_rules,
        claims.a_step_before_an_edit_keeps_its_rule,
    ),
    Off("e_first", "data is read that E does not hold", e_first, claims.a_verdict_rests_on_what_its_k_holds),
    Off("op_cas", "the last writer wins", op_cas, test_evaluate.test_a_judge_that_comes_second_writes_nothing),
    Off(
        "in_order",
        "after a stall only the newest step is judged",
        in_order,
        test_evaluate.test_after_a_stall_all_missed_steps_are_judged_in_order,
    ),
    Off(
        "catch_hold",
        "what is told while a lane catches up may be long over",
        catch_hold,
        _each(test_decision.CASES, lambda *case: test_decision.test_each_circumstance_has_its_line(case)),
    ),
    Off("same_tx", "position, line and episodes are written one by one", same_tx, claims.a_crash_tears_nothing),
    Off(
        "pipeline_time",
        "patience runs ahead of the frontier",
        pipeline_time,
        claims.a_source_that_is_late_is_waited_for,
    ),
    Off("causal", "the frontier is the acceptors' clocks", causal, claims.all_up_to_the_frontier_is_known),
    Off("probe_first", "the time of a probe is taken last", probe_first, claims.all_up_to_the_frontier_is_known),
    Off("probe_all", "probes leave silent acceptors out", probe_all, claims.all_up_to_the_frontier_is_known),
    Off("register", "an acceptor is seen from its first round on", register, claims.a_new_acceptor_is_waited_for),
    Off("gone_words", "a gone acceptor is forgotten", gone_words, claims.all_up_to_the_frontier_is_known),
    Off(
        "due_patience",
        "patience counts from every step",
        due_patience,
        test_knowledge.test_a_host_that_dies_delays_the_lane_once,
    ),
    Off(
        "median_clock",
        "now is the judge's clock",
        median_clock,
        lambda: test_frontier.test_one_family_of_clocks_may_be_wrong(9_000, [101, 99], [98, 102], 99),
    ),
    Off(
        "rewind",
        "a position ahead of now waits for time to catch up",
        rewind,
        test_evaluate.test_a_clock_that_was_ahead_is_put_right_and_what_it_saw_is_void,
    ),
    Off(
        "behind_holds",
        "absences are judged while the pipeline is behind",
        behind_holds,
        claims.a_stall_judges_no_absence,
    ),
    Off("behind_again", "steps judged behind are not judged again", behind_again, claims.a_stall_is_made_good),
    Off(
        "amend",
        "late data changes no verdict",
        amend,
        test_knowledge.test_late_data_amends_the_verdict_and_the_episode_follows,
    ),
    Off(
        "amend_all",
        "only the newest three steps are judged again",
        amend_all,
        test_knowledge.test_late_data_amends_the_verdict_and_the_episode_follows,
    ),
    Off(
        "match",
        "an episode that moves is another one",
        match,
        _each(test_reconciliation.TABLE, test_reconciliation.test_episodes_follow_the_stretches),
    ),
    Off(
        "merge",
        "an episode that became a part of another is void",
        merge,
        _each(test_reconciliation.TABLE, test_reconciliation.test_episodes_follow_the_stretches),
    ),
    Off(
        "hold_bound",
        "missing data keeps an alert for ever",
        hold_bound,
        _each(test_run.GOLDEN, test_run.test_a_series_has_the_transitions_that_a_person_computes),
    ),
    Off(
        "edit_keeps",
        "an edited rule begins anew",
        edit_keeps,
        test_run.test_an_edit_of_threshold_or_waits_keeps_the_state,
    ),
    Off(
        "delete_ends", "what a deleted rule has vanishes", delete_ends, test_run.test_a_deleted_rule_ends_its_instances
    ),
    Off(
        "exposed",
        "an alert that was over in its silence is told after it",
        exposed,
        _each(test_decision.CASES, lambda *case: test_decision.test_each_circumstance_has_its_line(case)),
    ),
    Off(
        "inhibit_order",
        "alerts may inhibit each other in a ring",
        inhibit_order,
        test_inhibition.test_of_alerts_that_all_inhibit_each_other_one_is_free,
    ),
    Off(
        "quiet_writes",
        "every instance is written at every step",
        quiet_writes,
        test_evaluate.test_unchanged_rules_cost_two_rows_for_the_whole_lane,
    ),
)
