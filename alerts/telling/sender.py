"""Delivers notifications: claims one, hands it to its notifier, and records what became of it.

1. A notification is claimed for a while by a conditional update. If the claim before it ran out, nobody knows whether
   that attempt arrived: the notification is in doubt from then on.
2. What is drawn as a chart, and texts that rest on data, are read once and stored: a retry sends the same bytes.
3. Hand-overs run in threads that touch no database, so that receivers that stall hold up none of the others. A
   notification whose claim has nearly run out is not handed over.
4. The outcome is written under the claim, in one transaction with what the receiver believes and with its groups: a
   process that lost its claim writes nothing.

A process that dies between any two of these leaves a claim that runs out; the same bytes go out again under the same
key. A failed one waits twice as long after each attempt, up to a bound (``limits``). Enter by ``deliver``.
"""

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import Case, F, Q, QuerySet, Value, When

from alerts import newest_texts
from alerts.models.telling import Delivery, EscalationStep, LastWord, Notification, NotificationGroup, Receiver
from alerts.notify.base import DeliveryFailed, Notifier
from alerts.telling import charts, failing, limits
from alerts.telling.decide import episodes as words
from alerts.telling.decide.difference import after_delivery
from alerts.telling.decide.episodes import Level
from alerts.telling.hook import mark_organisation
from spm import telemetry
from spm.clock import Clock, jitter, random_u64

log = logging.getLogger("spm.alerts")
ReadChart = Callable[[Mapping[str, Any]], Mapping[str, Any]]
ReadTexts = Callable[[Mapping[str, Any]], newest_texts.Texts]


