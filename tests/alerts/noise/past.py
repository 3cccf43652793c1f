"""Writes a past for noise reports: alerts, what receivers heard of them, and notifications."""

from typing import Any

from alerts.models import Delivery, Episode, EpisodeStatus, Rule
from alerts.models.telling import LastWord, Notification, NotificationGroup, Receiver
from alerts.telling.decide.episodes import Level
from alerts.telling.hook import write_receivers

MINUTE_MS = 60_000


def alert(rule: Rule, start_ms: int, *, minutes: int | None = 1, host: str = "a", **fields: Any) -> Episode:
    """An alert of a host that went on for some minutes, or goes on."""
    end_ms = None if minutes is None else start_ms + minutes * MINUTE_MS
    status = EpisodeStatus.OPEN if minutes is None else EpisodeStatus.ENDED
    values = {"end_ms": end_ms, "status": status, "created_ms": start_ms, "changed_ms": start_ms, **fields}
    return Episode.objects.create(
        rule=rule, fingerprint=host, labels={"host": host}, severity=rule.severity, start_ms=start_ms, **values
    )


def receiver_of(rule: Rule, target: str = "ops@example.org") -> Receiver:
    """A mail address of the rule's organisation."""
    write_receivers(rule.app.organisation_id, {("mail", target)}, now_ms=1)
    return Receiver.objects.get(organisation=rule.app.organisation, target=target)


def notified(*episodes: Episode, at_ms: int | None = None, state: str = Delivery.SENT) -> Notification:
    """A notification that names these alerts, delivered unless another state is given."""
    first = episodes[0]
    receiver = receiver_of(first.rule)
    group, _ = NotificationGroup.objects.get_or_create(receiver=receiver, key="all", defaults={"labels": {}})
    for each in episodes:
        LastWord.objects.update_or_create(
            receiver=receiver, episode=each, defaults={"group": group, "level": Level.ENDED}
        )
    return Notification.objects.create(
        organisation=first.rule.app.organisation,
        receiver=receiver,
        key=f"{receiver.pk}.{group.pk}.{Notification.objects.count()}",
        body={},
        levels={str(each.pk): "open" for each in episodes},
        state=state,
        created_ms=first.start_ms if at_ms is None else at_ms,
        next_attempt_ms=0,
    )
