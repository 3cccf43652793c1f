"""The tabs of a host's page, and the list of all its metrics."""

from typing import Any

import numpy as np
import pytest
from django.test import Client

from frontend.presenters.charts import without_variables
from frontend.presenters.hosts.metrics import HOST_PANELS_MAX, HOST_TABS_MAX, expression_of, group_metrics, panels_of
from spm.clock import SystemClock
from spm.query.promql.planning.planner import parse
from tests.support import sample_app
from tests.support.people import Tenant

REDIS = ["redis_keys", "redis_used_bytes", "redis_commands_total"]


def test_a_service_among_the_metrics_is_a_tab_and_the_host_itself_is_none() -> None:
    metrics = group_metrics(["cpu_usage_total", "cpu_usage_user", "cpu_usage_idle", "oven_temperature", *REDIS])
    assert [(tab.title, tab.names) for tab in metrics.tabs] == [("Redis", sorted(REDIS))]
    assert [group.word for group in metrics.groups] == ["cpu", "oven", "redis"]
    assert [(group.word, group.names) for group in metrics.matching("USED")] == [("redis", ["redis_used_bytes"])]


def test_of_many_groups_services_that_are_known_and_large_ones_are_tabs() -> None:
    names = [f"s{at}_{part}" for at in range(30) for part in range(3 + at)]
    metrics = group_metrics([*names, *REDIS])
    assert len(metrics.tabs) == HOST_TABS_MAX
    assert {"redis", "s29"} <= {tab.word for tab in metrics.tabs}


@pytest.mark.parametrize("name", ["", "_", "a b", 'q"uote', "a.b", "ns:x", "sum", "9"])
def test_every_name_has_a_group_and_an_expression(name: str) -> None:
    group = group_metrics([name]).groups[0]
    assert group.names == [name]
    if name:
        parse(without_variables(expression_of(name, 'a"b\n')))


def test_a_histogram_is_one_chart_and_a_tab_has_a_bound_of_charts() -> None:
    names = ["http_seconds_bucket", "http_seconds_count", "http_seconds_sum", "http_total"]
    panels = panels_of(group_metrics(names).groups[0], "h")
    assert [panel.title for panel in panels] == ["http_seconds, 95 %", "http_total"]
    assert len(panels_of(group_metrics([f"x_{at}" for at in range(99)]).groups[0], "h")) == HOST_PANELS_MAX


def test_every_metric_of_a_host_is_reached_by_two_clicks(desk: Client, alpha: Tenant, settings: Any) -> None:
    now_ms = SystemClock().now_ms()
    times = np.arange(now_ms - 600_000, now_ms, 60_000, dtype=np.int64)
    names = [*REDIS, "cpu_usage_total", "odd name"]
    lines = [sample_app.Line(name, {"host": "web-1"}, np.ones(len(times))) for name in names]
    sample_app.write_lines(settings.SPM_STORE_URL, alpha.app.pk, "web-1", lines, times)
    root = f"/apps/{alpha.app.pk}/hosts/web-1"
    first, redis, every = (desk.get(f"{root}{tab}").content.decode() for tab in ("", "?tab=redis", "?tab=all"))
    assert '<a href="?tab=redis" data-keep-range>Redis</a>' in first
    assert redis.count("data-chart ") == 3
    assert "redis_keys%7Bhost%3D%22web-1%22%7D" in every
    assert all(f">{name}</a>" in every for name in names)
    some = desk.get(f"{root}?tab=all&q=key").content.decode()
    assert (">redis_keys</a>" in some, ">odd name</a>" in some) == (True, False)
    assert "No metric of this host contains" in desk.get(f"{root}?tab=all&q=nope").content.decode()
    assert desk.get(f"{root}?tab=nope").content.decode().count("data-chart ") == 10
