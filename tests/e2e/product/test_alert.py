"""From a crossed threshold to a mail that a person can read: rule by the form, samples by HTTP, mail in the folder."""

import time
from email import message_from_string, policy
from email.message import EmailMessage

import pytest

from alerts.telling.limits import GROUP_INTERVAL_MS
from tests.servers.product import Served
from tests.support.people import Person

pytestmark = [pytest.mark.serial, pytest.mark.slow, pytest.mark.timeout(400)]
WAIT_S = 60
END_S = 60 + GROUP_INTERVAL_MS / 1_000  # a group is told of at most once in an interval


def push(served: Served, value: float) -> None:
    connection = served.connection()
    assert (
        served.push(connection, f"oven,room=kitchen temperature={value} {time.time_ns() // 1_000_000}\n".encode())
        == 204
    )


def mails(served: Served) -> list[str]:
    """Return the mails in the folder as people read them: subject, receiver, text."""
    files = sorted((served.data / "mail").glob("*"))
    return [_readable(message_from_string(file.read_text(), policy=policy.default)) for file in files]


def _readable(mail: EmailMessage) -> str:
    text = mail.get_body(("plain",))
    return f"{mail['Subject']}\n{mail['To']}\n{'' if text is None else text.get_content()}"


def wait_for_mail(served: Served, text: str, value: float, wait_s: float = WAIT_S) -> str:
    """Keep pushing ``value`` until a mail with this text is in the folder."""
    until = time.monotonic() + wait_s
    while time.monotonic() < until:
        push(served, value)
        for mail in mails(served):
            if text in mail:
                return mail
        time.sleep(1)
    raise AssertionError(f"no mail with {text!r} within {wait_s} s; there are {len(mails(served))}")


def test_a_crossed_threshold_sends_one_mail_and_its_end_another(served: Served) -> None:
    person = Person(f"http://127.0.0.1:{served.port}", served.login, served.password)
    push(served, 20)
    person.submit(
        f"/alerts/new?app={served.app}",
        name="Oven too hot",
        expr="oven_temperature",
        comparator=">",
        threshold="90",
        for_ms="5s",
        keep_firing_for_ms="",
        recovery="",
        severity="warning",
        receivers=served.login,
        enabled="on",
    )
    fired = wait_for_mail(served, "Oven too hot", 120)
    assert all(text in fired for text in (served.login, "120", "90"))
    wait_for_mail(served, "[RESOLVED]", 20, END_S)
    time.sleep(12)
    assert len(mails(served)) == 2
    assert "Oven too hot" in person.read(f"/alerts/mail?app={served.app}")
