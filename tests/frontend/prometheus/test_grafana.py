"""Every call that Grafana makes, as it makes it, and the form of answer it reads; nothing of it needs a browser.

The requests are recorded from Grafana's own sources (`promlib`, `grafana-prometheus`): methods, addresses, parameters
and headers. Each test asks one and holds the answer against what Grafana takes from it.
"""

import base64
import gzip
import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pytest
from django.test import Client

from alerts.models import Instance, Lane, Rule
from spm.clock import SystemClock
from tests.support import sample_app
from tests.support.people import Tenant

API = "/prometheus/api/v1/"
FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True)
class Recorded:
    """One call that Grafana makes."""

    method: str
    path: str
    query: str = ""  # URL-encoded
    headers: dict[str, str] = field(default_factory=dict)


GRAFANA = {"User-Agent": "Grafana/12.1.0", "X-Dashboard-Uid": "cpu", "X-Panel-Id": "2", "X-Scope-OrgID": "999"}
CALLS = {
    "save and test": Recorded("POST", "query", "query=1%2B1&time=4"),
    "save and test, flavour": Recorded("GET", "status/buildinfo"),
    "panel": Recorded(
        "POST", "query_range", "end={end}&query=avg+by+%28host%29+%28cpu_usage_user%29&start={start}&step=15"
    ),
    "panel with a float step": Recorded(
        "POST", "query_range", "end={end}.5&query=cpu_usage_user&start={start}.25&step=0.5e2"
    ),
    "panel, GET": Recorded("GET", "query_range", "query=cpu_usage_user&start={start}&end={end}&step=60&timeout=30s"),
    "table": Recorded("POST", "query", "query=topk%283%2Ccpu_usage_user%29&time={end}"),
    "exemplars": Recorded("POST", "query_exemplars", "end={end}&query=cpu_usage_user&start={start}"),
    "label names": Recorded("POST", "labels", "end={end}&limit=40000&start={start}"),
    "label names of a metric": Recorded(
        "GET", "labels", "start={start}&end={end}&match%5B%5D=cpu_usage_user&limit=40000"
    ),
    "metric names": Recorded("GET", "label/__name__/values", "start={start}&end={end}&limit=40000"),
    "label_values()": Recorded("GET", "label/host/values", "start={start}&end={end}&match%5B%5D=cpu_usage_user"),
    "escaped label": Recorded("GET", "label/U__host/values", "start={start}&end={end}"),
    "series": Recorded("POST", "series", "end={end}&limit=40000&match%5B%5D=%7B__name__%21%3D%22%22%7D&start={start}"),
    "metadata": Recorded("GET", "metadata", "limit=1000"),
    "rules": Recorded("GET", "rules"),
    "alerts": Recorded("GET", "alerts"),
    "cardinality": Recorded("GET", "status/tsdb"),
    "features": Recorded("GET", "features"),
    "run time": Recorded("GET", "status/runtimeinfo"),
    "flags": Recorded("GET", "status/flags"),
    "config": Recorded("GET", "status/config"),
    "targets": Recorded("GET", "targets", "state=active"),
    "alertmanagers": Recorded("GET", "alertmanagers"),
    "notifications": Recorded("GET", "notifications"),
    "format": Recorded("GET", "format_query", "query=sum%28cpu_usage_user%29by%28host%29"),
    "tree": Recorded("GET", "parse_query", "query=sum%28cpu_usage_user%29by%28host%29"),
}


