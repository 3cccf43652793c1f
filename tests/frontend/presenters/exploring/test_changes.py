"""What changed: the score of a series, and a fleet in which one thing changes."""

import json
from typing import Any

import numpy as np
import pytest
from django.test import Client

from frontend.presenters.exploring.changes import CHANGES_SHOWN, find_changes, score_changes, span_of
from frontend.queries import QuerySession, storage_of
from spm.clock import FakeClock, SystemClock
from spm.errors import BadQuery
from spm.limits import DAY_HOURS, HOUR_MS
from tests.support import sample_app
from tests.support.people import Tenant

MINUTE = 60_000
NOISE = np.random.default_rng(3).normal(0, 1, 60)


def score(values: Any) -> tuple[float, bool]:
    """The score of one series, and whether it counts as a counter."""
    _, counters, _, _, scores = score_changes(np.asarray([values], np.float64), MINUTE)
    return float(scores[0]), bool(counters[0])


HALVES = np.repeat([0.0, 1.0], 30)
NEVER = np.full(30, np.nan)


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        (50 + NOISE, 0, 0.5),
        (50 + NOISE + 10 * HALVES, 1, 10),
        (HALVES, 9.9, 10.1),
        (100 + HALVES, 0, 0.2),
        (np.full(60, 7.0), 0, 0),
        (np.zeros(60), 0, 0),
        (np.concatenate([NEVER, np.ones(30)]), 3, 3),
        (np.concatenate([np.ones(30), NEVER]), 5, 5),
        (np.concatenate([NEVER, NEVER]), 0, 0),
        (8e307 * (1 + HALVES), 0, 10.1),
    ],
    ids=["noise", "a shift", "from zero", "a percent", "constant", "zero", "appeared", "stopped", "empty", "huge"],
)
def test_a_shift_counts_by_the_spread_before_and_the_value(values: Any, low: float, high: float) -> None:
    assert low <= score(values)[0] <= high


def test_a_counter_is_compared_by_its_growth() -> None:
    steady, faster = np.arange(60.0) * 600, np.cumsum(1 + 4 * HALVES) * 600
    restarted = np.concatenate([faster[:40], faster[40:] - faster[40]])
    assert score(steady) == (0.0, True)
    assert score(faster)[0] > 5
    assert score(restarted)[0] > 5
    assert not score(50 + NOISE)[1]
    assert not score(HALVES)[1]


def test_more_series_that_change_more_come_first_whatever_order_they_have() -> None:
    values = np.stack([50 + NOISE + shift * HALVES for shift in (0, 5, 20)])
    scores = score_changes(values, MINUTE)[4]
    assert (np.argsort(-scores) == [2, 1, 0]).all()


