"""``/metrics`` and the product's own app: who may read them, what they contain, and that sending them does no harm."""

import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

from frontend import site_metrics
from frontend.presenters import panels
from frontend.tasks import send_site_metrics
from ingest.accept.process_acceptor import close_process_acceptor
from ingest.system_series import process_metrics as sending
from ingest.system_series.process_metrics import ProcessMetricsThread, name_of, parsed_of
from ingest.worker.metrics import ConsumerTally, metrics_text
from spm import telemetry
from spm.accounts import internal_app, tokens
from spm.accounts.models import App, Organisation, Source
from spm.clock import FakeClock, SystemClock
from spm.errors import QueueUnavailable, StoreUnavailable
from spm.query import storage_for
from spm.query.request.batches import Matcher
from spm.store.backends import open_backend
from spm.store.ledger.balance import summarize
from spm.telemetry import MetricValue
from tests.support.people import Tenant

pytestmark = pytest.mark.django_db


@pytest.fixture
def staff(client: Client) -> Client:
    """A browser of somebody of the staff who belongs to no organisation."""
    client.force_login(User.objects.create_user("staff@example.org", is_staff=True))
    return client


def test_set_up_makes_the_own_app_once() -> None:
    assert internal_app.app_number() is None
    assert internal_app.create() == internal_app.create()
    assert (App.objects.count(), Organisation.objects.get().internal, internal_app.app_number()) == (
        1,
        True,
        App.objects.get().pk,
    )


def test_staff_look_at_the_own_app_and_change_nothing_in_it(staff: Client) -> None:
    place = f"/apps/{internal_app.create().pk}"
    assert staff.get("/")["Location"] == f"{place}/"
    assert staff.get(f"{place}/").status_code == 200
    assert staff.post(f"{place}/add-data", {"name": "x", "use": "ingest"}).status_code == 403


def test_staff_find_the_charts_of_the_system_and_each_of_them_can_be_drawn(staff: Client, alpha: Tenant) -> None:
    number = internal_app.create().pk
    assert "All processes" in staff.get(f"/apps/{number}/system").content.decode()
    assert f'href="/apps/{number}/system"' in staff.get(f"/apps/{number}/").content.decode()
    for panel in panels.system_panels():
        drawn = staff.get("/api/v1/charts", {"expr": panel.expr, "app": str(number)})
        assert drawn.status_code == 200, (panel, drawn.content)


def test_every_chart_of_the_system_shows_metrics_that_its_processes_send() -> None:
    end = telemetry.include(lambda: metrics_text(ConsumerTally(), 0, {"spm.p0": 7}))
    with_samples = {reading.name for reading in telemetry.metric_values()}
    end()
    endings = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
    families = {f.name + ending for f in telemetry.REGISTRY.collect() for ending in endings.get(f.type, ())}
    named = {name for panel in panels.system_panels() for name in re.findall(r"\b(?:spm|process)_\w+", panel.expr)}
    assert named - with_samples - families - set(site_metrics.HELPS) == set()


def test_an_app_of_others_has_no_page_of_the_system(desk: Client, alpha: Tenant) -> None:
    assert desk.get(f"/apps/{alpha.app.pk}/system").status_code == 404


def test_people_who_are_no_staff_never_learn_of_the_own_app(desk: Client, alpha: Tenant) -> None:
    number = internal_app.create().pk
    assert desk.get(f"/apps/{number}/").status_code == 404
    assert [each["id"] for each in desk.get("/api/v1/apps").json()] == [alpha.app.pk]


def test_staff_with_an_organisation_come_to_their_own_app_first(desk: Client, alpha: Tenant) -> None:
    internal_app.create()
    alpha.owner.is_staff = True
    alpha.owner.save()
    assert desk.get("/")["Location"] == f"/apps/{alpha.app.pk}/"
    assert [each["name"] for each in desk.get("/api/v1/apps").json()] == [alpha.app.name, internal_app.APP]


