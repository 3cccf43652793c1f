"""The other ways in over HTTP, as the agents that use them expect their answers."""

import base64
import json
import uuid
from collections.abc import Iterator
from typing import Any

import cramjam
import pytest
from django.test import Client

from ingest.accept import rejections
from ingest.accept.acceptor import Acceptor
from ingest.accept.admission import Admission
from ingest.http import pings, reception
from ingest.http.endpoints.prometheus import group_labels
from ingest.models import Heartbeat, RejectedLine
from spm.accounts import quotas, tokens
from spm.accounts.models import App, Organisation
from spm.accounts.quotas import Quota
from spm.clock import FakeClock
from spm.errors import BadMessage
from spm.store.backends.memory import MemoryBackend
from spm.wire import Envelope, parse_canonical
from tests.support import process_state
from tests.support.acceptors import Recorder, silent_announcer

pytestmark = [pytest.mark.django_db, pytest.mark.urls("ingest.http.urls")]
NOW_MS = 1_700_000_000_000


@pytest.fixture
def app() -> App:
    return App.objects.create(organisation=Organisation.objects.create(name="Example"), name="Shop")


@pytest.fixture
def transport() -> Recorder:
    return Recorder()


@pytest.fixture
def allowed() -> list[Quota]:
    return [Quota()]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW_MS)


@pytest.fixture(autouse=True)
def _acceptor(
    transport: Recorder, allowed: list[Quota], clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    admission = Admission(MemoryBackend(), clock, lambda app: allowed[0])
    acceptor = Acceptor(silent_announcer(clock), transport, clock, admission)
    for module in (reception, pings):
        monkeypatch.setattr(module, "process_acceptor", lambda: acceptor)
    yield
    process_state.forget_tokens()
    process_state.forget_quotas()


@pytest.fixture
def send(client: Client, app: App) -> Any:
    secret = tokens.issue(app, name="agent", scopes=["ingest"])[1]

    def call(path: str, body: bytes, kind: str = "text/plain", *, method: str = "POST", **headers: str) -> Any:
        return client.generic(method, path, body, kind, headers={"Authorization": f"Bearer {secret}", **headers})

    return call


def samples(envelope: Envelope) -> list[tuple[str, dict[str, str], float, int]]:
    forms = [parse_canonical(envelope.series.canonical(int(i))) for i in envelope.series_index]
    return [(*f, float(v), int(t)) for f, v, t in zip(forms, envelope.values, envelope.ts, strict=True)]


# --- Prometheus' text and Pushgateway's paths -------------------------------------------------------------------------


def test_text_is_accepted_with_an_empty_answer(send: Any, transport: Recorder) -> None:
    assert send("/api/v1/import/prometheus?extra_label=dc=x", b'# TYPE up gauge\nup{job="a"} 1 5\n').status_code == 204
    assert samples(transport.published[0]) == [("up", {"job": "a", "dc": "x"}, 1.0, 5)]


def test_times_of_open_metrics_are_seconds_by_the_content_type(send: Any, transport: Recorder) -> None:
    kind = "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert send("/api/v1/import/prometheus", b"up 1 1700000000.5\n# EOF\n", kind).status_code == 204
    assert transport.published[0].ts.tolist() == [1_700_000_000_500]


@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_push_to_a_gateway_s_path_has_the_labels_of_its_group(method: str, send: Any, transport: Recorder) -> None:
    answer = send("/metrics/job/backup/instance/db1", b'done{instance="x"} 1\n', method=method)
    assert answer.status_code == 200
    assert samples(transport.published[0]) == [("done", {"job": "backup", "instance": "db1"}, 1.0, NOW_MS)]
    assert transport.published[0].source == "backup"


def test_delete_of_a_group_is_accepted_and_takes_nothing_away(send: Any, transport: Recorder) -> None:
    assert send("/metrics/job/backup", b"", method="DELETE").status_code == 202
    assert transport.published == []


@pytest.mark.parametrize("path", ["/metrics/job/backup", "/api/v1/import/prometheus"])
def test_text_without_samples_is_accepted_and_bad_lines_are_reported(path: str, send: Any) -> None:
    assert send(path, b"# EOF\n").status_code in (200, 204)
    answer = send(path, b"up 1\nbad\n")
    assert (answer.status_code, answer.json()["accepted"], answer.json()["errors"][0]["line"]) == (400, 1, 2)


def encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("path", "labels"),
    [
        ("job/a", {"job": "a"}),
        ("job/a/", {"job": "a"}),
        ("job/a/b/c", {"job": "a", "b": "c"}),
        (f"job@base64/{encoded('a/b')}", {"job": "a/b"}),
        (f"job/a/path@base64/{encoded('/var/tmp').rstrip('=')}", {"job": "a", "path": "/var/tmp"}),
        ("job/a/b@base64/=", {"job": "a"}),
    ],
)
def test_group_of_a_path_is_read(path: str, labels: dict[str, str]) -> None:
    assert group_labels(path) == labels


