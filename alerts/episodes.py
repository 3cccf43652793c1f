"""Writes episodes in the transaction of the change that begins or ends them, and announces each change.

``episodes_changed`` is the one place through which telling learns that episodes changed. Enter by ``record``.
"""

from collections.abc import Mapping, Sequence

from django.db import transaction
from django.db.models import F

from alerts.models import EndReason, Episode, EpisodeStatus, Rule
from alerts.rules import Change, State


def record(
    rule: Rule, changes: Sequence[Change], labels: Mapping[str, Mapping[str, str]], *, at_ms: int, reason: EndReason
) -> None:
    """Begin an episode for each series that fires now, and end those of series that no longer do."""
    ended = {change.fingerprint: change for change in changes if change.before.state is State.FIRING}
    begun = {change.fingerprint: change for change in changes if change.after.state is State.FIRING}
    changed = [_end(each, ended[each.fingerprint], at_ms, reason) for each in _open(rule, ended)]
    new = [_begin(rule, change, labels[name], at_ms) for name, change in begun.items()]
    for episode in Episode.objects.bulk_create(new):
        changed.append(episode.pk)
    if changed:
        episodes_changed(changed, now_ms=at_ms)


def episodes_changed(episode_ids: Sequence[int], *, now_ms: int) -> None:
    """Announce episodes that were created or changed, in the transaction that changed them.

    Every writer of episodes calls this once for each transaction, with the ids of the rows that it wrote. What must be
    as durable as the episodes (marks for those who are to be notified) is written here.
    """
    assert transaction.get_connection().in_atomic_block, "BUG: episodes changed outside a transaction"


def _open(rule: Rule, fingerprints: Mapping[str, Change]) -> list[Episode]:
    return list(Episode.objects.filter(rule=rule, status=EpisodeStatus.OPEN, fingerprint__in=list(fingerprints)))


def _end(episode: Episode, change: Change, at_ms: int, reason: EndReason) -> int:
    Episode.objects.filter(pk=episode.pk).update(
        status=EpisodeStatus.ENDED,
        end_ms=at_ms,
        end_reason=reason,
        last_value=change.after.number,
        revision=F("revision") + 1,
        changed_ms=at_ms,
    )
    return episode.pk


def _begin(rule: Rule, change: Change, labels: Mapping[str, str], at_ms: int) -> Episode:
    return Episode(
        rule=rule,
        fingerprint=change.fingerprint,
        labels=dict(labels),
        severity=rule.severity,
        start_ms=at_ms,
        start_value=change.after.number,
        last_value=change.after.number,
        created_ms=at_ms,
        changed_ms=at_ms,
    )
