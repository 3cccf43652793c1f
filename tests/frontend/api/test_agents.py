"""Agents speak with a token that may send, are seen with one that may read, and get the settings they should have."""

from typing import Any

import pytest
from django.test import Client

from ingest.agent.version import VERSION
from ingest.models import Agent, AgentSettings
from ingest.senders import agents
from spm import limits
from spm.accounts import tokens
from spm.accounts.models import AuditEntry, Source
from spm.clock import SystemClock, moment
from tests.support import notes
from tests.support.people import Tenant


@pytest.fixture
def secret(alpha: Tenant) -> str:
    return tokens.issue(alpha.app, name="agent", scopes=["ingest"])[1]


def heartbeat_fields(**changes: Any) -> dict[str, Any]:
    """A heartbeat."""
    now = SystemClock().now_ms()
    return {
        "name": "web-1",
        "version": "0.1.0",
        "platform": "Linux",
        "period_ms": 10_000,
        "started_ms": now - 60_000,
        "now_ms": now,
        "spool": "0a1b2c3d4e5f",
        "sequence": 7,
        "spooled": 0,
        "oldest_ms": 0,
        "dropped_messages": 0,
        "dropped_samples": 0,
        "tags": {"role": "web"},
        "collectors": {"cpu": "ok"},
        "etag": "",
        "refused": {},
        **changes,
    }


def post_heartbeat(client: Client, secret: str, path: str = "/heartbeat", **changes: Any) -> Any:
    header = f"Bearer {secret}"
    return client.post(
        f"/api/v1/agents{path}", heartbeat_fields(**changes), "application/json", HTTP_AUTHORIZATION=header
    )


def test_an_agent_registers_once_and_beats_from_then_on(client: Client, secret: str, alpha: Tenant) -> None:
    first, again, beat = (
        post_heartbeat(client, secret, ""),
        post_heartbeat(client, secret, ""),
        post_heartbeat(client, secret, spooled=3),
    )
    assert (first.status_code, again.status_code, beat.status_code) == (201, 200, 200)
    [agent] = Agent.objects.all()
    assert (agent.app, agent.name, agent.spooled, agent.sequence) == (alpha.app, "web-1", 3, 7)
    assert beat.json()["version"] == VERSION
    assert "settings" not in beat.json()


def test_a_heartbeat_announces_the_period_of_the_source(client: Client, secret: str, alpha: Tenant) -> None:
    notes.see_source(alpha.app.pk, "web-1", SystemClock().now_ms())
    post_heartbeat(client, secret, period_ms=300_000)
    assert Source.objects.get().period_ms == 300_000


@pytest.mark.parametrize(
    "changes",
    [
        {"name": ""},
        {"name": "a\nb"},
        {"name": "x" * 256},
        {"name": "a\0b"},
        {"period_ms": 0},
        {"period_ms": "soon"},
        {"now_ms": -1},
        {"now_ms": 10**18},
        {"spool": "zz"},
        {"sequence": 1 << 70},
        {"tags": {"a": "x" * 301}},
        {"tags": {str(i): "x" for i in range(101)}},
        {"collectors": {"a\0": "x"}},
        {"collectors": []},
        {"etag": "e" * 33},
        {"refused": {"a": {"b": 1}}},
    ],
    ids=str,
)
def test_a_heartbeat_that_is_none_is_refused_with_its_reason(client: Client, secret: str, changes: Any) -> None:
    response = post_heartbeat(client, secret, **changes)
    assert response.status_code == 400
    assert set(response.json()) & {*changes, "error"}
    assert not Agent.objects.exists()


@pytest.mark.parametrize("given", ["", "Bearer nonsense", "reader"])
def test_without_a_token_that_may_send_nobody_is_heard(client: Client, alpha: Tenant, given: str) -> None:
    header = f"Bearer {alpha.token}" if given == "reader" else given
    for path in ("", "/heartbeat"):
        response = client.post(
            f"/api/v1/agents{path}", heartbeat_fields(), "application/json", HTTP_AUTHORIZATION=header
        )
        assert response.status_code == 401
    assert client.get("/api/v1/agents/version", HTTP_AUTHORIZATION=header).status_code == 401


