"""`rules` and `alerts` as Prometheus 3 answers them: groups of files, filters, pages of groups, rendered alerts."""

from typing import Any

import numpy as np
import pytest
from django.test import Client

from alerts import newest_texts
from alerts.judging.answers import Answer, fingerprint
from alerts.judging.versions import Steps
from alerts.models import Instance, Lane, RecordingRule, Rule, SeriesLane
from alerts.rulebook import rules_of
from alerts.rulefiles.apply import Author, import_files
from spm.clock import SystemClock
from spm.errors import StoreUnavailable
from tests.support.people import Tenant

pytestmark = pytest.mark.django_db
SERIES = {"__name__": "cpu", "host": "web-1", "team": "mine"}
FILES = {
    "a.yml": """
groups:
  - name: node
    interval: 1m
    labels: {team: infra}
    rules:
      - record: job:cpu:avg
        expr: avg by (job) (cpu)
      - alert: Busy
        expr: cpu > 90
        for: 5m
        keep_firing_for: 1m
        labels: {severity: page, host_name: "{{ $labels.host }}"}
        annotations: {summary: "{{ $labels.host }} is at {{ $value | humanize }}"}
  - name: other
    rules: [{alert: Absent, expr: absent(up)}]
""",
    "b.yml": "groups: [{name: node, rules: [{record: x, expr: sum(up)}]}]",
}


@pytest.fixture
def filled(desk: Client, alpha: Tenant) -> Client:
    """An app with two rule files, and one series that fires."""
    now_ms = SystemClock().now_ms()
    import_files(alpha.app, FILES, by=Author(), now_ms=now_ms)
    Lane.objects.filter(app=alpha.app).update(position_ms=1_700_000_000_000, took_us=12_500)
    recorded = {"recorded_ms": 1_700_000_010_000, "took_us": 2_000}
    SeriesLane.objects.create(app=alpha.app, alerts_ms=1_700_000_000_000, **recorded)
    Instance.objects.create(
        rule=rules_of(alpha.app).get(name="Busy"),
        fingerprint="f",
        aspect="value",
        labels=SERIES,
        phase="recovering",
        since_ms=1_700_000_000_000,
        start_ms=1_699_999_990_000,
        active_ms=1_699_999_980_000,
        value=1234.5,
    )
    return desk


def ask(client: Client, tenant: Tenant, address: str, **parameters: Any) -> Any:
    """The data of an answer."""
    answer = client.get(f"/prometheus/api/v1/{address}", {"app": tenant.app.pk, **parameters})
    assert answer.status_code == 200, answer.content
    return answer.json()["data"]


def names(data: Any) -> list[tuple[str, str, list[str]]]:
    """The groups of an answer with the names of their rules."""
    return [(group["file"], group["name"], [rule["name"] for rule in group["rules"]]) for group in data["groups"]]


def test_groups_are_those_of_the_files_in_order(filled: Client, alpha: Tenant) -> None:
    data = ask(filled, alpha, "rules")
    assert names(data) == [
        ("a.yml", "node", ["job:cpu:avg", "Busy"]),
        ("a.yml", "other", ["Absent"]),
        ("b.yml", "node", ["x"]),
    ]
    assert (data["groups"][0]["interval"], data["groups"][1]["interval"]) == (60, 10)
    assert data["groups"][0]["rules"][0] == {
        "name": "job:cpu:avg",
        "query": "avg by (job) (cpu)",
        "labels": {"team": "infra"},
        "health": "ok",
        "lastError": "",
        "evaluationTime": 0.002,
        "lastEvaluation": "2023-11-14T22:13:30.000Z",
        "type": "recording",
    }


def test_a_group_says_how_long_its_evaluation_took(filled: Client, alpha: Tenant) -> None:
    times = [(each["evaluationTime"], each["lastEvaluation"]) for each in ask(filled, alpha, "rules")["groups"]]
    assert times == [
        (pytest.approx(0.0145), "2023-11-14T22:13:30.000Z"),
        (0.0125, "2023-11-14T22:13:20.000Z"),
        (0.002, "2023-11-14T22:13:30.000Z"),
    ]


def test_an_alerting_rule_has_what_prometheus_says_of_it(filled: Client, alpha: Tenant) -> None:
    rule = ask(filled, alpha, "rules")["groups"][0]["rules"][1]
    [alert] = rule.pop("alerts")
    assert rule == {
        "state": "firing",
        "name": "Busy",
        "query": "cpu > 90",
        "duration": 300,
        "keepFiringFor": 60,
        "labels": {"team": "infra", "severity": "page", "host_name": "{{ $labels.host }}"},
        "annotations": {"summary": "{{ $labels.host }} is at {{ $value | humanize }}"},
        "health": "ok",
        "lastError": "",
        "evaluationTime": 0.0125,
        "lastEvaluation": "2023-11-14T22:13:20.000Z",
        "type": "alerting",
    }
    assert alert == {
        "labels": {"alertname": "Busy", "host": "web-1", "host_name": "web-1", "severity": "page", "team": "infra"},
        "annotations": {"summary": "web-1 is at 1.234k"},
        "state": "firing",
        "activeAt": "2023-11-14T22:13:00.000Z",
        "keepFiringSince": "2023-11-14T22:13:20.000Z",
        "value": "1.2345e+03",
    }
    assert ask(filled, alpha, "alerts")["alerts"] == [alert]


