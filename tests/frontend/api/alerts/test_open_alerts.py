"""The list of open alerts by REST: filters, pages, who has taken them, and who was told."""

from typing import Any

import pytest
from django.db import transaction
from django.test import Client

from alerts import open_alerts, rulebook
from alerts.models import Episode, EpisodeStatus, Rule
from alerts.telling import actions, hook, limits
from spm.clock import SystemClock
from tests.alerts.conftest import draft
from tests.support.people import Tenant

pytestmark = pytest.mark.django_db


def rule_of(tenant: Tenant, **changes: Any) -> Rule:
    """A rule of the tenant."""
    return rulebook.write(tenant.app, draft(**changes), by=tenant.owner, now_ms=1)


def begin(rule: Rule, *hosts: str) -> list[int]:
    """Begin an alert of each host; returns their numbers."""
    times = {"start_ms": 1, "created_ms": 1, "changed_ms": 1, "severity": rule.severity, "last_value": 95.0}
    rows = [
        Episode.objects.create(rule=rule, fingerprint=str(n), labels={"host": host}, **times)
        for n, host in enumerate(hosts)
    ]
    with transaction.atomic():
        hook.mark([each.pk for each in rows], now_ms=1)
    return [each.pk for each in rows]


def read(client: Client, tenant: Tenant, query: str = "") -> dict[str, Any]:
    """A page of the list."""
    answer = client.get(f"/api/v1/organisations/{tenant.organisation.pk}/alerts{query}")
    assert answer.status_code == 200
    return answer.json()  # type: ignore[no-any-return]


def numbers(page: dict[str, Any]) -> list[int]:
    return [each["id"] for each in page["alerts"]]


def test_an_open_alert_is_listed_with_its_labels_and_who_was_told(desk: Client, alpha: Tenant) -> None:
    rule = rule_of(alpha)
    [number] = begin(rule, "a")
    [alert] = read(desk, alpha)["alerts"]
    assert (alert["id"], alert["rule"], alert["app"], alert["value"]) == (number, rule.pk, alpha.app.pk, 95.0)
    assert alert["labels"] == {
        "alertname": "CPU is busy", "host": "a", "severity": "warning", "app": "alpha production"
    }  # fmt: skip
    assert alert["acknowledged"] is None
    [word] = alert["last_words"]
    assert (word["target"], word["level"], word["is_doubtful"]) == ("ops@example.org", "nothing", False)


@pytest.mark.parametrize("value", [float("inf"), float("-inf")])
def test_a_value_that_json_does_not_have_is_null(desk: Client, alpha: Tenant, value: float) -> None:
    [number] = begin(rule_of(alpha), "a")
    Episode.objects.filter(pk=number).update(last_value=value)
    [alert] = read(desk, alpha)["alerts"]
    assert (alert["id"], alert["value"]) == (number, None)


def test_alerts_that_are_over_and_those_of_others_are_not_listed(desk: Client, alpha: Tenant, beta: Tenant) -> None:
    begin(rule_of(beta), "b")
    [number] = begin(rule_of(alpha), "a")
    Episode.objects.filter(pk=number).update(status=EpisodeStatus.ENDED, end_ms=9)
    assert read(desk, alpha) == {"alerts": [], "next": None}


def test_each_filter_chooses(desk: Client, alpha: Tenant) -> None:
    first, second = rule_of(alpha), rule_of(alpha, name="Disk fills", severity="critical")
    busy, full = begin(first, "a"), begin(second, "b")
    actions.acknowledge_episode(
        Episode.objects.get(pk=busy[0]), by=alpha.owner, for_ms=60_000, now_ms=SystemClock().now_ms()
    )
    for query, expected in {
        f"?rule={second.pk}": full,
        "?severity=warning": busy,
        f"?app={alpha.app.pk}": full + busy,
        "?app=999999": [],
        "?app=0": [],
        "?rule=0": [],
        "?aspect=missing": [],
        "?acknowledged=true": busy,
        "?acknowledged=false": full,
        '?matchers=alertname=~"Disk.*"': full,
        '?matchers=app=~".%2B",host!="b"': busy,
    }.items():
        assert numbers(read(desk, alpha, query)) == expected, query
    assert read(desk, alpha, "?acknowledged=true")["alerts"][0]["acknowledged"]["by"] == alpha.owner.username


def test_pages_with_matchers_look_at_a_bounded_number_and_go_on(
    desk: Client, alpha: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_alerts, "_CHUNK", 2)
    monkeypatch.setattr(limits, "ALERTS_SCANNED_MAX", 4)
    begun = begin(rule_of(alpha), *"abababab")
    pages, cursor = list[int](), ""
    for _ in range(10):
        page = read(desk, alpha, f'?matchers=host="a"&limit=1{cursor}')
        pages += numbers(page)
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert pages == [begun[n] for n in (6, 4, 2, 0)]
    assert numbers(read(desk, alpha, '?matchers=host="c"')) == []
    assert read(desk, alpha, '?matchers=host="c"')["next"] == begun[4]


@pytest.mark.parametrize("query", ["?matchers=host", "?severity=bad", "?limit=0", "?cursor=x"])
def test_a_filter_that_cannot_be_read_is_refused(desk: Client, alpha: Tenant, query: str) -> None:
    assert desk.get(f"/api/v1/organisations/{alpha.organisation.pk}/alerts{query}").status_code == 400
