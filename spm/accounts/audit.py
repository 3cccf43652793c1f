"""The audit log: one entry per act that changes what others can see or do.

``record`` is called inside the transaction of the act, so that both are stored or neither. Entries also contain the
person's name, since the user may be deleted later, and the address of the request that is being answered. They never
contain secrets.
"""

from typing import Any

from allauth.core import context as allauth_context
from django.contrib.auth.models import AnonymousUser, User
from django.db import transaction

from spm.accounts.models import App, AuditEntry, Organisation
from spm.events import acts, outbox
from spm.events.outbox import Place


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
    entry = AuditEntry.objects.create(
        organisation=organisation,
        actor=person,
        actor_name=person.get_username() if person else name[:150],
        action=action,
        subject=subject[:200],
        detail=detail or {},
        address=_address(),
    )
    if organisation is not None:
        _emit(entry, organisation.pk)
    return entry


def _emit(entry: AuditEntry, organisation: int) -> None:
    """Write the event of an act for each app that it is about, in the transaction of the act."""
    at_ms = round(entry.at.timestamp() * 1000)
    draft = acts.draft_of(
        entry.action, entry.subject, entry.detail, number=entry.pk, author=entry.actor_name, at_ms=at_ms
    )
    if draft is not None:
        with transaction.atomic():
            named = App.objects.filter(organisation=organisation, pk__in=acts.apps_of(entry.detail))
            for app in named.order_by("pk").values_list("pk", flat=True):
                outbox.emit(Place(organisation, app), [draft], now_ms=at_ms)


def _address() -> str:
    """The address of the request that this thread answers; empty outside of one."""
    request = allauth_context.request
    return str(request.META.get("REMOTE_ADDR", ""))[:45] if request is not None else ""
