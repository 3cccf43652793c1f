"""Sources: what a message of a source changes in its row, and what its row says of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spm import limits
from spm.accounts import sources
from spm.accounts.models import App, Organisation, Source
from tests.support import notes

NOW = 1_700_000_000_000


def last_ms(name: str = "web-1") -> int:
    """When the source was last seen, by the database."""
    return round(Source.objects.get(name=name).last_seen.timestamp() * 1000)


def test_a_new_source_is_there_at_once(app: App) -> None:
    notes.see_source(app.pk, "web-1", NOW)
    assert last_ms() == NOW


def test_a_source_seen_later_moves_on(app: App) -> None:
    notes.see_source(app.pk, "web-1", NOW)
    notes.see_source(app.pk, "web-1", NOW + limits.SOURCE_SEEN_EVERY_MS)
    assert last_ms() == NOW + limits.SOURCE_SEEN_EVERY_MS


def test_a_process_with_a_slow_clock_does_not_move_it_back(app: App) -> None:
    notes.see_source(app.pk, "web-1", NOW)
    notes.see_source(app.pk, "web-1", NOW - 60_000)
    assert last_ms() == NOW


def test_a_clock_that_was_far_ahead_is_set_right_by_the_next_message(app: App) -> None:
    notes.see_source(app.pk, "web-1", NOW + 86_400_000, period_ms=10_000)
    notes.see_source(app.pk, "web-1", NOW)
    source = Source.objects.get()
    assert (last_ms(), source.first_seen, source.period_since) == (NOW, source.last_seen, source.last_seen)
    notes.see_source(app.pk, "web-1", NOW + limits.SOURCE_SEEN_EVERY_MS)
    assert last_ms() == NOW + limits.SOURCE_SEEN_EVERY_MS


def test_equal_names_of_two_apps_are_two_sources(app: App) -> None:
    other = App.objects.create(organisation=app.organisation, name="other")
    for each in (app, other):
        notes.see_source(each.pk, "web-1", NOW)
    assert Source.objects.filter(name="web-1").count() == 2


def test_sources_beyond_the_bound_of_their_app_share_one_row(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "SOURCES_PER_APP_MAX", 2)
    other = App.objects.create(organisation=app.organisation, name="other")
    seen = {name: ((NOW + place, 10_000),) for place, name in enumerate("abcd")}
    sources.write_seen({app.pk: seen, other.pk: {"z": ((NOW, 0),)}})
    notes.see_source(app.pk, "b", NOW + 30_000)
    rows = Source.objects.filter(app=app).order_by("pk").values_list("name", "period_ms")
    assert list(rows) == [("a", 10_000), ("b", 10_000), (sources.OTHER_SOURCES, None)]
    assert (last_ms("b"), last_ms(sources.OTHER_SOURCES), last_ms("z")) == (NOW + 30_000, NOW + 3, NOW)
    assert limits.SOURCES_PER_APP_MAX == limits.AGENTS_PER_APP_MAX


SEEN = st.tuples(st.sampled_from([0, 10_000, 40_000, 800_000, 1_000_000, 90_000_000]), st.sampled_from([0, 10, 60]))


@given(st.lists(SEEN, min_size=1, max_size=limits.SOURCE_NOTES_MAX), st.integers(0, 8))
@pytest.mark.django_db
def test_joined_sightings_leave_the_row_that_each_of_them_would_leave(sightings: list[sources.Seen], cut: int) -> None:
    organisation = Organisation.objects.create(name="any")
    joined, single = (App.objects.create(organisation=organisation, name=name).pk for name in "js")
    for seen in sightings:
        sources.write_seen({single: {"a": (seen,)}})
    before = sources.merge_seen((), tuple(sightings[:cut]))
    sources.write_seen({joined: {"a": sources.merge_seen(before, tuple(sightings[cut:]))}})
    fields = ("first_seen", "last_seen", "period_ms", "period_since", "period_before_ms")
    [row, other] = Source.objects.values_list(*fields)
    assert row == other
    organisation.apps.all().delete()


def test_sightings_of_a_clock_that_jumps_stay_few() -> None:
    merged: tuple[sources.Seen, ...] = ()
    for number in range(100):
        merged = sources.merge_seen(merged, ((number % 2 * 1_000_000 + number, 0),))
    assert (len(merged), merged[0], merged[-1]) == (limits.SOURCE_NOTES_MAX, (0, 0), (1_000_099, 0))
    for number in range(100):
        merged = sources.merge_seen(merged, ((2_000_000 + number, 0),))
    assert merged[-1] == (2_000_099, 0)


def test_an_app_has_a_history_since_its_first_source(app: App) -> None:
    assert sources.history_ms(app, NOW) == 0
    for name, at in (("old", NOW - 90_000), ("new", NOW)):
        notes.see_source(app.pk, name, at)
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
    notes.see_source(app.pk, "cron", NOW, period_ms=3_600_000)
    source = Source.objects.get(name="cron")
    assert (source.period_ms, source.period_before_ms, source.period_since) == (3_600_000, None, source.first_seen)


def test_another_period_counts_from_now_on(app: App) -> None:
    notes.see_source(app.pk, "cron", NOW, period_ms=60_000)
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
