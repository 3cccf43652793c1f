"""Backtests by REST: what is tried, and that each answer is JSON."""

import json
import math
from typing import Any

import pytest
from django.test import Client

from alerts import rulebook
from alerts.backtesting.backtests import BacktestReport, ForEffect, PastEpisode
from alerts.models import Episode, Instance
from frontend.api.alerts import backtests
from tests.alerts.conftest import draft
from tests.support.people import Tenant

pytestmark = pytest.mark.django_db


def strictly(body: bytes) -> Any:
    """The content of a body that has to be JSON, which has no infinities."""

    def refuse(word: str) -> Any:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(body, parse_constant=refuse)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 97.5])
def test_values_without_a_number_in_json_are_null(
    desk: Client, alpha: Tenant, monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    episode = PastEpisode({"host": "a"}, "value", 10_000, None, "", value)
    report = BacktestReport(0, 60_000, (episode,), (), (ForEffect(0, 1, 1),), None)  # type: ignore[arg-type]
    monkeypatch.setattr(backtests, "try_rule", lambda *arguments, **named: report)
    body = {"expr": "cpu", "from_ms": 0, "to_ms": 60_000}
    answer = desk.post(f"/api/v1/apps/{alpha.app.pk}/rules/backtest", body, content_type="application/json")
    assert answer.status_code == 200, answer.content
    assert strictly(answer.content)["episodes"][0]["value"] == (value if math.isfinite(value) else None)


def test_alerts_of_a_rule_whose_values_are_infinite_are_json(desk: Client, alpha: Tenant) -> None:
    rule = rulebook.write(alpha.app, draft(), by=alpha.owner, now_ms=1)
    known = {"rule": rule, "fingerprint": "f", "labels": {}}
    Instance.objects.create(
        **known, aspect="value", phase="firing", since_ms=1, start_ms=1, active_ms=1, value=math.inf
    )
    times = {"start_ms": 1, "created_ms": 1, "changed_ms": 1}
    Episode.objects.create(**known, severity="warning", start_value=math.inf, last_value=-math.inf, **times)
    for address in ("", f"/{rule.pk}", f"/{rule.pk}/alerts"):
        answer = desk.get(f"/api/v1/apps/{alpha.app.pk}/rules{address}")
        assert answer.status_code == 200, answer.content
        strictly(answer.content)


def test_a_rule_file_that_compares_with_infinity_is_imported_whole(desk: Client, alpha: Tenant) -> None:
    text = "groups: [{name: g, rules: [{alert: A, expr: cpu < +Inf}]}]"
    address = f"/api/v1/apps/{alpha.app.pk}/rules/files/a.yml"
    for summary in ("2 new, 0 changed, 0 gone", "no change"):
        answer = desk.put(address, text, content_type="application/yaml")
        assert (answer.status_code, answer.json().get("summary")) == (200, summary)
    assert "cpu < +Inf" in desk.get(address).content.decode()