@dataclass(frozen=True, slots=True)
class DeliveryCounts:
    """The counts of one round of deliveries."""

    sent: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one hand-over: the failure, or None and the answer of the other side; and how long it took."""

    failure: DeliveryFailed | None = None
    answer: str = ""
    took_ms: int = 0


def deliver(
    *,
    notifiers: Mapping[str, Notifier],
    clock: Clock,
    threads: int = limits.SEND_THREADS,
    read_chart: ReadChart = charts.read_chart,
    read_texts: ReadTexts = charts.read_texts,
) -> DeliveryCounts:
    """Hand over every notification that is due, oldest first, up to the bound of one round."""
    waiting = list(_due(clock.now_ms()).order_by("created_ms", "pk").values_list("pk", flat=True)[: limits.ROUND_MAX])
    counts = [0, 0]
    with ThreadPoolExecutor(threads, thread_name_prefix="notify") as pool:
        reading: dict[Future[Any], Notification] = {}
        running: dict[Future[Any], Notification] = {}
        while waiting or reading or running:
            while waiting and len(reading) + len(running) < threads:
                notification = claim(waiting.pop(0), clock.now_ms())
                if notification is None:
                    continue
                readers = _readers(notification, notifiers, read_chart, read_texts)
                if readers:
                    reading[pool.submit(_read, readers, notification)] = notification
                else:
                    running[pool.submit(_hand_over(notification, notifiers, clock))] = notification
            for future in wait({**reading, **running}, return_when=FIRST_COMPLETED).done:
                if future in reading:
                    notification = freeze_readings(reading.pop(future), future.result())
                    running[pool.submit(_hand_over(notification, notifiers, clock))] = notification
                else:
                    outcome = future.result()
                    record(running.pop(future), outcome, clock.now_ms())
                    counts[outcome.failure is not None] += 1
    telemetry.DELIVERIES.labels("sent").inc(counts[0])
    telemetry.DELIVERIES.labels("failed").inc(counts[1])
    return DeliveryCounts(*counts)


def freeze_readings(notification: Notification, readings: Mapping[str, Any]) -> Notification:
    """Store its chart and texts before the first hand-over; if the claim was lost, nothing is written."""
    mine = Notification.objects.filter(pk=notification.pk, claim=notification.claim)
    for column, content in readings.items():
        mine.filter(**{f"{column}__isnull": True}).update(**{column: content})
        setattr(notification, column, content)
    return notification


def _read(readers: Mapping[str, Callable[[Mapping[str, Any]], Any]], notification: Notification) -> dict[str, Any]:
    readings = dict[str, Any]()
    for column, read in readers.items():
        try:
            readings[column] = read(notification.body)
        except Exception:  # a loop's top: a notification without its chart, or with older texts, is better than none
            log.exception("notification %s: its %s could not be read", notification.key, column)
            readings[column] = {}
    return readings


def _readers(
    notification: Notification, notifiers: Mapping[str, Notifier], read_chart: ReadChart, read_texts: ReadTexts
) -> dict[str, Callable[[Mapping[str, Any]], Any]]:
    """Return what reads the chart and the texts of the notification, as far as it has them and they were not read."""
    readers = dict[str, Callable[[Mapping[str, Any]], Any]]()
    if notification.chart is None and getattr(notifiers.get(notification.receiver.kind), "has_chart", False):
        readers["chart"] = read_chart
    if notification.texts is None and any(line.get("reading") for line in notification.body["lines"]):
        readers["texts"] = read_texts
    return readers


def claim(notification_id: int, now_ms: int) -> Notification | None:
    """Claim the notification and count the attempt; returns None if it is not due or claimed already."""
    claim_id = random_u64() >> 1
    claimed = _due(now_ms).filter(pk=notification_id)
    count = claimed.update(
        is_doubtful=Case(When(claim=0, then=F("is_doubtful")), default=Value(True)),
        claim=claim_id,
        claim_until_ms=now_ms + limits.CLAIM_MS,
        attempts=F("attempts") + 1,
    )
    if not count:
        return None
    return Notification.objects.select_related("receiver").get(pk=notification_id, claim=claim_id)


def record(notification: Notification, outcome: Outcome, now_ms: int) -> bool:
    """Write the outcome of a hand-over; returns False, and writes nothing, if the claim was lost."""
    failure = outcome.failure
    if failure is None:
        return _finish(notification, Delivery.SENT, now_ms, doubtful=notification.is_doubtful, outcome=outcome)
    answer = _answer(outcome)
    doubtful = notification.is_doubtful or failure.perhaps
    log.warning("notification %s not delivered (attempt %d): %s", notification.key, notification.attempts, answer)
    if failure.permanent or notification.attempts >= limits.ATTEMPTS_MAX:
        return _finish(notification, Delivery.DEAD, now_ms, doubtful=doubtful, outcome=outcome)
    pause = jitter(pause_ms(notification.attempts) / 1_000, limits.PAUSE_JITTER) * 1_000
    mine = Notification.objects.filter(pk=notification.pk, claim=notification.claim, state=Delivery.WAITING)
    return bool(
        mine.update(
            next_attempt_ms=now_ms + round(pause),
            is_doubtful=doubtful,
            answer=answer,
            took_ms=outcome.took_ms,
            claim=0,
            claim_until_ms=0,
        )
    )


def _answer(outcome: Outcome) -> str:
    """Return what the other side said, as far as it is kept."""
    return (outcome.answer if outcome.failure is None else str(outcome.failure))[: limits.ANSWER_CHARS_MAX]


def pause_ms(attempts: int) -> int:
    """Return the pause after this number of failed attempts."""
    return min(limits.PAUSE_MAX_MS, limits.PAUSE_MS << min(max(attempts - 1, 0), 20))


def _hand_over(notification: Notification, notifiers: Mapping[str, Notifier], clock: Clock) -> Callable[[], Outcome]:
    """Return the hand-over as a function that touches no database."""
    kind, key = notification.receiver.kind, notification.key
    body = notification.full_body
    last_ms = notification.claim_until_ms - limits.HAND_OVER_MS

    def hand_over() -> Outcome:
        from_s = clock.monotonic()
        outcome = attempt()
        return Outcome(outcome.failure, outcome.answer, round((clock.monotonic() - from_s) * 1_000))

    def attempt() -> Outcome:
        if clock.now_ms() > last_ms:
            return Outcome(DeliveryFailed("this process stood still for too long before handing it over"))
        try:
            if kind not in notifiers:
                raise DeliveryFailed(f"there is no notifier for {kind!r}", permanent=True)
            return Outcome(answer=notifiers[kind].send(key, body))
        except DeliveryFailed as failure:
            return Outcome(failure)
        except Exception as error:  # a loop's top: the other notifications must go out
            log.exception("notification %s: the notifier failed", key)
            return Outcome(DeliveryFailed(f"{type(error).__name__} in the notifier", perhaps=True))

    return hand_over


@transaction.atomic
def _finish(notification: Notification, state: Delivery, now_ms: int, *, doubtful: bool, outcome: Outcome) -> bool:
    """Close a notification: what its receiver believes now, and when its groups are looked at again."""
    receiver = Receiver.objects.select_for_update(no_key=True).get(pk=notification.receiver_id)
    mine = Notification.objects.filter(pk=notification.pk, claim=notification.claim, state=Delivery.WAITING)
    arrived = state == Delivery.SENT
    values = {"state": state, "sent_ms": now_ms if arrived else None, "answer": _answer(outcome)}
    values |= {"is_doubtful": doubtful, "took_ms": outcome.took_ms, "claim": 0, "claim_until_ms": 0}
    if not mine.update(**values):
        return False
    dead = 0 if arrived else receiver.dead_in_a_row + 1
    Receiver.objects.filter(pk=receiver.pk).update(dead_in_a_row=dead)
    if dead == limits.DEAD_IN_A_ROW_MAX:
        failing.tell_owners(receiver, notification.key, _answer(outcome), now_ms)
    block_ms = limits.FAILING_PROBE_MS if dead >= limits.DEAD_IN_A_ROW_MAX else limits.GROUP_BLOCK_MS
    look_ms = now_ms if arrived else now_ms + block_ms
    groups = NotificationGroup.objects.filter(open=notification.pk).order_by("pk").select_for_update(no_key=True)
    NotificationGroup.objects.filter(pk__in=[group.pk for group in groups]).update(
        open=None, next_look_ms=look_ms, blocked_until_ms=0 if arrived else look_ms
    )
    _believe(notification, now_ms, arrived=arrived, perhaps=doubtful)  # after the groups are locked, as in a flush
    is_failing, was_failing = (count >= limits.DEAD_IN_A_ROW_MAX for count in (dead, receiver.dead_in_a_row))
    if is_failing != was_failing and _is_escalated_from(receiver):
        mark_organisation(receiver.organisation_id, now_ms=now_ms)
    return True


def _is_escalated_from(receiver: Receiver) -> bool:
    """Whether steps of escalation follow the receiver: they pass at once while nobody before them is reached."""
    steps = EscalationStep.objects.filter(policy__organisation=receiver.organisation_id)
    mine = Q(contact_point__receivers=receiver.pk) | Q(policy__contact_point__receivers=receiver.pk)
    return steps.filter(mine).exists()


def _believe(notification: Notification, now_ms: int, *, arrived: bool, perhaps: bool) -> None:
    """Write what the receiver believes of the episodes that the notification spoke of and that still exist."""
    rows = LastWord.objects.filter(receiver=notification.receiver_id, episode__in=list(map(int, notification.levels)))
    in_full = {line["episode"] for line in notification.body["lines"]} if arrived else set()
    changed = []
    for row in rows:
        before = words.LastWord(Level(row.level), row.is_doubtful), row.sent_ms
        frozen = Level(notification.levels[str(row.episode_id)])
        after = after_delivery(frozen, before[0], arrived=arrived, perhaps=perhaps)
        row.level, row.is_doubtful = after.level, after.doubtful
        row.sent_ms = max(row.sent_ms, now_ms) if row.episode_id in in_full else row.sent_ms
        if (after, row.sent_ms) != before:
            changed.append(row)
    LastWord.objects.bulk_update(changed, ["level", "is_doubtful", "sent_ms"], batch_size=500)


def _due(now_ms: int) -> QuerySet[Notification]:
    """Select what is due. A claim that lasts too long was written by a clock that was wrong then."""
    free = Q(claim_until_ms__lte=now_ms) | Q(claim_until_ms__gt=now_ms + limits.CLAIM_MS)
    return Notification.objects.filter(free, state=Delivery.WAITING, next_attempt_ms__lte=now_ms)