@pytest.fixture
def grafana(client: Client, alpha: Tenant, settings: Any) -> "Desk":
    """Return a data source with Basic auth, on an app with ten minutes of four hosts."""
    now_ms = SystemClock().now_ms()
    sample_app.fill(settings.SPM_STORE_URL, alpha.app.pk, now_ms=now_ms, span_ms=60_000)
    pair = base64.b64encode(f"grafana:{alpha.token}".encode()).decode()
    return Desk(client, {**GRAFANA, "Authorization": f"Basic {pair}"}, now_ms // 1000)


@dataclass(frozen=True, slots=True)
class Desk:
    """Grafana, as a client."""

    client: Client
    headers: dict[str, str]
    end: int

    def ask(self, call: Recorded, status: int = 200, **more: str) -> Any:
        """Return the body of the response."""
        query = call.query.format(start=self.end - 100, end=self.end)
        headers = {**self.headers, **call.headers, **more}
        if call.method == "GET":
            response = self.client.get(f"{API}{call.path}?{query}", headers=headers)
        else:
            response = self.client.post(API + call.path, query, content_type=FORM, headers=headers)
        assert response.status_code == status, response.content
        assert response["Content-Type"] == "application/json"
        return json.loads(response.content)


@pytest.mark.parametrize("name", CALLS)
def test_every_call_of_grafana_is_answered_with_success(grafana: Desk, name: str) -> None:
    answer = grafana.ask(CALLS[name])
    assert answer["status"] == "success"
    assert "data" in answer


def test_save_and_test_is_green_in_1970_without_data(grafana: Desk) -> None:
    answer = grafana.ask(CALLS["save and test"])
    assert answer == {"status": "success", "data": {"resultType": "scalar", "result": [4, "2"]}}
    data = grafana.ask(CALLS["save and test, flavour"])["data"]
    assert data["version"].startswith("3.")
    assert "features" not in data  # or Grafana takes it for Mimir


@pytest.mark.parametrize("name", ["panel", "panel with a float step", "panel, GET"])
def test_panel_gets_a_matrix_of_seconds_and_texts(grafana: Desk, name: str) -> None:
    data = grafana.ask(CALLS[name])["data"]
    assert data["resultType"] == "matrix"
    assert {series["metric"]["host"] for series in data["result"]} >= {"web-1", "web-2"}
    for series in data["result"]:
        assert all(isinstance(at, int | float) and float(value) >= 0 for at, value in series["values"])


def test_names_fill_builders_and_variables(grafana: Desk) -> None:
    assert grafana.ask(CALLS["label names of a metric"])["data"] == ["__name__", "host"]
    metrics = grafana.ask(CALLS["metric names"])["data"]
    assert metrics == sorted(metrics)
    assert "cpu_usage_user" in metrics
    hosts = grafana.ask(CALLS["label_values()"])["data"]
    assert hosts == grafana.ask(CALLS["escaped label"])["data"] == sorted(sample_app.HOSTS)
    assert {"__name__": "cpu_usage_user", "host": "web-1"} in grafana.ask(CALLS["series"])["data"]


def test_metadata_and_cardinality_have_their_forms(grafana: Desk) -> None:
    metadata = grafana.ask(CALLS["metadata"])["data"]
    assert metadata["processes_total"] == [{"type": "counter", "help": "", "unit": ""}]
    assert metadata["net_bytes_recv"][0]["type"] == "unknown"
    data = grafana.ask(CALLS["cardinality"])["data"]
    assert data["headStats"]["numSeries"] == len(grafana.ask(CALLS["series"])["data"])
    assert data["labelValueCountByLabelName"][0] == {"name": "__name__", "value": len(metadata)}
    assert {"name": "cpu_usage_user", "value": 4} in grafana.ask(Recorded("GET", "status/tsdb", "limit=100"))["data"][
        "seriesCountByMetricName"
    ]


def test_rules_and_alerts_are_those_of_the_app_alone(grafana: Desk, alpha: Tenant, beta: Tenant) -> None:
    for tenant in (alpha, beta):
        rule = Rule.objects.create(
            app=tenant.app,
            name=f"busy {tenant.app.pk}",
            expr="cpu_usage_user",
            threshold=5,
            created_ms=1,
            changed_ms=1,
        )
        at_ms = 1_700_000_000_000
        Lane.objects.create(app=tenant.app, position_ms=at_ms, first_ms=at_ms)
        times = {"since_ms": at_ms, "start_ms": at_ms, "active_ms": at_ms}
        labels = {"host": "web-1"}
        Instance.objects.create(
            rule=rule, fingerprint="x", aspect="value", labels=labels, phase="firing", value=93.5, **times
        )
    [group] = grafana.ask(CALLS["rules"])["data"]["groups"]
    [rule] = group["rules"]
    assert (rule["name"], rule["query"], rule["state"]) == (f"busy {alpha.app.pk}", "cpu_usage_user > 5", "firing")
    [alert] = grafana.ask(CALLS["alerts"])["data"]["alerts"]
    assert alert == rule["alerts"][0]
    assert alert["labels"] == {"host": "web-1", "alertname": f"busy {alpha.app.pk}", "severity": "warning"}
    assert (alert["activeAt"], alert["value"]) == ("2023-11-14T22:13:20.000Z", "9.35e+01")
    recorded = Recorded("GET", "rules", "type=record"), Recorded("GET", "rules", "rule_name%5B%5D=other")
    assert [grafana.ask(call)["data"]["groups"] for call in recorded] == [[], []]


def test_an_expression_is_formatted_and_returned_as_a_tree(grafana: Desk) -> None:
    assert grafana.ask(CALLS["format"])["data"] == "sum by (host) (cpu_usage_user)"
    tree = grafana.ask(CALLS["tree"])["data"]
    assert (tree["type"], tree["op"], tree["grouping"], tree["without"]) == ("aggregation", "sum", ["host"], False)
    assert tree["expr"]["matchers"] == [{"name": "__name__", "value": "cpu_usage_user", "type": "="}]


@pytest.mark.parametrize(
    ("call", "status", "kind", "message"),
    [
        (Recorded("POST", "query", "query=sum%28"), 400, "bad_data", 'invalid parameter "query": 1:5: parse error'),
        (
            Recorded("POST", "query_range", "query=up&start=x&end=1&step=1"),
            400,
            "bad_data",
            'invalid parameter "start"',
        ),
        (Recorded("GET", "series", "start=1&end=2"), 400, "bad_data", "match[]"),
        (Recorded("GET", "rules", "type=odd"), 400, "bad_data", "type"),
        (Recorded("GET", "query", "query=up&time=%FF"), 400, "bad_data", "UTF-8"),
        (Recorded("POST", "query", "query=up&lookback_delta=0"), 400, "bad_data", "lookback_delta"),
        (Recorded("POST", "query", "query=cpu_usage_user&timeout=0s"), 400, "bad_data", "timeout"),
    ],
)
def test_an_error_has_the_form_of_prometheus_and_the_reason(
    grafana: Desk, call: Recorded, status: int, kind: str, message: str
) -> None:
    answer = grafana.ask(call, status)
    assert (answer["status"], answer["errorType"]) == ("error", kind)
    assert message in answer["error"]


def test_a_query_that_times_out_is_a_503_with_the_reason(grafana: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frontend.prometheus.parameters.QUERY_TIMEOUT_S", 0.0)
    answer = grafana.ask(Recorded("POST", "query", "query=cpu_usage_user&timeout=1m"), 503)
    assert answer["errorType"] == "timeout"
    assert "timed out" in answer["error"]


def test_large_answers_are_compressed_for_clients_that_accept_gzip(grafana: Desk) -> None:
    url = f"{API}series?match[]={{host!=''}}"
    plain = grafana.client.get(url, headers=grafana.headers)
    packed = grafana.client.get(url, headers={**grafana.headers, "Accept-Encoding": "gzip, deflate"})
    assert packed["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.content) == plain.content
    refused = grafana.client.get(url, headers={**grafana.headers, "Accept-Encoding": "gzip;q=0"})
    assert refused.content == plain.content


def test_limit_truncates_with_a_warning_and_stats_have_the_usage(grafana: Desk) -> None:
    answer = grafana.ask(Recorded("POST", "query", "query=cpu_usage_user&time={end}&limit=2&stats=all"))
    assert len(answer["data"]["result"]) == 2
    assert "results truncated due to limit" in answer["warnings"]
    assert answer["data"]["stats"]["samples"]["totalQueryableSamples"] > 0
    assert answer["data"]["stats"]["seriesRead"] == 4


def test_look_back_is_that_of_the_parameter(grafana: Desk) -> None:
    ahead = f"query=count(cpu_usage_user)&time={grafana.end + 60}"
    shown = [
        grafana.ask(Recorded("GET", "query", ahead + more))["data"]["result"] for more in ("", "&lookback_delta=30s")
    ]
    assert (len(shown[0]), len(shown[1])) == (1, 0)


def test_answer_contains_its_provenance_with_explain(grafana: Desk) -> None:
    before_ms = SystemClock().now_ms()
    data = grafana.ask(Recorded("POST", "query", "query=cpu_usage_user&time={end}&explain=1"))["explain"]
    assert data["segments"][-1]["resolution"] == "raw samples"
    assert data["units"][-1]["samplesNotCompacted"] > 0
    assert (data["corrections"], data["retractions"]) == ([], [])
    # An hour that has just begun does not have all of them yet.
    last = next(hour for hour in reversed(data["lastHours"]) if hour["sources"] == len(sample_app.HOSTS))
    ends_ms = datetime.fromisoformat(last["start"]).timestamp() * 1000 + 3_600_000
    assert last["over"] in {ends_ms <= before_ms, ends_ms <= SystemClock().now_ms()}  # it may end meanwhile
    assert "explain" not in grafana.ask(CALLS["table"])


def test_cardinality_of_an_app_without_data_lists_nothing(client: Client, alpha: Tenant) -> None:
    data = client.get(f"{API}status/tsdb", headers={"Authorization": f"Bearer {alpha.token}"}).json()["data"]
    assert data.pop("headStats") == {"numSeries": 0, "numLabelPairs": 0}
    assert set(map(len, data.values())) == {0}
