"""Mails: one permanent id, everything people need, and no header that a label could write."""

import smtplib
from collections.abc import Callable
from email import message_from_bytes
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from django.core import mail
from django.test import override_settings
from hypothesis import given
from hypothesis import strategies as st

from alerts.models import Outbox, Rule
from alerts.notify import outbox
from alerts.notify.base import DeliveryFailed
from alerts.notify.email import EmailNotifier, compose, message_id
from alerts.notify.registry import NOTIFIERS
from alerts.notify.text import subject
from tests.alerts.conftest import START_MS, AlertingWorld

KEY = "7:abc:5:firing"


def payload(**changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "rule": 7,
        "name": "CPU is busy",
        "app": 3,
        "app_name": "Shop",
        "severity": "critical",
        "state": "firing",
        "labels": {"__name__": "cpu", "host": "web-1"},
        "value": "97.25",
        "expr": "cpu",
        "comparator": ">",
        "threshold": "90.0",
        "for_ms": 60_000,
        "at_ms": START_MS,
        "episode_ms": START_MS - 60_000,
        "fingerprint": "abc",
        "receivers": ["ops@example.org", "dev@example.org"],
        "reason": "",
    }
    return {**fields, **changes}


@override_settings(SPM_BASE_URL="https://spm.example.org", DEFAULT_FROM_EMAIL="spm@example.org")
def test_a_mail_says_what_where_how_much_and_since_when() -> None:
    written = compose(KEY, payload())
    assert written.subject == "[FIRING] CPU is busy: cpu host=web-1"
    assert written.to == ["ops@example.org", "dev@example.org"]
    body = str(written.body)
    for fact in (
        "State      firing",
        "Value      97.25",
        "Threshold  > 90 for 1m",
        "Severity   critical",
        "App        Shop",
    ):
        assert fact in body
    assert "Time       2023-11-14 22:13:20 UTC" in body
    assert "https://spm.example.org/alerts/rules/7" in body
    assert "https://spm.example.org/apps/3/chart?expr=cpu&from=" in body


def test_a_mail_sent_twice_has_one_id() -> None:
    first, second = (compose(KEY, payload()).message()["Message-ID"] for _ in range(2))
    assert first == second == message_id(KEY)


def test_the_end_of_an_episode_answers_its_beginning() -> None:
    began = compose(KEY, payload()).message()["Message-ID"]
    ended = compose("7:abc:5:resolved", payload(state="resolved")).message()
    assert ended["In-Reply-To"] == began != ended["Message-ID"]


@given(name=st.text(max_size=300), value=st.text(max_size=300))
def test_no_name_and_no_label_writes_a_header(name: str, value: str) -> None:
    written = compose(KEY, payload(name=name, labels={"host": value})).message()
    again = message_from_bytes(written.as_bytes())
    assert sorted(again.keys()) == sorted(compose(KEY, payload()).message().keys())
    assert len(subject(payload(name=name))) <= 200


def test_a_line_end_in_a_name_stays_in_the_subject() -> None:
    written = compose(KEY, payload(name="CPU\r\nBcc: everybody@example.org")).message()
    assert written["Bcc"] is None
    assert "CPU Bcc: everybody" in str(written["Subject"])


@pytest.mark.parametrize("sign", ["\x1b", "\x00", "\u202e", "\u2028", "\x85"])
def test_characters_that_control_a_terminal_are_removed(sign: str) -> None:
    written = compose(KEY, payload(name=f"CPU{sign}[31m", labels={"host": sign}, expr=f"cpu{sign}"))
    assert sign not in written.subject + str(written.body)


def test_a_receiver_that_is_no_address_is_skipped() -> None:
    written = compose(KEY, payload(receivers=["ops@example.org", "x\nBcc: y@example.org", "nobody"]))
    assert written.to == ["ops@example.org"]


def test_a_mail_to_nobody_is_refused_permanently() -> None:
    with pytest.raises(DeliveryFailed) as caught:
        compose(KEY, payload(receivers=[]))
    assert caught.value.permanent


@pytest.mark.parametrize(
    ("error", "permanent"),
    [
        (smtplib.SMTPRecipientsRefused({"a@example.org": (550, b"no such user")}), True),
        (smtplib.SMTPRecipientsRefused({"a@example.org": (450, b"busy")}), False),
        (smtplib.SMTPServerDisconnected("gone"), False),
        (smtplib.SMTPDataError(554, b"rejected"), False),
        (ConnectionRefusedError("refused"), False),
        (OSError(28, "no space left"), False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_a_failure_to_send_says_whether_to_try_again(error: Exception, permanent: bool) -> None:
    with patch("alerts.notify.email.EmailMessage.send", side_effect=error), pytest.raises(DeliveryFailed) as caught:
        EmailNotifier().send(KEY, payload())
    assert caught.value.permanent is permanent


@pytest.mark.django_db
def test_a_crossing_becomes_a_mail(make_rule: Callable[..., Rule], world: AlertingWorld) -> None:
    make_rule()
    world.evaluate_values(95, 50)
    outbox.deliver(notifiers=NOTIFIERS, clock=world.clock)
    assert [sent.subject[:10] for sent in mail.outbox] == ["[FIRING] C", "[RESOLVED]"]


@pytest.mark.django_db
def test_a_crash_before_recording_sends_the_mail_again_under_its_id(
    make_rule: Callable[..., Rule], world: AlertingWorld
) -> None:
    make_rule()
    world.evaluate_values(95)
    with patch("alerts.notify.outbox.mark_sent", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        outbox.deliver(notifiers=NOTIFIERS, clock=world.clock)
    world.clock.advance(600_000)
    outbox.deliver(notifiers=NOTIFIERS, clock=world.clock)
    first, second = (sent.message() for sent in mail.outbox)
    assert first["Message-ID"] == second["Message-ID"]
    assert Outbox.objects.get().state == "sent"


@pytest.mark.django_db
def test_the_embedded_default_writes_mail_into_files(
    make_rule: Callable[..., Rule], world: AlertingWorld, tmp_path: Path, settings: Any
) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
    settings.EMAIL_FILE_PATH = str(tmp_path / "mail")
    make_rule()
    world.evaluate_values(95)
    outbox.deliver(notifiers=NOTIFIERS, clock=world.clock)
    (file,) = (tmp_path / "mail").iterdir()
    assert "Subject: [FIRING] CPU is busy: cpu host=a" in file.read_text()
