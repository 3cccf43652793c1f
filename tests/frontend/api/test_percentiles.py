"""Percentiles by REST: columns per group, within 1 %, and failures as everywhere."""

from typing import Any

import numpy as np
import pytest
from django.test import Client

from spm.clock import SystemClock
from spm.limits import QUERY_QUANTILES_MAX
from tests.support import sample_app
from tests.support.people import Tenant

HOUR = 3_600_000


@pytest.fixture
def now_ms(alpha: Tenant, settings: Any) -> int:
    """Now, with two hours of a fleet behind it."""
    now = SystemClock().now_ms()
    sample_app.fill(settings.SPM_STORE_URL, alpha.app.pk, now_ms=now)
    return now


def test_percentiles_come_per_group_and_quantile_and_are_close(desk: Client, now_ms: int) -> None:
    end = now_ms // 600_000 * 600_000
    times: dict[str, str | int] = {"start": end - HOUR, "end": end, "step": 600_000}
    parameters: dict[str, str | int] = {"match": "cpu_usage_total", "q": "0.5,0.95", "by": "host", **times}
    body = desk.get("/api/v1/percentiles", parameters).json()
    assert len(body["times"]) == 7
    assert len(body["series"]) == 2 * len(sample_app.HOSTS)
    assert {each["labels"]["quantile"] for each in body["series"]} == {"0.5", "0.95"}
    exact = desk.get("/api/v1/charts", {"expr": "quantile_over_time(0.95, cpu_usage_total[10m])", **times}).json()
    for line in exact["series"]:
        [mine] = [
            each["values"]
            for each in body["series"]
            if each["labels"] == {"host": line["labels"]["host"], "quantile": "0.95"}
        ]
        np.testing.assert_allclose(np.array(mine, float), np.array(line["values"], float), rtol=0.0101)


def test_all_series_are_one_group_without_labels(desk: Client, now_ms: int) -> None:
    body = desk.get("/api/v1/percentiles", {"match": "cpu_usage_total", "q": "0.99"}).json()
    assert [each["labels"] for each in body["series"]] == [{"quantile": "0.99"}]
    assert any(info.startswith("raw samples: ") for info in body["infos"])
    assert body["warnings"] == []


@pytest.mark.parametrize(
    "parameters",
    [
        {"q": "0.5"},
        {"match": "cpu_usage_total"},
        {"match": "cpu_usage_total", "q": "1.5"},
        {"match": "cpu_usage_total", "q": "a"},
        {"match": "rate(cpu_usage_total[5m])", "q": "0.5"},
        {"match": "cpu_usage_total", "q": ",".join(["0.5"] * (QUERY_QUANTILES_MAX + 1))},
        {"match": "cpu_usage_total", "q": "0.5", "asof": "4000000000"},
        {"match": "cpu_usage_total", "q": "0.5", "asof": "yesterday"},
        {"match": "cpu_usage_total", "q": "0.5", "step": 2**63 - 1},
        {"match": "cpu_usage_total", "q": "0.5", "step": 10**20},
    ],
)
def test_an_invalid_query_is_a_400(desk: Client, now_ms: int, parameters: dict[str, str]) -> None:
    assert desk.get("/api/v1/percentiles", parameters).status_code == 400


def test_a_chart_as_accepted_by_a_time_shows_nothing_accepted_later(desk: Client, now_ms: int) -> None:
    before = (now_ms - 60_000) / 1000
    parameters = {"expr": "cpu_usage_total", "asof": str(before)}
    body = desk.get("/api/v1/charts", parameters).json()
    assert body["series"] == []
    assert any(info.startswith("as accepted by ") for info in body["infos"])
    now = desk.get("/api/v1/charts", {**parameters, "asof": str(SystemClock().now_ms() / 1000)}).json()
    assert len(now["series"]) == len(sample_app.HOSTS)
