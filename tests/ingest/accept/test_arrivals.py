"""The ways by which data came: the name of each, its first and its last message."""

import pytest

from ingest.accept.identity import period_of, way_of
from ingest.models import Arrival
from spm.accounts.models import App, Organisation
from tests.support import notes

NOW = 1_700_000_000_000


@pytest.fixture
def app(db: None) -> App:
    return App.objects.create(organisation=Organisation.objects.create(name="Acme"), name="Shop")


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
    assert way_of(protocol, agent) == way


def test_the_first_message_of_a_way_is_its_first_and_last_arrival(app: App) -> None:
    notes.see_arrival(app.pk, "json", "a", NOW)
    notes.see_arrival(app.pk, "otlp", "b", NOW + 1)
    assert [(a.way, a.source, a.first_seen == a.last_seen) for a in Arrival.objects.all()] == [
        ("json", "a", True),
        ("otlp", "b", True),
    ]


@pytest.mark.parametrize(
    ("later_ms", "source", "between_s"), [(30_000, "b", 30), (0, "a", 0), (-1, "a", 0)], ids=["later", "equal", "back"]
)
def test_later_messages_move_the_time_on_and_keep_the_first(
    app: App, later_ms: int, source: str, between_s: int
) -> None:
    notes.see_arrival(app.pk, "json", "a", NOW)
    notes.see_arrival(app.pk, "json", "b", NOW + later_ms)
    [arrival] = Arrival.objects.all()
    assert (arrival.source, (arrival.last_seen - arrival.first_seen).total_seconds()) == (source, between_s)


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
