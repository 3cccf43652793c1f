"""Reads the states of a lane at a step, and commits operations: states, transitions, episodes and messages at once.

``commit`` takes the lane's next number by a conditional update; a judge that comes second writes nothing. An operation
that goes back behind the lane's position replaces what was said of those steps: transitions that no longer hold are
marked, states and episodes follow. Unchanged rules cost two rows for the whole lane: its own and the operation's.
"""

import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

from django.db import InterfaceError, OperationalError, transaction
from django.db.models import F, Q, TextField
from django.db.models.functions import Cast

from alerts import episodes
from alerts.judging.answers import Labels
from alerts.judging.automaton import OK, InstanceState, Phase, Timing
from alerts.judging.conditions import Condition, MissingPolicy
from alerts.judging.instances.keys import InstanceKey, States, Transition
from alerts.judging.kinds import Kind, Parameters
from alerts.judging.knowledge.patience import not_waited_for
from alerts.judging.knowledge.sight import Sight
from alerts.judging.lane_plan import Decision
from alerts.judging.limits import OWED_METRICS_MAX, VERSIONS_KEPT_MAX
from alerts.judging.readers.order import is_reader
from alerts.judging.run import Outcome, fault_text
from alerts.judging.versions import AlertNaming, Closing, RuleVersion
from alerts.models import AlertEvent, Instance, Lane, ManualEnd, Operation, Rule, RuleVersionRow
from spm.errors import SpmError

log = logging.getLogger("spm.alerts")
WORLD_ERRORS = (SpmError, OSError, MemoryError, OperationalError, InterfaceError)  # of no rule: they concern all


@dataclass(frozen=True, slots=True)
class LaneStates:
    """The states of a lane's instances at a step, the rows that have them now, and the transitions after the step."""

    states: States
    rows: Mapping[InstanceKey, Instance]
    later: tuple[AlertEvent, ...]

    @property
    def labels(self) -> dict[str, Labels]:
        """The labels of these instances, by fingerprint."""
        labels: dict[str, Labels] = {key.fingerprint: row.labels for key, row in self.rows.items()}
        return labels | {event.fingerprint: event.labels for event in self.later}


@dataclass(frozen=True, slots=True)
class Part:
    """What an operation says of some of the rules, which it judged from the step after ``after_ms`` on."""

    after_ms: int
    before: LaneStates
    outcome: Outcome

    @property
    def rules(self) -> frozenset[int]:
        """The rules of which it says anything."""
        keys = [*self.before.rows, *self.outcome.states, *(each.key for each in self.outcome.transitions)]
        return frozenset(key.rule for key in keys) | {event.rule_id for event in self.before.later}

    def of(self, rules: Collection[int]) -> "Part":
        """Return what it says of some rules."""
        before, outcome = self.before, self.outcome
        return Part(
            self.after_ms,
            LaneStates(
                {key: state for key, state in before.states.items() if key.rule in rules},
                {key: row for key, row in before.rows.items() if key.rule in rules},
                tuple(event for event in before.later if event.rule_id in rules),
            ),
            Outcome(
                tuple(each for each in outcome.transitions if each.key.rule in rules),
                {key: state for key, state in outcome.states.items() if key.rule in rules},
                outcome.labels,
            ),
        )


def _any_rule(rule: int) -> bool:
    return True


def instances_of(lane: Lane) -> list[Instance]:
    """Return the rows of a lane's instances."""
    return list(Instance.objects.filter(rule__app=lane.app_id).order_by("pk"))


