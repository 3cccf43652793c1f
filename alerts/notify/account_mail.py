"""Puts mails to people about their own accounts into the outbox; their texts stand with the callers.

Confirmations and resets are written in ``frontend/templates/account/email``, invitations in ``invitation_mail``. Links
are secrets, so ``outbox`` keeps no body of one that was sent. Enter by ``queue``.
"""

from alerts.models import Outbox
from alerts.notify.login_notices import ACCOUNT_KIND
from spm.clock import random_bytes


def queue(address: str, subject: str, body: str, *, now_ms: int) -> None:
    """Have a mail sent to one address, in the transaction of its cause."""
    payload = {"receivers": [address], "subject": subject, "body": body}
    key = f"{ACCOUNT_KIND}:{now_ms}:{random_bytes(8).hex()}"
    Outbox.objects.create(kind=ACCOUNT_KIND, key=key, payload=payload, created_ms=now_ms, next_attempt_ms=0)
