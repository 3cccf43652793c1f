"""Deletes rows past their retention: resolved alerts, old events, episodes and messages. A bounded number per call."""

from typing import Any

from django.db.models import QuerySet

from alerts.models import Alert, AlertEvent, Delivery, Episode, Outbox
from alerts.rules import State
from spm import limits


def prune(now_ms: int) -> int:
    """Delete a bounded number of rows past their retention; returns how many."""
    resolved = Alert.objects.filter(state=State.RESOLVED, since_ms__lt=now_ms - limits.ALERT_RESOLVED_KEEP_MS)
    events = AlertEvent.objects.filter(at_ms__lt=now_ms - limits.ALERT_EVENTS_KEEP_MS)
    episodes = Episode.objects.filter(end_ms__lt=now_ms - limits.ALERT_EVENTS_KEEP_MS)
    sent = Outbox.objects.filter(created_ms__lt=now_ms - limits.OUTBOX_KEEP_MS).exclude(state=Delivery.WAITING)
    return _delete_some(resolved) + _delete_some(events) + _delete_some(episodes) + _delete_some(sent)


def _delete_some(rows: QuerySet[Any]) -> int:
    ids = list(rows.order_by("pk").values_list("pk", flat=True)[: limits.PRUNE_ROWS_MAX])
    return rows.model._default_manager.filter(pk__in=ids).delete()[0] if ids else 0