def states_at(
    lane: Lane, at_ms: int, instances: Iterable[Instance], *, concerns: Callable[[int], bool] = _any_rule
) -> LaneStates:
    """Return the states of some rules at a step: the present ones, with the transitions after the step taken back."""
    rows = {row.key: row for row in instances if concerns(row.rule_id)}
    states = {key: row.state for key, row in rows.items()}
    later: tuple[AlertEvent, ...] = ()
    if at_ms < lane.position_ms:
        events = AlertEvent.objects.filter(rule__app=lane.app_id, superseded_seq=None, at_ms__gt=at_ms).exclude(seq=0)
        later = tuple(event for event in events.order_by("at_ms", "pk") if concerns(event.rule_id))
    for event in reversed(later):
        state = state_of(event.before_state)
        if state == OK:
            states.pop(event.key, None)
        else:
            states[event.key] = state
    return LaneStates(states, rows, later)


def versions_between(lane: Lane, after_ms: int, upto_ms: int) -> list[RuleVersion]:
    """Return the versions of the lane's rules that are in force at any step of (after, upto], or end there."""
    is_in_force = Q(until_ms=None) | Q(until_ms__gt=after_ms)
    rows = RuleVersionRow.objects.filter(is_in_force, rule__app=lane.app_id, from_ms__lte=upto_ms)
    texts = rows.annotate(text=Cast("content", TextField()))
    versions = list(
        _named([_version_or_fault(*row) for row in texts.values_list("rule", "from_ms", "until_ms", "text")])
    )
    closings: dict[int, tuple[Closing, ...]] = {}
    for end in ManualEnd.objects.filter(rule__app=lane.app_id, at_ms__gt=after_ms, at_ms__lte=upto_ms):
        closings[end.rule_id] = (*closings.get(end.rule_id, ()), end.closing)
    if not closings:
        return versions
    return [replace(each, closings=closings.get(each.rule, ())) for each in versions]


def _version_or_fault(rule: int, from_ms: int, until_ms: int | None, text: str) -> RuleVersion:
    """Return the version; if its content cannot be read, one that says so, as the lane's other rules must be judged."""
    try:
        return _version_of_text(rule, from_ms, until_ms, text)
    except Exception as fault:  # a loop's top
        log.exception("a version of rule %d cannot be read", rule)
        return RuleVersion(rule, from_ms, until_ms, "", Condition(), Timing(), fault=fault_text(fault))


@lru_cache(VERSIONS_KEPT_MAX)
def _version_of_text(rule: int, from_ms: int, until_ms: int | None, text: str) -> RuleVersion:
    """Return the version with a content as it lies in the database. Most are read at each step, and never change."""
    return version_from(rule, from_ms, until_ms, json.loads(text))


def version_from(rule: int, from_ms: int, until_ms: int | None, content: Mapping[str, Any]) -> RuleVersion:
    """Return the version with a content as ``content_of`` writes it; older ones have no kind."""
    condition = Condition(**{**content["condition"], "missing": MissingPolicy(content["condition"]["missing"])})
    parameters = content.get("parameters", {})
    return RuleVersion(
        rule,
        from_ms,
        until_ms,
        content["expr"],
        condition,
        Timing(**content["timing"]),
        content["missing_for_ms"],
        content["ended"],
        Kind(content.get("kind", Kind.THRESHOLD)),
        Parameters(**{**parameters, "by": tuple(parameters.get("by", ()))}),
        alert=_naming_from(content.get("alert")),
    )


def _naming_from(content: Mapping[str, Any] | None) -> AlertNaming | None:
    if content is None:
        return None
    group_place, place = content["place"]
    return AlertNaming(content["name"], tuple(content["labels"].items()), content["file"], (group_place, place))


def naming_of(rule: Rule) -> dict[str, Any]:
    """Return what names the rule's alerts in ``ALERTS``, and where it stands in its file, for a version."""
    group = rule.group
    place = [group.place if group else 0, rule.place]
    return {"name": rule.name, "labels": rule.alert_labels, "file": group.file if group else "", "place": place}


