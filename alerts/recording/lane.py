"""Writes the series of all apps that are due: recording rules first, then ``ALERTS`` and ``ALERTS_FOR_STATE``.

1. An app with recording rules or alerts is claimed for a while; the claim only saves work.
2. Its recording rules are computed at their next steps, in the order of their files and groups, each reading what those
   before it recorded. A rule that reads itself or a later one reads the step before, so such an app goes step by step.
3. A message for each group and step is accepted like any sender's. Its id comes from the group and the step, and equal
   samples at equal times are one sample, so a repetition stores nothing twice.
   Series of alerts that judging has taken back since get a stale marker at the next step.
4. Then the position moves. A worker that ends before that leaves the same work to the next one.

Enter by ``write_due_series``.
"""

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby

import numpy as np
from django.db.models import Exists, Min, OuterRef, Q

from alerts import journal
from alerts.expressions import evaluator_of
from alerts.judging.automaton import ALERTING, OK, InstanceState, Phase
from alerts.judging.instances.keys import InstanceKey
from alerts.judging.lane_plan import OperationKind, aligned_ms, next_steps
from alerts.judging.lane_shares import SHARES
from alerts.judging.versions import Steps
from alerts.models import AlertEvent, Aspect, Lane, RecordingRule, Rule, SeriesLane
from alerts.recording import limits
from alerts.recording.alert_samples import AlertStretch, Change, ended_series, series_of, stretches
from alerts.recording.record import STALE, RecordedRule, RecordedSamples, reads_metric, record
from alerts.recording.recorded_storage import RecordedStorage
from alerts.templating.alert_texts import alert_labels
from ingest.accept.acceptor import Acceptor
from ingest.accept.identity import Sender
from spm.accounts.models import App
from spm.arrays import F64, I64
from spm.clock import Clock
from spm.errors import SpmError
from spm.limits import RULE_PERIOD_MS
from spm.query.storage import Storage
from spm.store.matchers import METRIC_NAME
from spm.wire import Parsed, SeriesTable, canonical

log = logging.getLogger("spm.alerts")
OpenStorage = Callable[[int], Storage]


@dataclass(frozen=True, slots=True)
class SeriesWriter:
    """What writing series needs: the apps' data, the acceptance of their messages, and the time.

    The acceptor is opened by the first message: a queue that is away must not keep rules from being judged.
    """

    open_storage: OpenStorage
    open_acceptor: Callable[[], Acceptor]
    clock: Clock

    def send(self, app: int, identity: str, samples: "_Message", *, source: str = limits.SOURCE) -> None:
        """Have samples accepted in the app under an id that a repetition has too."""
        if not samples.ts:
            return
        table = SeriesTable.from_canonical([canonical(_name(each), _labels(each)) for each in samples.labels])
        index, counts = np.arange(len(samples.labels), dtype=np.int32), [len(each) for each in samples.ts]
        parsed = Parsed(table, np.repeat(index, counts), np.concatenate(samples.ts), np.concatenate(samples.values))
        message_id = blake2b(identity.encode(), digest_size=16).digest()
        self.open_acceptor().accept(parsed, sender=Sender(app, source), message_id=message_id)


@dataclass(frozen=True, slots=True)
class _Message:
    """Samples of some series, each with its times and values."""

    labels: list[Mapping[str, str]]
    ts: list[I64]
    values: list[F64]

    def add(self, labels: Mapping[str, str], ts: I64, values: F64) -> None:
        """Add the samples of a series."""
        self.labels.append(labels)
        self.ts.append(ts)
        self.values.append(values)


def write_due_series(writer: SeriesWriter, work: Callable[[SeriesWriter, SeriesLane], None]) -> int:
    """Do one kind of work (``record_app``, ``write_alerts``) for all apps; one that fails does not stop the others."""
    count, lanes, kind = 0, {lane.pk: lane for lane in _lanes(writer.clock.now_ms())}, work.__name__
    for number in SHARES.quick_first(kind, lanes):
        with SHARES.share((kind, number), writer.clock) as may_write:
            count += may_write and _write_lane(writer, lanes[number], work)
    return count


def _write_lane(writer: SeriesWriter, lane: SeriesLane, work: Callable[[SeriesWriter, SeriesLane], None]) -> bool:
    """Do the work for one app, unless another worker does; whether it was done."""
    now_ms = writer.clock.now_ms()
    free = Q(lease_until_ms__lte=now_ms) | Q(lease_until_ms__gt=now_ms + limits.LEASE_MS)
    if not SeriesLane.objects.filter(free, pk=lane.pk).update(lease_until_ms=now_ms + limits.LEASE_MS):
        return False
    try:
        work(writer, lane)
        return True
    except SpmError as error:
        log.warning("series of app %d cannot be written now: %s", lane.app_id, error)
    except Exception:  # a loop's top: the other apps' series must be written, and this one is due again
        log.exception("series of app %d could not be written", lane.app_id)
    finally:
        SeriesLane.objects.filter(pk=lane.pk).update(lease_until_ms=0)
    return False


