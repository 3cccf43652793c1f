"""Tells the owners of an organisation that a receiver fails, by mail to another address, through the outbox.

Enter by ``tell_owners``, in the transaction in which the receiver begins to fail.
"""

from alerts.models import Outbox
from alerts.models.telling import Receiver
from alerts.notify.login_notices import ACCOUNT_KIND
from alerts.notify.registry import shown
from alerts.notify.text import one_line
from alerts.telling import limits
from spm.accounts.organisations.members import owners_of

_BODY = """{count} notifications in a row did not reach {receiver} of {organisation}. The last answer:

{answer}

It is tried once an hour from now on. Who else must hear of alerts until it works again?
"""


def tell_owners(receiver: Receiver, key: str, answer: str, now_ms: int) -> None:
    """Write a mail to each owner with another address, once for the notification of this key."""
    organisation = receiver.organisation
    owners = owners_of(organisation).exclude(user__email="")
    name = shown(receiver.kind, receiver.target)
    body = _BODY.format(count=limits.DEAD_IN_A_ROW_MAX, receiver=name, organisation=organisation, answer=answer)
    addresses = sorted(set(owners.values_list("user__email", flat=True)) - {receiver.target})
    rows = [
        Outbox(
            kind=ACCOUNT_KIND,
            key=f"failing:{key}:{address}"[:200],
            payload={
                "receivers": [address],
                "subject": one_line(f"[SPM] Notifications do not reach {name}", 200),
                "body": body,
            },
            created_ms=now_ms,
            next_attempt_ms=0,
        )
        for address in addresses
    ]
    Outbox.objects.bulk_create(rows, ignore_conflicts=True)
