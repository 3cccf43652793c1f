"""The audit log: one entry per act that changes what others can see or do.

``record`` is called inside the transaction of the act, so that both are stored or neither. Entries also contain the
person's name, since the user may be deleted later, and the address of the request that is being answered. They never
contain secrets.
"""

from typing import Any

from allauth.core import context as allauth_context
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
        address=_address(),
    )


def _address() -> str:
    """The address of the request that this thread answers; empty outside of one."""
    request = allauth_context.request
    return str(request.META.get("REMOTE_ADDR", ""))[:45] if request is not None else ""