@pytest.mark.parametrize(
    ("who", "status"),
    [
        ("nobody", 401),
        ("a person", 403),
        ("staff", 200),
        ("a token of the own app", 200),
        ("a token of the own app that only sends", 401),
        ("a token of another app", 403),
        ("a made-up token", 401),
    ],
)
def test_own_metrics_are_for_staff_and_their_scrapers(client: Client, alpha: Tenant, who: str, status: int) -> None:
    app, header = internal_app.create(), {}
    if who == "a person":
        client.force_login(alpha.owner)
    elif who == "staff":
        client.force_login(User.objects.create_user("staff@example.org", is_staff=True))
    elif "token" in who:
        scopes = ["ingest"] if "sends" in who else ["read"]
        secret = tokens.issue(alpha.app if "another" in who else app, name="x", scopes=scopes)[1]
        header = {"HTTP_AUTHORIZATION": f"Bearer {'spm_x' if 'made' in who else secret}"}
    answer = client.get("/metrics", **header)  # type: ignore[arg-type]
    assert (answer.status_code, b"spm_http_requests_total" in answer.content) == (status, status == 200)


def test_what_a_scraper_gets_is_prometheus_text_with_names_by_its_conventions(staff: Client, alpha: Tenant) -> None:
    staff.get("/ping")
    text = staff.get("/metrics").content.decode()
    families = list(text_string_to_metric_families(text))
    names = {family.name for family in families}
    assert {"spm_http_requests", "spm_http_request_duration_seconds", "spm_apps", "process_cpu_seconds"} <= names
    assert all(re.fullmatch(r"(spm|process)_[a-z_]+", name) for name in names)
    assert all(family.documentation for family in families)
    assert 'spm_http_requests_total{code="204",method="GET",view="ingest:ping"}' in text


def test_strangers_cannot_make_up_label_values(staff: Client) -> None:
    for place in ("/no-such-page", "/apps/1/x?token=y"):
        staff.generic("BREW", place)
    text = staff.get("/metrics").content.decode()
    assert 'method="other",view="none"' in text
    assert "BREW" not in text
    assert "no-such-page" not in text


