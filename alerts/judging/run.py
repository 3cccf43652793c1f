"""Folds steps of all instances of some rules: what live judging, catching up, judging again and backtests share. Pure.

1. Each version of a rule reads its expression once for all its steps.
2. The condition turns the values into inputs, a row per series; series with a state that are not in the answer get a
   row of absences. Edits, deletions and errors overwrite single columns or all.
   A rule without any state of which the extremes of the answer violate nothing is done here.
3. ``step`` runs only where it can change something: where a row's input changes, where a timer is due, and where an
   instance that is ok may leave it. A heap brings these places of all rows into the order of time, because the bound on
   active instances of a rule joins its rows.
4. Besides series, a rule has an instance for its errors and, if it wants that, one for each missing series. A fault of
   ours while a rule is judged is an error of that rule alone.

Judging steps in one call or in several gives the same transitions. Enter by ``run``.
"""

import heapq
import logging
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from alerts.judging import composites, limits
from alerts.judging.anomalies import distances
from alerts.judging.answers import Answer, Labels, Read
from alerts.judging.automaton import OK, Input, InstanceState, Phase, Timing, close, due_ms, step
from alerts.judging.conditions import MissingPolicy, violates_none
from alerts.judging.instances.keys import Aspect, EndReason, InstanceKey, States, Transition
from alerts.judging.instances.rows import Hold, Inputs, Rows, Table, error_row, inputs_of
from alerts.judging.kinds import Kind
from alerts.judging.readers.order import order
from alerts.judging.readers.run_alerts import Past, ReadsAlerts, RunAlerts
from alerts.judging.versions import RuleVersion, Steps, by_rule, stretches
from spm.arrays import BOOL
from spm.bounded import LruCache
from spm.errors import BadQuery, SpmError

