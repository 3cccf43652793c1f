"""Sources: seen often, written rarely, never back in time."""

from collections.abc import Callable
from typing import Any

import pytest

from spm import limits
from spm.accounts import sources
from spm.accounts.models import App, Source
from spm.bounded import LruCache
from tests.support import process_state

NOW = 1_700_000_000_000


def last_ms(name: str = "web-1") -> int:
    """When the source was last seen, by the database."""
    return round(Source.objects.get(name=name).last_seen.timestamp() * 1000)


def test_a_new_source_is_there_at_once(app: App) -> None:
    sources.note_seen(app.pk, "web-1", NOW)
    assert last_ms() == NOW


def test_a_source_seen_again_soon_costs_no_query(app: App, django_assert_num_queries: Callable[[int], Any]) -> None:
    sources.note_seen(app.pk, "web-1", NOW)
    with django_assert_num_queries(0):
        sources.note_seen(app.pk, "web-1", NOW + limits.SOURCE_SEEN_EVERY_MS - 1)


def test_a_source_seen_later_moves_on(app: App) -> None:
    sources.note_seen(app.pk, "web-1", NOW)
    sources.note_seen(app.pk, "web-1", NOW + limits.SOURCE_SEEN_EVERY_MS)
    assert last_ms() == NOW + limits.SOURCE_SEEN_EVERY_MS


def test_a_process_with_a_slow_clock_does_not_move_it_back(app: App) -> None:
    sources.note_seen(app.pk, "web-1", NOW)
    process_state.forget_sources()
    sources.note_seen(app.pk, "web-1", NOW - 60_000)
    assert last_ms() == NOW


def test_a_clock_that_was_far_ahead_is_set_right_by_the_next_message(app: App) -> None:
    sources.note_seen(app.pk, "web-1", NOW + 86_400_000, period_ms=10_000)
    sources.note_seen(app.pk, "web-1", NOW)
    source = Source.objects.get()
    assert (last_ms(), source.first_seen, source.period_since) == (NOW, source.last_seen, source.last_seen)
    sources.note_seen(app.pk, "web-1", NOW + limits.SOURCE_SEEN_EVERY_MS)
    assert last_ms() == NOW + limits.SOURCE_SEEN_EVERY_MS


def test_equal_names_of_two_apps_are_two_sources(app: App) -> None:
    other = App.objects.create(organisation=app.organisation, name="other")
    for each in (app, other):
        sources.note_seen(each.pk, "web-1", NOW)
    assert Source.objects.filter(name="web-1").count() == 2


def test_what_a_process_remembers_stays_bounded(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_written", LruCache(3))
    for number in range(5):
        sources.note_seen(app.pk, f"host-{number}", NOW)
        assert len(sources._written) <= 3


def test_an_app_has_a_history_since_its_first_source(app: App) -> None:
    assert sources.history_ms(app, NOW) == 0
    for name, at in (("old", NOW - 90_000), ("new", NOW)):
        sources.note_seen(app.pk, name, at)
    assert sources.history_ms(app, NOW) == 90_000


@pytest.mark.parametrize(
    ("age_ms", "state"),
    [
        (0, "up"),
        (limits.SOURCE_OVERDUE_AFTER_MS - 1, "up"),
        (limits.SOURCE_OVERDUE_AFTER_MS, "late"),
        (limits.SOURCE_GONE_AFTER_MS - 1, "late"),
        (limits.SOURCE_GONE_AFTER_MS, "gone"),
        (-limits.SOURCE_GONE_AFTER_MS, "up"),  # of another machine, whose clock is a little ahead
        (-limits.SOURCE_GONE_AFTER_MS - 1, "late"),
    ],
)
def test_a_source_grows_late_and_then_gone(age_ms: int, state: str) -> None:
    assert sources.state(NOW - age_ms, NOW) == state


def test_a_source_may_say_how_often_it_sends(app: App) -> None:
    sources.note_seen(app.pk, "cron", NOW, period_ms=3_600_000)
    source = Source.objects.get(name="cron")
    assert (source.period_ms, source.period_before_ms, source.period_since) == (3_600_000, None, source.first_seen)


def test_another_period_counts_from_now_on(app: App) -> None:
    sources.note_seen(app.pk, "cron", NOW, period_ms=60_000)
    for now_ms, period_ms in ((NOW + 60_000, 10_000), (NOW + 120_000, 10_000)):
        sources.note_period(app.pk, "cron", period_ms, now_ms)
    source = Source.objects.get()
    since_ms = round(source.period_since.timestamp() * 1000) if source.period_since else 0
    assert (source.period_ms, source.period_before_ms, since_ms) == (10_000, 60_000, NOW + 60_000)


@pytest.mark.parametrize(
    ("age_ms", "period_ms", "state"),
    [
        (59_999, None, "up"),
        (60_000, None, "late"),
        (899_999, 10_000, "late"),
        (900_000, 10_000, "gone"),
        (3 * 3_600_000 - 1, 3_600_000, "up"),
        (3 * 3_600_000, 3_600_000, "late"),
        (15 * 3_600_000, 3_600_000, "gone"),
    ],
)
def test_a_source_is_late_by_its_own_period(age_ms: int, period_ms: int | None, state: str) -> None:
    assert sources.state(NOW - age_ms, NOW, period_ms) == state
