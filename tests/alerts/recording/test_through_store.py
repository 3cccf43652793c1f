"""The periodic task, with the real store and acceptance: what rules record is there, and the balance knows it."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from alerts import tasks
from alerts.models import Lane, SeriesLane
from alerts.rulefiles.apply import Author, import_files
from ingest.accept.process_acceptor import close_process_acceptor
from spm import query
from spm.accounts.models import App
from spm.clock import SystemClock
from spm.limits import RULE_PERIOD_MS
from spm.query.promql.engine import Engine
from spm.store.backends import open_backend
from tests.support import sample_app

TEXT = """
groups:
- name: g
  rules:
  - record: hosts:count
    expr: count(cpu_usage_total)
    labels: {team: infra}
  - alert: Any
    expr: hosts:count > 0
"""


@pytest.fixture(autouse=True)
def own_store(settings: Any, tmp_path: Path) -> Iterator[None]:
    """A store for each test."""
    settings.SPM_STORE_URL, settings.SPM_DATA = f"lmdb://{tmp_path}/store", tmp_path
    query.configure(settings.SPM_STORE_URL)
    yield
    query.configure("memory://")
    close_process_acceptor()
    open_backend(settings.SPM_STORE_URL).close()


def value(app: App, expr: str, at_ms: int) -> list[float]:
    """The values of an expression's answer."""
    result = Engine(query.storage_for(app.pk)).instant(expr, at_ms)
    return [float(row[0]) for row, there in zip(result.values, result.present, strict=True) if there[0]]


@pytest.mark.django_db
def test_the_periodic_task_records_judges_and_writes_alerts(app: App, settings: Any) -> None:
    now_ms = SystemClock().now_ms()
    sample_app.fill(settings.SPM_STORE_URL, app.pk, now_ms=now_ms, span_ms=120_000)
    import_files(app, {"r.yml": TEXT}, by=Author(), now_ms=now_ms - 3 * RULE_PERIOD_MS)
    tasks.evaluate_rules()
    lane = SeriesLane.objects.get(app=app)
    query.configure("memory://")  # a view of later than the messages
    query.configure(settings.SPM_STORE_URL)
    assert value(app, 'hosts:count{team="infra"}', lane.recorded_ms) == [4.0]
    [recorded] = value(app, "count_over_time(hosts:count[1m])", lane.recorded_ms)  # more than one step if it is slow
    SeriesLane.objects.update(recorded_ms=lane.recorded_ms - RULE_PERIOD_MS, alerts_ms=lane.recorded_ms)
    Lane.objects.update(position_ms=lane.recorded_ms - RULE_PERIOD_MS)
    until = time.monotonic() + 40
    while Lane.objects.get(app=app).position_ms < lane.recorded_ms and time.monotonic() < until:
        tasks.evaluate_rules()  # the step is judged when two rounds of the accepting process have passed
        time.sleep(0.5)
    query.configure("memory://")
    query.configure(settings.SPM_STORE_URL)
    assert value(app, "count_over_time(hosts:count[1m])", lane.recorded_ms) == [recorded]
    judged_ms = Lane.objects.get(app=app).position_ms
    assert value(app, 'ALERTS{alertname="Any", alertstate="firing"}', judged_ms) == [1.0]