def _named(versions: Sequence[RuleVersion]) -> Sequence[RuleVersion]:
    """Name the alerts of versions that were written before names were kept, as now, if a rule reads alerts."""
    unnamed = {each.rule for each in versions if each.alert is None}
    if not unnamed or not any(is_reader(each) for each in versions):
        return versions
    rules = Rule.objects.filter(pk__in=unnamed).select_related("group").in_bulk()
    now = {number: _naming_from(naming_of(rule)) for number, rule in rules.items()}
    return [replace(each, alert=each.alert or now.get(each.rule)) for each in versions]


def content_of(rule: Rule, ended: str = "") -> dict[str, object]:
    """Return the content of a version of the rule as it is now; ``ended`` says why it is no longer judged."""
    return {
        "expr": rule.expr,
        "condition": asdict(rule.condition),
        "timing": asdict(rule.timing),
        "missing_for_ms": rule.missing_for_ms,
        "ended": ended,
        "kind": rule.kind,
        "parameters": asdict(rule.parameters),
        "alert": naming_of(rule),
    }


def commit(
    lane: Lane, decision: Decision, parts: Sequence[Part], sight: Sight, *, now_ms: int, took_us: int = 0
) -> bool:
    """Write an operation in one transaction; returns False, and writes nothing, if the lane has another number now.

    ``took_us``: how long its judging took.
    """
    operation = decision.operation
    with transaction.atomic():
        if not _take_number(lane, decision, sight, took_us):
            return False
        known = (
            {"vector": sight.knowledge.vector, "retractions": sight.knowledge.retractions} if sight.knowledge else {}
        )
        Operation.objects.create(
            lane=lane,
            seq=lane.seq + 1,
            kind=operation.kind,
            after_ms=operation.after_ms,
            upto_ms=operation.upto_ms,
            behind_ms=operation.behind_ms,
            silent=not_waited_for(sight.sources, operation.upto_ms),
            made_ms=now_ms,
            **known,
        )
        for part in parts:
            before, outcome = part.before, part.outcome
            labels = before.labels | dict(outcome.labels)
            changed = _write_transitions(before, outcome, labels, lane.seq + 1)
            _write_instances(before, outcome, labels)
            own = replace(operation, after_ms=part.after_ms)
            episodes.follow(lane, own, before.states, outcome, changed, labels, now_ms=now_ms)
    return True


def unwritable_rules(
    lane: Lane, decision: Decision, parts: Sequence[Part], sight: Sight, *, now_ms: int
) -> Mapping[int, str]:
    """Return the rules whose changes alone make ``commit`` fail, each with the fault; nothing stays written.

    Rules are tried together and those of a try that fails in halves: a few tries for each rule that is found.
    """
    faults: dict[int, str] = {}
    waiting = [sorted(frozenset().union(*(part.rules for part in parts)))]
    while waiting:
        rules = waiting.pop()
        try:
            with transaction.atomic():
                commit(lane, decision, [part.of(rules) for part in parts], sight, now_ms=now_ms)
                transaction.set_rollback(True)
        except WORLD_ERRORS:
            raise
        except Exception as fault:  # a loop's top: it is found out whose fault it is
            if len(rules) == 1:
                log.exception("the changes of rule %d cannot be written", rules[0])
                faults[rules[0]] = fault_text(fault)
            else:
                half = len(rules) // 2
                waiting += [rules[:half], rules[half:]]
    return faults


def _take_number(lane: Lane, decision: Decision, sight: Sight, took_us: int) -> bool:
    """Take the lane's next number and move it; False if another judge or an edit took it before."""
    operation, owed = decision.operation, decision.owed
    fields: dict[str, object] = {"position_ms": operation.upto_ms, "behind_ms": operation.behind_ms, "waiting": ""}
    if sight.knowledge is not None:
        fields |= {"vector": sight.knowledge.vector, "retractions": list(sight.knowledge.retractions)}
    metrics = None if owed is None or owed.metrics is None else sorted(owed.metrics)
    if metrics is not None and len(metrics) > OWED_METRICS_MAX:
        metrics = None
    fields |= {"owed_ms": owed.from_ms if owed else None, "owed_metrics": metrics, "rejudged_ms": decision.rejudged_ms}
    fields["took_us"] = took_us
    return bool(Lane.objects.filter(pk=lane.pk, seq=lane.seq).update(seq=F("seq") + 1, **fields))