def _lanes(now_ms: int) -> list[SeriesLane]:
    """Return the lanes of the apps that have anything to write; new ones begin now."""
    has_records = Exists(RecordingRule.objects.filter(app=OuterRef("pk")))
    has_rules = Exists(Rule.objects.filter(app=OuterRef("pk"), deleted_ms=None))
    apps = App.objects.filter(has_records | has_rules, going=None).values_list("pk", flat=True)
    known = set(SeriesLane.objects.values_list("app_id", flat=True))
    start_ms = aligned_ms(now_ms - limits.DELAY_MS, RULE_PERIOD_MS) - RULE_PERIOD_MS
    new = [SeriesLane(app_id=app, recorded_ms=start_ms, alerts_ms=start_ms) for app in apps if app not in known]
    SeriesLane.objects.bulk_create(new, ignore_conflicts=True)
    return list(SeriesLane.objects.filter(app__in=list(apps)).order_by("recorded_ms", "pk"))


def record_app(writer: SeriesWriter, lane: SeriesLane) -> None:
    """Record the next steps of an app's rules: one chunk, or step by step where rules read what comes after them."""
    rules = list(RecordingRule.objects.filter(app=lane.app_id).select_related("group"))
    now_ms = writer.clock.now_ms()
    if not rules:
        SeriesLane.objects.filter(pk=lane.pk, recorded_ms__lt=now_ms - limits.CATCH_UP_MS).update(recorded_ms=now_ms)
        return
    ready_ms = now_ms - limits.DELAY_MS
    began_s = writer.clock.monotonic()
    operation = next_steps(lane.recorded_ms, now_ms=now_ms, ready_ms=ready_ms, period_ms=RULE_PERIOD_MS)
    if operation is None:
        return
    if operation.kind is OperationKind.JUDGE:
        storage, errors = RecordedStorage(writer.open_storage(lane.app_id)), dict[int, str]()
        for steps in _parts(operation.after_ms, operation.upto_ms, is_stepwise=_reads_itself(rules)):
            for _, group in groupby(rules, key=lambda rule: rule.group_id):
                errors |= _record_group(writer, list(group), steps, storage)
        _note_errors(rules, errors)
    took_us = round((writer.clock.monotonic() - began_s) * 1e6)
    mine = SeriesLane.objects.filter(pk=lane.pk, recorded_ms=lane.recorded_ms)
    mine.update(recorded_ms=operation.upto_ms, took_us=took_us)


def _parts(after_ms: int, upto_ms: int, *, is_stepwise: bool) -> Iterable[Steps]:
    if not is_stepwise:
        return [Steps(after_ms + RULE_PERIOD_MS, upto_ms, RULE_PERIOD_MS)]
    times = range(after_ms + RULE_PERIOD_MS, upto_ms + 1, RULE_PERIOD_MS)
    return [Steps(at_ms, at_ms, RULE_PERIOD_MS) for at_ms in times]


def _reads_itself(rules: Sequence[RecordingRule]) -> bool:
    """Whether a rule reads what it or a later one records."""
    names = [rule.name for rule in rules]
    return any(reads_metric(rule.expr, names[place:]) for place, rule in enumerate(rules))


