"""Deletes events, episodes, operations, messages, notifications and reports past their retention, some per call."""

from typing import Any

from django.db.models import Q, QuerySet

from alerts.judging.limits import OPERATIONS_KEEP_MS
from alerts.models import AlertEvent, Delivery, Episode, ManualEnd, NoiseReport, Operation, Outbox, RuleVersionRow
from alerts.models.telling import Notification, NotificationGroup
from alerts.noise.limits import REPORTS_KEEP_MS
from alerts.telling.limits import NOTIFICATION_KEEP_MS
from spm import limits


def prune(now_ms: int) -> int:
    """Delete a bounded number of rows past their retention; returns how many."""
    events_until_ms = now_ms - limits.ALERT_EVENTS_KEEP_MS
    sent = Outbox.objects.filter(created_ms__lt=now_ms - limits.OUTBOX_KEEP_MS).exclude(state=Delivery.WAITING)
    is_old = Q(last_flush_ms=None) | Q(last_flush_ms__lt=now_ms - NOTIFICATION_KEEP_MS)
    finished = Notification.objects.filter(created_ms__lt=now_ms - NOTIFICATION_KEEP_MS).exclude(state=Delivery.WAITING)
    old: tuple[QuerySet[Any], ...] = (
        AlertEvent.objects.filter(at_ms__lt=events_until_ms),
        Episode.objects.filter(end_ms__lt=events_until_ms),
        ManualEnd.objects.filter(at_ms__lt=events_until_ms),
        RuleVersionRow.objects.filter(until_ms__lt=events_until_ms),
        Operation.objects.filter(made_ms__lt=now_ms - OPERATIONS_KEEP_MS),
        sent,
        finished,
        NoiseReport.objects.filter(to_ms__lt=now_ms - REPORTS_KEEP_MS),
        NotificationGroup.objects.filter(is_old, last_words=None, open=None),
    )
    return sum(map(_delete_some, old))


def _delete_some(rows: QuerySet[Any]) -> int:
    ids = list(rows.order_by("pk").values_list("pk", flat=True)[: limits.PRUNE_ROWS_MAX])
    return rows.model._default_manager.filter(pk__in=ids).delete()[0] if ids else 0
