"""Descriptions of metrics by their senders are stored once, and shown to Prometheus' readers."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ingest.accept import descriptions
from ingest.models import MetricDescription
from spm import limits
from spm.accounts.models import App, Organisation
from spm.bounded import LruCache
from spm.clock import FakeClock
from spm.wire import Metadata
from tests.support import process_state

UP = Metadata("up", "gauge", "Whether it is up.", "bool")


@pytest.fixture
def app(db: None) -> Iterator[App]:
    process_state.forget_descriptions()
    yield App.objects.create(organisation=Organisation.objects.create(name="Acme"), name="Shop")
    process_state.forget_descriptions()


def test_what_was_said_last_counts(app: App) -> None:
    descriptions.record_descriptions(app.pk, [UP])
    newer = Metadata("up", "gauge", "Is it?", "")
    descriptions.record_descriptions(app.pk, [newer])
    assert descriptions.of_app(app.pk) == {"up": newer}


def test_what_is_repeated_costs_no_query(app: App, django_assert_num_queries: Callable[[int], Any]) -> None:
    descriptions.record_descriptions(app.pk, [UP])
    with django_assert_num_queries(0):
        descriptions.record_descriptions(app.pk, [UP, UP])


def test_an_app_knows_nothing_of_anothers(app: App) -> None:
    other = App.objects.create(organisation=app.organisation, name="Other")
    descriptions.record_descriptions(other.pk, [UP])
    assert descriptions.of_app(app.pk) == {}


def test_metrics_beyond_the_limit_are_passed_over_and_known_ones_kept_up(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptions, "METADATA_APP_MAX", 2)
    descriptions.record_descriptions(app.pk, [Metadata(name, "counter", "", "") for name in "abc"])
    descriptions.record_descriptions(app.pk, [Metadata("a", "gauge", "", ""), Metadata("d", "gauge", "", "")])
    assert {name: one.type for name, one in descriptions.of_app(app.pk).items()} == {"a": "gauge", "b": "counter"}
    assert limits.METADATA_APP_MAX > 2


def test_what_a_process_remembers_stays_bounded(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptions, "_written", LruCache(3))
    for name in "abcdefg":
        descriptions.record_descriptions(app.pk, [Metadata(name, "gauge", "", "")])
    assert len(descriptions._written) <= 3
    assert MetricDescription.objects.count() == 7


def test_text_that_a_database_refuses_is_made_fit(app: App) -> None:
    descriptions.record_descriptions(app.pk, [Metadata("m\0", "x" * 99, "a\0b", "u" * 999)])
    [row] = MetricDescription.objects.all()
    assert (row.metric, len(row.type), row.help, len(row.unit)) == ("m\ufffd", 20, "a\ufffdb", 100)


def test_an_app_that_always_has_news_is_written_as_seldom_as_refusals_and_in_the_end(app: App) -> None:
    clock = FakeClock(0)
    for number in range(limits.REJECTION_NOTES_MAX + 5):
        descriptions.record_descriptions(app.pk, [Metadata("up", "gauge", f"Word {number}.", "")], clock)
    assert descriptions.of_app(app.pk)["up"].help == f"Word {limits.REJECTION_NOTES_MAX - 1}."
    clock.advance(limits.REJECTION_NOTES_PER_MS)
    descriptions.record_descriptions(app.pk, [UP], clock)
    assert descriptions.of_app(app.pk) == {"up": UP}
