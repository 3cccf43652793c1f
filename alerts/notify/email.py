"""Sends notifications as mail through Django's mail. Only this module imports it.

A mail goes to one address, in one SMTP transaction, so that a refused address neither hides nor repeats another. It has
a text part and an HTML part. The Message-ID is derived from the notification's key, so a mail that is sent twice has
one id; notifications of one group refer to its first, so that mail programs show them together. Whether mail goes into
files or to an SMTP server is a setting.
"""

import smtplib
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.mime.image import MIMEImage
from email.utils import formatdate
from hashlib import blake2b
from typing import Any
from urllib.parse import urlencode, urlsplit

from django.conf import settings
from django.core import mail as django_mail
from django.core.exceptions import ValidationError
from django.core.mail import BadHeaderError, EmailMessage, EmailMultiAlternatives
from django.core.validators import validate_email
from django.template.loader import render_to_string
from django.urls import reverse

from alerts.notify.base import DeliveryFailed, RenderedMessage
from alerts.notify.chart import ChartData, draw
from alerts.notify.links import Purpose, act_links, home_url, link_url, rule_links
from alerts.notify.wording import chart_text, is_over, line_texts, more_text, plain_text, subject

_CHART_ID = "chart@spm"
_HAND_OVER_S = 60  # for a whole SMTP transaction: a server that stalls at each step must not hold up its sender


class EmailNotifier:
    """Sends a notification to one mail address."""

    receiver_hint = "mail address"
    has_chart = True

    def accepts(self, receiver: str) -> bool:
        return _is_address(receiver)

    def render(self, key: str, payload: Mapping[str, Any]) -> RenderedMessage:
        return _render(key, compose(key, payload))

    def shown(self, receiver: str) -> str:
        return receiver

    def send(self, key: str, payload: Mapping[str, Any]) -> str:
        return _send(compose(key, payload))


class AccountMailNotifier:
    """Sends the subject and body of the payload to a person, about their own account. No rule can choose it."""

    receiver_hint = ""

    def accepts(self, receiver: str) -> bool:
        return False

    def render(self, key: str, payload: Mapping[str, Any]) -> RenderedMessage:
        return _render(key, _account_mail(key, payload))

    def shown(self, receiver: str) -> str:
        return receiver

    def send(self, key: str, payload: Mapping[str, Any]) -> str:
        return _send(_account_mail(key, payload))


class _FrozenMail(EmailMultiAlternatives):
    """A mail that is the same bytes whenever it is written; what is attached belongs to its HTML part."""

    mixed_subtype = "related"

    def message(self, **named: Any) -> Any:
        written = super().message(**named)
        name = blake2b(str(self.extra_headers["Message-ID"]).encode(), digest_size=12).hexdigest()
        for number, part in enumerate([each for each in written.walk() if each.is_multipart()]):
            part.set_boundary(f"=_{name}_{number}")
        return written


def compose(key: str, payload: Mapping[str, Any]) -> EmailMessage:
    """Compose the mail of a notification; raises ``DeliveryFailed`` if its receiver is no mail address."""
    receivers = [address for address in payload["receivers"] if _is_address(address)]
    if not receivers:
        raise DeliveryFailed("no receiver with a mail address", permanent=True)
    if "lines" not in payload:
        raise DeliveryFailed("a message of an older version: what it says is over", permanent=True)
    links, acts = rule_links(payload), act_links(payload)
    message = _FrozenMail(
        subject=subject(payload),
        body=plain_text(payload, links, home_url(), acts),
        to=receivers,
        headers=_headers(key, payload),
    )
    message.attach_alternative(_html(payload, links, acts), "text/html")
    if payload.get("chart"):
        image = MIMEImage(draw(ChartData(**payload["chart"])), "png")
        image.add_header("Content-ID", f"<{_CHART_ID}>")
        image.add_header("Content-Disposition", "inline", filename="chart.png")
        message.attach(image)
    return message


