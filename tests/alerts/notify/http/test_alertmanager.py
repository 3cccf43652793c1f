"""An Alertmanager as receiver: what it gets, that it hears again in time, and a real one."""

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from alerts.models import Rule
from alerts.notify.alertmanager import ALERT_LASTS_MS, AlertmanagerNotifier
from alerts.telling import limits, refresh
from tests.alerts.conftest import START_MS, AlertingWorld
from tests.alerts.notify.bodies import KEY, body, line
from tests.alerts.notify.http.servers import HttpServer
from tests.alerts.notify.mail_server import free_port
from tests.clients.support.programs import Running, program
from tests.servers.processes import wait_until

ENDED = {"kind": "resolved", "end_ms": START_MS + 60_000, "end_reason": "recovered"}


def sent(server: HttpServer) -> list[dict[str, Any]]:
    """The alerts of the last request."""
    alerts: list[dict[str, Any]] = json.loads(server.received[-1].body)
    return alerts


def test_what_goes_on_has_an_end_ahead_and_what_ended_has_its_own(server: HttpServer) -> None:
    receiver = f"alertmanager+{server.url}/prefix/"
    AlertmanagerNotifier().send(KEY, body(line(), line(**ENDED, labels={"host": "b"}), receivers=[receiver]))
    first, second = sent(server)
    assert server.received[0].path == "/prefix/api/v2/alerts"
    assert first["labels"] == {"host": "web-1", "alertname": "CPU is busy", "severity": "critical", "app": "Shop"}
    assert (first["startsAt"], first["endsAt"]) == ("2023-11-14T22:13:20.000Z", "2023-11-14T22:23:20.000Z")
    assert second["endsAt"] == "2023-11-14T22:14:20.000Z"
    assert first["generatorURL"].endswith("/alerts/rules/7")


def test_missing_data_is_another_alert_than_the_value(server: HttpServer) -> None:
    receiver = f"alertmanager+{server.url}"
    AlertmanagerNotifier().send(KEY, body(line(), line(aspect="missing", word="missing"), receivers=[receiver]))
    first, second = sent(server)
    assert second["labels"] == {**first["labels"], "aspect": "missing"}


@pytest.mark.django_db
def test_an_alert_that_goes_on_is_said_again_before_its_end_and_then_its_end(
    make_rule: Callable[..., Rule], world: AlertingWorld, server: HttpServer
) -> None:
    make_rule(receivers=(f"alertmanager+{server.url}",))
    world.evaluate_values(95)
    assert refresh.refresh_due(world.clock.now_ms()) == 0  # nobody was told of it
    world.clock.advance(limits.GROUP_WAIT_MS)
    assert world.tell() == 1
    pause_ms = ALERT_LASTS_MS - 2 * limits.REFRESH_MS
    for _ in range(3):
        world.clock.advance(pause_ms)
        assert refresh.refresh_due(world.clock.now_ms()) == 1
        assert refresh.refresh_due(world.clock.now_ms()) == 0  # another worker has just done it
        [alert] = sent(server)
        assert alert["endsAt"] > sent_before_it_ends(world, pause_ms)
    world.evaluate_values(*[10.0] * 300)
    world.tell()
    world.clock.advance(limits.REFRESH_MS)
    refresh.refresh_due(world.clock.now_ms())
    assert sent(server)[0]["endsAt"] <= sent_before_it_ends(world, 0)


def sent_before_it_ends(world: AlertingWorld, later_ms: int) -> str:
    """The time of the clock, later: as the interface writes it."""
    from_epoch_s = (world.clock.now_ms() + later_ms) / 1_000
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(from_epoch_s))


@pytest.fixture
def alertmanager(tmp_path: Path) -> Iterator[str]:
    """A real Alertmanager that tells nobody; its address."""
    executable = program("prometheus-alertmanager", "prometheus-alertmanager")
    settings = tmp_path / "alertmanager.yml"
    settings.write_text("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n")
    port = free_port()
    running = Running("alertmanager", tmp_path)
    running.start(
        [
            executable,
            f"--config.file={settings}",
            f"--storage.path={tmp_path / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--cluster.listen-address=",
        ]
    )
    address = f"http://127.0.0.1:{port}"
    assert wait_until(lambda: answers(f"{address}/-/ready"), 20), running.output()
    yield address
    running.end()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def alerts_of(address: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{address}/api/v2/alerts", timeout=5) as answer:
        alerts: list[dict[str, Any]] = json.load(answer)
    return alerts


@pytest.mark.real
def test_a_real_alertmanager_takes_an_alert_deduplicates_and_ends_it(alertmanager: str, settings: Any) -> None:
    settings.SPM_NOTIFY_NETWORKS = ["127.0.0.0/8"]
    receiver, now_ms = f"alertmanager+{alertmanager}", int(time.time() * 1_000)
    notifier = AlertmanagerNotifier()
    opened = body(line(start_ms=now_ms - 60_000), receivers=[receiver], at_ms=now_ms)
    for _ in range(2):
        assert notifier.send(KEY, opened).startswith("200")
    [alert] = alerts_of(alertmanager)
    assert (alert["labels"]["alertname"], alert["status"]["state"]) == ("CPU is busy", "active")
    assert alert["annotations"]["summary"] == "CPU is busy: host=web-1"
    over = line(**{**ENDED, "start_ms": now_ms - 60_000, "end_ms": now_ms - 1_000})
    notifier.send(KEY, body(over, receivers=[receiver], at_ms=now_ms))
    assert alerts_of(alertmanager) == []
