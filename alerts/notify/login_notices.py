"""Moves notices about wrong logins from the accounts into the outbox, as mail to the accounts' owners.

The accounts write a notice in the transaction in which their throttle begins to act, and know nothing of mail. Enter by
``collect``.
"""

from typing import Any

from django.conf import settings
from django.db import transaction
from django.urls import reverse

from alerts.models import Outbox
from alerts.notify.text import time_text
from spm import limits
from spm.accounts.models import LoginNotice

ACCOUNT_KIND = "account"
_BODY = """Somebody tried wrong passwords or codes for your login {login}.

Last from: {address}
Time:      {time}

Further tries from places where you have not logged in before have to wait, longer each time. Browsers
and networks from which you have logged in during the last month are not affected.

If this was not you: your password was not guessed so far. Change it if you use it elsewhere.
If a login of yours is refused because of such tries, open this link in your browser and log in there:

{url}

The link does not log anybody in. Do not pass it on.
"""


def collect(now_ms: int) -> int:
    """Put each notice into the outbox, once; returns how many."""
    notices = LoginNotice.objects.select_related("user").order_by("pk")[: limits.OUTBOX_ROUND_MAX]
    return sum(_move(notice, now_ms) for notice in notices)


def _move(notice: LoginNotice, now_ms: int) -> bool:
    with transaction.atomic():
        if not LoginNotice.objects.filter(pk=notice.pk).delete()[0]:
            return False  # another process has moved it
        key = f"{ACCOUNT_KIND}:{notice.user.pk}:{notice.at_ms}"
        message = {"kind": ACCOUNT_KIND, "key": key, "payload": _payload(notice)}
        Outbox.objects.create(**message, created_ms=now_ms, next_attempt_ms=0)
    return True


def _payload(notice: LoginNotice) -> dict[str, Any]:
    login = notice.user.get_username()
    url = f"{settings.SPM_BASE_URL}{reverse('frontend:login')}?device={notice.device}"
    body = _BODY.format(login=login, address=notice.address, time=time_text(notice.at_ms), url=url)
    return {"receivers": [notice.user.email], "subject": f"[SPM] Wrong logins for {login}", "body": body}