def test_figures_of_the_whole_site_come_without_an_app_that_cannot_be_read(
    alpha: Tenant, beta: Tenant, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = summarize

    def damaged(store: Any, app: int, now_ms: int) -> Any:
        if app == alpha.app.pk:
            raise StoreUnavailable("no answer")
        return read(store, app, now_ms)

    monkeypatch.setattr(site_metrics, "summarize", damaged)
    readings = site_metrics.read_figures(open_backend(settings.SPM_STORE_URL), SystemClock().now_ms())
    assert {one.labels["app"] for one in readings if one.name == "spm_app_mark_lag_seconds"} == {str(beta.app.pk)}
    assert [one.value for one in readings if one.name == "spm_standing_failures"] == [1]
    assert {one.name for one in readings} <= set(site_metrics.HELPS)


def test_a_process_keeps_its_name_over_restarts_and_shares_it_with_nobody(tmp_path: Path) -> None:
    assert [name_of("web", tmp_path), name_of("web", tmp_path), name_of("worker", tmp_path)] == [
        "web-0",
        "web-1",
        "worker-0",
    ]


@pytest.fixture
def own_acceptor() -> Iterator[None]:
    """An acceptor on this test's store, closed afterwards."""
    close_process_acceptor()
    yield
    close_process_acceptor()


@pytest.mark.usefixtures("own_acceptor")
def test_metrics_sent_are_read_back_from_the_own_app(settings: Any) -> None:
    app, settings.SPM_OWN_METRICS_S = internal_app.create(), 30
    telemetry.ACCEPTED_MESSAGES.inc()
    ProcessMetricsThread("web-7", 30).tick()
    assert send_site_metrics()
    now = SystemClock().now_ms()
    series = storage_for(app.pk).series([[Matcher("process", "=~", "web-7|site")]], now - 60_000, now + 60_000)
    names = {each["__name__"] for each in series}
    assert {
        "spm_accepted_messages_total",
        "process_resident_memory_bytes",
        "spm_store_probe_duration_seconds_count",
        "spm_apps",
    } <= names


def test_nothing_is_sent_where_there_is_no_own_app_or_the_settings_say_so(settings: Any) -> None:
    assert not sending.send("web-0", [MetricValue("spm_x", {}, 1.0)])
    settings.SPM_OWN_METRICS_S = 0
    assert sending.metrics_thread("web") is None
    assert not send_site_metrics()


@pytest.mark.parametrize("error", [QueueUnavailable("full"), StoreUnavailable("away"), RuntimeError("unforeseen")])
def test_a_push_that_fails_is_counted_and_tried_once_only(error: Exception) -> None:
    calls = []

    def failing(source: str, readings: Any) -> bool:
        calls.append(source)
        raise error

    before = telemetry.OWN_PUSHES.labels("failed")._value.get()
    ProcessMetricsThread("web-0", 30, send=failing, probe=lambda: None).tick()
    assert (calls, telemetry.OWN_PUSHES.labels("failed")._value.get()) == (["web-0"], before + 1)


def test_the_thread_ends_at_once_when_asked() -> None:
    thread = ProcessMetricsThread("web-0", 3600, send=lambda *_: True, probe=lambda: None)
    thread.start()
    thread.stop()
    assert not thread._thread.is_alive()


def test_loading_the_site_begins_nothing_and_each_process_that_serves_begins_once(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A parent that only loads the site (gunicorn --preload) must open no store and leave each child to begin."""
    starts: list[int] = []
    monkeypatch.setattr(sending, "metrics_thread", lambda kind: starts.append(os.getpid()))
    start = sending._Starter()
    assert starts == []
    start("web")
    start("web")
    assert starts == [os.getpid()]
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        start("web")
        os.write(writing, b"%d" % len(starts))
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 9) == b"2"
    os.close(reading)
    os.close(writing)


def test_what_is_sent_of_one_process_does_not_grow_with_what_it_sent_before() -> None:
    first = len(parsed_of("web-0", telemetry.metric_values(), 1).ts)
    for _ in range(5):
        ProcessMetricsThread("web-0", 30, send=lambda *_: True, probe=lambda: None).tick()
    assert len(parsed_of("web-0", telemetry.metric_values(), 1).ts) <= first + 1  # the outcome "done", once


def test_time_is_counted_by_what_became_of_it() -> None:
    clock = FakeClock()

    def fail() -> None:
        with telemetry.timed(telemetry.TASK_S, "a task of tests", clock=clock):
            clock.advance(2_000)
            raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        fail()
    sums = [r for r in telemetry.metric_values() if r.name == "spm_task_duration_seconds_sum"]
    labels = {"task": "a task of tests", "outcome": "failed"}
    assert [r.value for r in sums if dict(r.labels) == labels] == [2.0]


def test_what_a_consumer_counts_is_sent_with_the_rest_and_ends_with_it() -> None:
    written = metrics_text(ConsumerTally(messages=3, dead=1), 0, {"spm.p0": 7})
    end = telemetry.include(lambda: written)
    values = {(r.name, r.labels.get("queue", "")): r.value for r in telemetry.metric_values() if "worker" in r.name}
    end()
    assert values["spm_worker_messages_total", ""] == 3
    assert values["spm_worker_queue_depth", "spm.p0"] == 7
    assert not [r for r in telemetry.metric_values() if "spm_worker" in r.name]


@pytest.mark.parametrize(
    ("age_s", "period_s", "state"),
    [
        (30, None, "up"),
        (90, None, "late"),
        (90, 10, "late"),
        (90, 300, "up"),
        (1_000, 300, "late"),
        (4_500, 300, "gone"),
        (1_000, None, "gone"),
        (1_000, 10, "gone"),
    ],
)
def test_sources_are_counted_by_their_own_period(db: None, age_s: int, period_s: int | None, state: str) -> None:
    now = SystemClock().now_ms()
    app = App.objects.create(organisation=Organisation.objects.create(name="o"), name="a")
    last_seen = datetime.fromtimestamp(now / 1000 - age_s, UTC)
    Source.objects.create(
        app=app, name="s", first_seen=last_seen, last_seen=last_seen, period_ms=period_s and period_s * 1000
    )
    counts = {r.labels["state"]: r.value for r in site_metrics._sources(now)}
    assert counts == {**dict.fromkeys(("up", "late", "gone"), 0), state: 1}
