"""The ways by which data came: the first message of each is known at once, later ones cost nothing."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ingest.accept import arrivals
from ingest.accept.identity import period_of
from ingest.models import Arrival
from spm import limits
from spm.accounts.models import App, Organisation
from spm.bounded import LruCache
from tests.support import process_state

NOW = 1_700_000_000_000


@pytest.fixture
def app(db: None) -> Iterator[App]:
    process_state.forget_arrivals()
    yield App.objects.create(organisation=Organisation.objects.create(name="Acme"), name="Shop")
    process_state.forget_arrivals()


@pytest.mark.parametrize(
    ("protocol", "agent", "way"),
    [
        ("influx", "Telegraf/1.28.3 Go/1.21", "telegraf"),
        ("influx", "spm-agent/0.1.0", "agent"),
        ("influx", "curl/7.88.1", "influx"),
        ("influx", "", "influx"),
        ("remote_write", "Prometheus/2.42.0", "prometheus"),
        ("remote_write", "vmagent", "remote_write"),
        ("otlp", "OTel-OTLP-Exporter-Python/1.27.0", "otlp"),
        ("otlp", "OpenTelemetry Collector Contrib/0.100", "collector"),
        ("json", "Telegraf/1.28.3", "json"),
        ("influx", "x" * 10_000 + "telegraf", "influx"),
    ],
)
def test_a_way_is_a_protocol_and_who_speaks_it(protocol: str, agent: str, way: str) -> None:
    assert arrivals.way_of(protocol, agent) == way


def test_the_first_message_of_a_way_is_noted_at_once(app: App) -> None:
    arrivals.record_arrival(app.pk, "json", "a", NOW)
    arrivals.record_arrival(app.pk, "otlp", "b", NOW + 1)
    assert [(a.way, a.source) for a in Arrival.objects.all()] == [("json", "a"), ("otlp", "b")]


def test_messages_soon_after_cost_no_query(app: App, django_assert_num_queries: Callable[[int], Any]) -> None:
    arrivals.record_arrival(app.pk, "json", "a", NOW)
    with django_assert_num_queries(0):
        arrivals.record_arrival(app.pk, "json", "b", NOW + limits.SOURCE_SEEN_EVERY_MS - 1)
        arrivals.record_arrival(app.pk, "", "b", NOW)


def test_later_messages_move_the_time_on_and_keep_the_first(app: App) -> None:
    arrivals.record_arrival(app.pk, "json", "a", NOW)
    arrivals.record_arrival(app.pk, "json", "b", NOW + limits.SOURCE_SEEN_EVERY_MS)
    [arrival] = Arrival.objects.all()
    assert (arrival.source, (arrival.last_seen - arrival.first_seen).total_seconds()) == ("b", 30.0)


def test_what_a_process_remembers_of_ways_stays_bounded(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "_written", LruCache(3))
    for number in range(8):
        arrivals.record_arrival(app.pk, f"way-{number}", "a", NOW)
        assert len(arrivals._written) <= 3


@pytest.mark.parametrize(
    ("given", "ms"),
    [
        ("10", 10_000),
        (" 0.5 ", 500),
        ("2678400", 2_678_400_000),
        ("2678401", 0),
        ("0", 0),
        ("-1", 0),
        ("1e3", 0),
        ("soon", 0),
        ("", 0),
        (None, 0),
        ("1" * 400, 0),
        ("²", 0),
        (".", 0),
    ],
)
def test_an_announced_period_is_seconds_or_nothing(given: str | None, ms: int) -> None:
    assert period_of(given) == ms
