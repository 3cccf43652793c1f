"""Evaluates rules on time: selects the rules that are due, queries each once, and records new states and messages.

1. A rule is due if it is enabled and not yet evaluated at the latest aligned time. After a pause only the present
   time is evaluated.
2. A rule is claimed for a while by a conditional update: of two overlapping rounds one gets it, and the claim of a
   process that died expires.
3. The query runs outside any transaction, because it may take long.
4. One transaction confirms the claim, steps the states, writes events and outbox rows and returns the claim. A crash
   before its commit changes nothing; after the commit no work remains.

If the engine refuses the expression, the rule's ``error`` says why, and its states stay. Enter by
``evaluate_due_rules``.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from django.db import transaction
from django.db.models import Q, QuerySet

from alerts import journal, rules
from alerts.expressions import Querier, SeriesValue, fingerprint
from alerts.models import Rule
from spm import limits, telemetry
from spm.clock import Clock, random_u64
from spm.errors import SpmError

log = logging.getLogger("spm.alerts")


@dataclass(frozen=True, slots=True)
class EvaluationCounts:
    """The counts of one round: rules evaluated, rules that failed, and messages written."""

    evaluated: int = 0
    failed: int = 0
    messages: int = 0


def aligned_ms(now_ms: int) -> int:
    """Return the latest time of the grid on which all rules are evaluated."""
    return now_ms // limits.RULE_PERIOD_MS * limits.RULE_PERIOD_MS


def evaluate_due_rules(*, querier: Querier, clock: Clock) -> EvaluationCounts:
    """Evaluate every rule that is due; a rule that fails does not delay the others."""
    evaluated = failed = messages = 0
    for rule_id in list(_due(clock.now_ms()).order_by("evaluated_ms", "pk").values_list("pk", flat=True)):
        try:
            with telemetry.timed(telemetry.RULE_S, clock=clock):
                message_count = evaluate_rule(rule_id, querier=querier, clock=clock)
        except Exception:  # a loop's top: the other rules must be evaluated, and this one is due again
            log.exception("rule %d could not be evaluated", rule_id)
            failed += 1
            continue
        evaluated += message_count is not None
        messages += message_count or 0
    telemetry.RULES_EVALUATED.labels("done").inc(evaluated)
    telemetry.RULES_EVALUATED.labels("failed").inc(failed)
    return EvaluationCounts(evaluated, failed, messages)


def evaluate_rule(rule_id: int, *, querier: Querier, clock: Clock) -> int | None:
    """Evaluate one rule; returns how many messages it wrote, or None if another process has claimed the rule."""
    now_ms = clock.now_ms()
    claim_id = claim(rule_id, now_ms)
    if claim_id is None:
        return None
    rule = Rule.objects.select_related("app").get(pk=rule_id)
    at_ms = aligned_ms(now_ms)
    try:
        values, error = querier(rule.app_id, rule.expr, at_ms), ""
    except SpmError as refusal:
        values, error = None, str(refusal)
    return record_evaluation(rule, claim_id, values, at_ms=at_ms, error=error)


def claim(rule_id: int, now_ms: int) -> int | None:
    """Claim the rule; returns the claim's number, or None if the rule is not due or claimed already."""
    claim_id = random_u64() >> 1
    count = _due(now_ms).filter(pk=rule_id).update(claim=claim_id, claim_until_ms=now_ms + limits.RULE_CLAIM_MS)
    return claim_id if count else None


def record_evaluation(
    rule: Rule, claim_id: int, values: Sequence[SeriesValue] | None, *, at_ms: int, error: str
) -> int | None:
    """Write the result of a query in one transaction; returns None, and writes nothing, if the claim was lost."""
    with transaction.atomic():
        mine = Rule.objects.filter(pk=rule.pk, claim=claim_id)
        if not mine.update(claim=0, claim_until_ms=0, evaluated_ms=at_ms, error=error):
            return None
        if values is None:
            return 0
        states, labels = journal.series_states(rule)
        by_fingerprint = {fingerprint(each.labels): each for each in values}
        evaluation = rules.evaluate(
            rule.condition,
            states,
            {name: each.value for name, each in by_fingerprint.items()},
            now_ms=at_ms,
            active_max=limits.RULE_ACTIVE_MAX,
        )
        if evaluation.skipped:
            error = f"{evaluation.skipped} more series are violated than the {limits.RULE_ACTIVE_MAX} a rule watches."
            Rule.objects.filter(pk=rule.pk).update(error=error)
        labels |= {name: each.labels for name, each in by_fingerprint.items()}
        return journal.record(rule, evaluation.changes, labels, at_ms=at_ms)


def _due(now_ms: int) -> QuerySet[Rule]:
    """Select the enabled rules that are due. A time far ahead of now was written by a clock that was wrong then."""
    at_ms = aligned_ms(now_ms)
    overdue = Q(evaluated_ms__lt=at_ms) | Q(evaluated_ms__gt=at_ms + limits.RULE_CLAIM_MS)
    free = Q(claim_until_ms__lte=now_ms) | Q(claim_until_ms__gt=now_ms + limits.RULE_CLAIM_MS)
    return Rule.objects.filter(overdue, free, enabled=True, deleted_ms=None, app__going=None)
