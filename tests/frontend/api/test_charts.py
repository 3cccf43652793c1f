"""The REST interface: charts as columns, what there is, and failures with the status of their kind."""

from typing import Any

import numpy as np
import pytest
from django.test import Client
from drf_spectacular.generators import SchemaGenerator

from spm import limits
from spm.accounts import tokens
from spm.clock import SystemClock
from spm.errors import StoreUnavailable
from tests.support import sample_app
from tests.support.people import Tenant

HOUR = 3_600_000


@pytest.fixture
def now_ms(alpha: Tenant, settings: Any) -> int:
    """Now, with two hours of a fleet behind it."""
    now = SystemClock().now_ms()
    sample_app.fill(settings.SPM_STORE_URL, alpha.app.pk, now_ms=now)
    return now


def chart(client: Client, expr: str, **query: Any) -> dict[str, Any]:
    """The answer, which must be one."""
    response = client.get("/api/v1/charts", {"expr": expr, **query})
    assert response.status_code == 200, response.content
    body: dict[str, Any] = response.json()
    return body


def test_a_chart_has_a_value_or_null_for_each_of_its_times(desk: Client, now_ms: int) -> None:
    body = chart(desk, "cpu_usage_total", start=now_ms - HOUR, end=now_ms)
    assert len(body["times"]) == 361
    assert {len(each["values"]) for each in body["series"]} == {361}
    assert [each["labels"]["host"] for each in body["series"]] == list(sample_app.HOSTS)
    assert all(
        later - earlier == body["step"] for earlier, later in zip(body["times"], body["times"][1:], strict=False)
    )


def test_a_chart_without_times_shows_the_last_hour(desk: Client, now_ms: int) -> None:
    before = SystemClock().now_ms()
    body = chart(desk, "cpu_usage_total")
    assert before - 20_000 < body["times"][-1] <= SystemClock().now_ms()
    assert body["times"][-1] - body["times"][0] == HOUR


def test_a_silent_time_is_null(desk: Client, now_ms: int) -> None:
    silent_ms = sample_app.SILENT_MS[0] - sample_app.SILENT_MS[1]
    body = chart(desk, 'last_over_time(cpu_usage_total{host="db-1"}[$window])', start=now_ms - HOUR, end=now_ms)
    missing = body["series"][0]["values"].count(None) * body["step"]
    assert abs(missing - (silent_ms - 60_000)) <= 2 * body["step"]


def test_values_that_json_cannot_say_are_null(desk: Client, now_ms: int) -> None:
    body = chart(desk, 'cpu_usage_total{host="web-1"} / 0 or 0 * mem_total / 0', start=now_ms - HOUR, end=now_ms)
    assert {value for each in body["series"] for value in each["values"]} == {None}


def test_an_answer_says_what_it_rests_on(desk: Client, now_ms: int) -> None:
    assert chart(desk, "cpu_usage_total")["infos"]


def test_of_many_series_the_highest_are_drawn_and_the_others_are_a_band(desk: Client, now_ms: int) -> None:
    every = {each["labels"]["host"]: each["values"] for each in chart(desk, "mem_used_percent", end=now_ms)["series"]}
    body = chart(desk, "mem_used_percent", end=now_ms, top=1)
    assert [each["labels"]["host"] for each in body["series"]] == ["worker-1"]
    others = [every[host] for host in ("db-1", "web-1", "web-2")]
    columns = [[value for value in column if value is not None] for column in zip(*others, strict=True)]
    assert body["rest"]["count"] == 3
    assert body["rest"]["low"] == [min(column, default=None) for column in columns]
    assert body["rest"]["high"] == [max(column, default=None) for column in columns]
    assert "4 series match; the 1 highest are drawn, the others as a band" in body["infos"]


def test_a_chart_never_has_more_series_than_people_can_tell_apart(
    desk: Client, now_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frontend.presenters.charts.CHART_SERIES_MAX", 3)
    body = chart(desk, "cpu_usage_total", top=4)
    assert (len(body["series"]), body["rest"]["count"]) == (3, 1)


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        ("cpu_usage_totl", "No metric is called cpu_usage_totl. Did you mean cpu_usage_total"),
        ('rate(mem_used{host="web1"}[$window])', 'No such series has host="web1". Did you mean web-'),
        ("sum(zzz) / sum(mem_used)", "No metric is called zzz."),
    ],
    ids=["a metric", "a label", "one of two"],
)
def test_a_chart_without_series_says_which_part_matches_none(desk: Client, now_ms: int, expr: str, text: str) -> None:
    assert any(info.startswith(text) for info in chart(desk, expr)["infos"])


def test_a_chart_of_a_silent_time_blames_no_name(desk: Client, now_ms: int) -> None:
    infos = chart(desk, "cpu_usage_total", start=now_ms - 30 * HOUR, end=now_ms - 29 * HOUR)["infos"]
    assert not [info for info in infos if info.startswith("No ")]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"q": "USED", "limit": 2}, ["disk_used_percent", "mem_used"]),
        ({"q": "mem_u"}, ["mem_used", "mem_used_percent"]),
        ({"q": "total", "limit": 1}, ["cpu_usage_total"]),
        ({"q": "nothing"}, []),
    ],
)
def test_names_of_metrics_are_found_by_a_part(
    desk: Client, alpha: Tenant, now_ms: int, query: dict[str, Any], names: list[str]
) -> None:
    assert desk.get(f"/api/v1/apps/{alpha.app.pk}/metrics", query).json()["metrics"] == names


