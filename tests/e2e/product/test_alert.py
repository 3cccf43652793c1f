"""From a crossed threshold to a mail that a person can read: rule by the form, samples by HTTP, mail in the folder."""

import time

import pytest

from tests.servers.product import Served
from tests.support.people import Person

pytestmark = [pytest.mark.serial, pytest.mark.slow, pytest.mark.timeout(300)]
WAIT_S = 60


def push(served: Served, value: float) -> None:
    connection = served.connection()
    assert (
        served.push(connection, f"oven,room=kitchen temperature={value} {time.time_ns() // 1_000_000}\n".encode())
        == 204
    )


def mails(served: Served) -> list[str]:
    return [f.read_text() for f in sorted((served.data / "mail").glob("*"))]


def wait_for_mail(served: Served, text: str, value: float) -> str:
    """Keep pushing ``value`` until a mail with this text is in the folder."""
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        push(served, value)
        for mail in mails(served):
            if text in mail:
                return mail
        time.sleep(1)
    raise AssertionError(f"no mail with {text!r} within {WAIT_S} s; there are {len(mails(served))}")


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
        receivers="cook@example.org",
        enabled="on",
    )
    fired = wait_for_mail(served, "Oven too hot", 120)
    assert all(text in fired for text in ("cook@example.org", "120", "90"))
    wait_for_mail(served, "esolved", 20)
    time.sleep(12)
    assert len(mails(served)) == 2
    assert "Oven too hot" in person.read(f"/alerts/mail?app={served.app}")