log = logging.getLogger("spm.alerts")
_INPUTS = tuple(Input)  # by their codes


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run says: the transitions in the order of time, the states at its end, and the labels of instances."""

    transitions: tuple[Transition, ...]
    states: States
    labels: Mapping[str, Labels]  # by fingerprint


def run(
    versions: Sequence[RuleVersion],
    steps: Steps,
    states: States,
    *,
    read: Read,
    active_max: int,
    incomplete: BOOL | None = None,
    labels: Mapping[str, Labels] | None = None,
    past: Past | None = None,
) -> Outcome:
    """Judge all steps by the versions in force at each, beginning with these states.

    ``read`` evaluates expressions. ``active_max`` bounds the instances of one rule that are not ok. ``incomplete``
    marks steps at which absences cannot be judged, because data is still on its way. ``labels`` are those of the
    instances that have a state. Composites are judged after the rules that they name, and rules that read ``ALERTS``
    after those that they see at the same step (``readers.order``). ``past``: what was said before, if more than these
    states is not stored.
    """
    fold = _Fold(steps, states, read, active_max, incomplete)
    fold.labels.update(labels or {})
    rules = by_rule(versions)
    in_order = order(rules)
    fold.circle = in_order.circle
    fold.judge_all(in_order.first, rules, steps)
    own_past = past or Past(steps.first_ms - steps.period_ms, states)
    for part in _parts(steps, is_stepwise=in_order.is_stepwise) if in_order.late else ():
        for rule in in_order.late:
            if rule in in_order.seen and isinstance(read, ReadsAlerts):
                fold.reads[rule] = read.with_alerts(fold.alerts(in_order.seen[rule], rules, own_past, part))
            fold.judge_all([rule], rules, part)
    fold.transitions.sort(key=lambda each: (each.at_ms, each.key))
    return Outcome(tuple(fold.transitions), fold.states, fold.labels)


def fault_text(fault: Exception) -> str:
    """Say of a rule that a fault of ours stopped its judging."""
    return f"A fault of this service stopped the judging of this rule: {type(fault).__name__}: {fault}"


def incomplete_at(steps: Steps, behind_ms: int | None) -> BOOL | None:
    """bool[T]: the steps at which absences cannot be judged, from ``behind_ms`` on; None if there are none."""
    if behind_ms is None or behind_ms > steps.last_ms:
        return None
    return steps.first_ms + np.arange(len(steps)) * steps.period_ms >= behind_ms


def _parts(steps: Steps, *, is_stepwise: bool) -> Iterable[Steps]:
    if not is_stepwise:
        return [steps]
    times = range(steps.first_ms, steps.last_ms + 1, steps.period_ms)
    return (Steps(at_ms, at_ms, steps.period_ms) for at_ms in times)


class _Fold:
    """The states, transitions and labels of a run under way."""

    def __init__(
        self,
        steps: Steps,
        states: States,
        read: Read,
        active_max: int,
        incomplete: BOOL | None,
    ) -> None:
        self._first_states, self.circle = states, ""  # circle: why composites cannot be judged
        self.reads: dict[int, Read] = {}  # of rules that read alerts of this run
        self.states, self.transitions, self.labels = dict(states), list[Transition](), dict[str, Labels]()
        self._steps, self._read, self._active_max, self._incomplete = steps, read, active_max, incomplete
        self._inputs: LruCache[tuple[object, ...], Inputs] = LruCache(limits.INPUTS_BYTES_MAX)
        self._distances: dict[tuple[object, ...], Answer] = {}
        self._closings: Mapping[InstanceKey, tuple[int, ...]] = {}  # of the rule that is judged
        self._keys_of = defaultdict[int, set[InstanceKey]](set)  # of each rule: those with a state, and some without
        for key in states:
            self._keys_of[key.rule].add(key)

    def judge_all(self, rules: Iterable[int], versions: Mapping[int, Sequence[RuleVersion]], steps: Steps) -> None:
        """Judge rules one after the other, each by its versions in force."""
        for rule in rules:
            for version, before, part in stretches(versions[rule], steps):
                self.judge_or_fail(rule, version, before, part)

    def alerts(
        self, seen: Mapping[int, bool], rules: Mapping[int, Sequence[RuleVersion]], past: Past, steps: Steps
    ) -> RunAlerts:
        """Return what a reader sees at these steps: of some rules the same step, of others the one before."""
        own = {rule: rules[rule][-1].alert for rule in seen}
        namings = {rule: naming for rule, naming in own.items() if naming is not None}
        before_ms = steps.first_ms - steps.period_ms
        return RunAlerts(
            Steps(past.at_ms, steps.last_ms, steps.period_ms),
            past.states,
            [*past.transitions, *(each for each in self.transitions if each.key.rule in seen)],
            {rule: steps.last_ms if is_same else before_ms for rule, is_same in seen.items() if rule in namings},
            namings,
            self.labels,
            frozenset(each.alert.name for versions in rules.values() for each in versions if each.alert),
        )

    def judge_or_fail(self, rule: int, version: RuleVersion, before: RuleVersion | None, steps: Steps) -> None:
        """Judge one version; if a fault of ours stops that, its steps are errors of this rule, and the others go on.

        Nothing of a version that was judged in part is kept. Errors of the world concern all rules, and go through.
        """
        count, states = len(self.transitions), {key: self.states[key] for key in self._active_keys(rule)}
        try:
            self.judge(rule, version, before, steps)
        except (SpmError, OSError, MemoryError):
            raise
        except Exception as fault:  # a loop's top: one rule must not stop its lane
            log.exception("rule %d could not be judged", rule)
            del self.transitions[count:]
            for key in self._active_keys(rule):
                del self.states[key]
            self.states.update(states)
            self._close_all(self._active_keys(rule))
            self._fold_errors(rule, dict.fromkeys(range(len(steps)), fault_text(fault)), steps)

    def judge(self, rule: int, version: RuleVersion, before: RuleVersion | None, steps: Steps) -> None:
        """Judge one version of a rule at its steps."""
        known = self._active_keys(rule)
        self._closings = _closings_of(version, steps)
        if version.fault:
            self._close_all(known)
            self._fold_errors(rule, dict.fromkeys(range(len(steps)), version.fault), steps)
            return
        if version.ended:
            self._end_all(known, EndReason(version.ended), steps.first_ms)
            return
        is_absence_judged = version.condition.missing is MissingPolicy.ALERT and version.condition.comparator != ""
        lead = 1 if is_absence_judged else 0
        wide = replace(steps, first_ms=steps.first_ms - lead * steps.period_ms)
        answer = self._answer(version, wide)
        may_lack = lead and not answer.lacks_nothing
        if not (known or may_lack or answer.errors) and violates_none(version.condition, *answer.extremes):
            return  # most rules at most steps
        errors = {index - lead: text for index, text in answer.errors.items() if index >= lead}
        is_new_selection = before is not None and version.selects_anew(before)
        incomplete = self._incomplete_part(steps)
        hold = Hold(tuple(errors), incomplete, incomplete is not None and version.is_collective)
        table = Table(version, self._inputs_of(version, steps, answer, hold, lead), hold, is_new_selection)
        skipped = self._fold(table.value_rows(rule, known), version.timing, steps, bounded=True)
        if is_absence_judged:
            timing = Timing(version.missing_for_ms, 0, limits.HOLD_MAX_MS, limits.FORGET_MS)
            missing = self._fold(table.missing_rows(rule, known), timing, steps, bounded=True)
            skipped = {index: skipped.get(index, 0) + missing.get(index, 0) for index in skipped | missing}
        else:
            self._end_all([key for key in known if key.aspect == Aspect.MISSING], EndReason.EDITED, steps.first_ms)
        for index, count in skipped.items():
            errors[index] = f"{count} more series are violated than the {self._active_max} a rule watches."
        self.labels.update(answer.labels_by_name())
        self._fold_errors(rule, errors, steps)

    def _active_keys(self, rule: int) -> list[InstanceKey]:
        return sorted(key for key in self._keys_of.get(rule, ()) if key in self.states)

    def _inputs_of(self, version: RuleVersion, steps: Steps, answer: Answer, hold: Hold, lead: int) -> Inputs:
        """Return what the version's condition makes of an answer; rules that differ in their durations share it."""
        key = id(answer), version.condition, steps, lead, hold.is_collective
        inputs = self._inputs.get(key)
        if inputs is None:
            inputs = inputs_of(version.condition, answer, lead, hold)
            self._inputs.put(key, inputs, inputs.nbytes)
        return inputs

    def _fold_errors(self, rule: int, errors: Mapping[int, str], steps: Steps) -> None:
        if not errors and InstanceKey(rule, "", Aspect.ERROR) not in self.states:
            return
        timing = Timing((limits.ERROR_FOR_STEPS - 1) * steps.period_ms)
        self._fold(error_row(rule, errors, len(steps)), timing, steps, details=errors)

    def _answer(self, version: RuleVersion, steps: Steps) -> Answer:
        """Return the values that a version compares, or where a composite holds."""
        if version.kind is Kind.COMPOSITE:
            if self.circle:
                return Answer.failed(steps, self.circle)
            try:
                composite = composites.parse(version.expr)
            except BadQuery as refusal:
                return Answer.failed(steps, str(refusal))
            firing = {rule: self._firing(rule) for rule in composite.rules}
            return composites.answer(composite, version.parameters.by, firing, steps)
        read = self.reads.get(version.rule, self._read)
        answer = read(version.value_expr, steps)
        if version.kind is not Kind.ANOMALY:
            return answer
        key = version.expr, version.parameters, steps, read
        if key not in self._distances:
            self._distances[key] = distances(version.expr, version.parameters, answer, steps, read)
        return self._distances[key]

    def _firing(self, rule: int) -> list[composites.Firing]:
        """Return when the series of a rule fire, as far as this run knows."""
        begun = {
            key: self._steps.first_ms
            for key, state in self._first_states.items()
            if key.rule == rule and key.aspect == Aspect.VALUE and state.is_alerting
        }
        intervals = list[composites.Firing]()
        for each in self.transitions:
            key = each.key
            if key.rule != rule or key.aspect != Aspect.VALUE:
                continue
            if each.after.is_alerting:
                begun.setdefault(key, each.at_ms)
            elif key in begun:
                intervals.append((self.labels.get(key.fingerprint, {}), begun.pop(key), each.at_ms))
        return intervals + [(self.labels.get(key.fingerprint, {}), start_ms, None) for key, start_ms in begun.items()]

    def _incomplete_part(self, steps: Steps) -> BOOL | None:
        if self._incomplete is None:
            return None
        first = self._steps.index_from(steps.first_ms)
        return self._incomplete[first : first + len(steps)]

    def _close_all(self, keys: Iterable[InstanceKey]) -> None:
        """End what people have ended, of series that stay as they are otherwise."""
        for key in keys:
            for at_ms in self._closings.get(key, ()) if key.aspect != Aspect.ERROR else ():
                before = self.states[key]
                after = close(before, at_ms)
                if after != before:
                    self.states[key] = after
                    self.transitions.append(Transition(key, at_ms, before, after, None, EndReason.PERSON))

    def _end_all(self, keys: Iterable[InstanceKey], reason: EndReason, at_ms: int) -> None:
        for key in keys:
            before = self.states.pop(key)
            self.transitions.append(Transition(key, at_ms, before, OK, None, reason))

    def _fold(
        self,
        rows: Rows,
        timing: Timing,
        steps: Steps,
        *,
        bounded: bool = False,
        details: Mapping[int, str] | None = None,
    ) -> dict[int, int]:
        """Step the rows in the order of time; returns how many instances the bound kept out, by step."""
        skipped: dict[int, int] = {}
        heap = []
        for row, key in enumerate(rows.keys):
            first = 0 if key in self.states else rows.next_begin(row, 0)
            if first is not None:
                heap.append((first, key.fingerprint, row))
        heapq.heapify(heap)
        active = sum(key in self.states for key in rows.keys)
        while heap:
            index, name, row = heapq.heappop(heap)
            key = rows.keys[row]
            before = self.states.get(key, OK)
            if bounded and before is OK and active >= self._active_max:
                skipped[index] = skipped.get(index, 0) + 1
                later = rows.next_begin(row, index + 1)
            else:
                after = self._step(rows, row, index, timing, steps, (details or {}).get(index, ""))
                active += (after.phase is not Phase.OK) - (before.phase is not Phase.OK)
                later = _later(rows, row, index, timing, after, steps, self._closings.get(key, ()))
            if later is not None:
                heapq.heappush(heap, (later, name, row))
        return skipped

    def _step(self, rows: Rows, row: int, index: int, timing: Timing, steps: Steps, detail: str) -> InstanceState:
        key, given, at_ms = rows.keys[row], _INPUTS[rows.codes[row][index]], steps.at_ms(index)
        before = self.states.get(key, OK)
        is_closed = at_ms in self._closings.get(key, ()) and before.is_alerting
        after = step(timing, close(before, at_ms) if is_closed else before, given, at_ms)
        if after == before:
            return after
        reason = _end_reason(given, is_edited=bool(rows.edited[row])) if after.phase is Phase.OK else None
        reason = EndReason.PERSON if is_closed else reason
        value = float(rows.values[row, index])
        number = None if math.isnan(value) else value
        self.transitions.append(Transition(key, at_ms, before, after, number, reason, detail))
        if after.phase is Phase.OK:
            self.states.pop(key, None)
            return OK
        self.states[key] = after
        self._keys_of[key.rule].add(key)
        return after


