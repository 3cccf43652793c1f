"""Mails: one permanent id, everything people need, no header that a label could write, and honest outcomes."""

import smtplib
import socket
import threading
from collections.abc import Iterator
from email import message_from_bytes
from typing import Any

import pytest
from django.test import override_settings
from hypothesis import given, settings
from hypothesis import strategies as st

from alerts.notify import email
from alerts.notify.base import DeliveryFailed
from alerts.notify.email import EmailNotifier, compose, message_id
from alerts.notify.wording import subject
from tests.alerts.conftest import START_MS
from tests.alerts.notify.bodies import KEY, body, line
from tests.alerts.notify.mail_server import MailServer, free_port, mail_server

ENDED = {"kind": "resolved", "end_ms": START_MS + 60_000, "end_reason": "recovered"}


def parts(**changes: Any) -> tuple[str, str]:
    """The text and the HTML of a mail."""
    written = compose(KEY, body(**changes))
    return str(written.body), str(written.alternatives[0][0])  # type: ignore[attr-defined]


@override_settings(SPM_BASE_URL="https://spm.example.org", DEFAULT_FROM_EMAIL="spm@example.org")
def test_a_mail_says_what_where_how_much_and_since_when() -> None:
    written = compose(KEY, body())
    assert written.subject == "[FIRING] CPU is busy: web-1 97.25 (> 90) · Shop"
    assert written.to == ["ops@example.org"]
    for text in parts():
        for fact in (
            "FIRING · critical · Shop",
            "CPU is busy: host=web-1",
            "97.25",
            "90 for 1m",
            "2023-11-14 22:13:20",
        ):
            assert fact in text
        assert "https://spm.example.org/alerts/rules/7" in text


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([line(**ENDED)], "[RESOLVED] CPU is busy: web-1 · Shop"),
        (
            [line(labels={"host": name}) for name in "abc"],
            "[FIRING 3] CPU is busy: a, b and 1 more · Shop",
        ),
        ([line(), line(**ENDED, labels={"host": "b"})], "[FIRING 1, RESOLVED 1] CPU is busy: web-1, b · Shop"),
        ([line(labels={}), line(labels={}, name="Disk")], "[FIRING 2] CPU is busy and 1 more · Shop"),
    ],
    ids=["an end", "three series", "a mixture", "two rules"],
)
def test_a_subject_says_how_many_and_which(lines: list[dict[str, Any]], expected: str) -> None:
    assert subject(body(*lines)) == expected


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({**ENDED, "end_reason": "no data"}, "no data for too long"),
        ({**ENDED, "kind": "retracted"}, "this alert never was"),
        ({"perhaps": True}, "nobody knows whether that arrived"),
    ],
)
def test_a_line_says_what_is_particular_about_it(changes: dict[str, Any], text: str) -> None:
    plain, html = parts(lines=[line(**changes)])
    assert text in plain
    assert text in html


def test_an_alert_that_ended_without_data_is_not_said_to_have_recovered() -> None:
    assert "recover" not in "".join(parts(lines=[line(**{**ENDED, "end_reason": "no data"})])).lower()


def test_a_mail_of_many_alerts_is_small_and_counts_the_rest() -> None:
    long = {f"label_{n}": "x" * 60 for n in range(8)}
    many = body(*[line(labels={"host": f"web-{n}", **long}) for n in range(50)], more={"firing": 950})
    written = compose(KEY, many)
    assert len(written.message().as_bytes()) < 100_000
    assert "and 950 more firing" in str(written.body)


def test_a_mail_sent_twice_has_one_id_and_later_ones_refer_to_the_first() -> None:
    first, second = (compose(KEY, body()).message()["Message-ID"] for _ in range(2))
    later = compose("7.3.2", body(key="7.3.2", n=2)).message()
    assert first == second == message_id(KEY) == later["In-Reply-To"] == later["References"] != later["Message-ID"]


@settings(max_examples=40, deadline=None)
@given(name=st.text(max_size=300), value=st.text(max_size=300))
def test_no_name_and_no_label_writes_a_header_or_markup(name: str, value: str) -> None:
    hostile = line(name=name + "\r\nBcc: x@example.org<script>", labels={"host": value}, app_name=name)
    written = compose(KEY, body(hostile))
    again = message_from_bytes(written.message().as_bytes())
    assert sorted(again.keys()) == sorted(compose(KEY, body()).message().keys())
    assert len(str(written.subject)) <= 200
    assert "<script>" not in written.alternatives[0][0]  # type: ignore[attr-defined]


@pytest.mark.parametrize("sign", ["\x1b", "\x00", "\u202e", "\u2028", "\x85"])
def test_characters_that_control_a_terminal_are_removed(sign: str) -> None:
    plain, html = parts(lines=[line(name=f"CPU{sign}[31m", labels={"host": sign}, expr=f"cpu{sign}", comparator="")])
    assert sign not in plain + html