def test_a_session_cannot_speak_for_an_agent(desk: Client) -> None:
    assert desk.post("/api/v1/agents", heartbeat_fields(), "application/json").status_code in (401, 403)


def test_the_doctor_learns_whose_token_it_is_and_what_time_it_is(client: Client, secret: str, alpha: Tenant) -> None:
    answer = client.get("/api/v1/agents/version", HTTP_AUTHORIZATION=f"Bearer {secret}").json()
    assert (answer["app"], answer["version"]) == (alpha.app.name, VERSION)
    assert abs(answer["server_ms"] - SystemClock().now_ms()) < 30_000


def test_agents_of_others_are_not_seen(client: Client, secret: str, beta: Tenant) -> None:
    post_heartbeat(client, secret)
    assert client.get("/api/v1/agents", HTTP_AUTHORIZATION=f"Bearer {beta.token}").json() == []


def test_an_agent_is_seen_with_its_state_by_a_token_that_may_read(client: Client, secret: str, alpha: Tenant) -> None:
    post_heartbeat(client, secret, dropped_samples=12, collectors={"redis:a": "no answer in time"})
    [row] = client.get("/api/v1/agents", HTTP_AUTHORIZATION=f"Bearer {alpha.token}").json()
    assert (row["name"], row["state"], row["dropped_samples"]) == ("web-1", "late", 12)
    assert row["collectors"] == {"redis:a": "no answer in time"}
    assert "no data comes" in row["why"]


def doubled(client: Client, tenant: Tenant) -> list[bool]:
    rows = client.get("/api/v1/agents", HTTP_AUTHORIZATION=f"Bearer {tenant.token}").json()
    return [each["two_of_this_name"] for each in rows]


def test_two_agents_of_one_name_are_reported(client: Client, secret: str, alpha: Tenant) -> None:
    now = SystemClock().now_ms()
    for started_ms in (now - 90_000, now - 60_000, now - 90_000):
        post_heartbeat(client, secret, started_ms=started_ms)
    assert doubled(client, alpha) == [True]
    Agent.objects.update(twin=None)
    post_heartbeat(client, secret, started_ms=now - 90_000)  # the other was stopped
    assert doubled(client, alpha) == [False]


def test_an_agent_that_was_started_anew_is_no_second_one(client: Client, secret: str, alpha: Tenant) -> None:
    now = SystemClock().now_ms()
    for started_ms, its_now in ((now - 90_000, now), (now, now), (now, now + 3_600_000)):  # at last its clock jumps
        post_heartbeat(client, secret, started_ms=started_ms, now_ms=its_now)
    assert doubled(client, alpha) == [False]


def test_equal_names_in_two_apps_are_two_agents(client: Client, secret: str, alpha: Tenant, beta: Tenant) -> None:
    now = SystemClock().now_ms()
    other = tokens.issue(beta.app, name="agent", scopes=["ingest"])[1]
    for token, started_ms in ((secret, now - 90_000), (other, now - 60_000), (secret, now - 90_000)):
        post_heartbeat(client, token, started_ms=started_ms)
    assert doubled(client, alpha) == doubled(client, beta) == [False]


def test_pushed_settings_come_with_the_next_heartbeat_until_they_are_applied(
    client: Client, desk: Client, secret: str, alpha: Tenant
) -> None:
    path = f"/api/v1/apps/{alpha.app.pk}/agents/settings"
    for match, settings in (("*", {"period_s": 30, "tags": {"a": "1"}}), ("role=web", {"tags": {"b": "2"}})):
        assert desk.put(path, {"match": match, "settings": settings}, "application/json").status_code == 200
    reply = post_heartbeat(client, secret).json()
    assert reply["settings"] == {"period_s": 30, "tags": {"a": "1", "b": "2"}}
    assert "settings" not in post_heartbeat(client, secret, etag=reply["etag"]).json()
    assert post_heartbeat(client, secret, name="db-1", tags={}).json()["settings"] == {
        "period_s": 30,
        "tags": {"a": "1"},
    }
    assert AuditEntry.objects.filter(action="agent settings").count() == 2


