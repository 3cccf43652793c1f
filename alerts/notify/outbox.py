"""Getting messages out: claim one, hand it to its notifier, mark what became of it.

A message is claimed by a conditional update for a while; a process that dies between sending and marking leaves a claim
that runs out, and the message goes out again *under the same key*: mail carries it as Message-ID, so that a reader
shows it once. Failures are tried again with growing pauses up to a bound of attempts; then, or when the notifier says
that it is for good, the message is dead: shown, and revived only by a person.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from django.db.models import F, Q, QuerySet

from alerts.models import Delivery, Outbox
from alerts.notify.base import DeliveryFailed, Notifier
from spm import limits, telemetry
from spm.clock import Clock, jitter, random_u64

log = logging.getLogger("spm.alerts")


@dataclass(frozen=True, slots=True)
class Tally:
    """What a round of deliveries did."""

    sent: int = 0
    failed: int = 0


def deliver(*, notifiers: Mapping[str, Notifier], clock: Clock) -> Tally:
    """Try every message that is due, oldest first, up to the bound of one round."""
    sent = failed = 0
    due = _due(clock.now_ms()).order_by("created_ms", "pk").values_list("pk", flat=True)
    for message_id in list(due[: limits.OUTBOX_ROUND_MAX]):
        done = deliver_one(message_id, notifiers=notifiers, clock=clock)
        sent += done is True
        failed += done is False
    telemetry.DELIVERIES.labels("sent").inc(sent)
    telemetry.DELIVERIES.labels("failed").inc(failed)
    return Tally(sent, failed)


def deliver_one(message_id: int, *, notifiers: Mapping[str, Notifier], clock: Clock) -> bool | None:
    """Try one message; None if somebody else has it."""
    ticket = claim(message_id, clock.now_ms())
    if ticket is None:
        return None
    message = Outbox.objects.get(pk=message_id)
    try:
        _notifier(message, notifiers).send(message.key, message.payload)
    except DeliveryFailed as failure:
        _mark_failed(message, ticket, failure, clock.now_ms())
        return False
    mark_sent(message_id, ticket, clock.now_ms())
    return True


def claim(message_id: int, now_ms: int) -> int | None:
    """A ticket for the message, if it is due and nobody else holds it. The attempt counts from here."""
    ticket = random_u64() >> 1
    mine = {"claim": ticket, "claim_until_ms": now_ms + limits.OUTBOX_CLAIM_MS, "attempts": F("attempts") + 1}
    return ticket if _due(now_ms).filter(pk=message_id).update(**mine) else None


def mark_sent(message_id: int, ticket: int, now_ms: int) -> None:
    """The notifier has taken the message."""
    done = {"state": Delivery.SENT, "sent_ms": now_ms, "error": "", "claim": 0, "claim_until_ms": 0}
    Outbox.objects.filter(pk=message_id, claim=ticket).update(**done)


def revive(messages: QuerySet[Outbox]) -> int:
    """Try dead messages anew, with all their attempts, under the same keys."""
    return messages.filter(state=Delivery.DEAD).update(state=Delivery.WAITING, attempts=0, next_attempt_ms=0)


def pause_ms(attempts: int) -> int:
    """How long to wait after so many failed attempts."""
    return min(limits.OUTBOX_PAUSE_MAX_MS, limits.OUTBOX_PAUSE_MS << min(max(attempts - 1, 0), 20))


def _mark_failed(message: Outbox, ticket: int, failure: DeliveryFailed, now_ms: int) -> None:
    is_dead = failure.permanent or message.attempts >= limits.OUTBOX_ATTEMPTS_MAX
    log.warning("message %s not delivered (attempt %d): %s", message.key, message.attempts, failure)
    pause = jitter(pause_ms(message.attempts) / 1_000, limits.OUTBOX_JITTER) * 1_000
    Outbox.objects.filter(pk=message.pk, claim=ticket).update(
        state=Delivery.DEAD if is_dead else Delivery.WAITING,
        next_attempt_ms=now_ms + round(pause),
        error=str(failure)[: limits.OUTBOX_ERROR_CHARS_MAX],
        claim=0,
        claim_until_ms=0,
    )


def _notifier(message: Outbox, notifiers: Mapping[str, Notifier]) -> Notifier:
    if message.kind not in notifiers:
        raise DeliveryFailed(f"nobody delivers {message.kind!r}", permanent=True)
    return notifiers[message.kind]


def _due(now_ms: int) -> QuerySet[Outbox]:
    free = Q(claim_until_ms__lte=now_ms) | Q(claim_until_ms__gt=now_ms + limits.OUTBOX_CLAIM_MS)
    return Outbox.objects.filter(free, state=Delivery.WAITING, next_attempt_ms__lte=now_ms)
