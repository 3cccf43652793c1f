"""Posts notifications to a web address of the customer, in Alertmanager's webhook form, signed.

The signature is that of standardwebhooks.com: HMAC-SHA256 over id, time and body, with a secret of the receiver alone.
``Idempotency-Key`` is the notification's key and ``X-SPM-Sequence`` its number in its group: a receiver drops a key
that it knows, and a number below one that it has taken.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

from django.conf import settings

from alerts.notify.base import RenderedMessage
from alerts.notify.http.alert_format import webhook_body
from alerts.notify.http.post import is_web_address, origin_of, post_json
from alerts.notify.wording import subject
from spm.clock import Clock, SystemClock

_SECRET_OF = b"spm webhook secret of receiver "


class WebhookNotifier:
    """Posts to an http or https address."""

    receiver_hint = "web address (https://…)"

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()

    def accepts(self, receiver: str) -> bool:
        return is_web_address(receiver)

    def shown(self, receiver: str) -> str:
        return origin_of(receiver)

    def render(self, key: str, payload: Mapping[str, Any]) -> RenderedMessage:
        headers = (("POST", self.shown(payload["receivers"][0])), *identity(key, payload).items())
        body = webhook_body(payload, base_url=settings.SPM_BASE_URL).decode()
        return RenderedMessage(subject(payload), [self.shown(payload["receivers"][0])], headers, body)

    def send(self, key: str, payload: Mapping[str, Any]) -> str:
        body = webhook_body(payload, base_url=settings.SPM_BASE_URL)
        seconds = str(self._clock.now_ms() // 1_000)  # of this attempt: receivers refuse old ones
        signature = sign(secret_of(int(key.partition(".")[0])), key, seconds, body)
        standard = {"webhook-id": key, "webhook-timestamp": seconds, "webhook-signature": signature}
        return post_json(payload["receivers"][0], body, {**identity(key, payload), **standard})


def identity(key: str, payload: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers by which a receiver knows a notification that it has taken before."""
    return {"Idempotency-Key": key, "X-SPM-Sequence": str(payload["n"]), "User-Agent": "SPM"}


def secret_of(receiver: int) -> str:
    """Return the secret that a receiver verifies signatures with. A receiver that is written anew has another one."""
    digest = hmac.digest(settings.SECRET_KEY.encode(), _SECRET_OF + str(receiver).encode(), hashlib.sha256)
    return f"whsec_{base64.b64encode(digest).decode()}"


def sign(secret: str, message_id: str, seconds: str, body: bytes) -> str:
    """Return the signature of a webhook: ``v1,`` and the MAC."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    mac = hmac.digest(key, f"{message_id}.{seconds}.".encode() + body, hashlib.sha256)
    return f"v1,{base64.b64encode(mac).decode()}"
