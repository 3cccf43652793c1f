"""Writes the messages about changed episodes into the outbox, in the transaction of the change.

An episode that begins to be open is one message per kind of receiver, and its end is another one. The row's key names
rule, series, episode and state, so an episode that late data opens and ends again is reported once. Enter by
``record``.
"""

from collections.abc import Sequence
from typing import Any

from alerts.judging.reconciliation import EpisodeStatus
from alerts.judging.run import Aspect, EndReason
from alerts.models import DEFAULT_KIND, Episode, Outbox, Rule
from alerts.notify.base import FIRING, RESOLVED
from alerts.notify.registry import receivers_by_kind

_REASONS = {
    EndReason.EDITED: "the expression was changed",
    EndReason.SWITCHED_OFF: "the rule is switched off",
    EndReason.DELETED: "the rule was deleted",
    EndReason.NO_DATA: "no data any more",
    EndReason.GONE: "the series is gone",
}


def record(changes: Sequence[tuple[str | None, Episode]], *, now_ms: int) -> int:
    """Write the messages about episodes, each with its status before (None: it is new); returns how many."""
    rows = [
        Outbox(
            app_id=episode.rule.app_id,
            kind=kind,
            key=message_key(episode, state, kind),
            payload=_payload(episode, state, receivers),
            created_ms=now_ms,
            next_attempt_ms=0,
        )
        for before, episode in changes
        if episode.aspect != Aspect.ERROR
        for state in _states(before, episode.status)
        for kind, receivers in receivers_by_kind(episode.rule.receivers).items()
    ]
    return len(Outbox.objects.bulk_create(rows, ignore_conflicts=True))  # reported once, however often it reopens


def message_key(episode: Episode, state: str, kind: str = DEFAULT_KIND) -> str:
    """Return the permanent name of a message. Only kinds other than the default one stand in it."""
    prefix = "" if kind == DEFAULT_KIND else f"{kind}:"
    return f"{prefix}{episode.rule_id}:{episode.fingerprint}:{episode.pk}:{state}"


def _states(before: str | None, after: str) -> tuple[str, ...]:
    """Return the states to report of an episode whose status was ``before``. Each is reported once for an episode."""
    if before is None:
        return {EpisodeStatus.OPEN: (FIRING,), EpisodeStatus.ENDED: (FIRING, RESOLVED)}.get(EpisodeStatus(after), ())
    is_closed = after in (EpisodeStatus.ENDED, EpisodeStatus.VOID)
    return (RESOLVED,) if before == EpisodeStatus.OPEN and is_closed else ()


def _payload(episode: Episode, state: str, receivers: Sequence[str]) -> dict[str, Any]:
    """Copy what the message says, as of now. Numbers are stored as text, because JSON has neither NaN nor infinity."""
    rule: Rule = episode.rule
    value = episode.last_value if state == RESOLVED else episode.start_value
    return {
        "rule": rule.pk,
        "name": rule.name,
        "app": rule.app_id,
        "app_name": rule.app.name,
        "severity": rule.severity,
        "state": state,
        "labels": dict(episode.labels),
        "value": repr(float("nan") if value is None else value),
        "expr": rule.expr,
        "comparator": rule.comparator,
        "threshold": repr(rule.threshold),
        "for_ms": rule.for_ms,
        "at_ms": episode.end_ms if state == RESOLVED else episode.start_ms,
        "episode_ms": episode.start_ms,
        "fingerprint": episode.fingerprint,
        "receivers": list(receivers),
        "reason": _reason(episode, state),
    }


def _reason(episode: Episode, state: str) -> str:
    if state == RESOLVED and episode.status == EpisodeStatus.VOID:
        return "by what is known now it never fired"
    if state == RESOLVED:
        return _REASONS.get(EndReason(episode.end_reason), "") if episode.end_reason else ""
    return "the series has no data" if episode.aspect == Aspect.MISSING else ""
