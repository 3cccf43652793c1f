"""An Alertmanager as receiver: what it gets, that it hears again in time, and a real one."""

import contextlib
import json
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db.models import F

from alerts import newest_texts, rulebook
from alerts.models import Episode, Instance, Lane, Rule
from alerts.models.telling import LastWord, Notification
from alerts.notify.alertmanager import ALERT_LASTS_MS, AlertmanagerNotifier
from alerts.telling import limits, refresh, sender
from spm.accounts.models import App
from tests.alerts.conftest import PERIOD_MS, START_MS, AlertingWorld, draft
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
    assert (first["startsAt"], first["endsAt"]) == ("2023-11-14T22:13:20.000Z", "2023-11-14T22:17:20.000Z")
    assert second["endsAt"] == "2023-11-14T22:14:20.000Z"
    assert first["generatorURL"].endswith("/alerts/rules/7")


def test_missing_data_is_another_alert_than_the_value(server: HttpServer) -> None:
    receiver = f"alertmanager+{server.url}"
    AlertmanagerNotifier().send(KEY, body(line(), line(aspect="missing", word="missing"), receivers=[receiver]))
    first, second = sent(server)
    assert second["labels"] == {**first["labels"], "aspect": "missing"}


@pytest.fixture
def informed(
    make_rule: Callable[..., Rule], world: AlertingWorld, server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> AlertingWorld:
    """An Alertmanager was told of one alert."""
    monkeypatch.setattr(newest_texts, "session_as_known", lambda app, known: world.machine.open_session(app))
    make_rule(receivers=(f"alertmanager+{server.url}",), annotations={"text": "{{ $value }}"})
    world.evaluate_values(95)
    assert refresh.refresh_due(world.clock.now_ms()) == 0  # nobody was told of it
    assert world.tell() == 1
    return world


def rounds(
    world: AlertingWorld, server: HttpServer, seconds: int, *, lag_ms: int = 0
) -> list[tuple[int, dict[str, Any]]]:
    """Let time pass with a look every five seconds; returns what was sent, each with its second.

    Judging says all the time that nothing changes, and is late by ``lag_ms``.
    """
    sendings = list[tuple[int, dict[str, Any]]]()
    for second in range(5, seconds + 1, 5):
        world.clock.advance(limits.REFRESH_LOOK_MS)
        before = len(server.received)
        Lane.objects.update(position_ms=world.clock.now_ms() - lag_ms)
        refresh.refresh_due(world.clock.now_ms())
        sendings += [(second, alert) for each in server.received[before:] for alert in json.loads(each.body)]
    return sendings


@pytest.mark.django_db
def test_an_alertmanager_is_told_at_once_and_gets_each_alert_of_many_groups(
    make_rule: Callable[..., Rule], world: AlertingWorld, server: HttpServer
) -> None:
    for number in range(20):  # more than a receiver that people read is sent at once
        make_rule(name=f"rule {number}", receivers=(f"alertmanager+{server.url}",))
    world.evaluate_values(95)
    assert world.tell() == 1
    assert {each["labels"]["alertname"] for each in sent(server)} == {f"rule {number}" for number in range(20)}
    world.evaluate_values(10)
    assert world.tell() == 1
    assert len(sent(server)) == 20


@pytest.mark.django_db
def test_an_alert_that_goes_on_is_sent_again_each_minute_with_the_newest_value(
    informed: AlertingWorld, server: HttpServer
) -> None:
    [first] = sent(server)
    informed.evaluate_values(97.5)
    sendings = rounds(informed, server, 180)
    assert [second for second, _ in sendings] == [50, 110, 170]  # the first was sent ten seconds before these
    for second, alert in sendings:
        assert (alert["startsAt"], alert["labels"]) == (first["startsAt"], first["labels"])
        assert alert["annotations"]["text"] == "97.5"
        assert alert["endsAt"] == moment(START_MS + (20 + second) * 1_000 + ALERT_LASTS_MS)
    assert first["annotations"]["text"] == "95"


@pytest.mark.django_db
def test_what_ended_is_sent_again_for_a_quarter_of_an_hour_with_its_last_value(
    informed: AlertingWorld, server: HttpServer
) -> None:
    informed.machine.values = {"a": 50.0}
    informed.evaluate()
    end_ms = informed.clock.now_ms()
    informed.machine.values = {"a": 97.5}  # this is what is read of the last step at which it fired
    assert informed.tell() == 1
    sendings = [(0, sent(server)[0]), *rounds(informed, server, 1_200)]
    assert [second for second, _ in sendings] == list(range(0, 900, 60))
    assert {(each["endsAt"], each["annotations"]["text"]) for _, each in sendings} == {(moment(end_ms), "97.5")}


@pytest.mark.django_db
def test_what_ended_is_not_sent_again_once_its_series_is_active_again(
    informed: AlertingWorld, server: HttpServer, app: App
) -> None:
    Rule.objects.filter(app=app).update(for_ms=600_000)
    informed.evaluate_values(50)
    informed.tell()
    rule = Rule.objects.get(app=app)
    rulebook.change(rule, draft(receivers=rule.receivers, for_ms=600_000), by=None, now_ms=informed.clock.now_ms())
    informed.evaluate_values(95, 95)  # pending
    assert Instance.objects.get().phase == "pending"
    assert rounds(informed, server, 300) == []


@pytest.mark.django_db
def test_an_alertmanager_that_does_not_answer_is_tried_again_soon_and_not_at_each_look(
    informed: AlertingWorld, server: HttpServer
) -> None:
    server.answers[:] = [(500, {}, b"ill")] * 3 + [(200, {}, b"ok")] * 10
    informed.clock.advance(60_000)
    assert [second for second, _ in rounds(informed, server, 180)] == [5, 35, 65, 95, 155]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("lag_ms", "first"),
    [(0, 60), (12_000, 75), (600_000, 90)],
    ids=["judged at once", "judged a little later", "judging stands still"],
)
def test_an_alert_is_sent_again_once_judging_has_confirmed_it_and_is_not_forgotten(
    informed: AlertingWorld, server: HttpServer, lag_ms: int, first: int
) -> None:
    assert [second for second, _ in rounds(informed, server, 100, lag_ms=lag_ms)] == [first]