def _record_group(
    writer: SeriesWriter, rules: Sequence[RecordingRule], steps: Steps, storage: RecordedStorage
) -> dict[int, str]:
    """Record the rules of a group at those of the steps that are multiples of its interval; returns errors by rule."""
    group, errors = rules[0].group, dict[int, str]()
    period_ms = group.period_ms
    own = Steps(-(-steps.first_ms // period_ms) * period_ms, aligned_ms(steps.last_ms, period_ms), period_ms)
    if not len(own):
        return {}
    times = np.arange(own.first_ms, own.last_ms + 1, period_ms, dtype=np.int64)
    recorded = list[RecordedSamples]()
    for rule in rules:
        content = RecordedRule(rule.name, rule.expr, {**group.labels, **rule.labels}, group.limit)
        samples = record(content, own, evaluator_of(storage))
        storage.add(samples, times)
        recorded.append(samples)
        errors[rule.pk] = samples.errors.get(len(own) - 1, "")
    for index, at_ms in enumerate(times.tolist()):
        message = _Message([], [], [])
        for samples in recorded:
            for row in np.flatnonzero(samples.written[:, index]).tolist():
                message.add(samples.labels[row], times[index : index + 1], samples.values[row, index : index + 1])
        writer.send(group.app_id, f"recording {group.pk} {at_ms}", message)
    return errors


def _note_errors(rules: Sequence[RecordingRule], errors: Mapping[int, str]) -> None:
    for rule in rules:
        if errors.get(rule.pk, rule.error) != rule.error:
            RecordingRule.objects.filter(pk=rule.pk).update(error=errors[rule.pk])


def write_alerts(writer: SeriesWriter, lane: SeriesLane) -> None:
    """Write ``ALERTS`` and ``ALERTS_FOR_STATE`` for the steps that were judged since."""
    judged = Lane.objects.filter(app=lane.app_id).first()
    if judged is None or judged.position_ms == lane.alerts_ms:
        return
    after_ms = max(min(lane.alerts_ms, judged.position_ms), judged.position_ms - limits.CATCH_UP_MS)
    steps = Steps(after_ms + RULE_PERIOD_MS, judged.position_ms, RULE_PERIOD_MS)
    before = journal.states_at(judged, after_ms, journal.instances_of(judged))
    active = {key: state for key, state in before.states.items() if key.aspect == Aspect.VALUE}
    written = _taken_back(judged, lane, after_ms) if len(steps) else {}
    if active or before.later or written:
        changes = _changes(before)
        message = _alert_samples(before, stretches(active, changes, steps), steps)
        _end_taken_back(message, written, active, steps.first_ms)
        identity = f"alerts {lane.app_id} {steps.first_ms} {steps.last_ms} {judged.seq}"
        writer.send(lane.app_id, identity, message, source=limits.ALERTS_SOURCE)
    mine = SeriesLane.objects.filter(pk=lane.pk, alerts_ms=lane.alerts_ms)
    mine.update(alerts_ms=judged.position_ms, alerts_seq=judged.seq)


def _taken_back(judged: Lane, lane: SeriesLane, after_ms: int) -> Mapping[InstanceKey, AlertEvent]:
    """Return the instances that were written as active at the last step, and that judging has looked at anew since.

    Each comes with the transition that it was written by. Late data moves or takes back steps that were written.
    """
    again = judged.operations.filter(seq__gt=lane.alerts_seq, after_ms__lt=after_ms)
    oldest_ms = again.aggregate(oldest_ms=Min("after_ms"))["oldest_ms"]
    if oldest_ms is None:
        return {}
    events = AlertEvent.objects.filter(rule__app=lane.app_id, aspect=Aspect.VALUE, at_ms__lte=after_ms).exclude(seq=0)
    is_changed = Q(seq__gt=lane.alerts_seq) | Q(superseded_seq__gt=lane.alerts_seq)
    changed = {event.key for event in events.filter(is_changed, at_ms__gt=oldest_ms)}
    if not changed:
        return {}
    was_so = Q(superseded_seq=None) | Q(superseded_seq__gt=lane.alerts_seq)
    of_them = events.filter(was_so, seq__lte=lane.alerts_seq, fingerprint__in={key.fingerprint for key in changed})
    last = {event.key: event for event in of_them.order_by("at_ms", "pk") if event.key in changed}
    return {key: event for key, event in last.items() if event.state not in (Phase.OK, Phase.CLOSED)}


def _end_taken_back(
    message: _Message,
    written: Mapping[InstanceKey, AlertEvent],
    active: Mapping[InstanceKey, InstanceState],
    at_ms: int,
) -> None:
    """Add stale markers for what was written of alerts that are in another state at that step, or in none."""
    rules = Rule.objects.filter(pk__in={key.rule for key in written}).select_related("group").in_bulk()
    for key, event in written.items():
        labels = _alert_labels(rules[key.rule], event.labels, event.value)
        for series in ended_series(labels, was_alerting=event.state in ALERTING, now=active.get(key, OK)):
            message.add(series, np.array([at_ms], np.int64), np.array([STALE]))


def _changes(states: journal.LaneStates) -> list[Change]:
    """Return the changes after a step: each transition with the state that it led to."""
    following = {key: row.state for key, row in states.rows.items()}
    changes = list[Change]()
    for event in reversed(states.later):
        changes.append((event.key, event.at_ms, following.get(event.key, OK)))
        following[event.key] = journal.state_of(event.before_state)
    return changes


def _alert_samples(states: journal.LaneStates, parts: Sequence[AlertStretch], steps: Steps) -> _Message:
    keys = {part.key for part in parts}
    rules = Rule.objects.filter(pk__in={key.rule for key in keys}).select_related("group").in_bulk()
    facts = {row.key: (row.labels, row.value) for row in states.rows.values()}
    facts |= {event.key: (event.labels, event.value) for event in states.later}
    message = _Message([], [], [])
    for number, (key, own) in enumerate(groupby(parts, key=lambda part: part.key)):
        if number >= limits.ALERTS_MAX:
            break
        rule, (series, value) = rules[key.rule], facts[key]
        labels = _alert_labels(rule, series, value)
        for each in series_of(list(own), labels, len(steps)):
            first_ms = steps.at_ms(each.first)
            ts = np.arange(first_ms, first_ms + each.count * steps.period_ms, steps.period_ms, dtype=np.int64)
            message.add(each.labels, ts, np.full(each.count, each.value))
    return message


def _alert_labels(rule: Rule, series: Mapping[str, str], value: float | None) -> Mapping[str, str]:
    return alert_labels(rule.name, rule.alert_labels, series, math.nan if value is None else value)


def _name(labels: Mapping[str, str]) -> str:
    return labels[METRIC_NAME]


def _labels(labels: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in labels.items() if name != METRIC_NAME}
