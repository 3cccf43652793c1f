"""A webhook: what it sends, how it is signed, and what it says of each kind of answer."""

import base64
import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from alerts.notify.base import DeliveryFailed
from alerts.notify.http import limits
from alerts.notify.http.alert_format import webhook_body
from alerts.notify.webhook import WebhookNotifier, secret_of
from spm.clock import FakeClock
from tests.alerts.conftest import START_MS
from tests.alerts.notify.bodies import KEY, body, line
from tests.alerts.notify.http.servers import HttpServer

ENDED = {"kind": "resolved", "end_ms": START_MS + 60_000, "end_reason": "recovered"}


def send(url: str) -> str:
    return WebhookNotifier(FakeClock(START_MS)).send(KEY, body(receivers=[url]))


def failure(url: str) -> DeliveryFailed:
    with pytest.raises(DeliveryFailed) as caught:
        send(url)
    return caught.value


def test_a_webhook_carries_key_sequence_and_a_signature_that_its_receiver_can_verify(server: HttpServer) -> None:
    assert send(f"{server.url}/hook?a=b") == "200 ok"
    [got] = server.received
    assert (got.method, got.path) == ("POST", "/hook?a=b")
    assert (got.headers["Idempotency-Key"], got.headers["X-SPM-Sequence"]) == (KEY, "1")
    signed = f"{got.headers['webhook-id']}.{got.headers['webhook-timestamp']}.".encode() + got.body
    secret = base64.b64decode(secret_of(7).removeprefix("whsec_"))
    expected = base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()
    assert got.headers["webhook-signature"] == f"v1,{expected}"
    assert secret_of(7) != secret_of(8)


def test_a_webhook_counts_the_alerts_and_groups_that_it_does_not_write() -> None:
    groups = [{"id": n, "labels": {"host": str(n)}} for n in range(50)]
    digest = body(line(), more={"firing": 4_999}, groups=groups, groups_more=4_950)
    sent = json.loads(webhook_body(digest, base_url="https://spm.example.org"))
    assert (sent["truncatedAlerts"], sent["groupCount"]) == (4_999, 5_000)
    assert sent["externalURL"] == "https://spm.example.org/alerts/"


def test_a_webhook_has_the_form_of_an_alertmanagers(server: HttpServer) -> None:
    notifier = WebhookNotifier(FakeClock(START_MS))
    notifier.send(KEY, body(line(), line(**ENDED, labels={"host": "b"}), receivers=[server.url], more={"firing": 9}))
    sent = json.loads(server.received[0].body)
    assert (sent["version"], sent["status"], sent["truncatedAlerts"], sent["groupKey"]) == ("4", "firing", 9, "7.3")
    assert sent["commonLabels"] == {"alertname": "CPU is busy", "severity": "critical", "app": "Shop"}
    first, second = sent["alerts"]
    assert first["labels"] == {**sent["commonLabels"], "host": "web-1"}
    assert (first["status"], first["startsAt"], first["endsAt"]) == (
        "firing",
        "2023-11-14T22:13:20.000Z",
        "0001-01-01T00:00:00Z",
    )
    assert (second["status"], second["endsAt"]) == ("resolved", "2023-11-14T22:14:20.000Z")
    assert first["fingerprint"] != second["fingerprint"]


def test_a_retry_sends_the_same_bytes(server: HttpServer) -> None:
    send(server.url)
    send(server.url)
    assert server.received[0].body == server.received[1].body


@pytest.mark.parametrize(
    ("status", "permanent"),
    [
        (301, True),
        (302, True),
        (307, True),
        (308, True),
        (400, True),
        (404, True),
        (410, True),
        (408, False),
        (425, False),
        (429, False),
        (500, False),
        (502, False),
        (503, False),
    ],
)
def test_an_answer_that_is_no_success_surely_did_not_deliver(server: HttpServer, status: int, permanent: bool) -> None:
    server.answers = [(status, {"Location": f"{server.url}/elsewhere"}, b"because")]
    refusal = failure(server.url)
    assert (refusal.permanent, refusal.perhaps) == (permanent, False)
    assert str(status) in str(refusal)
    assert len(server.received) == 1  # no redirect is followed


def test_an_answer_is_read_up_to_a_bound_and_quoted_without_control_characters(server: HttpServer) -> None:
    server.answers = [(500, {}, b"\x1b[31mno\n" + b"x" * 1_000_000)]
    text = str(failure(server.url))
    assert text.startswith("500 [31mno xxx")
    assert len(text) < 400


def test_without_a_server_nothing_arrived_and_the_path_is_not_shown(settings: object) -> None:
    settings.SPM_NOTIFY_NETWORKS = ["127.0.0.0/8"]  # type: ignore[attr-defined]
    refusal = failure("http://127.0.0.1:9/secret-path?token=secret-token")
    assert (refusal.permanent, refusal.perhaps) == (False, False)
    assert "secret" not in str(refusal)


@contextmanager
def raw_server(*steps: bytes, pause_s: float = 0.0) -> Iterator[str]:
    """A server that takes a request and then sends these bytes, slowly, and nothing more."""
    over = threading.Event()

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(100_000)
            for step in steps:
                try:
                    connection.sendall(step)
                except OSError:
                    return
                over.wait(pause_s)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=[listener], daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        over.set()
        thread.join(5)


def test_a_server_that_breaks_after_the_request_perhaps_took_it(server: HttpServer) -> None:
    with raw_server() as url:
        refusal = failure(url)
    assert (refusal.permanent, refusal.perhaps) == (False, True)


def test_a_server_that_stalls_for_ever_is_left_and_perhaps_took_it(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "EXCHANGE_S", 0.4)
    with raw_server(b"HTTP/1.1 200 OK\r\n", *[b"x"] * 100, pause_s=0.1) as url:
        refusal = failure(url)
    assert (refusal.permanent, refusal.perhaps) == (False, True)


def test_a_body_over_the_bound_is_not_sent(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BODY_BYTES_MAX", 100)
    assert failure(server.url).permanent
    assert server.received == []


@pytest.mark.parametrize(
    "text",
    ["https://a.example/x", "http://user:pw@a.example:8080/", "https://[2606:4700::1111]/"],
)
def test_a_web_address_is_accepted(text: str) -> None:
    assert WebhookNotifier().accepts(text)


@pytest.mark.parametrize(
    "text",
    [
        "ftp://a.example",
        "https://",
        "https:///x",
        "https://a b.example",
        "https://a.example\r\nX: y",
        "file:///etc/passwd",
        "https://a.example:99999/",
        "https://a.example/" + "x" * 500,
        "https://a\\@b.example",
        "gopher://x",
        "//a.example",
    ],
)
def test_another_text_is_none(text: str) -> None:
    assert not WebhookNotifier().accepts(text)


def test_a_page_shows_of_a_web_address_only_where_it_leads() -> None:
    shown = WebhookNotifier().shown("https://user:pw@hooks.example.org:8443/services/secret?token=secret")
    assert shown == "https://hooks.example.org:8443/…"