@pytest.mark.django_db
def test_an_end_that_was_not_told_yet_is_left_to_its_notification(informed: AlertingWorld, server: HttpServer) -> None:
    informed.clock.advance(limits.REFRESH_MS)
    informed.evaluate_values(50)
    before = len(server.received)
    assert refresh.refresh_due(informed.clock.now_ms()) == 0
    assert informed.tell() == 1
    assert refresh.refresh_due(informed.clock.now_ms()) == 0
    said = [alert["endsAt"] for each in server.received[before:] for alert in json.loads(each.body)]
    assert said == [moment(Episode.objects.get().end_ms or 0)]


@pytest.mark.django_db
def test_what_a_notification_says_meanwhile_is_not_sent_again(
    informed: AlertingWorld, server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    informed.clock.advance(limits.REFRESH_MS)
    Lane.objects.update(position_ms=informed.clock.now_ms())
    read = refresh._with_newest_texts

    def slow(each: Any) -> Any:
        Episode.objects.update(status="ended", end_ms=START_MS + PERIOD_MS, revision=F("revision") + 1)
        return read(each)

    monkeypatch.setattr(refresh, "_with_newest_texts", slow)
    monkeypatch.setattr(refresh, "ThreadPoolExecutor", lambda *arguments, **named: contextlib.nullcontext(Plain()))
    before = len(server.received)
    refresh.refresh_due(informed.clock.now_ms())
    assert len(server.received) == before


class Plain:
    """A pool that does all in this thread."""

    map = staticmethod(map)


@pytest.mark.django_db
def test_a_slow_hand_over_does_not_shorten_the_pause(informed: AlertingWorld, server: HttpServer) -> None:
    word = LastWord.objects.get()
    notification = Notification.objects.get()
    Notification.objects.update(state="waiting", claim=7)
    notification.claim = 7
    sender.record(notification, sender.Outcome(took_ms=9_000), informed.clock.now_ms() + 9_000)
    assert LastWord.objects.get().sent_ms == informed.clock.now_ms() + 9_000 > word.sent_ms


@pytest.mark.django_db
def test_two_looks_at_once_send_once(informed: AlertingWorld, server: HttpServer) -> None:
    informed.clock.advance(limits.REFRESH_MS)
    Lane.objects.update(position_ms=informed.clock.now_ms())
    before = len(server.received)
    assert [refresh.refresh_due(informed.clock.now_ms()) for _ in range(2)] == [1, 0]
    assert len(server.received) == before + 1


def moment(ms: int) -> str:
    """A time as the interface writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ms // 1_000)) + f".{ms % 1_000:03}Z"


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
    amtool = [program("amtool", "prometheus-alertmanager"), f"--alertmanager.url={alertmanager}", "alert", "query"]
    listed = subprocess.run([*amtool, "host=web-1"], capture_output=True, text=True, check=True, timeout=30).stdout
    assert "CPU is busy" in listed
    over = line(**{**ENDED, "start_ms": now_ms - 60_000, "end_ms": now_ms - 1_000})
    notifier.send(KEY, body(over, receivers=[receiver], at_ms=now_ms))
    assert alerts_of(alertmanager) == []
