"""The audit log: one entry per act that changes what others can see or do.

``record`` is called inside the transaction of the act, so that both are stored or neither. Entries also contain the
person's name, since the user may be deleted later. They never contain secrets.
"""

from typing import Any

from django.contrib.auth.models import AnonymousUser, User

from spm.accounts.models import AuditEntry, Organisation


def record(
    action: str,
    subject: str,
    *,
    actor: User | AnonymousUser | None,
    organisation: Organisation | None,
    detail: dict[str, Any] | None = None,
    name: str = "",
) -> AuditEntry:
    """Note that ``actor`` (None: the system, or a program called ``name``) did ``action`` to ``subject``."""
    person = actor if isinstance(actor, User) else None
    return AuditEntry.objects.create(
        organisation=organisation,
        actor=person,
        actor_name=person.get_username() if person else name[:150],
        action=action,
        subject=subject[:200],
        detail=detail or {},
    )