@pytest.mark.parametrize("range_ms", [HOUR // 4, HOUR, 6 * HOUR, 24 * HOUR])
@pytest.mark.parametrize("period_s", [10, 30, 60, 300])
@pytest.mark.parametrize("variable", ["$__rate_interval", "$window"])
def test_rates_of_every_usual_sender_have_a_point_at_every_step(
    desk: Client, alpha: Tenant, settings: Any, period_s: int, range_ms: int, variable: str
) -> None:
    now_ms = SystemClock().now_ms()
    # Rate extrapolates to an edge of its window that is within 1.1 mean gaps of a sample. A jitter below 6 % of the
    # period keeps every edge within that; then the sampled interval alone is off: by 7 * 0.6 s / 19.4 s = 0.22 at most.
    jitter = np.random.default_rng(period_s)
    times = np.arange(now_ms - range_ms - HOUR, now_ms, period_s * 1_000, dtype=np.int64)
    times += jitter.integers(0, 600, len(times))
    values = np.arange(len(times), dtype=np.float64) * 7 * period_s
    counter = sample_app.Line("requests_total", {"host": "slow"}, values)
    sample_app.write_lines(settings.SPM_STORE_URL, alpha.app.pk, "slow", [counter], times)
    body = chart(desk, f"rate(requests_total[{variable}])", start=now_ms - range_ms, end=now_ms)
    [series] = body["series"]
    assert body["step"] >= period_s * 1_000
    assert None not in series["values"]
    assert all(abs(value - 7.0) < 0.25 for value in series["values"])


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({}, 400),
        ({"expr": ""}, 400),
        ({"expr": "sum("}, 400),
        ({"expr": "up", "start": "yesterday"}, 400),
        ({"expr": "up", "start": 10_000, "end": 10_000}, 400),
        ({"expr": "up", "step": 999}, 400),
        ({"expr": "up", "start": 0, "end": 11_001_000, "step": 1_000}, 400),
        ({"expr": "up", "end": limits.TIME_MAX_MS + 1}, 400),
        ({"expr": "x" * (limits.QUERY_TEXT_CHARS_MAX + 1)}, 400),
        ({"expr": "up", "app": 10**30}, 404),
        ({"expr": "up", "app": "mine"}, 400),
    ],
)
def test_a_chart_that_cannot_be_drawn_says_so(desk: Client, query: dict[str, Any], status: int) -> None:
    response = desk.get("/api/v1/charts", query)
    assert response.status_code == status
    assert response.json()


def test_a_store_that_is_away_is_503_with_a_time_to_retry(desk: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise StoreUnavailable("no answer")

    monkeypatch.setattr("spm.query.promql.engine.Engine.range", away)
    response = desk.get("/api/v1/charts", {"expr": "up"})
    assert (response.status_code, response["Retry-After"]) == (503, str(limits.RETRY_AFTER_S))
    assert response.json() == {"error": "no answer"}


def test_what_there_is_can_be_listed(desk: Client, alpha: Tenant, now_ms: int) -> None:
    place = f"/api/v1/apps/{alpha.app.pk}"
    assert [each["name"] for each in desk.get("/api/v1/apps").json()] == [alpha.app.name]
    assert [each["name"] for each in desk.get(f"{place}/sources").json()] == list(sample_app.HOSTS)
    assert {"cpu_usage_total", "net_bytes_recv"} <= set(desk.get(f"{place}/metrics").json()["metrics"])
    labels = desk.get(f"{place}/labels", {"metric": "net_bytes_recv"}).json()["labels"]
    assert labels == {"host": list(sample_app.HOSTS), "interface": ["eth0", "eth1"]}


@pytest.mark.parametrize("kind", ["Bearer", "Token"])
def test_a_token_reads_without_a_session(client: Client, alpha: Tenant, now_ms: int, kind: str) -> None:
    response = client.get("/api/v1/charts", {"expr": "up"}, HTTP_AUTHORIZATION=f"{kind} {alpha.token}")
    assert response.status_code == 200


def test_a_token_of_a_program_lists_its_own_app_only(client: Client, alpha: Tenant, beta: Tenant) -> None:
    listed = client.get("/api/v1/apps", HTTP_AUTHORIZATION=f"Bearer {alpha.token}").json()
    assert [each["id"] for each in listed] == [alpha.app.pk]


@pytest.mark.parametrize("secret", ["ingest only", "spm_nonsense"])
def test_a_token_that_may_not_read_is_401_even_beside_a_session(desk: Client, alpha: Tenant, secret: str) -> None:
    shown = tokens.issue(alpha.app, name="x", scopes=["ingest"])[1] if secret == "ingest only" else secret
    response = desk.get("/api/v1/apps", HTTP_AUTHORIZATION=f"Bearer {shown}")
    assert response.status_code == 401
    assert "token" in response.json()["error"]


def test_the_schema_describes_every_operation(desk: Client) -> None:
    schema = desk.get("/api/v1/schema?format=json").json()
    described = {path for path in schema["paths"] if path.startswith("/api/v1/")}
    assert {
        "/api/v1/charts",
        "/api/v1/apps",
        "/api/v1/apps/{app_id}/sources",
        "/api/v1/apps/{app_id}/metrics",
        "/api/v1/apps/{app_id}/labels",
    } <= described


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_process_makes_the_schema_once_in_each_form(desk: Client, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    first = desk.get(f"/api/v1/schema?format={form}")
    monkeypatch.setattr(SchemaGenerator, "get_schema", pytest.fail)
    again = desk.get(f"/api/v1/schema?format={form}")
    assert (again.status_code, again.content, again.headers) == (200, first.content, first.headers)
    assert first["Content-Type"].startswith("application/vnd.oai.openapi")
    assert f'filename="SPM.{form}"' in first["Content-Disposition"]
