"""Which acts of the audit log are events of apps too: those that change what charts and alerts show. Pure.

Enter by ``draft_of`` and ``apps_of``.
"""

from collections.abc import Mapping
from typing import Any

from spm.events.outbox import Draft

_KINDS = {
    "retract": ("retraction", "retracted"),
    "undo": ("retraction", "retraction undone"),
    "roll back": ("rollback", "rolled back"),
    "rule.create": ("rule", "rule created"),
    "rule.change": ("rule", "rule changed"),
    "rule.delete": ("rule", "rule deleted"),
    "agent settings": ("settings", "agent settings"),
    "retention changed": ("settings", "retention changed"),
}


def apps_of(detail: Mapping[str, Any]) -> list[int]:
    """Return the apps that an act is about."""
    named = detail.get("apps") or [detail.get("app")]
    return [app for app in named if isinstance(app, int)]


def draft_of(
    action: str, subject: str, detail: Mapping[str, Any], *, number: int, author: str, at_ms: int
) -> Draft | None:
    """Return the event of an act, by the number of its entry in the log; ``None`` for one that is no event."""
    if action not in _KINDS:
        return None
    kind, words = _KINDS[action]
    text = f"{words}: {detail.get('reason') or subject}"
    return Draft(
        kind=kind,
        text=text,
        at_ms=at_ms,
        event_id=f"act-{number}",
        key=f"{kind} {subject}",
        body={"action": action, "subject": subject},
        author=author,
    )