@pytest.mark.parametrize("span_ms", [HOUR_MS // 12, HOUR_MS, DAY_HOURS * HOUR_MS, 30 * DAY_HOURS * HOUR_MS])
def test_a_range_and_the_time_before_have_equally_many_round_steps(span_ms: int) -> None:
    end_ms = 1_795_170_001_234
    span = span_of(end_ms - span_ms, end_ms)
    assert span.middle_ms - span.start_ms == span.end_ms - span.middle_ms
    assert span.end_ms % span.step_ms == span.start_ms % span.step_ms == 0
    assert 0 <= end_ms - span.end_ms < span.step_ms
    assert abs(span.end_ms - span.middle_ms - span_ms) <= span.step_ms
    assert 10 <= (span.end_ms - span.middle_ms) // span.step_ms <= 30


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(BadQuery):
        span_of(5, 5)


@pytest.fixture
def changed(alpha: Tenant, settings: Any) -> int:
    """Now; for half an hour one host has sent more of everything that matters, and another has stopped."""
    now_ms = SystemClock().now_ms() // MINUTE * MINUTE
    times = np.arange(now_ms - HOUR_MS, now_ms, 10_000, dtype=np.int64)
    later, noise = times > now_ms - HOUR_MS // 2, np.random.default_rng(5)
    rising = np.cumsum(np.where(later, 500.0, 100.0))
    lines = [sample_app.Line("bytes_total", {"host": "db-1"}, rising)]
    lines += [sample_app.Line("wobble", {"host": f"web-{at}"}, noise.normal(50, 5, len(times))) for at in range(8)]
    lines += [
        sample_app.Line("load", {"host": "web-1", "kind": f"k{at}"}, np.where(later, 10.0, 1.0)) for at in range(5)
    ]
    lines += [sample_app.Line("odd name.[1]", {"host": "web-2"}, np.where(later, 10.0, 1.0))]
    sample_app.write_lines(settings.SPM_STORE_URL, alpha.app.pk, "relay", lines, times)
    gone = [sample_app.Line("temperature", {"host": "web-7"}, np.full(int((~later).sum()), 20.0))]
    sample_app.write_lines(settings.SPM_STORE_URL, alpha.app.pk, "relay", gone, times[~later])
    return now_ms


def ask(desk: Client, app: int, now_ms: int, **more: Any) -> Any:
    """What changed in the last half hour."""
    query = {"start": now_ms - HOUR_MS // 2, "end": now_ms, **more}
    answer = desk.get(f"/api/v1/apps/{app}/changes", query)
    assert answer.status_code == 200, answer.content
    return json.loads(answer.content)


def test_what_changed_is_named_with_its_values_and_what_did_not_is_not(
    desk: Client, alpha: Tenant, changed: int
) -> None:
    answer = ask(desk, alpha.app.pk, changed)
    rows = {each["metric"]: each for each in answer["changes"]}
    assert set(rows) == {"bytes_total", "load", "temperature", "odd name.[1]"}
    assert (answer["metrics"], answer["metrics_read"], answer["series_read"]) == (5, 5, 16)
    assert [each["metric"] for each in answer["changes"]].count("load") == 3
    assert (rows["bytes_total"]["counter"], rows["bytes_total"]["kind"]) == (True, "higher")
    assert rows["bytes_total"]["before"] == pytest.approx(10, rel=0.02)
    assert rows["bytes_total"]["after"] == pytest.approx(50, rel=0.1)
    assert rows["bytes_total"]["expr"] == 'rate(bytes_total{host="db-1"}[$__rate_interval])'
    assert (rows["temperature"]["kind"], rows["temperature"]["after"]) == ("stopped", None)


def test_changes_are_looked_for_among_some_series(desk: Client, alpha: Tenant, changed: int) -> None:
    answer = ask(desk, alpha.app.pk, changed, match='{host="web-7"}')
    assert [each["metric"] for each in answer["changes"]] == ["temperature"]
    assert answer["metrics"] == 2


def test_the_page_lists_changes_with_links_and_what_happened_meanwhile(
    desk: Client, alpha: Tenant, changed: int
) -> None:
    event = {"kind": "deploy", "text": "api 2.4.1", "at_ms": changed - 5 * MINUTE}
    assert desk.post(f"/api/v1/events?app={alpha.app.pk}", event, content_type="application/json").status_code < 300
    page = desk.get(f"/apps/{alpha.app.pk}/explore/changes?from={changed - HOUR_MS // 2}&to={changed}").content.decode()
    assert "Looked at 5 of 5 metrics (16 series)" in page
    assert "expr=rate%28bytes_total%7Bhost%3D%22db-1%22%7D" in page
    assert "deploy: api 2.4.1" in page
    for wrong in ("from=x&to=1", "from=2&to=1", f"from=1&to={'9' * 30}", "from=0&to=1&match=rate(a[5m])"):
        refused = desk.get(f"/apps/{alpha.app.pk}/explore/changes?{wrong}")
        assert (refused.status_code, b'role="alert"' in refused.content) == (200, True), wrong


def test_the_search_ends_at_its_deadline_and_says_how_far_it_came(alpha: Tenant, changed: int) -> None:
    session = QuerySession(storage_of(alpha.app.pk), lambda: None)
    span = span_of(changed - HOUR_MS // 2, changed)
    changes = find_changes(session, span, clock=FakeClock(changed), seconds=0.0)
    assert (changes.is_late, changes.metrics, changes.metrics_read, changes.rows) == (True, 5, 0, [])


def test_a_page_of_changes_is_full_at_some_point(alpha: Tenant, settings: Any) -> None:
    now_ms = SystemClock().now_ms() // MINUTE * MINUTE
    times = np.arange(now_ms - HOUR_MS, now_ms, MINUTE, dtype=np.int64)
    later = times > now_ms - HOUR_MS // 2
    lines = [sample_app.Line(f"m{at}", {}, np.where(later, 1.0 + at, 1.0)) for at in range(40)]
    sample_app.write_lines(settings.SPM_STORE_URL, alpha.app.pk, "relay", lines, times)
    session = QuerySession(storage_of(alpha.app.pk), lambda: None)
    changes = find_changes(session, span_of(now_ms - HOUR_MS // 2, now_ms), clock=SystemClock())
    assert (len(changes.rows), changes.metrics_read) == (CHANGES_SHOWN, 40)
    assert changes.rows[0].metric == "m39"
    assert changes.others == 39 - CHANGES_SHOWN
