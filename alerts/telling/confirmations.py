"""Asks mail addresses that no member of the organisation has whether they want its notifications.

The mail is written into the outbox in the transaction that writes the receiver, once for each; its link opens a page
that asks. Until then, and after "stop", nothing else is sent there.
"""

from collections.abc import Sequence

from alerts.models import Outbox
from alerts.models.telling import Receiver
from alerts.notify.links import Purpose, link_url
from alerts.notify.login_notices import ACCOUNT_KIND
from alerts.notify.text import one_line

_BODY = """{organisation} wants to notify this address of alerts of its monitoring.

To get them, open this page and confirm:

{url}

If you do not know them, do nothing: nothing else is sent to you.
"""


def ask(receivers: Sequence[Receiver], now_ms: int) -> None:
    """Write the mail to each that was not asked before."""
    rows = [
        Outbox(
            kind=ACCOUNT_KIND,
            key=f"confirm:{receiver.pk}",
            payload=_payload(receiver),
            created_ms=now_ms,
            next_attempt_ms=0,
        )
        for receiver in receivers
    ]
    Outbox.objects.bulk_create(rows, ignore_conflicts=True)


def _payload(receiver: Receiver) -> dict[str, object]:
    name = one_line(str(receiver.organisation), 100)
    body = _BODY.format(organisation=name, url=link_url(Purpose.CONFIRM, str(receiver.pk)))
    return {"receivers": [receiver.target], "subject": f"[SPM] Notifications of {name}?", "body": body}