def _write_transitions(
    before: LaneStates, outcome: Outcome, labels: Mapping[str, Labels], seq: int
) -> set[InstanceKey]:
    """Add the transitions that are new and mark those that no longer hold; returns the instances concerned."""
    lasting = {_content(event): event.pk for event in before.later}
    new = [each for each in outcome.transitions if lasting.pop(_identity(each), None) is None]
    stale = set(lasting.values())
    AlertEvent.objects.filter(pk__in=stale).update(superseded_seq=seq)
    AlertEvent.objects.bulk_create(
        AlertEvent(
            rule_id=each.key.rule,
            fingerprint=each.key.fingerprint,
            aspect=each.key.aspect,
            labels=labels.get(each.key.fingerprint, {}),
            before=each.before.phase,
            state=each.after.phase,
            episode_ms=_active_ms(each),
            at_ms=each.at_ms,
            value=each.value,
            reason=each.reason or each.detail[:200],
            before_state=state_columns(each.before),
            seq=seq,
        )
        for each in new
    )
    return {each.key for each in new} | {event.key for event in before.later if event.pk in stale}


def _write_instances(before: LaneStates, outcome: Outcome, labels: Mapping[str, Labels]) -> None:
    """Write the rows of instances whose state differs from their row, and delete those that are ok."""
    last = {each.key: each for each in outcome.transitions}
    gone = [row.pk for key, row in before.rows.items() if key not in outcome.states]
    if gone:
        Instance.objects.filter(pk__in=gone).delete()
    changed = [
        (key, state)
        for key, state in outcome.states.items()
        if key not in before.rows or before.rows[key].state != state
    ]
    Instance.objects.bulk_create(
        [_instance(key, state, last.get(key), labels.get(key.fingerprint, {})) for key, state in changed],
        update_conflicts=True,
        unique_fields=["rule", "fingerprint", "aspect"],
        update_fields=["phase", "since_ms", "start_ms", "active_ms", "missing_ms", "value", "detail"],
    )


def _instance(key: InstanceKey, state: InstanceState, last: Transition | None, labels: Labels) -> Instance:
    return Instance(
        rule_id=key.rule,
        fingerprint=key.fingerprint,
        aspect=key.aspect,
        labels=dict(labels),
        value=last.value if last else None,
        detail=last.detail if last else "",
        **asdict(state),
    )


def _active_ms(transition: Transition) -> int:
    """Return the step at which the instance left ok: a transition comes from or leads to such a state."""
    active_ms = transition.before.active_ms if transition.after == OK else transition.after.active_ms
    assert active_ms is not None, "BUG: a transition between two states that are ok"
    return active_ms


def state_columns(state: InstanceState) -> list[object]:
    """Return a state as a list for the database."""
    return [state.phase.value, state.since_ms, state.start_ms, state.active_ms, state.missing_ms]


def state_of(columns: Iterable[object] | None) -> InstanceState:
    """Return the state that ``state_columns`` wrote."""
    if columns is None:
        return OK
    phase, *times = columns
    numbers = [time if isinstance(time, int) else None for time in times]
    return InstanceState(Phase(str(phase)), *numbers)


def _identity(transition: Transition) -> tuple[object, ...]:
    before = tuple(state_columns(transition.before))
    return transition.key, transition.at_ms, before, transition.after.phase, transition.reason or ""


def _content(event: AlertEvent) -> tuple[object, ...]:
    reason = event.reason if event.state in (Phase.OK, Phase.CLOSED) else ""
    return event.key, event.at_ms, tuple(event.before_state or ()), Phase(event.state), reason
