"""Who watches alerting from outside sees that judging, the pipeline, telling or events stand still, and hears of it."""

from collections.abc import Callable
from typing import Any

import pytest
from django.core import mail
from django.core.cache import cache
from django.core.management import CommandError, call_command
from django.test import Client

from alerts.health import alarm
from alerts.health.stalls import STALL_MS, stalls
from alerts.management.commands import alerting_health
from alerts.models import Lane, Outbox, Rule
from alerts.pages import health
from spm.accounts.models import App
from spm.events import relay
from spm.events.models import Event
from tests.alerts.conftest import START_MS, AlertingWorld

pytestmark = pytest.mark.django_db
MakeRule = Callable[..., Rule]
LONG_MS = 10 * 60_000


@pytest.fixture(autouse=True)
def clocks(world: AlertingWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (health, alerting_health):
        monkeypatch.setattr(module, "_clock", world.clock)
    cache.clear()


def seen(world: AlertingWorld) -> list[str]:
    return [each.what for each in stalls(world.clock.now_ms())]


def test_all_is_well_while_lanes_move(make_rule: MakeRule, world: AlertingWorld) -> None:
    make_rule()
    world.clock.advance(LONG_MS)
    world.evaluate()
    assert seen(world) == []


def test_a_lane_that_nobody_judges_is_seen(make_rule: MakeRule, world: AlertingWorld) -> None:
    make_rule()
    world.clock.advance(LONG_MS)
    assert seen(world) == ["judging"]


def test_a_lane_without_anything_to_judge_is_no_stall(make_rule: MakeRule, world: AlertingWorld) -> None:
    make_rule(enabled=False)
    world.clock.advance(LONG_MS)
    assert seen(world) == []


def test_a_pipeline_that_stands_still_is_seen(make_rule: MakeRule, world: AlertingWorld) -> None:
    make_rule()
    world.evaluate()
    Lane.objects.update(behind_ms=START_MS - STALL_MS - 1)
    assert seen(world) == ["pipeline"]


def test_notifications_and_mails_that_nobody_sends_are_seen(make_rule: MakeRule, world: AlertingWorld) -> None:
    make_rule()
    world.evaluate_values(95)
    world.tell()
    message = {"kind": "account", "payload": {}, "created_ms": START_MS, "next_attempt_ms": 0}
    Outbox.objects.create(key="one", **message)
    world.clock.advance(STALL_MS - 20_000)
    world.evaluate()
    assert seen(world) == []
    world.clock.advance(20_000)
    relay.advance_all()
    assert seen(world) == ["telling"]


def test_events_that_the_relay_leaves_waiting_are_seen(app: App, world: AlertingWorld) -> None:
    world.clock.advance(LONG_MS)
    now_ms = world.clock.now_ms()
    facts = {"kind": "deploy", "key": "web", "text": "v2", "at_ms": START_MS, "organisation": app.organisation}
    Event.objects.create(app=app, event_id="young", made_ms=now_ms - STALL_MS + 1, **facts)
    assert seen(world) == []
    old = Event.objects.create(app=app, event_id="old", made_ms=now_ms - STALL_MS, **facts)
    [stall] = stalls(now_ms)
    assert stall.text(now_ms) == "events: 1 waiting, the oldest for 120 s"
    relay.advance(app.organisation_id)
    assert Event.objects.get(pk=old.pk).position is not None
    assert seen(world) == []


def test_the_address_answers_503_and_names_nobody(make_rule: MakeRule, world: AlertingWorld, client: Client) -> None:
    make_rule()
    world.evaluate()
    assert client.get("/health/alerting").json() == {"status": "ok", "stalls": []}
    world.clock.advance(LONG_MS)
    answer = client.get("/health/alerting")
    assert answer.status_code == 503
    assert answer.json()["stalls"] == [{"what": "judging", "waiting": 1, "late_s": 600}]


def test_the_command_mails_once_in_half_an_hour_by_its_own_connection(
    make_rule: MakeRule, world: AlertingWorld
) -> None:
    make_rule()
    world.clock.advance(LONG_MS)
    for _ in range(2):
        with pytest.raises(CommandError, match="judging: 1 waiting"):
            call_command("alerting_health", mail="ops@example.org")
    assert [each.to for each in mail.outbox] == [["ops@example.org"]]
    assert not Outbox.objects.exists()


def test_the_command_pings_only_while_all_is_well(
    make_rule: MakeRule, world: AlertingWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pings = list[str]()

    def request(exchange: Any, method: str, url: str) -> str:
        pings.append(f"{method} {url}")
        return url

    monkeypatch.setattr(alarm, "request", request)
    monkeypatch.setattr(alarm, "check", lambda response: None)
    make_rule()
    world.evaluate()
    call_command("alerting_health", ping="https://hc.example.org/1")
    world.clock.advance(LONG_MS)
    with pytest.raises(CommandError):
        call_command("alerting_health", ping="https://hc.example.org/1")
    assert pings == ["GET https://hc.example.org/1"]
