"""The addresses that notifications name: the rules of their lines, and signed links that each do one thing.

A link is ``/a/PURPOSE.KEY.SIGNATURE``: of one notification, for one purpose. Who has it may do that, without a login;
opening it changes nothing. It can be made from the frozen body alone, so a retry sends the same one.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from django.conf import settings
from django.urls import reverse

from alerts.notify.wording import is_over

_DOMAIN = b"spm link "
_SIGNATURE_BYTES = 16


class Purpose(StrEnum):
    """What a link does."""

    ACKNOWLEDGE = "ack"
    SNOOZE = "snooze"
    SILENCE = "silence"
    STOP = "stop"  # this receiver gets nothing any more
    CONFIRM = "confirm"  # this receiver wants notifications; the key is the receiver's


@dataclass(frozen=True, slots=True)
class Link:
    """What a valid link names: its purpose, and the key of its notification."""

    purpose: Purpose
    key: str


def rule_links(payload: Mapping[str, Any]) -> dict[int, str]:
    """Return the addresses of the rules that the notification speaks of."""
    return {line["rule"]: rule_url(line["rule"]) for line in payload["lines"]}


def home_url() -> str:
    """Return the address of all alerts."""
    return f"{settings.SPM_BASE_URL}{reverse('alerts:rules')}"


def act_links(payload: Mapping[str, Any]) -> dict[str, str]:
    """Return the links that do something about the alerts of a notification that go on, by what they say."""
    if all(map(is_over, payload["lines"])):
        return {}
    texts = {
        "Acknowledge": Purpose.ACKNOWLEDGE,
        "Snooze 1 h": Purpose.SNOOZE,
        "Silence…": Purpose.SILENCE,
    }
    return {text: link_url(purpose, payload["key"]) for text, purpose in texts.items()}


def rule_url(rule: int) -> str:
    """Return the address of a rule; of all rules for a test, which has none."""
    path = reverse("alerts:rule", args=[rule]) if rule else reverse("alerts:rules")
    return f"{settings.SPM_BASE_URL}{path}"


def link_url(purpose: Purpose, key: str) -> str:
    """Return the address that does this for the notification of the key."""
    return f"{settings.SPM_BASE_URL}{reverse('alert-link', args=[f'{purpose}.{key}.{_signature(purpose, key)}'])}"


def read_link(text: str) -> Link | None:
    """Return what a link names, or None if it was not made here."""
    head, _, signature = text.rpartition(".")
    purpose, _, key = head.partition(".")
    if purpose not in set(Purpose) or not hmac.compare_digest(_signature(purpose, key).encode(), signature.encode()):
        return None
    return Link(Purpose(purpose), key)


def _signature(purpose: str, key: str) -> str:
    mac = hmac.digest(settings.SECRET_KEY.encode(), _DOMAIN + f"{purpose}.{key}".encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(mac[:_SIGNATURE_BYTES]).decode().rstrip("=")
