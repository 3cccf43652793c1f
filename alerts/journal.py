"""Writing down what a look or a person changed: standings, events and messages, in the caller's transaction.

One change of state is one event and, if people are to be told, one row of the outbox. Its key names rule, series,
episode and state, so the database itself refuses a second one.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction

from alerts.models import Alert, AlertEvent, Outbox, Rule
from alerts.rules import TOLD, Change, Standing, State

Labels = Mapping[str, str]


def standings(rule: Rule) -> tuple[dict[str, Standing], dict[str, Labels]]:
    """Where the known series of the rule stand, and their labels, by fingerprint."""
    alerts = list(Alert.objects.filter(rule=rule))
    return {row.fingerprint: row.standing for row in alerts}, {row.fingerprint: row.labels for row in alerts}


def record(rule: Rule, changes: Sequence[Change], labels: Mapping[str, Labels], *, at_ms: int, reason: str = "") -> int:
    """Write the changes down; returns how many messages that made. Must run inside the transaction of their cause."""
    assert transaction.get_connection().in_atomic_block, "BUG: a change of state outside a transaction"
    _write_standings(rule, changes, labels)
    events = [change for change in changes if change.is_event]
    AlertEvent.objects.bulk_create(
        AlertEvent(
            rule=rule,
            fingerprint=change.fingerprint,
            labels=labels[change.fingerprint],
            before=change.before.state,
            state=change.after.state,
            episode_ms=change.episode_ms,
            at_ms=at_ms,
            value=_number(change.after.value if change.after.episode_ms else change.before.value),
            reason=reason,
        )
        for change in events
    )
    told = [change for change in events if change.after.state in TOLD]
    Outbox.objects.bulk_create(
        Outbox(
            app_id=rule.app_id,
            kind="mail",
            key=key_of(rule.pk, change.fingerprint, change.after.episode_ms, change.after.state),
            payload=_payload(rule, change, labels[change.fingerprint], at_ms=at_ms, reason=reason),
            created_ms=at_ms,
            next_attempt_ms=0,
        )
        for change in told
    )
    return len(told)


def key_of(rule: int, fingerprint: str, episode_ms: int, state: str) -> str:
    """The name of a message for ever."""
    return f"{rule}:{fingerprint}:{episode_ms}:{state}"


def _write_standings(rule: Rule, changes: Sequence[Change], labels: Mapping[str, Labels]) -> None:
    gone = [change.fingerprint for change in changes if change.after.state is State.INACTIVE]
    Alert.objects.filter(rule=rule, fingerprint__in=gone).delete()
    Alert.objects.bulk_create(
        [
            Alert(
                rule=rule,
                fingerprint=change.fingerprint,
                labels=labels[change.fingerprint],
                state=change.after.state,
                since_ms=change.after.since_ms,
                episode_ms=change.after.episode_ms,
                value=_number(change.after.value),
                well_since_ms=change.after.well_since_ms,
            )
            for change in changes
            if change.after.state is not State.INACTIVE
        ],
        update_conflicts=True,
        unique_fields=["rule", "fingerprint"],
        update_fields=["state", "since_ms", "episode_ms", "value", "well_since_ms"],
    )


def _payload(rule: Rule, change: Change, labels: Labels, *, at_ms: int, reason: str) -> dict[str, Any]:
    """Everything the message says, as it was at this moment. Numbers are texts: JSON knows neither NaN nor infinity."""
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
        "receivers": list(rule.receivers),
        "reason": reason,
    }


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
