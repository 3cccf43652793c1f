"""Records changes of state: series states, events and messages, in the caller's transaction.

One change of state is one event and, if it is to be reported, one row of the outbox per kind of receiver. The row's key
names rule, series, episode and state, so the database itself refuses a second one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction

from alerts import episodes
from alerts.models import DEFAULT_KIND, Alert, AlertEvent, EndReason, Outbox, Rule
from alerts.notify.registry import receivers_by_kind
from alerts.rules import REPORTED, Change, SeriesState, State

Labels = Mapping[str, str]

REASON_TEXTS: Mapping[EndReason, str] = {
    EndReason.EDITED: "the expression was changed",
    EndReason.SWITCHED_OFF: "the rule is switched off",
    EndReason.DELETED: "the rule was deleted",
}


def series_states(rule: Rule) -> tuple[dict[str, SeriesState], dict[str, Labels]]:
    """Return the recorded states of the rule's series, and their labels, by fingerprint."""
    alerts = list(Alert.objects.filter(rule=rule))
    return {row.fingerprint: row.series_state for row in alerts}, {row.fingerprint: row.labels for row in alerts}


def record(
    rule: Rule,
    changes: Sequence[Change],
    labels: Mapping[str, Labels],
    *,
    at_ms: int,
    end_reason: EndReason = EndReason.RECOVERED,
) -> int:
    """Write the changes; returns how many messages were written. Must run inside the transaction of their cause."""
    reason = REASON_TEXTS.get(end_reason, "")
    assert transaction.get_connection().in_atomic_block, "BUG: a change of state outside a transaction"
    _write_series_states(rule, changes, labels)
    events = [change for change in changes if change.is_event]
    episodes.record(rule, events, labels, at_ms=at_ms, reason=end_reason)
    AlertEvent.objects.bulk_create(
        AlertEvent(
            rule=rule,
            fingerprint=change.fingerprint,
            labels=labels[change.fingerprint],
            before=change.before.state,
            state=change.after.state,
            episode_ms=change.episode_ms,
            at_ms=at_ms,
            value=(change.after if change.after.episode_ms else change.before).number,
            reason=reason,
        )
        for change in events
    )
    groups = receivers_by_kind(rule.receivers)
    messages = [
        Outbox(
            app_id=rule.app_id,
            kind=kind,
            key=message_key(rule.pk, change.fingerprint, change.after.episode_ms, change.after.state, kind),
            payload=_payload(rule, change, labels[change.fingerprint], receivers=receivers, at_ms=at_ms, reason=reason),
            created_ms=at_ms,
            next_attempt_ms=0,
        )
        for change in events
        if change.after.state in REPORTED
        for kind, receivers in groups.items()
    ]
    Outbox.objects.bulk_create(messages)
    return len(messages)


def message_key(rule: int, fingerprint: str, episode_ms: int, state: str, kind: str = DEFAULT_KIND) -> str:
    """Return the permanent name of a message. Only kinds other than the default one stand in it."""
    prefix = "" if kind == DEFAULT_KIND else f"{kind}:"
    return f"{prefix}{rule}:{fingerprint}:{episode_ms}:{state}"


def _write_series_states(rule: Rule, changes: Sequence[Change], labels: Mapping[str, Labels]) -> None:
    ended = [change.fingerprint for change in changes if change.after.state is State.INACTIVE]
    Alert.objects.filter(rule=rule, fingerprint__in=ended).delete()
    Alert.objects.bulk_create(
        [
            Alert(
                rule=rule,
                fingerprint=change.fingerprint,
                labels=labels[change.fingerprint],
                state=change.after.state,
                since_ms=change.after.since_ms,
                episode_ms=change.after.episode_ms,
                value=change.after.number,
                well_since_ms=change.after.well_since_ms,
            )
            for change in changes
            if change.after.state is not State.INACTIVE
        ],
        update_conflicts=True,
        unique_fields=["rule", "fingerprint"],
        update_fields=["state", "since_ms", "episode_ms", "value", "well_since_ms"],
    )


def _payload(
    rule: Rule, change: Change, labels: Labels, *, receivers: Sequence[str], at_ms: int, reason: str
) -> dict[str, Any]:
    """Copy what the message says, as of now. Numbers are stored as text, because JSON has neither NaN nor infinity."""
    return {
        "rule": rule.pk,
        "name": rule.name,
        "app": rule.app_id,
        "app_name": rule.app.name,
        "severity": rule.severity,
        "state": change.after.state.value,
        "labels": dict(labels),
        "value": repr(change.after.value),
        "expr": rule.expr,
        "comparator": rule.comparator,
        "threshold": repr(rule.threshold),
        "for_ms": rule.for_ms,
        "at_ms": at_ms,
        "episode_ms": change.after.episode_ms,
        "fingerprint": change.fingerprint,
        "receivers": list(receivers),
        "reason": reason,
    }
