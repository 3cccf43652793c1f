"""Reads and spends the budgets of notifications: one of each receiver, one of its organisation.

A flush locks the receiver, then the organisation's row, then groups. Enter by ``lock`` and ``spend``; ``now_of`` reads.
"""

from alerts.models.telling import NotificationBudget, Receiver
from alerts.telling import limits
from alerts.telling.decide.budget import TokenBucket

_PER_HOUR, _MAX = limits.ORGANISATION_TOKENS_PER_HOUR, limits.ORGANISATION_TOKENS_MAX


def now_of(organisation: int, now_ms: int) -> TokenBucket:
    """Return the budget of an organisation; it is full before its first notification."""
    row = NotificationBudget.objects.filter(organisation=organisation).first()
    return (_bucket(row) if row else TokenBucket(_MAX, now_ms, _PER_HOUR, _MAX)).at(now_ms)


def lock(receiver: Receiver, now_ms: int) -> tuple[TokenBucket, TokenBucket]:
    """Lock the budget of the receiver's organisation and return those of both. The receiver's row is locked already."""
    full = NotificationBudget(organisation_id=receiver.organisation_id, tokens=_MAX, tokens_ms=now_ms)
    NotificationBudget.objects.bulk_create([full], ignore_conflicts=True)
    row = NotificationBudget.objects.select_for_update(no_key=True).get(organisation=receiver.organisation_id)
    return TokenBucket(receiver.tokens, receiver.tokens_ms).at(now_ms), _bucket(row).at(now_ms)


def spend(receiver: Receiver, buckets: tuple[TokenBucket, TokenBucket], count: int) -> None:
    """Write both budgets after so many notifications."""
    own, shared = (bucket.spend(count) for bucket in buckets)
    Receiver.objects.filter(pk=receiver.pk).update(tokens=own.tokens, tokens_ms=own.at_ms)
    rows = NotificationBudget.objects.filter(organisation=receiver.organisation_id)
    rows.update(tokens=shared.tokens, tokens_ms=shared.at_ms)


def _bucket(row: NotificationBudget) -> TokenBucket:
    return TokenBucket(row.tokens, row.tokens_ms, _PER_HOUR, _MAX)