@pytest.fixture
def newest(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Steps]]:
    """The store answers every expression with one value of the series that fires; what was read."""
    reads = list[tuple[str, Steps]]()

    def read(expr: str, steps: Steps) -> Answer:
        reads.append((expr, steps))
        return Answer([SERIES], np.full((1, 1), 98.5), np.ones((1, 1), np.bool_))

    monkeypatch.setattr(newest_texts, "session_as_known", lambda app, known: read)
    return reads


def test_an_alert_has_its_value_of_the_step_that_was_judged_last(
    filled: Client, alpha: Tenant, newest: list[tuple[str, Steps]]
) -> None:
    Instance.objects.update(fingerprint=fingerprint(SERIES))
    Rule.objects.filter(name="Busy").update(annotations={"text": "{{ $value }} {{ query `up` | first | value }}"})
    [alert] = ask(filled, alpha, "alerts")["alerts"]
    assert (alert["value"], alert["annotations"]) == ("9.85e+01", {"text": "98.5 98.5"})
    assert {(expr, steps.first_ms, steps.last_ms) for expr, steps in newest} == {
        ("cpu", 1_700_000_000_000, 1_700_000_000_000),
        ("up", 1_700_000_000_000, 1_700_000_000_000),
    }
    assert ask(filled, alpha, "rules")["groups"][0]["rules"][1]["alerts"] == [alert]


def test_alerts_are_listed_with_older_values_while_the_store_is_away(
    filled: Client, alpha: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(app: int, known: object) -> Any:
        raise StoreUnavailable("away")

    monkeypatch.setattr(newest_texts, "session_as_known", away)
    assert [alert["value"] for alert in ask(filled, alpha, "alerts")["alerts"]] == ["1.2345e+03"]


def test_rules_without_alerts_read_no_data(filled: Client, alpha: Tenant, newest: list[tuple[str, Steps]]) -> None:
    ask(filled, alpha, "rules", exclude_alerts="true")
    Instance.objects.all().delete()
    ask(filled, alpha, "rules")
    assert newest == []


FILTERS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "alerting rules": ({"type": "alert"}, ["Busy", "Absent"]),
    "recording rules": ({"type": "record"}, ["job:cpu:avg", "x"]),
    "a name": ({"rule_name[]": ["x", "Busy"]}, ["Busy", "x"]),
    "a group in both files": ({"rule_group[]": "node"}, ["job:cpu:avg", "Busy", "x"]),
    "a group of a file": ({"rule_group[]": "node", "file[]": "b.yml"}, ["x"]),
    "labels": ({"match[]": '{severity="page"}'}, ["Busy"]),
    "nothing": ({"file[]": "c.yml"}, []),
}


@pytest.mark.parametrize(("parameters", "expected"), FILTERS.values(), ids=FILTERS)
def test_filters_choose_rules(filled: Client, alpha: Tenant, parameters: dict[str, Any], expected: list[str]) -> None:
    groups = ask(filled, alpha, "rules", **parameters)["groups"]
    assert [rule["name"] for group in groups for rule in group["rules"]] == expected


def test_pages_of_groups_join_to_the_whole_list(filled: Client, alpha: Tenant) -> None:
    pages, token = list[tuple[str, str, list[str]]](), None
    while token is not None or not pages:
        more: dict[str, Any] = {} if token is None else {"group_next_token": token}
        data = ask(filled, alpha, "rules", group_limit=1, **more)
        pages, token = [*pages, *names(data)], data.get("groupNextToken")
    assert pages == names(ask(filled, alpha, "rules"))


def test_alerts_can_be_left_out(filled: Client, alpha: Tenant) -> None:
    assert ask(filled, alpha, "rules", exclude_alerts="true")["groups"][0]["rules"][1]["alerts"] == []


def test_a_recording_rule_that_fails_says_why(filled: Client, alpha: Tenant) -> None:
    RecordingRule.objects.filter(name="x").update(error="too many series")
    rule = ask(filled, alpha, "rules", **{"file[]": "b.yml"})["groups"][0]["rules"][0]
    assert (rule["health"], rule["lastError"]) == ("err", "too many series")


@pytest.mark.parametrize(
    "query", ["type=both", "group_next_token=x", "group_limit=1&group_next_token=x", "group_limit=-1", "match[]=sum("]
)
def test_parameters_that_cannot_be_are_bad_data(filled: Client, alpha: Tenant, query: str) -> None:
    answer = filled.get(f"/prometheus/api/v1/rules?app={alpha.app.pk}&{query}")
    assert (answer.status_code, answer.json()["errorType"]) == (400, "bad_data")
