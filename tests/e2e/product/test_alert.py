"""From a crossed threshold to a mail that a person can read: rule by the form, samples by HTTP, mail in the folder."""

import re
import time
import urllib.request
from email import message_from_string, policy
from email.message import EmailMessage

import pytest

from tests.servers.product import Served
from tests.support.people import Person

pytestmark = [pytest.mark.serial, pytest.mark.slow, pytest.mark.timeout(900)]
WAIT_S = 180
ON_CALL = "on-call@example.org"


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


def wait_for_mail(served: Served, receiver: str, text: str, value: float) -> str:
    """Keep pushing ``value`` until a mail to the receiver with this text is in the folder."""
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        push(served, value)
        for mail in mails(served):
            if receiver in mail.splitlines()[1] and text in mail:
                return mail
        time.sleep(1)
    raise AssertionError(f"no mail to {receiver} with {text!r} within {WAIT_S} s; there are {len(mails(served))}")


def route_to_a_stranger(served: Served, person: Person) -> None:
    """Have a policy tell somebody of everything, who says by a link of a mail that she wants that."""
    person.submit(
        f"/alerts/notifications?app={served.app}", "/alerts/contact-points", name="On call", receivers=ON_CALL
    )
    question = wait_for_mail(served, ON_CALL, "/a/confirm", 20)
    link = re.search(r"/a/confirm\S+", question)
    assert link
    with urllib.request.urlopen(f"http://127.0.0.1:{served.port}{link[0]}", data=b"", timeout=30) as answer:
        assert answer.status == 200  # she has no login
    policies = f"/alerts/policies?app={served.app}"
    point = re.search(r'<option value="(\d+)">On call', person.read(policies))
    assert point
    person.submit(policies, matchers='alertname=~".+"', contact_point=point[1], position="0", interval_ms="10s")


def test_a_crossed_threshold_sends_one_mail_to_each_and_its_end_another(served: Served) -> None:
    """The end is told by the policy's interval of ten seconds; the rule's own receiver hears of it minutes later."""
    person = Person(f"http://127.0.0.1:{served.port}", served.login, served.password)
    push(served, 20)
    route_to_a_stranger(served, person)
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
    for receiver in (served.login, ON_CALL):
        fired = wait_for_mail(served, receiver, "[FIRING] Oven too hot", 120)
        assert all(text in fired for text in ("120", "90"))
    wait_for_mail(served, ON_CALL, "[RESOLVED]", 20)
    time.sleep(12)
    assert sum(ON_CALL in mail.splitlines()[1] for mail in mails(served)) == 3  # the question, and these two
    assert "Oven too hot" in person.read(f"/alerts/mail?app={served.app}")