@pytest.mark.parametrize("path", ["job/a/b", "job@base64/=", "job@base64/!!", "job/a/job/b", "job@base64//x"])
def test_path_that_is_no_group_is_refused(path: str) -> None:
    with pytest.raises(BadMessage):
        group_labels(path)


# --- remote write -----------------------------------------------------------------------------------------------------


def label(name: bytes, value: bytes) -> bytes:
    body = b"\x0a" + bytes([len(name)]) + name + b"\x12" + bytes([len(value)]) + value
    return b"\x0a" + bytes([len(body)]) + body


def request_v1() -> bytes:
    """A request of remote write 1.0 with one sample: m{a="b"} 1.5 at 5 ms."""
    sample = b"\x09" + bytes.fromhex("000000000000f83f") + b"\x10\x05"
    series = label(b"__name__", b"m") + label(b"a", b"b") + b"\x12" + bytes([len(sample)]) + sample
    return b"\x0a" + bytes([len(series)]) + series


@pytest.mark.parametrize("path", ["/api/v1/write", "/api/v1/push", "/prometheus/api/v1/write"])
@pytest.mark.parametrize("kind", ["application/x-protobuf", "application/x-protobuf;proto=prometheus.WriteRequest"])
def test_remote_write_is_answered_with_headers_that_count_written_samples(
    path: str, kind: str, send: Any, transport: Recorder
) -> None:
    body = bytes(cramjam.snappy.compress_raw(request_v1()))
    answer = send(path, body, kind, **{"Content-Encoding": "snappy", "X-Prometheus-Remote-Write-Version": "0.1.0"})
    assert answer.status_code == 204
    assert answer.headers["X-Prometheus-Remote-Write-Samples-Written"] == "1"
    assert samples(transport.published[0]) == [("m", {"a": "b"}, 1.5, 5)]


@pytest.mark.parametrize("kind", ["text/plain", "application/json", "application/x-protobuf;proto=other.Request", ""])
def test_remote_write_of_another_content_type_is_unsupported(kind: str, send: Any) -> None:
    assert send("/api/v1/write", b"", kind).status_code == 415


@pytest.mark.parametrize("body", [b"\xff", b"\x0a\x05abc"], ids=["a byte", "cut off"])
def test_remote_write_that_is_damaged_is_a_bad_request_and_noted(body: bytes, send: Any, app: App) -> None:
    packed = bytes(cramjam.snappy.compress_raw(body))
    headers = {"Content-Encoding": "snappy"}
    assert send("/api/v1/write", packed, "application/x-protobuf", **headers).status_code == 400
    assert RejectedLine.objects.get(app=app).line == 0


def test_remote_write_over_the_rate_is_to_be_sent_again(send: Any, allowed: list[Quota]) -> None:
    allowed[0] = Quota(samples_per_s=1)
    body, headers = bytes(cramjam.snappy.compress_raw(request_v1() * 50)), {"Content-Encoding": "snappy"}
    assert send("/api/v1/write", body, "application/x-protobuf", **headers).status_code == 204
    answer = send("/api/v1/write", body, "application/x-protobuf", **headers)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "10")


# --- OpenTelemetry ----------------------------------------------------------------------------------------------------

OTLP_PATHS = ["/v1/metrics", "/otlp/v1/metrics", "/api/v1/otlp/v1/metrics", "/prometheus/api/v1/otlp/v1/metrics"]


