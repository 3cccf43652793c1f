"""Descriptions of metrics by their senders are stored once, and shown to Prometheus' readers."""

import pytest

from ingest.accept import descriptions
from ingest.models import MetricDescription
from spm import limits
from spm.accounts.models import App, Organisation
from spm.wire import Metadata

UP = Metadata("up", "gauge", "Whether it is up.", "bool")


def write(app: int, *described: Metadata) -> None:
    descriptions.write_descriptions({app: {one.metric: one for one in described}})


@pytest.fixture
def app(db: None) -> App:
    return App.objects.create(organisation=Organisation.objects.create(name="Acme"), name="Shop")


def test_what_was_said_last_counts(app: App) -> None:
    newer = Metadata("up", "gauge", "Is it?", "")
    for one in (UP, newer):
        write(app.pk, one)
    assert descriptions.of_app(app.pk) == {"up": newer} == descriptions.of_app(app.pk, "up")


def test_an_app_knows_nothing_of_anothers(app: App) -> None:
    other = App.objects.create(organisation=app.organisation, name="Other")
    write(other.pk, UP)
    assert descriptions.of_app(app.pk) == {}


def test_metrics_beyond_the_limit_are_passed_over_and_known_ones_kept_up(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptions, "METADATA_APP_MAX", 2)
    write(app.pk, *(Metadata(name, "counter", "", "") for name in "abc"))
    write(app.pk, Metadata("a", "gauge", "", ""), Metadata("d", "gauge", "", ""))
    assert {name: one.type for name, one in descriptions.of_app(app.pk).items()} == {"a": "gauge", "b": "counter"}
    assert limits.METADATA_APP_MAX > 2


def test_text_that_a_database_refuses_is_made_fit(app: App) -> None:
    write(app.pk, Metadata("m\0", "x" * 99, "a\0b", "u" * 999), Metadata("m" * 257, "gauge", "", ""))
    [row] = MetricDescription.objects.all()
    assert (row.metric, len(row.type), row.help, len(row.unit)) == ("m\ufffd", 20, "a\ufffdb", 100)
