"""Judges lanes: reads where a lane stands, judges its next steps in order, and commits each chunk as one operation.

1. A lane is due if a step after its position has come. It is claimed for a while; the claim only saves work.
2. The lane's number is read, then its versions and states, then the data, outside any transaction.
3. One transaction takes the next number of the lane and writes what changed (``journal.commit``). If another judge or
   an edit took the number meanwhile, nothing is written, and the lane is judged anew.

After a stall all missed steps follow in order, a chunk per operation. If the store does not answer, the lane stays
where it is and says why. Enter by ``evaluate_due_lanes``.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from django.db.models import Exists, OuterRef, Q, QuerySet

from alerts import journal
from alerts.judging import lane_plan, limits
from alerts.judging.answers import Read
from alerts.judging.lane_plan import OperationKind, aligned_ms, next_steps
from alerts.judging.run import Outcome, run
from alerts.judging.versions import Steps
from alerts.models import Instance, Lane, Rule
from spm import telemetry
from spm.clock import Clock
from spm.errors import StoreUnavailable
from spm.limits import RULE_ACTIVE_MAX, RULE_PERIOD_MS

log = logging.getLogger("spm.alerts")
OpenSession = Callable[[int], Read]  # an app → what evaluates its expressions, with data shared between them


@dataclass(frozen=True, slots=True)
class EvaluationCounts:
    """The counts of one round: operations committed, and lanes that could not be judged."""

    evaluated: int = 0
    failed: int = 0


def evaluate_due_lanes(*, open_session: OpenSession, clock: Clock) -> EvaluationCounts:
    """Judge every lane that is due, the one that is furthest behind first; one that fails does not delay the others."""
    evaluated = failed = 0
    for lane_id in list(_due(clock.now_ms()).order_by("position_ms", "pk").values_list("pk", flat=True)):
        try:
            with telemetry.timed(telemetry.RULE_S, clock=clock):
                evaluated += evaluate_lane(lane_id, open_session=open_session, clock=clock)
        except StoreUnavailable as error:
            Lane.objects.filter(pk=lane_id).exclude(waiting=str(error)).update(waiting=str(error))
            failed += 1
        except Exception:  # a loop's top: the other lanes must be judged, and this one is due again
            log.exception("lane %d could not be judged", lane_id)
            failed += 1
    telemetry.RULES_EVALUATED.labels("done").inc(evaluated)
    telemetry.RULES_EVALUATED.labels("failed").inc(failed)
    return EvaluationCounts(evaluated, failed)


def evaluate_lane(lane_id: int, *, open_session: OpenSession, clock: Clock) -> int:
    """Judge the next chunks of a lane; returns how many operations were committed."""
    if not claim(lane_id, clock.now_ms()):
        return 0
    count = 0
    try:
        while count < limits.CHUNKS_PER_ROUND_MAX and _judge_chunk(lane_id, open_session, clock):
            count += 1
    finally:
        Lane.objects.filter(pk=lane_id).update(lease_until_ms=0)
    return count


def claim(lane_id: int, now_ms: int) -> bool:
    """Claim the lane for a while, so that no other judge does its work at the same time."""
    return bool(_due(now_ms).filter(pk=lane_id).update(lease_until_ms=now_ms + limits.LEASE_MS))


def _judge_chunk(lane_id: int, open_session: OpenSession, clock: Clock) -> bool:
    lane, now_ms = Lane.objects.get(pk=lane_id), clock.now_ms()
    operation = next_steps(lane.position_ms, now_ms=now_ms, ready_ms=now_ms, period_ms=RULE_PERIOD_MS)
    return operation is not None and judge(lane, operation, open_session=open_session, now_ms=now_ms)


def judge(lane: Lane, operation: lane_plan.Operation, *, open_session: OpenSession, now_ms: int) -> bool:
    """Do one operation on a lane as it was read; returns False, and writes nothing, if the lane has changed since."""
    before = journal.states_at(lane, operation.after_ms)
    outcome = Outcome((), before.states, {})
    if operation.kind is OperationKind.JUDGE:
        steps = Steps(operation.after_ms + RULE_PERIOD_MS, operation.upto_ms, RULE_PERIOD_MS)
        versions = journal.versions_between(lane, operation.after_ms, operation.upto_ms)
        outcome = run(versions, steps, before.states, read=open_session(lane.app_id), active_max=RULE_ACTIVE_MAX)
    return journal.commit(lane, operation, before, outcome, now_ms=now_ms)


def _due(now_ms: int) -> QuerySet[Lane]:
    """Select the lanes with a step to judge, of apps that have anything to judge and are not being deleted."""
    at_ms = aligned_ms(now_ms, RULE_PERIOD_MS)
    overdue = Q(position_ms__lt=at_ms) | Q(position_ms__gt=now_ms + limits.REWIND_AFTER_MS)
    free = Q(lease_until_ms__lte=now_ms) | Q(lease_until_ms__gt=now_ms + limits.LEASE_MS)
    rules = Rule.objects.filter(app=OuterRef("app"), enabled=True, deleted_ms=None)
    instances = Instance.objects.filter(rule__app=OuterRef("app"))
    return Lane.objects.filter(overdue, free, Exists(rules) | Exists(instances), app__going=None)
