"""Chats: only listed services with harmless options, and every request of every service by checked addresses."""

import socket
from typing import Any

import pytest

from alerts.notify import chat
from alerts.notify.base import DeliveryFailed
from alerts.notify.chat import SCHEMES, ChatNotifier
from alerts.notify.http import post, session
from alerts.notify.registry import kind_of
from tests.alerts.notify.bodies import KEY, body, line
from tests.alerts.notify.http.servers import HttpServer

ADDRESSES = {
    "slack": "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#ops",
    "slack bot": "slack://xoxb-1234-1234-abc124/#ops",
    "discord": "discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js",
    "workflows": "workflows://prod-03.westus.logic.azure.com:443/643e69f83c8944/a_signature",
    "tgram": "tgram://123456789:abcdefg_hijklmnop/12315544",
    "mmost": "mmost://chat.example.org/3ccdd113474722377935511fc85d3dd4",
    "mmosts": "mmosts://chat.example.org/3ccdd113474722377935511fc85d3dd4",
    "rocket": "rocket://user:password@chat.example.org/#ops",
    "rockets": "rockets://user:password@chat.example.org/#ops",
    "gchat": "gchat://workspace/key/token",
    "wxteams": "wxteams://" + "a" * 80,
    "ntfy": "ntfy://push.example.org/topic",
    "ntfys": "ntfys://push.example.org/topic",
    "gotify": "gotify://push.example.org/abcdefghijklmnop",
    "gotifys": "gotifys://push.example.org/abcdefghijklmnop",
    "pover": "pover://" + "u" * 30 + "@" + "a" * 30,
    "pbul": "pbul://" + "a" * 32,
    "zulip": "zulip://botname@organisation/" + "a" * 32 + "/stream",
    "splunk": "splunk://routing@a1b2c3d4-a1b2-a1b2-a1b2-a1b2c3d4e5f6/entity",
    "twilio": "twilio://AC" + "a" * 32 + ":" + "b" * 32 + "@15551234567/15557654321",
    "line": "line://" + "a" * 60 + "/target",
}
HOOKS = [
    "https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ",
    "https://discord.com/api/webhooks/4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js",
    "https://prod-03.westus.logic.azure.com:443/workflows/643e69f83c8944/triggers/manual/paths/invoke"
    "?api-version=2016-06-01&sp=%2Ftriggers%2Fmanual%2Frun&sv=1.0&sig=abcdefghijklm",
]


def message(receiver: str) -> dict[str, Any]:
    return body(receivers=[receiver])


def failure(receiver: str) -> DeliveryFailed:
    with pytest.raises(DeliveryFailed) as caught:
        ChatNotifier().send(KEY, message(receiver))
    return caught.value


def test_every_scheme_of_the_list_has_an_address_here() -> None:
    assert {name.partition(" ")[0] for name in ADDRESSES} == SCHEMES


@pytest.mark.parametrize("receiver", [*ADDRESSES.values(), *HOOKS])
def test_an_address_of_the_list_is_a_chat_and_shows_no_secret(receiver: str) -> None:
    assert kind_of(receiver) == "chat"
    assert len(ChatNotifier().shown(receiver)) < 50


@pytest.mark.parametrize("receiver", ADDRESSES.values(), ids=list(ADDRESSES))
def test_no_request_of_a_service_reaches_an_internal_address(receiver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reached: list[object] = []
    resolved: list[str] = []

    def resolve(host: str, port: int) -> list[tuple[int, str]]:
        resolved.append(host)
        return [(socket.AF_INET, "127.0.0.1")]

    monkeypatch.setattr(chat, "open_exchange", lambda: session.Exchange(resolver=resolve))
    monkeypatch.setattr(socket.socket, "connect", lambda self, address: reached.append(address))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments, **named: reached.append(arguments))
    refusal = failure(receiver)
    assert (refusal.permanent, refusal.perhaps) == (True, False)
    assert "must not reach" in str(refusal)
    assert resolved
    assert reached == []


@pytest.mark.parametrize(
    "receiver",
    [
        "json://example.org/x",
        "file:///etc/passwd",
        "dbus://",
        "syslog://",
        "mailto://user:password@example.org",
        "mqtt://example.org/x",
        "discord://4174216298/token?template=/etc/passwd",
        "discord://4174216298/token?verify=no",
        "discord://4174216298/token?redirect=yes",
        "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ?template=http://example.org",
        "ntfy://push.example.org/topic?attach=file:///etc/passwd",
        "discord://",
        "slack://nothing",
        "discord://4174216298/token\nx",
    ],
)
def test_another_service_or_a_dangerous_option_is_refused(receiver: str) -> None:
    assert not ChatNotifier().accepts(receiver)
    assert failure(receiver).permanent


def address_of(server: HttpServer) -> str:
    return f"gotify://127.0.0.1:{server.port}/abcdefghijklmnop"


def test_a_service_gets_subject_and_text(server: HttpServer) -> None:
    assert ChatNotifier().send(KEY, message(address_of(server))) == "200 ok"
    text = server.received[0].body.decode()
    assert "[FIRING] CPU is busy: web-1 97.25" in text
    assert "/alerts/rules/7" in text


def test_a_label_calls_nobody(server: HttpServer) -> None:
    hostile = line(labels={"host": "@everyone <!channel> @here"})
    ChatNotifier().send(KEY, body(hostile, receivers=[address_of(server)]))
    text = server.received[0].body.decode()
    assert "@everyone" not in text
    assert "<!" not in text
    assert "@here" not in text


@pytest.mark.parametrize(("status", "permanent"), [(302, True), (401, True), (429, False), (500, False)])
def test_a_refusal_of_a_service_is_one_of_ours(server: HttpServer, status: int, permanent: bool) -> None:
    server.answers = [(status, {"Location": "http://127.0.0.1/"}, b"no")]
    refusal = failure(address_of(server))
    assert (refusal.permanent, refusal.perhaps, len(server.received)) == (permanent, False, 1)


def test_a_request_outside_a_hand_over_is_not_made(server: HttpServer) -> None:
    service = chat._open(address_of(server))
    assert not service.notify(title="x", body="y")
    assert server.received == []
    assert post.open_exchange().session.trust_env is False