def test_an_agents_own_name_wins_over_its_tags_and_those_over_all(alpha: Tenant) -> None:
    now = SystemClock().now_ms()
    for match, period in (("web-1", 3), ("*", 1), ("role=web", 2)):
        agents.push_settings(alpha.app, match, {"period_s": period}, actor=None, by="t", now_ms=now)
    periods = [
        agents.settings_of(alpha.app.pk, name, tags)[1]["period_s"]
        for name, tags in (("web-1", {"role": "web"}), ("x", {"role": "web"}), ("x", {}))
    ]
    assert periods == [3, 2, 1]


def test_settings_that_are_removed_leave_agents_with_none(client: Client, secret: str, alpha: Tenant) -> None:
    now = SystemClock().now_ms()
    agents.push_settings(alpha.app, "*", {"period_s": 30}, actor=None, by="t", now_ms=now)
    etag = post_heartbeat(client, secret).json()["etag"]
    agents.push_settings(alpha.app, "*", {}, actor=None, by="t", now_ms=now)
    reply = post_heartbeat(client, secret, etag=etag).json()
    assert (reply["etag"], reply["settings"]) == ("", {})
    assert not AgentSettings.objects.exists()


@pytest.mark.parametrize(
    "pushed",
    [
        {"url": "http://evil"},
        {"token": "x"},
        {"command": []},
        {"period_s": 0},
        {"tags": {"host": "x"}},
        {"off": ["nothing"]},
        {"spool": "/"},
    ],
    ids=str,
)
def test_what_no_agent_applies_cannot_be_pushed(desk: Client, alpha: Tenant, pushed: dict[str, Any]) -> None:
    path = f"/api/v1/apps/{alpha.app.pk}/agents/settings"
    response = desk.put(path, {"match": "*", "settings": pushed}, "application/json")
    assert response.status_code == 409
    assert next(iter(pushed)) in response.json()["error"]


def test_viewers_push_no_settings(client: Client, alpha: Tenant) -> None:
    client.force_login(alpha.viewer)
    path = f"/api/v1/apps/{alpha.app.pk}/agents/settings"
    assert client.get(path).status_code == 200
    assert client.put(path, {"match": "*", "settings": {"period_s": 5}}, "application/json").status_code == 403


def test_a_forgotten_agent_comes_back_with_its_next_heartbeat(
    client: Client, desk: Client, secret: str, alpha: Tenant
) -> None:
    post_heartbeat(client, secret)
    path = f"/api/v1/apps/{alpha.app.pk}/agents/by-name/web-1"
    assert desk.get(path).json()["name"] == "web-1"
    assert (desk.delete(path).status_code, desk.delete(path).status_code) == (204, 404)
    assert post_heartbeat(client, secret).status_code == 200
    assert Agent.objects.count() == 1


def test_an_app_has_a_bound_of_agents(client: Client, secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "AGENTS_PER_APP_MAX", 2)
    assert [post_heartbeat(client, secret, name=f"h{n}").status_code for n in range(3)] == [200, 200, 422]
    assert post_heartbeat(client, secret, name="h0").status_code == 200


NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("data_age_s", "beat_age_s", "state", "why"),
    [
        (5, 5, "up", ""),
        (5, 300, "up", "heartbeats do not"),
        (300, 5, "late", "3 messages wait on its disk"),
        (3_600, 5, "late", "3 messages wait on its disk"),
        (300, 300, "late", "neither"),
        (3_600, 3_600, "gone", "neither"),
        (3_600, 300, "late", "neither"),
    ],
)
def test_the_health_of_an_agent_follows_its_data_and_heartbeats(
    data_age_s: int, beat_age_s: int, state: str, why: str
) -> None:
    agent = Agent(name="a", period_ms=10_000, spooled=3, last_seen=moment(NOW - beat_age_s * 1000))
    health = agents.judge_health(agent, NOW - data_age_s * 1000, NOW)
    assert health.state == state
    assert why in health.why


def test_a_clock_far_off_is_reported_and_the_start_stays_in_range(client: Client, secret: str) -> None:
    post_heartbeat(client, secret, now_ms=limits.TIME_MAX_MS, started_ms=limits.TIME_MAX_MS)
    [agent] = Agent.objects.all()
    assert agents.judge_health(agent, 0, SystemClock().now_ms()).has_wrong_clock
    assert agent.started.year < 2100
