"""Judges lanes: reads where a lane stands, judges its next steps in order, and commits each chunk as one operation.

1. A lane is due if a step after its position has come. It is claimed for a while; the claim only saves work.
2. The lane's number is read, THEN what is known of its app (``Sight``), then its versions and states, then the data,
   outside any transaction.
3. A step waits until it is complete or patience is over (``lane_plan``). What became known since and reaches back is
   judged again: only by the rules that read such metrics, from the step before it on.
4. One transaction takes the next number of the lane and writes what changed (``journal.commit``). If another judge or
   an edit took the number meanwhile, nothing is written, and the lane is judged anew.

After a stall all missed steps follow in order, a chunk per operation. If the store does not answer, the lane stays
where it is and says why. Enter by ``evaluate_due_lanes``.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum

from django.db import DatabaseError
from django.db.models import Exists, OuterRef, Q, QuerySet

from alerts import journal
from alerts.judging import limits
from alerts.judging.answers import Read
from alerts.judging.kinds import Kind
from alerts.judging.knowledge.sight import Sight
from alerts.judging.lane_plan import Decision, News, Operation, OperationKind, aligned_ms, decide
from alerts.judging.lane_shares import SHARES
from alerts.judging.readers.order import is_reader
from alerts.judging.run import Outcome, incomplete_at, run
from alerts.judging.selections import traits_of
from alerts.judging.versions import RuleVersion, Steps
from alerts.models import Instance, Lane, Rule
from spm import telemetry
from spm.clock import Clock, SystemClock
from spm.errors import StoreUnavailable
from spm.limits import RULE_ACTIVE_MAX, RULE_PERIOD_MS

log = logging.getLogger("spm.alerts")
OpenSession = Callable[[int], Read]  # an app → what evaluates its expressions, with data shared between them
Observe = Callable[[Lane], Sight]  # a lane as it was read → what is known of its app now


def at_present(open_session: OpenSession, clock: Clock) -> Observe:
    """Return an observer that takes everything visible now for known and complete. Nothing it sees can be replayed."""

    def observe(lane: Lane) -> Sight:
        now_ms = clock.now_ms()
        return Sight(open_session(lane.app_id), now_ms, now_ms, now_ms)

    return observe


@dataclass(frozen=True, slots=True)
class EvaluationCounts:
    """The counts of one round: operations committed, and lanes that could not be judged."""

    evaluated: int = 0
    failed: int = 0


def evaluate_due_lanes(*, observe: Observe, clock: Clock) -> EvaluationCounts:
    """Judge every lane that is due, the one that is furthest behind first; one that fails does not delay the others.

    Lanes that take long come last, and wait while judges of this process work at enough of them (``lane_shares``).
    """
    evaluated = failed = 0
    due = _due(clock.now_ms()).order_by("position_ms", "pk").values_list("pk", flat=True)
    for lane_id in SHARES.quick_first("judge", due):
        try:
            with SHARES.share(("judge", lane_id), clock) as may_judge, telemetry.timed(telemetry.RULE_S, clock=clock):
                evaluated += evaluate_lane(lane_id, observe=observe, clock=clock) if may_judge else 0
        except StoreUnavailable as error:
            Lane.objects.filter(pk=lane_id).exclude(waiting=str(error)).update(waiting=str(error))
            failed += 1
        except Exception as fault:  # a loop's top: the other lanes must be judged, and this one is due again
            log.exception("lane %d could not be judged", lane_id)
            _note_fault(lane_id, fault)
            failed += 1
    telemetry.RULES_EVALUATED.labels("done").inc(evaluated)
    telemetry.RULES_EVALUATED.labels("failed").inc(failed)
    return EvaluationCounts(evaluated, failed)


def _note_fault(lane_id: int, fault: Exception) -> None:
    """Say on the lane that it stands still, if the database takes that."""
    with suppress(DatabaseError):
        Lane.objects.filter(pk=lane_id).update(waiting=f"A fault of this service: {type(fault).__name__}: {fault}")


def evaluate_lane(lane_id: int, *, observe: Observe, clock: Clock) -> int:
    """Judge the next chunks of a lane while its turn lasts; returns how many operations were committed.

    A turn ends long before the claim does: else a slow lane that catches up would occupy one worker after another.
    """
    began_ms, count = clock.now_ms(), 0
    if not claim(lane_id, began_ms):
        return 0
    try:
        while (chunk := _judge_chunk(lane_id, observe, clock)) is not _Chunk.NONE:
            count += 1
            is_over = not 0 <= clock.now_ms() - began_ms < limits.TURN_MS
            if chunk is _Chunk.LAST or is_over or count == limits.CHUNKS_PER_ROUND_MAX:
                break
    finally:
        Lane.objects.filter(pk=lane_id).update(lease_until_ms=0)
    return count


def claim(lane_id: int, now_ms: int) -> bool:
    """Claim the lane for a while, so that no other judge does its work at the same time."""
    return bool(_due(now_ms).filter(pk=lane_id).update(lease_until_ms=now_ms + limits.LEASE_MS))


class _Chunk(Enum):
    """What became of a chunk: nothing was committed, steps that were all there are, or one that others follow."""

    NONE = 0
    LAST = 1
    FULL = 2


def _judge_chunk(lane_id: int, observe: Observe, clock: Clock) -> _Chunk:
    lane = Lane.objects.get(pk=lane_id)
    sight = observe(lane)
    decision = decide(
        lane.state,
        now_ms=sight.now_ms,
        ready_ms=sight.ready_ms,
        frontier_ms=sight.frontier_ms,
        news=sight.news,
        period_ms=RULE_PERIOD_MS,
    )
    if decision is None or not judge(lane, decision, sight, now_ms=clock.now_ms(), clock=clock):
        return _Chunk.NONE
    operation = decision.operation
    is_full = operation.upto_ms >= lane.position_ms + limits.CHUNK_STEPS_MAX * RULE_PERIOD_MS
    return _Chunk.FULL if is_full or operation.kind is not OperationKind.JUDGE else _Chunk.LAST


def judge(
    lane: Lane,
    decision: Decision,
    sight: Sight,
    *,
    now_ms: int,
    clock: Clock | None = None,
) -> bool:
    """Do one operation on a lane as it was read; returns False, and writes nothing, if the lane has changed since."""
    monotonic = (clock or SystemClock()).monotonic
    operation, began_s = decision.operation, monotonic()
    if operation.kind is not OperationKind.JUDGE:
        before = journal.states_at(lane, operation.after_ms, journal.instances_of(lane))
        part = journal.Part(operation.after_ms, before, Outcome((), before.states, {}))
        return journal.commit(lane, decision, [part], sight, now_ms=now_ms)
    versions = journal.versions_between(lane, operation.after_ms, operation.upto_ms)
    parts = _judge_parts(lane, decision, versions, sight)
    took_us = round((monotonic() - began_s) * 1e6)
    try:
        return journal.commit(lane, decision, parts, sight, now_ms=now_ms, took_us=took_us)
    except journal.WORLD_ERRORS:
        raise
    except Exception:  # a loop's top: what one rule makes of its data must not stop its lane
        faults = journal.unwritable_rules(lane, decision, parts, sight, now_ms=now_ms)
        if not faults:
            raise
    versions = [replace(each, fault=faults.get(each.rule, each.fault)) for each in versions]
    parts = _judge_parts(lane, decision, versions, sight)
    return journal.commit(lane, decision, parts, sight, now_ms=now_ms, took_us=round((monotonic() - began_s) * 1e6))


def _judge_parts(lane: Lane, decision: Decision, versions: Sequence[RuleVersion], sight: Sight) -> list[journal.Part]:
    """Judge the steps of an operation: by the rules that news concerns from its beginning on, by the others anew."""
    operation, instances = decision.operation, journal.instances_of(lane)
    again = _rules_to_judge_again(versions, decision)
    parts: list[tuple[int, Callable[[int], bool]]] = [(lane.position_ms, lambda rule: rule not in again)]
    if again:
        parts.insert(0, (operation.after_ms, again.__contains__))
    return [
        _judge_part(lane, after_ms, operation, versions, instances, sight, concerns)
        for after_ms, concerns in parts
        if after_ms < operation.upto_ms
    ]


def _rules_to_judge_again(versions: Sequence[RuleVersion], decision: Decision) -> frozenset[int]:
    """Return the rules that steps behind the position are judged again by: those that read a metric of the news.

    A composite rests on other rules, and so do readers of ``ALERTS``: with one of them all are judged again.
    """
    news = decision.news
    if news is None:
        return frozenset()
    is_joined = any(each.kind is Kind.COMPOSITE or is_reader(each) for each in versions)
    return frozenset(each.rule for each in versions if is_joined or _reads_any(each, news))


def _reads_any(version: RuleVersion, news: News) -> bool:
    """Whether the rule reads a metric of the news; if a fault of ours hides that, it may: its judging says so."""
    try:
        return traits_of(version.value_expr).reads_any(news.metrics)
    except Exception:  # a loop's top: one rule must not stop its lane
        log.exception("what rule %d reads is not known", version.rule)
        return True


def _judge_part(
    lane: Lane,
    after_ms: int,
    operation: Operation,
    versions: Sequence[RuleVersion],
    instances: Sequence[Instance],
    sight: Sight,
    concerns: Callable[[int], bool],
) -> journal.Part:
    """Judge some of the rules at the steps (after, upto]."""
    before = journal.states_at(lane, after_ms, instances, concerns=concerns)
    steps = Steps(after_ms + RULE_PERIOD_MS, operation.upto_ms, RULE_PERIOD_MS)
    own = [each for each in versions if concerns(each.rule)]
    incomplete = incomplete_at(steps, operation.behind_ms)
    outcome = run(
        own,
        steps,
        before.states,
        read=sight.read,
        active_max=RULE_ACTIVE_MAX,
        incomplete=incomplete,
        labels=before.labels,
    )
    return journal.Part(after_ms, before, outcome)


def _due(now_ms: int) -> QuerySet[Lane]:
    """Select the lanes with a step to judge, of apps that have anything to judge and are not being deleted."""
    at_ms = aligned_ms(now_ms, RULE_PERIOD_MS)
    overdue = Q(position_ms__lt=at_ms) | Q(position_ms__gt=now_ms + limits.REWIND_AFTER_MS)
    free = Q(lease_until_ms__lte=now_ms) | Q(lease_until_ms__gt=now_ms + limits.LEASE_MS)
    rules = Rule.objects.filter(app=OuterRef("app"), enabled=True, deleted_ms=None)
    instances = Instance.objects.filter(rule__app=OuterRef("app"))
    return Lane.objects.filter(overdue, free, Exists(rules) | Exists(instances), app__going=None)
