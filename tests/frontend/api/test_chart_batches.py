"""All charts of a page in one request: each alone in its line, only what is new, and never what is no longer true."""

import json
import time
from typing import Any

import numpy as np
import pytest
from django.test import Client

from alerts.judging.kinds import Kind
from alerts.models import Episode, Rule
from frontend.api import chart_batches
from frontend.presenters import charts, several_queries
from rollups.models import Correction
from spm.accounts import audit
from spm.clock import FakeClock, SystemClock, moment
from spm.limits import TAIL_AGE_MS
from tests.support import sample_app
from tests.support.people import Tenant

HOUR = 3_600_000
BATCH = "/api/v1/charts/batch"


@pytest.fixture
def now_ms(alpha: Tenant, settings: Any) -> int:
    """Now, with two hours of a fleet behind it."""
    now = SystemClock().now_ms()
    sample_app.fill(settings.SPM_STORE_URL, alpha.app.pk, now_ms=now)
    return now


def ask(client: Client, panels: list[dict[str, Any]], start: int, end: int, **more: Any) -> dict[str, Any]:
    """Ask for a batch; returns its lines by the panels' ids, and the first one as ""."""
    body = {"start": start, "end": end, "panels": panels, **more}
    response = client.post(BATCH, json.dumps(body), content_type="application/json")
    assert response.status_code == 200, response.content
    lines = [json.loads(line) for line in b"".join(response.streaming_content).splitlines()]  # type: ignore[attr-defined]
    return {line.get("id", ""): line for line in lines}


def panel(expr: str = "cpu_usage_total", **more: Any) -> dict[str, Any]:
    """One chart of a batch."""
    return {"id": "a", "expr": expr, **more}


def test_each_chart_has_a_line_and_a_wrong_one_hinders_no_other(desk: Client, now_ms: int) -> None:
    panels = [panel("rate(cpu"), {"id": "b", "expr": "mem_used_percent"}]
    answer = ask(desk, panels, now_ms - HOUR, now_ms)
    assert (answer["a"]["status"], len(answer["b"]["series"])) == (400, 4)
    assert "error" in answer["a"]


