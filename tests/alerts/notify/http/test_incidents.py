"""PagerDuty and Opsgenie: an incident for each episode, opened and closed under its name, and nothing of the past."""

import json
from typing import Any

import pytest

from alerts.notify.base import DeliveryFailed
from alerts.notify.http import post
from alerts.notify.incidents import IncidentNotifier, OpsgenieNotifier, PagerDutyNotifier
from tests.alerts.conftest import START_MS
from tests.alerts.notify.bodies import KEY, body, line
from tests.alerts.notify.http.servers import HttpServer

PAGERDUTY, OPSGENIE = "pagerduty://0123456789abcdef0123456789abcdef", "opsgenie://01234567-89ab-cdef-0123-456789abcdef"
ENDED: dict[str, Any] = {"kind": "resolved", "end_ms": START_MS + 60_000, "end_reason": "recovered"}
NOTIFIERS: list[tuple[IncidentNotifier, str]] = [(PagerDutyNotifier(), PAGERDUTY), (OpsgenieNotifier(), OPSGENIE)]
BOTH = pytest.mark.parametrize(("notifier", "receiver"), NOTIFIERS, ids=["PagerDuty", "Opsgenie"])


@pytest.fixture
def service(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> HttpServer:
    """The services' addresses lead to a server of the test."""
    original = post.request
    hosts = ("https://events.pagerduty.com", "https://api.opsgenie.com")

    def request(exchange: Any, method: str, url: str, **named: Any) -> Any:
        for host in hosts:
            url = url.replace(host, server.url)
        return original(exchange, method, url, **named)

    monkeypatch.setattr("alerts.notify.incidents.request", request)
    server.answers = [(202, {}, b'{"status":"success"}')]
    return server


def sent(service: HttpServer) -> list[dict[str, Any]]:
    return [{"path": got.path, **json.loads(got.body)} for got in service.received]


def test_pagerduty_gets_one_event_for_each_line_under_the_episodes_name(service: HttpServer) -> None:
    lines = [line(), line(**ENDED, episode=12), line(kind="retracted", episode=13)]
    PagerDutyNotifier().send(KEY, body(*lines, receivers=[PAGERDUTY]))
    first, second, third = sent(service)
    assert (first["path"], first["event_action"], first["dedup_key"]) == ("/v2/enqueue", "trigger", "spm-localhost-11")
    assert first["payload"]["summary"] == "CPU is busy: host=web-1 97.25 > 90 for 1m"
    assert (first["payload"]["severity"], first["payload"]["timestamp"]) == ("critical", "2023-11-14T22:13:20.000Z")
    assert (second["event_action"], second["dedup_key"]) == ("resolve", "spm-localhost-12")
    assert (third["event_action"], third["dedup_key"]) == ("resolve", "spm-localhost-13")


def test_opsgenie_opens_and_closes_by_the_episodes_alias(service: HttpServer) -> None:
    OpsgenieNotifier().send(KEY, body(line(), line(**ENDED, episode=12), receivers=[OPSGENIE]))
    first, second = sent(service)
    assert (first["path"], first["alias"], first["priority"]) == ("/v2/alerts", "spm-localhost-11", "P1")
    assert second["path"] == "/v2/alerts/spm-localhost-12/close?identifierType=alias"
    assert service.received[0].headers["Authorization"] == f"GenieKey {OPSGENIE.removeprefix('opsgenie://')}"


@BOTH
def test_what_is_long_over_wakes_nobody(service: HttpServer, notifier: IncidentNotifier, receiver: str) -> None:
    notifier.send(KEY, body(line(kind="late", end_ms=START_MS + 1), receivers=[receiver]))
    assert service.received == []


@BOTH
def test_a_short_alert_and_a_test_open_and_close(
    service: HttpServer, notifier: IncidentNotifier, receiver: str
) -> None:
    notifier.send(KEY, body(line(kind="brief", end_ms=START_MS + 1), receivers=[receiver]))
    notifier.send(KEY, body(line(kind="test", episode=0), receivers=[receiver]))
    assert len(service.received) == 4


@BOTH
def test_a_refusal_after_a_line_was_taken_has_perhaps_arrived(
    service: HttpServer, notifier: IncidentNotifier, receiver: str
) -> None:
    service.answers = [(202, {}, b""), (400, {}, b"bad event")]
    with pytest.raises(DeliveryFailed) as caught:
        notifier.send(KEY, body(line(), line(episode=12), receivers=[receiver]))
    assert (caught.value.permanent, caught.value.perhaps) == (True, True)


@BOTH
def test_its_key_is_shown_by_its_last_signs(notifier: IncidentNotifier, receiver: str) -> None:
    assert notifier.accepts(receiver)
    assert notifier.accepts(receiver + "@eu")
    assert notifier.shown(receiver + "@eu") == f"{notifier.scheme}://…cdef@eu"
    assert receiver.partition("://")[2] not in notifier.render(KEY, body(line(), receivers=[receiver])).body
    for wrong in (f"{notifier.scheme}://short", receiver + "@mars", receiver + "/../x", receiver.replace("://", ":")):
        assert not notifier.accepts(wrong)
