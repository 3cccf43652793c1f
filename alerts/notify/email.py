"""Sends messages as plain-text mail through Django's mail. Only this module imports it.

The Message-ID is derived from the message's key, so a mail that is sent twice has one id. The mail about the end of an
episode replies to the mail about its beginning, so that mail programs show them together. Whether mail goes into files
or to an SMTP server is a setting.
"""

import smtplib
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any
from urllib.parse import urlencode, urlsplit

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.mail import BadHeaderError, EmailMessage
from django.core.validators import validate_email
from django.urls import reverse

from alerts.notify.base import FIRING, RESOLVED, DeliveryFailed, RenderedMessage
from alerts.notify.text import body, subject
from spm.limits import HOUR_MS


class EmailNotifier:
    """Sends one mail to all receivers of a rule that are mail addresses."""

    receiver_hint = "mail address"

    def accepts(self, receiver: str) -> bool:
        return _is_address(receiver)

    def render(self, key: str, payload: Mapping[str, Any]) -> RenderedMessage:
        return _render(key, compose(key, payload))

    def send(self, key: str, payload: Mapping[str, Any]) -> None:
        _send(compose(key, payload))


class AccountMailNotifier:
    """Sends the subject and body of the payload to a person, about their own account. No rule can choose it."""

    receiver_hint = ""

    def accepts(self, receiver: str) -> bool:
        return False

    def render(self, key: str, payload: Mapping[str, Any]) -> RenderedMessage:
        return _render(key, _account_mail(key, payload))

    def send(self, key: str, payload: Mapping[str, Any]) -> None:
        _send(_account_mail(key, payload))


def compose(key: str, payload: Mapping[str, Any]) -> EmailMessage:
    """Compose the mail; raises ``DeliveryFailed`` if it has no receiver."""
    receivers = [address for address in payload["receivers"] if _is_address(address)]
    if not receivers:
        raise DeliveryFailed("no receiver with a mail address", permanent=True)
    headers = {"Message-ID": message_id(key), "Auto-Submitted": "auto-generated", "X-SPM-Severity": payload["severity"]}
    if payload["state"] == RESOLVED:
        first_id = message_id(key.removesuffix(RESOLVED) + FIRING)
        headers |= {"In-Reply-To": first_id, "References": first_id}
    return EmailMessage(
        subject=subject(payload),
        body=body(payload, rule_url=_rule_url(payload), chart_url=_chart_url(payload)),
        to=receivers,
        headers=headers,
    )


def _account_mail(key: str, payload: Mapping[str, Any]) -> EmailMessage:
    receivers = [address for address in payload["receivers"] if _is_address(address)]
    if not receivers:
        raise DeliveryFailed("this person has no mail address", permanent=True)
    headers = {"Message-ID": message_id(key), "Auto-Submitted": "auto-generated"}
    return EmailMessage(subject=payload["subject"], body=payload["body"], to=receivers, headers=headers)


def _render(key: str, mail: EmailMessage) -> RenderedMessage:
    headers = (
        ("From", mail.from_email),
        ("To", ", ".join(mail.to)),
        ("Subject", str(mail.subject)),
        ("Message-ID", message_id(key)),
    )
    return RenderedMessage(str(mail.subject), mail.to, headers, str(mail.body))


def _send(mail: EmailMessage) -> None:
    try:
        mail.send()
    except smtplib.SMTPRecipientsRefused as error:
        is_final = all(500 <= code < 600 for code, _ in error.recipients.values())  # 5xx: permanent
        raise DeliveryFailed(f"refused: {error}", permanent=is_final) from error
    except smtplib.SMTPResponseException as error:
        raise DeliveryFailed(f"{error.smtp_code} {error.smtp_error!r}") from error
    except (OSError, smtplib.SMTPException) as error:
        raise DeliveryFailed(f"{type(error).__name__}: {error}") from error
    except (BadHeaderError, UnicodeError) as error:
        raise DeliveryFailed(f"cannot be written as mail: {error}", permanent=True) from error


def message_id(key: str) -> str:
    """Return the permanent Message-ID of a message. It reveals nothing about its content."""
    host = urlsplit(settings.SPM_BASE_URL).hostname or "localhost"
    return f"<{blake2b(key.encode(), digest_size=16).hexdigest()}@{host}>"


def chart_path(app: int, expr: str, span: tuple[int, int] | None = None) -> str:
    """Return the path of the chart of an expression, over a span of time if one is given."""
    parameters = {"expr": expr} | ({"from": str(span[0]), "to": str(span[1])} if span else {})
    return f"{reverse('frontend:chart', args=[app])}?{urlencode(parameters)}"


def _rule_url(payload: Mapping[str, Any]) -> str:
    return f"{settings.SPM_BASE_URL}{reverse('alerts:rule', args=[payload['rule']])}"


def _chart_url(payload: Mapping[str, Any]) -> str:
    """Link the chart from an hour before the episode to a quarter of an hour after this change."""
    span = (payload["episode_ms"] - HOUR_MS, payload["at_ms"] + HOUR_MS // 4)
    return f"{settings.SPM_BASE_URL}{chart_path(payload['app'], payload['expr'], span)}"


def _is_address(text: str) -> bool:
    try:
        validate_email(text)
    except ValidationError:
        return False
    return True