def test_charts_of_one_request_have_a_time_together(desk: Client, now_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock jumps once the first query of the second chart has been drawn."""
    clock, calls, original = FakeClock(now_ms), list[str](), charts.draw
    monkeypatch.setattr(chart_batches, "_clock", clock)

    def draw(session: Any, at_ms: int, query: dict[str, Any]) -> charts.Drawing:
        calls.append(query["expr"])
        clock.advance(chart_batches.CHART_BATCH_S * 1_000 // 2)
        return original(session, at_ms, query)

    monkeypatch.setattr(charts, "draw", draw)
    monkeypatch.setattr(several_queries, "draw", draw)
    answer = ask(desk, [panel("1"), several("2", "3") | {"id": "b"}, panel("4", id="c")], now_ms - HOUR, now_ms)
    assert calls == ["1", "2"]
    assert answer["b"]["warnings"][0].startswith("B: the charts before took 60 s")
    assert answer["c"]["status"] == 503


def several(*exprs: str, **more: Any) -> dict[str, Any]:
    """One chart of several queries, named A, B and so on."""
    queries = [{"name": name, "expr": expr} for name, expr in zip("ABCD", exprs, strict=False)]
    return {"id": "a", "queries": queries, **more}


def test_a_chart_of_several_queries_shows_those_that_do_not_fail(desk: Client, now_ms: int) -> None:
    exprs = ("cpu_usage_total", "rate(cpu", "42", 'cpu_usage_total + on () group_left mem_used_percent{host="no"}')
    answer = ask(desk, [several(*exprs)], now_ms - HOUR, now_ms)["a"]
    assert [each["labels"]["__query__"] for each in answer["series"]] == ["A"] * 4 + ["C"]
    assert set(answer["series"][-1]["values"]) == {42.0}
    assert [text[:2] for text in answer["warnings"]] == ["B:"]
    failed = ask(desk, [several("rate(cpu", "sum(")], now_ms - HOUR, now_ms)["a"]
    assert failed["status"] == 400


def test_a_formula_is_drawn_from_queries_that_are_hidden(desk: Client, now_ms: int) -> None:
    chart = several("mem_used_percent", "cpu_usage_total", "A / B", "B / (")
    chart["queries"][0] |= {"hidden": True}
    chart["queries"][2] |= {"formula": True}
    chart["queries"][3] |= {"formula": True}
    answer = ask(desk, [chart], now_ms - HOUR, now_ms)["a"]
    lines = {(each["labels"]["__query__"], each["labels"]["host"]): each["values"] for each in answer["series"]}
    assert {name for name, _ in lines} == {"B", "C"}
    assert [text[:2] for text in answer["warnings"]] == ["D:"]
    assert answer["exprs"]["C"] == "(mem_used_percent\n) / (cpu_usage_total\n)"
    share = ask(desk, [panel("mem_used_percent / cpu_usage_total")], now_ms - HOUR, now_ms)["a"]
    at = answer["times"].index(share["times"][30])
    assert lines["C", "web-1"][at] in [each["values"][30] for each in share["series"]]


def test_a_chart_of_hidden_queries_alone_is_refused(desk: Client, now_ms: int) -> None:
    chart = several("up")
    chart["queries"][0] |= {"hidden": True}
    body = {"start": now_ms - HOUR, "end": now_ms, "panels": [chart]}
    assert desk.post(BATCH, json.dumps(body), content_type="application/json").status_code == 400


def test_several_queries_stand_on_the_same_steps_and_share_one_bound_of_lines(desk: Client, now_ms: int) -> None:
    chart = several("cpu_usage_total", "mem_used_percent", top=3, pixels=60)
    first = ask(desk, [chart], now_ms - HOUR, now_ms)["a"]
    assert (len(first["series"]), first["rest"]["count"]) == (3, 5)
    assert {len(each["values"]) for each in first["series"]} == {len(first["times"])}
    later = ask(desk, [chart | {"since": first["since"]}], now_ms - HOUR, now_ms)["a"]
    assert later["after"] == first["since"]["settled"]


@pytest.mark.parametrize(
    "chart",
    [{}, {"expr": "a", "queries": [{"name": "A", "expr": "a"}]}, {"queries": [{"name": "A", "expr": "a"}] * 2}],
    ids=["neither", "both", "one name twice"],
)
def test_a_chart_has_either_an_expression_or_queries(desk: Client, now_ms: int, chart: dict[str, Any]) -> None:
    body = {"start": now_ms - HOUR, "end": now_ms, "panels": [{"id": "a", **chart}]}
    assert desk.post(BATCH, json.dumps(body), content_type="application/json").status_code == 400


def test_only_later_points_are_sent_of_a_chart_that_is_still_right(desk: Client, now_ms: int) -> None:
    start, end = now_ms - HOUR // 2, now_ms - 30_000
    first = ask(desk, [panel(top=2)], start, end)["a"]
    later = ask(desk, [panel(top=2, since=first["since"])], start + 20_000, end + 20_000)["a"]
    again = ask(desk, [panel(top=2)], first["times"][0], end + 20_000)["a"]
    count = first["times"].index(later["after"]) + 1
    assert len(later["times"]) < 15
    assert first["times"][:count] + later["times"] == again["times"]
    for old, new, whole in zip(first["series"], later["series"], again["series"], strict=True):
        assert old["values"][:count] + new["values"] == whole["values"]
    assert first["rest"]["low"][:count] + later["rest"]["low"] == again["rest"]["low"]


def test_a_chart_whose_past_has_changed_is_sent_whole(desk: Client, alpha: Tenant, now_ms: int, settings: Any) -> None:
    first = ask(desk, [panel()], now_ms - HOUR, now_ms)["a"]
    line = sample_app.Line("cpu_usage_total", {"host": "db-1"}, np.full(60, 99.0))
    times = np.arange(now_ms - 2_200_000, now_ms - 1_600_000, 10_000)
    sample_app.write_lines(settings.SPM_STORE_URL, alpha.app.pk, "db-1", [line], times)  # late samples fill the gap
    time.sleep(1.2 * TAIL_AGE_MS / 1000)  # a reader may be that old
    later = ask(desk, [panel(since=first["since"])], now_ms - HOUR, now_ms)["a"]
    assert "after" not in later
    assert max(v for v in later["series"][0]["values"] if v is not None) == 99.0


@pytest.mark.parametrize("change", ["start", "step", "digest"])
def test_a_chart_that_another_answer_belongs_to_is_sent_whole(desk: Client, now_ms: int, change: str) -> None:
    since = ask(desk, [panel()], now_ms - HOUR, now_ms)["a"]["since"]
    other: dict[str, Any] = {"start": since["start"] - 10 * HOUR, "step": since["step"] * 2, "digest": "0" * 24}
    answer = ask(desk, [panel(since=since | {change: other[change]})], now_ms - HOUR, now_ms)["a"]
    assert "after" not in answer
    assert answer["times"][0] == since["start"]


def test_a_spike_of_one_sample_is_drawn_at_every_range(desk: Client, alpha: Tenant, settings: Any) -> None:
    now = SystemClock().now_ms()
    values = np.full(8_640, 5.0)
    values[4_321] = 97.25
    times = np.arange(now - 24 * HOUR, now, 10_000)
    sample_app.write_lines(settings.SPM_STORE_URL, alpha.app.pk, "web", [sample_app.Line("spiky", {}, values)], times)
    for hours, pixels in ((24, 100), (24, 1_000), (13, 300)):
        answer = ask(desk, [panel("spiky", pixels=pixels)], now - hours * HOUR, now)["a"]
        drawn = answer["series"][0]["values"]
        assert answer["extremes"]
        assert max(value for value in drawn if value is not None) == 97.25
        assert len(drawn) <= 2 * pixels + 2


def test_a_chart_says_how_far_it_is_complete_and_what_is_retracted(desk: Client, alpha: Tenant, now_ms: int) -> None:
    body = {
        "series": '{host="web-1"}',
        "data_from": now_ms - 1_200_000,
        "data_to": now_ms - 600_000,
        "reason": "a test wrote to production",
    }
    response = desk.post(f"/api/v1/apps/{alpha.app.pk}/retractions", json.dumps(body), content_type="application/json")
    assert response.status_code < 300, response.content
    panels = [panel(), {"id": "b", "expr": 'cpu_usage_total{host="web-2"}'}]
    answer = ask(desk, panels, now_ms - HOUR, now_ms + 60_000)
    (retraction,) = answer["a"]["quality"]["retractions"]
    assert (retraction["start"], retraction["end"]) == (body["data_from"], body["data_to"])
    assert retraction["reason"] == "a test wrote to production"
    assert answer["b"]["quality"]["retractions"] == []
    assert answer["a"]["quality"]["complete_to"] >= now_ms
    assert answer["a"]["quality"]["resolutions"][0]["name"] == "raw"
    assert any("a test wrote to production" in event["text"] for event in answer[""]["events"])


def test_hours_with_late_samples_are_marked_as_known_by_the_time_asked_for(
    desk: Client, alpha: Tenant, now_ms: int
) -> None:
    hour = now_ms // HOUR * HOUR - HOUR
    Correction.objects.create(
        app=alpha.app, hour=moment(hour), run=7, cause="late", samples=31, at=moment(now_ms - 60_000)
    )
    late = ask(desk, [panel()], now_ms - 3 * HOUR, now_ms)["a"]["quality"]["late"]
    assert [(each["start"], each["samples"]) for each in late] == [(hour, 31)]
    before = ask(desk, [panel()], now_ms - 3 * HOUR, now_ms, asof=str((now_ms - 120_000) / 1000))["a"]
    assert before["quality"]["late"] == []


@pytest.mark.parametrize(
    ("expr", "bands", "thresholds"),
    [
        ("avg by (host) (avg_over_time(cpu_usage_total[$window]))", 1, 1),
        ('cpu_usage_total{host="web-1"}', 1, 1),
        ('cpu_usage_total{host="web-2"}', 0, 1),
        ("rate(cpu_usage_total[5m])", 1, 0),
        ("mem_used_percent", 0, 0),
    ],
    ids=["by host", "the host itself", "another host", "another scale", "another metric"],
)
def test_a_chart_shows_the_alerts_of_its_series(
    desk: Client, alpha: Tenant, now_ms: int, expr: str, bands: int, thresholds: int
) -> None:
    rule = Rule.objects.create(
        app=alpha.app, name="CPU", expr="cpu_usage_total", threshold=80, created_ms=now_ms, changed_ms=now_ms
    )
    Episode.objects.create(
        rule=rule,
        fingerprint="x",
        labels={"host": "web-1"},
        severity="warning",
        start_ms=now_ms - 600_000,
        created_ms=now_ms,
        changed_ms=now_ms,
    )
    answer = ask(desk, [panel(expr)], now_ms - HOUR, now_ms)["a"]
    assert (len(answer["alerts"]), len(answer["thresholds"])) == (bands, thresholds)


@pytest.mark.parametrize(
    ("rule", "expr", "thresholds"),
    [
        ({"expr": 'absent(mem_used_percent{host="web-9"})'}, "mem_used_percent", 0),
        ({"expr": "count by (host) (mem_used_percent)"}, "mem_used_percent", 0),
        ({"expr": "count by (host) (mem_used_percent)"}, "count(mem_used_percent)", 1),
        ({"expr": "mem_used_percent", "kind": Kind.RATE.value}, "mem_used_percent", 0),
        ({"expr": "mem_used_percent", "kind": Kind.RATE.value}, "rate(mem_used_percent[5m])", 1),
        ({"expr": "mem_used_percent", "kind": Kind.HEARTBEAT.value}, "mem_used_percent", 0),
        ({"expr": "mem_used_percent", "kind": Kind.ANOMALY.value}, "mem_used_percent", 0),
        ({"expr": "mem_used_percent", "kind": Kind.FORECAST.value}, "mem_used_percent", 1),
        ({"expr": '{__name__=~"mem_used_.*"}'}, '{__name__=~"mem_used_.*"}', 1),
        ({"expr": "a / b"}, "a / b", 1),
    ],
)
def test_a_threshold_is_drawn_where_values_have_its_scale(
    rule: dict[str, str], expr: str, thresholds: int, desk: Client, alpha: Tenant, now_ms: int
) -> None:
    times = {"created_ms": now_ms, "changed_ms": now_ms}
    Rule.objects.create(app=alpha.app, name="Memory", threshold=1, **times, **rule)
    answer = ask(desk, [panel(expr)], now_ms - HOUR, now_ms)["a"]
    assert len(answer["thresholds"]) == thresholds


def test_events_of_other_apps_stay_where_they_are(desk: Client, alpha: Tenant, now_ms: int) -> None:
    for app_id in (alpha.app.pk, alpha.app.pk + 1):
        audit.record(
            "retract", f"app {app_id}", actor=None, organisation=alpha.app.organisation, detail={"app": app_id}
        )
    events = ask(desk, [panel()], now_ms - HOUR, now_ms + 60_000)[""]["events"]
    assert [event["text"] for event in events] == [f"retracted: app {alpha.app.pk}"]


def test_charts_of_another_organisation_are_not_found(desk: Client, beta: Tenant) -> None:
    body = {"app": beta.app.pk, "start": 0, "end": HOUR, "panels": [panel()]}
    assert desk.post(BATCH, json.dumps(body), content_type="application/json").status_code == 404


def test_a_draft_is_drawn_as_if_it_were_in_force_and_changes_nothing(desk: Client, now_ms: int) -> None:
    def hosts(**more: Any) -> list[str]:
        return [each["labels"]["host"] for each in ask(desk, [panel()], now_ms - HOUR, now_ms, **more)["a"]["series"]]

    assert "web-1" not in hosts(draft={"source": "web-1"})
    assert "web-1" in hosts()
    chart = ask(desk, [panel()], now_ms - HOUR, now_ms, draft={"source": "web-1", "data_from": now_ms - HOUR // 2})
    assert [each["by"] for each in chart["a"]["quality"]["retractions"]] == ["you"]
    body = {"start": now_ms - HOUR, "end": now_ms, "panels": [panel()], "draft": {}}
    assert desk.post(BATCH, json.dumps(body), content_type="application/json").status_code == 409


def test_a_cell_of_a_heat_map_has_one_value_in_place_of_its_extremes(desk: Client, now_ms: int) -> None:
    panels = [panel(pixels=200), panel(id="m", pixels=200, cells="mean")]
    chart = ask(desk, panels, now_ms - 2 * HOUR, now_ms)
    assert (chart["a"]["extremes"], chart["m"]["extremes"]) == (True, False)
    assert len(chart["m"]["times"]) <= 201
    assert chart["m"]["step"] == 2 * (chart["a"]["times"][1] - chart["a"]["times"][0])
    drawn = dict(zip(chart["a"]["times"], values_of(chart["a"]), strict=True))
    middle = zip(chart["m"]["times"], values_of(chart["m"]), strict=True)
    pairs: list[Any] = [(drawn.get(time - chart["m"]["step"] // 2), drawn.get(time), mean) for time, mean in middle]
    checked = [min(a, b) <= mean <= max(a, b) for a, b, mean in pairs if None not in (a, b, mean)]
    assert len(checked) > 50
    assert all(checked)


def values_of(chart: dict[str, Any]) -> list[Any]:
    """The values of the host web-1."""
    return next(each["values"] for each in chart["series"] if each["labels"]["host"] == "web-1")


@pytest.mark.parametrize(
    ("expr", "reason"),
    [
        ("cpu_usage_total / disk_used_percent", "the left ones have host, the right ones device, host, path"),
        ("(cpu_usage_total) > 1000", "No value meets the condition > 1000"),
        ("sum(cpu_usage_total) / ((mem_used_percent / disk_used_percent))", "No series of both sides of “/”"),
        ("cpu_usage_total unless mem_used_percent", "No series is left: mem_used_percent has all"),
        ("cpu_usage_total / on (path) mem_used_percent{host=~'.*'} offset 9w", "No value of mem_used_percent"),
        ("cpu_usage_total / nothing", "No metric is called nothing"),
    ],
)
def test_an_operation_that_matches_nothing_says_why(desk: Client, now_ms: int, expr: str, reason: str) -> None:
    chart = ask(desk, [panel(expr)], now_ms - HOUR, now_ms)["a"]
    assert not chart["series"]
    assert reason in " ".join(chart["infos"])
