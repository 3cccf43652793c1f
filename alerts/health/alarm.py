"""Tells the world outside whether alerting works: asks a URL while it does, and sends a mail while it does not.

The mail goes by a connection of its own, past the outbox, at most once in half an hour. Enter by ``look``.
"""

from django.conf import settings
from django.core.cache import cache

from alerts.health.stalls import HEADLINE, stalls
from alerts.notify.email import AccountMailNotifier
from alerts.notify.http.post import check, open_exchange, request

MAIL_EVERY_S = 1_800
_SAID = "alerting_health"


def look(now_ms: int, *, url: str | None, address: str | None) -> list[str]:
    """Look once, and return what stands still. Raises ``DeliveryFailed``."""
    texts = [each.text(now_ms) for each in stalls(now_ms)]
    if not texts:
        cache.delete(_SAID)
        _ask(url)
    elif address and cache.add(_SAID, now_ms, MAIL_EVERY_S):
        _send(address, texts, now_ms)
    return texts


def _ask(url: str | None) -> None:
    if url:
        with open_exchange() as exchange:
            check(request(exchange, "GET", url))


def _send(address: str, texts: list[str], now_ms: int) -> None:
    body = "\n".join([f"{HEADLINE}:", "", *texts, "", f"{settings.SPM_BASE_URL}/health/alerting says when it is over."])
    payload = {"receivers": [address], "subject": f"[SPM] {HEADLINE}", "body": body}
    AccountMailNotifier().send(f"alerting-health:{now_ms}", payload)