def _headers(key: str, payload: Mapping[str, Any]) -> dict[str, str]:
    headers = {
        "Message-ID": message_id(key),
        "Date": formatdate(payload["at_ms"] / 1_000),
        "Auto-Submitted": "auto-generated",
        "X-SPM-Sequence": str(payload["n"]),
        "X-SPM-Severity": payload["lines"][0]["severity"],
    }
    if payload["thread"] != key:
        first_id = message_id(payload["thread"])
        headers |= {"In-Reply-To": first_id, "References": first_id}
    if payload.get("may_stop"):
        stop = link_url(Purpose.STOP, key)
        headers |= {"List-Unsubscribe": f"<{stop}>", "List-Unsubscribe-Post": "List-Unsubscribe=One-Click"}
    return headers


def message_id(key: str) -> str:
    """Return the permanent Message-ID of a message. It reveals nothing about its content."""
    host = urlsplit(settings.SPM_BASE_URL).hostname or "localhost"
    return f"<{blake2b(key.encode(), digest_size=16).hexdigest()}@{host}>"


def goes_to_a_folder() -> bool:
    """Whether mail is written into files and reaches nobody."""
    return str(settings.EMAIL_BACKEND).endswith("filebased.EmailBackend")


def chart_path(app: int, expr: str, span: tuple[int, int] | None = None) -> str:
    """Return the path of the chart of an expression, over a span of time if one is given."""
    parameters = {"expr": expr} | ({"from": str(span[0]), "to": str(span[1])} if span else {})
    return f"{reverse('frontend:chart', args=[app])}?{urlencode(parameters)}"


def _html(payload: Mapping[str, Any], links: Mapping[int, str], acts: Mapping[str, str]) -> str:
    texts = zip(line_texts(payload["lines"]), payload["lines"], strict=True)
    lines = [(text, links[line["rule"]], is_over(line)) for text, line in texts]
    context = {
        "subject": subject(payload),
        "lines": lines,
        "more": more_text(payload),
        "home": home_url(),
        "receiver": payload["receivers"][0],
        "acts": acts,
        "stop": link_url(Purpose.STOP, payload["key"]) if payload.get("may_stop") else "",
        "chart": f"cid:{_CHART_ID}" if payload.get("chart") else "",
        "chart_text": chart_text(payload["lines"][0]),
    }
    return render_to_string("alerts/mail/notification.html", context)


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


def _send(mail: EmailMessage) -> str:
    """Send one mail; returns who took it. Without a connection it surely did not arrive; if one broke, nobody knows."""
    connection = django_mail.get_connection()
    try:
        connection.open()
    except (OSError, smtplib.SMTPException) as error:
        raise DeliveryFailed(f"no connection to the mail server: {type(error).__name__}: {error}") from error
    try:
        with _deadline(connection, _HAND_OVER_S):
            connection.send_messages([mail])
    except smtplib.SMTPRecipientsRefused as error:
        codes = [code for code, _ in error.recipients.values()]
        text = "; ".join(f"{code} {answer!r}" for code, answer in error.recipients.values())
        raise DeliveryFailed(f"refused: {text}", permanent=all(500 <= code < 600 for code in codes)) from error
    except smtplib.SMTPResponseException as error:
        is_final = isinstance(error, smtplib.SMTPSenderRefused | smtplib.SMTPDataError) and error.smtp_code >= 500
        raise DeliveryFailed(f"{error.smtp_code} {error.smtp_error!r}", permanent=is_final) from error
    except (OSError, smtplib.SMTPException) as error:
        raise DeliveryFailed(f"{type(error).__name__}: {error}", perhaps=True) from error
    except (BadHeaderError, UnicodeError) as error:
        raise DeliveryFailed(f"cannot be written as mail: {error}", permanent=True) from error
    finally:
        _close(connection)
    return "written into a folder" if goes_to_a_folder() else f"taken by the mail server {settings.EMAIL_HOST}"


@contextmanager
def _deadline(connection: Any, seconds: float) -> Iterator[None]:
    """Break the connection after so many seconds: each step of SMTP has a time-out of its own, and there are many."""
    sock = getattr(getattr(connection, "connection", None), "sock", None)
    timer = threading.Timer(seconds, _break, [sock])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _break(sock: socket.socket | None) -> None:
    if sock is not None:
        try:
            sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it is closed already


def _close(connection: Any) -> None:
    try:
        connection.close()
    except (OSError, smtplib.SMTPException):
        return  # what was sent was answered before


def _is_address(text: str) -> bool:
    try:
        validate_email(text)
    except ValidationError:
        return False
    return True
