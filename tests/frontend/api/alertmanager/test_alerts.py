"""Open alerts in Alertmanager's form: fields, what covers them, filters, groups."""

from typing import Any

import pytest
from django.db import transaction
from django.test import Client

from alerts import rulebook
from alerts.models import Episode, Rule
from alerts.models.telling import Inhibition, MuteTiming
from alerts.telling import actions, hook
from spm.accounts.models import App
from spm.clock import SystemClock
from tests.alerts.conftest import draft
from tests.support.people import Tenant

pytestmark = pytest.mark.django_db
HOUR_MS = 3_600_000


def rule_of(tenant: Tenant, **changes: Any) -> Rule:
    """A rule of the tenant's app."""
    return rulebook.write(tenant.app, draft(**changes), by=tenant.owner, now_ms=1)


def begin(rule: Rule, *hosts: str) -> list[Episode]:
    """Begin an alert of each host, just now."""
    now_ms = SystemClock().now_ms()
    times = {"start_ms": now_ms, "created_ms": now_ms, "changed_ms": now_ms, "severity": rule.severity}
    rows = [
        Episode.objects.create(rule=rule, fingerprint=str(n), labels={"host": host}, last_value=95.0, **times)
        for n, host in enumerate(hosts)
    ]
    with transaction.atomic():
        hook.mark([each.pk for each in rows], now_ms=now_ms)
    return rows


def ask(client: Client, path: str = "alerts", **query: Any) -> Any:
    """The answer of an address."""
    answer = client.get(f"/api/v2/{path}", query)
    assert answer.status_code == 200, answer.content
    return answer.json()


def hosts(alerts: list[dict[str, Any]]) -> list[str]:
    return sorted(each["labels"]["host"] for each in alerts)


def silence(tenant: Tenant, matchers: str) -> None:
    now_ms = SystemClock().now_ms()
    times = {"from_ms": now_ms, "to_ms": now_ms + HOUR_MS, "now_ms": now_ms}
    actions.add_silence(tenant.organisation, matchers, comment="", by=tenant.owner, **times)  # type: ignore[arg-type]


def test_an_alert_has_labels_receivers_and_times_as_alertmanager_writes_them(desk: Client, alpha: Tenant) -> None:
    [episode] = begin(rule_of(alpha), "a")
    [alert] = ask(desk)
    assert alert["labels"] == {
        "alertname": "CPU is busy",
        "host": "a",
        "severity": "warning",
        "app": "alpha production",
    }
    assert alert["receivers"] == [{"name": "ops@example.org"}]
    assert alert["status"] == {"state": "active", "silencedBy": [], "inhibitedBy": [], "mutedBy": []}
    assert alert["startsAt"].endswith("Z")
    assert alert["startsAt"] <= alert["updatedAt"] < alert["endsAt"]
    assert len(bytes.fromhex(alert["fingerprint"])) == 8
    assert alert["generatorURL"].endswith(f"/alerts/{episode.pk}")


def test_a_receiver_has_the_name_of_its_contact_point(desk: Client, alpha: Tenant) -> None:
    actions.add_contact_point(alpha.organisation, "Ops", ("ops@example.org",), by=alpha.owner, now_ms=1)
    begin(rule_of(alpha), "a")
    assert ask(desk)[0]["receivers"] == [{"name": "Ops"}]
    assert {"name": "Ops"} in ask(desk, "receivers")
    assert (len(ask(desk, receiver="Op")), len(ask(desk, receiver="O.*"))) == (0, 1)


def test_what_covers_an_alert_is_named_and_can_be_left_out(desk: Client, alpha: Tenant) -> None:
    busy, down = rule_of(alpha), rule_of(alpha, name="down", severity="critical")
    [cause] = begin(down, "d")
    begin(busy, "a", "b", "c", "d")
    silence(alpha, 'host="a"')
    org, all_day = alpha.organisation, 86_400_000
    Inhibition.objects.create(
        organisation=org, source='alertname="down"', target='alertname="CPU is busy"', equal=["host"]
    )
    MuteTiming.objects.create(organisation=org, name="W", matchers='host="b"', cron="0 0 * * *", duration_ms=all_day)
    by_host = {each["labels"]["host"]: each for each in ask(desk, filter='alertname="CPU is busy"')}
    states = {host: each["status"] for host, each in by_host.items()}
    [inhibitor] = [each for each in ask(desk) if each["labels"]["alertname"] == "down"]
    assert {host: each["state"] for host, each in states.items()} == {
        **dict.fromkeys("abd", "suppressed"),
        "c": "active",
    }
    assert len(states["a"]["silencedBy"]) == 1
    assert states["b"]["mutedBy"] == ["in the maintenance window W"]
    assert states["d"]["inhibitedBy"] == [inhibitor["fingerprint"]]
    assert inhibitor["generatorURL"].endswith(f"/alerts/{cause.pk}")
    of_busy = {"filter": 'alertname="CPU is busy"'}
    assert hosts(ask(desk, active="false", **of_busy)) == ["a", "b", "d"]
    assert hosts(ask(desk, silenced="false", inhibited="false", muted="false", **of_busy)) == ["c"]


@pytest.mark.parametrize(
    ("texts", "wanted"),
    [
        ('host="web-1"', ["web-1"]),
        ("host=web-1", ["web-1"]),
        ('host=~"web-.*"', ["web-1", "web-2"]),
        (["host=~web-.*", 'host!="web-1"'], ["web-2"]),
        ('host!~"web.*"', ["db"]),
        ('absent=""', ["db", "web-1", "web-2"]),
        ('alertname="other"', []),
    ],
)
def test_filters_choose_by_labels(desk: Client, alpha: Tenant, texts: Any, wanted: list[str]) -> None:
    begin(rule_of(alpha), "web-1", "web-2", "db")
    assert hosts(ask(desk, filter=texts)) == wanted


@pytest.mark.parametrize("text", ["host", '="a"', 'host="a', 'host=~"("', 'a b="c"'])
def test_a_wrong_filter_is_refused_with_one_text(desk: Client, alpha: Tenant, text: str) -> None:
    for path in ("alerts", "alerts/groups", "silences"):
        answer = desk.get(f"/api/v2/{path}", {"filter": text})
        assert answer.status_code == 400
        assert isinstance(answer.json(), str)


def test_groups_have_their_labels_receiver_and_alerts(desk: Client, alpha: Tenant) -> None:
    begin(rule_of(alpha, receivers=("ops@example.org", "two@example.org")), "a", "b")
    groups = ask(desk, "alerts/groups")
    assert [each["receiver"]["name"] for each in groups] == ["ops@example.org", "two@example.org"]
    assert all(hosts(each["alerts"]) == ["a", "b"] for each in groups)
    assert all(each["labels"] for each in groups)


def test_alerts_of_other_apps_and_organisations_are_not_listed(desk: Client, alpha: Tenant, beta: Tenant) -> None:
    begin(rule_of(beta), "b")
    other = App.objects.create(organisation=alpha.organisation, name="other")
    begin(rulebook.write(other, draft(), by=alpha.owner, now_ms=1), "o")
    begin(rule_of(alpha), "a")
    program = {"Authorization": f"Bearer {alpha.token}"}
    assert hosts(Client().get("/api/v2/alerts", headers=program).json()) == ["a"]
    assert Client().get(f"/api/v2/alerts?app={other.pk}", headers=program).status_code == 404
    assert hosts(ask(desk, app=other.pk)) == ["o"]


def test_alerts_cannot_be_posted(desk: Client, alpha: Tenant) -> None:
    assert desk.post("/api/v2/alerts", [], content_type="application/json").status_code == 405