@pytest.mark.parametrize("receivers", [[], ["nobody"], ["x\nBcc: y@example.org"]])
def test_a_mail_to_nobody_is_refused_for_good(receivers: list[str]) -> None:
    with pytest.raises(DeliveryFailed) as caught:
        compose(KEY, body(receivers=receivers))
    assert caught.value.permanent


CHART = {
    "from_ms": START_MS - 3_600_000,
    "step_ms": 20_000,
    "values": [float(n % 50) for n in range(180)],
    "threshold": 90.0,
    "start_ms": START_MS,
    "end_ms": None,
}


def test_a_mail_with_a_chart_is_small_has_it_within_and_is_the_same_bytes_again() -> None:
    long = {f"label_{n}": "x" * 60 for n in range(8)}
    texts = {"summary": "&" * 1_000, "description": "&" * 1_000, "runbook_url": "https://example.org/" + "x" * 100}
    many = body(*[line(labels={"host": f"web-{n}", **long}, annotations=texts) for n in range(50)], chart=CHART)
    first, second = (compose(KEY, many).message().as_bytes() for _ in range(2))
    assert first == second
    assert len(first) < 100_000
    parts = {part.get_content_type(): part for part in message_from_bytes(first).walk()}
    assert parts["image/png"]["Content-ID"] == "<chart@spm>"
    html = parts["text/html"].get_payload(decode=True).decode()  # type: ignore[union-attr]
    assert 'src="cid:chart@spm" alt="Chart of CPU is busy' in html
    assert "http://" not in html.replace("http://localhost:8000", "")  # nothing is loaded from elsewhere


def test_a_mail_without_open_alerts_has_no_buttons() -> None:
    plain, html = parts(lines=[line(**ENDED)])
    assert "/a/" not in plain + html


@pytest.fixture
def server() -> Iterator[MailServer]:
    with mail_server() as running:
        yield running


def failure() -> DeliveryFailed:
    with pytest.raises(DeliveryFailed) as caught:
        EmailNotifier().send(KEY, body())
    return caught.value


def test_a_real_server_gets_one_mail_for_one_address(server: MailServer) -> None:
    EmailNotifier().send(KEY, body())
    [(addresses, data)] = server.received
    assert addresses == ["ops@example.org"]
    assert message_from_bytes(data)["Message-ID"] == message_id(KEY)


@pytest.mark.parametrize(
    ("recipient", "data", "permanent"),
    [
        ("550 no such user", "250 OK", True),
        ("451 try later", "250 OK", False),
        ("250 OK", "554 no spam", True),
        ("250 OK", "452 no room", False),
    ],
)
def test_a_refusal_surely_did_not_arrive(server: MailServer, recipient: str, data: str, permanent: bool) -> None:
    server.recipient_answer, server.data_answer = recipient, data
    refusal = failure()
    assert (refusal.permanent, refusal.perhaps) == (permanent, False)
    assert server.received == []


def test_without_a_server_nothing_arrived() -> None:
    smtp = "django.core.mail.backends.smtp.EmailBackend"
    with override_settings(EMAIL_BACKEND=smtp, EMAIL_HOST="127.0.0.1", EMAIL_PORT=free_port()):
        refusal = failure()
    assert (refusal.permanent, refusal.perhaps) == (False, False)


def test_a_server_that_stalls_forever_is_left_and_perhaps_took_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(email, "_HAND_OVER_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=tarpit, args=[listener], daemon=True)
        thread.start()
        with override_settings(
            EMAIL_BACKEND="django.core.mail.backends.smtp.EmailBackend",
            EMAIL_HOST="127.0.0.1",
            EMAIL_PORT=listener.getsockname()[1],
            EMAIL_TIMEOUT=5,
        ):
            refusal = failure()
        thread.join(10)
    assert (refusal.permanent, refusal.perhaps) == (False, True)


def tarpit(listener: socket.socket) -> None:
    """Greet, then answer one byte at a time, so that no time-out of a single step strikes."""
    connection, _ = listener.accept()
    with connection:
        connection.sendall(b"220 tarpit\r\n")
        connection.recv(1_000)
        for _ in range(200):
            try:
                connection.sendall(b"2")
            except OSError:
                return
            threading.Event().wait(0.1)


def test_a_time_out_after_the_body_perhaps_arrived(server: MailServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose_the_answer(self: smtplib.SMTP, message: bytes) -> tuple[int, bytes]:
        raise TimeoutError("timed out")

    monkeypatch.setattr(smtplib.SMTP, "data", lose_the_answer)
    assert failure().perhaps
