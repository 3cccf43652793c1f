"""Looking at rules on time: who is due, one question to the engine each, and the new states with their messages.

1. Due are enabled rules not yet judged up to the latest aligned time. A watchman who slept looks at now only.
2. A rule is claimed by a conditional update, for a while: of two overlapping ticks one gets it, and a claim whose
   holder died runs out.
3. The engine answers outside any transaction; it may take long.
4. One transaction confirms the claim, steps the states, writes events and outbox and gives the claim back. A crash
   anywhere before its commit leaves everything as it was; after it, nothing is left to do.

What the engine refuses stands on the rule as its ``error``, and its states stay.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from django.db import transaction
from django.db.models import Q, QuerySet

from alerts import journal, rules
from alerts.models import Rule
from alerts.readings import Ask, Reading, fingerprint
from spm import limits, telemetry
from spm.clock import Clock, random_u64
from spm.errors import SpmError

log = logging.getLogger("spm.alerts")


@dataclass(frozen=True, slots=True)
class Tally:
    """What a tick did."""

    judged: int = 0
    failed: int = 0
    messages: int = 0


def aligned_ms(now_ms: int) -> int:
    """The latest time of the grid on which all rules are judged."""
    return now_ms // limits.RULE_PERIOD_MS * limits.RULE_PERIOD_MS


def tick(*, ask: Ask, clock: Clock) -> Tally:
    """Judge every rule that is due; one that fails does not keep the others waiting."""
    judged = failed = messages = 0
    for rule_id in list(_due(clock.now_ms()).order_by("evaluated_ms", "pk").values_list("pk", flat=True)):
        try:
            with telemetry.timed(telemetry.RULE_S, clock=clock):
                told = judge(rule_id, ask=ask, clock=clock)
        except Exception:  # a loop's top: the other rules must be looked at, and this one is due again
            log.exception("rule %d could not be judged", rule_id)
            failed += 1
            continue
        judged += told is not None
        messages += told or 0
    telemetry.RULES_JUDGED.labels("done").inc(judged)
    telemetry.RULES_JUDGED.labels("failed").inc(failed)
    return Tally(judged, failed, messages)


def judge(rule_id: int, *, ask: Ask, clock: Clock) -> int | None:
    """Look at one rule; returns the number of messages it made, or None if somebody else has it or got ahead."""
    now_ms = clock.now_ms()
    ticket = claim(rule_id, now_ms)
    if ticket is None:
        return None
    rule = Rule.objects.select_related("app").get(pk=rule_id)
    at_ms = aligned_ms(now_ms)
    try:
        readings, error = ask(rule.app_id, rule.expr, at_ms), ""
    except SpmError as refusal:
        readings, error = None, str(refusal)
    return settle_look(rule, ticket, readings, at_ms=at_ms, error=error)


def claim(rule_id: int, now_ms: int) -> int | None:
    """A ticket for the rule, if it is due and nobody else holds it."""
    ticket = random_u64() >> 1
    taken = _due(now_ms).filter(pk=rule_id).update(claim=ticket, claim_until_ms=now_ms + limits.RULE_CLAIM_MS)
    return ticket if taken else None


def settle_look(rule: Rule, ticket: int, readings: Sequence[Reading] | None, *, at_ms: int, error: str) -> int | None:
    """Write down what a look found, all or nothing, if the ticket is still good."""
    with transaction.atomic():
        mine = Rule.objects.filter(pk=rule.pk, claim=ticket)
        if not mine.update(claim=0, claim_until_ms=0, evaluated_ms=at_ms, error=error):
            return None
        if readings is None:
            return 0
        known, labels = journal.standings(rule)
        found = {fingerprint(reading.labels): reading for reading in readings}
        outcome = rules.look(
            rule.condition,
            known,
            {name: reading.value for name, reading in found.items()},
            now_ms=at_ms,
            active_max=limits.RULE_ACTIVE_MAX,
        )
        if outcome.passed_over:
            said = f"{outcome.passed_over} more series are violated than the {limits.RULE_ACTIVE_MAX} a rule watches."
            Rule.objects.filter(pk=rule.pk).update(error=said)
        labels |= {name: reading.labels for name, reading in found.items()}
        return journal.record(rule, outcome.changes, labels, at_ms=at_ms)


def _due(now_ms: int) -> QuerySet[Rule]:
    """Enabled rules that wait for a look. What lies far ahead of now was written by a clock since put right."""
    at_ms = aligned_ms(now_ms)
    late = Q(evaluated_ms__lt=at_ms) | Q(evaluated_ms__gt=at_ms + limits.RULE_CLAIM_MS)
    free = Q(claim_until_ms__lte=now_ms) | Q(claim_until_ms__gt=now_ms + limits.RULE_CLAIM_MS)
    return Rule.objects.filter(late, free, enabled=True, deleted_ms=None, app__going=None)