def _closings_of(version: RuleVersion, steps: Steps) -> dict[InstanceKey, tuple[int, ...]]:
    """Return the steps among these at which people ended alerts, by instance."""
    closings: dict[InstanceKey, tuple[int, ...]] = {}
    for each in version.closings:
        if steps.first_ms <= each.at_ms <= steps.last_ms:
            key = InstanceKey(version.rule, each.fingerprint, each.aspect)
            closings[key] = (*closings.get(key, ()), each.at_ms)
    return closings


def _later(
    rows: Rows, row: int, index: int, timing: Timing, state: InstanceState, steps: Steps, closings: Iterable[int]
) -> int | None:
    """Return the next place at which the row's state can change."""
    if state.phase is Phase.OK:
        return rows.next_begin(row, index + 1)
    place = rows.next_change(row, index)
    due = due_ms(timing, state, _INPUTS[rows.codes[row][index]])
    if due is not None:
        due_place = max(index + 1, steps.index_from(due))
        place = due_place if place is None else min(place, due_place)
    if state.is_alerting:
        places = (steps.index_from(at_ms) for at_ms in closings)
        place = min((each for each in (place, *places) if each is not None and each > index), default=None)
    return place if place is not None and place < len(steps) else None


def _end_reason(given: Input, *, is_edited: bool) -> EndReason:
    if given is Input.GONE:
        return EndReason.EDITED if is_edited else EndReason.GONE
    if given is Input.MISSING:
        return EndReason.NO_DATA
    return EndReason.GONE if given is Input.VIOLATED else EndReason.RECOVERED
