"""Delivers the outbox: claims a message, hands it to its notifier, and records the result.

A message is claimed for a while by a conditional update. If a process dies between sending and recording, its claim
expires and the message is sent again *under the same key*: mail carries the key as Message-ID, so that a mail program
shows it once. Failed messages are tried again with growing pauses, up to a bound of attempts. Then, or if the notifier
says that the failure is permanent, the message is dead: it is shown, and only a person can revive it. Enter by
``deliver``.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from django.db.models import F, Q, QuerySet

from alerts.models import Delivery, Outbox
from alerts.notify.base import DeliveryFailed, Notifier
from alerts.notify.login_notices import ACCOUNT_KIND
from spm import limits, telemetry
from spm.clock import Clock, jitter, random_u64

log = logging.getLogger("spm.alerts")


@dataclass(frozen=True, slots=True)
class DeliveryCounts:
    """The counts of one round of deliveries."""

    sent: int = 0
    failed: int = 0


def deliver(*, notifiers: Mapping[str, Notifier], clock: Clock) -> DeliveryCounts:
    """Try every message that is due, oldest first, up to the bound of one round."""
    sent = failed = 0
    due = _due(clock.now_ms()).order_by("created_ms", "pk").values_list("pk", flat=True)
    for message_id in list(due[: limits.OUTBOX_ROUND_MAX]):
        is_sent = deliver_one(message_id, notifiers=notifiers, clock=clock)
        sent += is_sent is True
        failed += is_sent is False
    telemetry.DELIVERIES.labels("sent").inc(sent)
    telemetry.DELIVERIES.labels("failed").inc(failed)
    return DeliveryCounts(sent, failed)


def deliver_one(message_id: int, *, notifiers: Mapping[str, Notifier], clock: Clock) -> bool | None:
    """Try one message; returns whether it was sent, or None if another process has claimed it."""
    claim_id = claim(message_id, clock.now_ms())
    if claim_id is None:
        return None
    message = Outbox.objects.get(pk=message_id)
    try:
        _notifier(message, notifiers).send(message.key, message.payload)
    except DeliveryFailed as failure:
        _mark_failed(message, claim_id, failure, clock.now_ms())
        return False
    mark_sent(message_id, claim_id, clock.now_ms())
    if message.kind == ACCOUNT_KIND:  # its links are secrets
        Outbox.objects.filter(pk=message_id).update(payload={**message.payload, "body": "Removed after it was sent.\n"})
    return True


def claim(message_id: int, now_ms: int) -> int | None:
    """Claim the message and count the attempt; returns None if it is not due or claimed already."""
    claim_id = random_u64() >> 1
    values = {"claim": claim_id, "claim_until_ms": now_ms + limits.OUTBOX_CLAIM_MS, "attempts": F("attempts") + 1}
    return claim_id if _due(now_ms).filter(pk=message_id).update(**values) else None


def mark_sent(message_id: int, claim_id: int, now_ms: int) -> None:
    """Record that the notifier has delivered the message."""
    values = {"state": Delivery.SENT, "sent_ms": now_ms, "error": "", "claim": 0, "claim_until_ms": 0}
    Outbox.objects.filter(pk=message_id, claim=claim_id).update(**values)


def revive(messages: QuerySet[Outbox]) -> int:
    """Put dead messages back into the queue, with all attempts again and under their old keys; returns how many."""
    return messages.filter(state=Delivery.DEAD).update(state=Delivery.WAITING, attempts=0, next_attempt_ms=0)


def pause_ms(attempts: int) -> int:
    """Return the pause after this number of failed attempts."""
    return min(limits.OUTBOX_PAUSE_MAX_MS, limits.OUTBOX_PAUSE_MS << min(max(attempts - 1, 0), 20))


def _mark_failed(message: Outbox, claim_id: int, failure: DeliveryFailed, now_ms: int) -> None:
    is_dead = failure.permanent or message.attempts >= limits.OUTBOX_ATTEMPTS_MAX
    log.warning("message %s not delivered (attempt %d): %s", message.key, message.attempts, failure)
    pause = jitter(pause_ms(message.attempts) / 1_000, limits.OUTBOX_JITTER) * 1_000
    Outbox.objects.filter(pk=message.pk, claim=claim_id).update(
        state=Delivery.DEAD if is_dead else Delivery.WAITING,
        next_attempt_ms=now_ms + round(pause),
        error=str(failure)[: limits.OUTBOX_ERROR_CHARS_MAX],
        claim=0,
        claim_until_ms=0,
    )


def _notifier(message: Outbox, notifiers: Mapping[str, Notifier]) -> Notifier:
    if message.kind not in notifiers:
        raise DeliveryFailed(f"there is no notifier for {message.kind!r}", permanent=True)
    return notifiers[message.kind]


def _due(now_ms: int) -> QuerySet[Outbox]:
    free = Q(claim_until_ms__lte=now_ms) | Q(claim_until_ms__gt=now_ms + limits.OUTBOX_CLAIM_MS)
    return Outbox.objects.filter(free, state=Delivery.WAITING, next_attempt_ms__lte=now_ms)