def exported(*points: dict[str, Any]) -> bytes:
    metric = {"name": "m", "gauge": {"dataPoints": list(points)}}
    return json.dumps({"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}).encode()


@pytest.mark.parametrize("path", OTLP_PATHS)
def test_points_of_open_telemetry_are_taken_and_answered_in_their_encoding(
    path: str, send: Any, transport: Recorder
) -> None:
    answer = send(path, exported({"timeUnixNano": "5000000", "asDouble": 1.5}), "application/json")
    assert (answer.status_code, answer.headers["Content-Type"], answer.json()) == (200, "application/json", {})
    assert [(value, ts) for _, _, value, ts in samples(transport.published[0])] == [(1.5, 5)]


def test_rejected_points_are_reported_as_a_partial_success(
    send: Any, transport: Recorder, allowed: list[Quota]
) -> None:
    allowed[0] = Quota(series=0)
    answer = send("/v1/metrics", exported({"timeUnixNano": "5000000", "asDouble": 1.5}), "application/json")
    assert (answer.status_code, int(answer.json()["partialSuccess"]["rejectedDataPoints"])) == (200, 1)
    assert answer.json()["partialSuccess"]["errorMessage"].startswith("data point 1: a new series over the app's quota")
    assert transport.published == []


@pytest.mark.parametrize(("kind", "status"), [("text/plain", 415), ("application/json", 400)])
def test_bodies_that_are_no_open_telemetry_get_a_status_in_its_form(kind: str, status: int, send: Any) -> None:
    answer = send("/v1/metrics", b"[", kind)
    assert (answer.status_code, answer.json()["code"]) == (status, 3)


def test_exporter_that_is_too_fast_gets_a_retry_time(send: Any, allowed: list[Quota]) -> None:
    allowed[0] = Quota(samples_per_s=1)
    body = exported(*({"timeUnixNano": str(n * 10**6), "asDouble": 1} for n in range(1, 100)))
    send("/v1/metrics", body, "application/json")
    answer = send("/v1/metrics", body, "application/json")
    assert (answer.status_code, answer.headers["Retry-After"], answer.json()["code"]) == (429, "10", 8)


def test_exporter_without_a_token_gets_an_error_in_its_form(client: Client) -> None:
    answer = client.post("/v1/metrics", b"x", "application/x-protobuf")
    assert (answer.status_code, answer.headers["Content-Type"]) == (401, "application/x-protobuf")
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


# --- collectd, and what Influx clients ask ----------------------------------------------------------------------------


def test_collectd_s_lists_are_taken(send: Any, transport: Recorder) -> None:
    one = {"values": [1], "dsnames": ["value"], "time": 5.0, "host": "h", "plugin": "load", "type": "load"}
    assert send("/api/v1/collectd", json.dumps([one]).encode(), "application/json").status_code == 200
    assert samples(transport.published[0]) == [("load", {"host": "h"}, 1.0, 5_000)]


@pytest.mark.parametrize("path", ["/health", "/ready", "/ping?verbose=true"])
def test_influx_client_gets_a_successful_ping(path: str, client: Client) -> None:
    answer = client.get(path)
    assert (answer.status_code, "version" in answer.json()) == (200, True)


@pytest.mark.parametrize("precision", ["nanosecond", "second"])
def test_third_path_of_influx_knows_long_names_of_precisions(precision: str, send: Any, transport: Recorder) -> None:
    ts = 5 if precision == "second" else 5_000_000_000
    path = f"/api/v3/write_lp?db=x&precision={precision}&accept_partial=true&no_sync=false"
    assert send(path, f"m v=1 {ts}".encode()).status_code == 204
    assert transport.published[0].ts.tolist() == [5_000]


def test_old_influx_client_shows_its_token_as_a_password_in_the_address(client: Client, app: App) -> None:
    secret = tokens.issue(app, name="old", scopes=["ingest"])[1]
    assert client.post(f"/write?u=spm&p={secret}&db=x", "m v=1", "text/plain").status_code == 204


# --- quotas -----------------------------------------------------------------------------------------------------------


def test_series_over_the_quota_are_refused_by_name_and_the_others_taken(
    send: Any, transport: Recorder, allowed: list[Quota], app: App
) -> None:
    allowed[0] = Quota(series=1)
    assert send("/write", b"m,host=a v=1 5000000").status_code == 204
    answer = send("/write", b"m,host=a v=1 5000000\nm,host=b v=2 5000000", **{"User-Agent": "telegraf"})
    assert (answer.status_code, answer.json()["accepted"], answer.json()["rejected"]) == (400, 1, 1)
    assert answer.json()["error"].startswith("partial write: 1 rejected; the first is line 2: a new series over")
    row = RejectedLine.objects.get(app=app)
    assert (row.way, row.line, row.example) == ("telegraf", 2, 'm_v{host="b"}')


def test_app_that_is_too_fast_gets_a_retry_time(send: Any, allowed: list[Quota], clock: FakeClock) -> None:
    allowed[0] = Quota(samples_per_s=10)
    body = b"\n".join(b"m,n=%d v=1 5000000" % n for n in range(200))
    assert send("/write", body).status_code == 204
    answer = send("/write", body)
    assert answer.status_code == 429
    wait_s = int(answer.headers["Retry-After"])
    assert 1 <= wait_s <= 10
    for _ in range(4):
        clock.advance(wait_s * 1_000)
        send("/write", b"m,n=1 v=1 5000000")
    assert send("/write", b"m,n=1 v=1 5000000").status_code == 204


def test_time_in_seconds_where_nanoseconds_are_read_names_its_unit(send: Any) -> None:
    answer = send("/write", b"m v=1 1700000000")
    assert answer.status_code == 400
    assert "looks like seconds, read as nanoseconds" in answer.json()["error"]
    assert send("/write?precision=s", b"m v=1 1700000000").status_code == 204


def test_quotas_of_an_app_come_from_its_row(app: App) -> None:
    on_one_machine = Quota(samples_per_s=None, past_hours=None)  # no bounds of either unless set
    assert quotas.read_quota(app.pk) == on_one_machine
    App.objects.filter(pk=app.pk).update(series_max=5, rate_max=7, hour_days=500, day_days=600)
    process_state.forget_quotas()
    assert quotas.read_quota(app.pk) == Quota(5, 7, 600, None)


# --- heartbeats -------------------------------------------------------------------------------------------------------


@pytest.fixture
def beat(app: App) -> Heartbeat:
    return pings.create_heartbeat(app, "backup", actor=None, now_ms=NOW_MS)


def sent_values(transport: Recorder) -> dict[str, float]:
    return {
        metric: value
        for metric, labels, value, _ in samples(transport.published[-1])
        if labels == {"monitor": "backup"}
    }


@pytest.mark.parametrize("method", ["get", "post", "head"])
def test_sign_of_life_becomes_a_metric(method: str, client: Client, beat: Heartbeat, transport: Recorder) -> None:
    assert getattr(client, method)(f"/ping/{beat.key}").status_code == 200
    assert sent_values(transport) == {"heartbeat_success": 1.0}
    assert (transport.published[0].source, transport.published[0].app) == ("backup", beat.app_id)


@pytest.mark.parametrize(
    ("act", "values"),
    [
        ("fail", {"heartbeat_success": 0.0}),
        ("0", {"heartbeat_success": 1.0, "heartbeat_exit_code": 0.0}),
        ("137", {"heartbeat_success": 0.0, "heartbeat_exit_code": 137.0}),
        ("start", {"heartbeat_start": 1.0}),
    ],
)
def test_fields_of_a_job_ping_become_metrics(
    act: str, values: dict[str, float], client: Client, beat: Heartbeat, transport: Recorder
) -> None:
    assert client.get(f"/ping/{beat.key}/{act}").content == b"OK\n"
    assert sent_values(transport) == values


def test_run_has_a_duration_from_its_start_to_its_end(
    client: Client, beat: Heartbeat, transport: Recorder, clock: FakeClock
) -> None:
    client.get(f"/ping/{beat.key}/start")
    clock.advance(90_500)
    client.get(f"/ping/{beat.key}/0")
    assert sent_values(transport)["heartbeat_duration_seconds"] == 90.5
    client.get(f"/ping/{beat.key}")
    assert "heartbeat_duration_seconds" not in sent_values(transport)


@pytest.mark.parametrize(
    ("path", "status"),
    [(f"/ping/{uuid.UUID(int=7)}", 404), (f"/ping/{'-' * 32}", 404), (f"/ping/{'a' * 33}", 404), ("/ping/abc", 404)],
    ids=["unknown", "dashes", "a sign too many", "short"],
)
def test_key_that_nobody_has_is_not_found(path: str, status: int, client: Client, transport: Recorder) -> None:
    answer = client.get(path)
    assert (answer.status_code, answer.content) == (status, b"no such heartbeat\n")
    assert transport.published == []


@pytest.mark.parametrize("act", ["256", "00000", "-1", "stop", "\u0661"])
def test_unknown_ping_is_refused_with_the_known_ones(
    act: str, client: Client, beat: Heartbeat, transport: Recorder
) -> None:
    answer = client.get(f"/ping/{beat.key}/{act}")
    fields = {"got": act, "wanted": "start, fail or an exit code, 0 to 255"}
    assert (answer.status_code, answer.json() | fields) == (400, answer.json())
    assert transport.published == []


def test_heartbeat_of_a_deleted_app_answers_nobody(client: Client, beat: Heartbeat) -> None:
    App.objects.filter(pk=beat.app_id).update(going="2026-01-01T00:00:00Z")
    assert client.get(f"/ping/{beat.key}").status_code == 404


# --- rejections -------------------------------------------------------------------------------------------------------


def test_rejections_are_counted_by_reason(send: Any, app: App, client: Client) -> None:
    for source in ("a", "b"):
        send("/write", b"bad\nbad2\nm v=x", **{"X-SPM-Source": source})
    first, second = rejections.by_reason(app.pk)
    assert (first.count, first.sources, first.example, second.count) == (4, 2, "bad2", 2)


@pytest.mark.parametrize(
    "path", ["/write", "/api/v1/write", "/api/v1/collectd", "/metrics/job/x", "/api/v1/import/prometheus"]
)
def test_no_body_without_a_token_is_looked_at(path: str, client: Client, transport: Recorder) -> None:
    assert client.post(path, b"m 1", "text/plain").status_code == 401
    assert transport.published == []
