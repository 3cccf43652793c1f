"""Maintenance windows on the wall clock of their zone, over the days on which clocks change."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from alerts.telling.decide import windows as module
from alerts.telling.decide.matchers import read_matchers
from alerts.telling.decide.windows import MuteTiming, Schedule, check_timing, next_windows, windows
from spm.errors import BadQuery

HOUR = 3_600_000


def utc(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def starts(cron: str, zone: str, first: str, last: str, hours: float = 1) -> list[str]:
    timing = MuteTiming(1, "x", read_matchers('a="b"'), cron, zone, round(hours * HOUR))
    found_windows = windows(timing, from_ms=utc(first), to_ms=utc(last))
    return [datetime.fromtimestamp(each.from_ms / 1000, UTC).strftime("%d %H:%M") for each in found_windows]


def test_a_window_follows_the_wall_clock_through_the_year() -> None:
    assert starts("0 2 * * 6", "Europe/Berlin", "2026-01-01", "2026-01-16") == ["03 01:00", "10 01:00"]
    assert starts("0 2 * * 6", "Europe/Berlin", "2026-07-01", "2026-07-16") == ["04 00:00", "11 00:00"]


@pytest.mark.parametrize(
    ("zone", "cron", "day", "expected"),
    [
        ("Europe/Berlin", "30 2 * * *", "2026-03-29", ["29 01:00"]),  # 02:00–03:00 does not exist
        ("America/New_York", "15 2 * * *", "2026-03-08", ["08 07:00"]),
        ("Australia/Lord_Howe", "15 2 * * *", "2026-10-04", []),  # a gap of half an hour, on the day before in UTC
        ("Europe/Berlin", "30 2 * * *", "2026-10-25", ["25 00:30"]),  # 02:30 exists twice: the first
        ("UTC", "30 2 * * *", "2026-03-29", ["29 02:30"]),
    ],
)
def test_a_local_time_that_is_missing_or_doubled_counts_once(
    zone: str, cron: str, day: str, expected: list[str]
) -> None:
    assert starts(cron, zone, f"{day}T00:00", f"{day}T12:00", hours=0.1) == expected


def test_a_gap_of_half_an_hour_ends_where_it_ends() -> None:
    assert starts("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00", "2026-10-04T01:00") == ["03 15:30"]


def test_windows_that_touch_are_one() -> None:
    assert starts("0 * * * *", "UTC", "2026-01-01T03:30", "2026-01-01T09:00") == ["01 03:00"]


def test_a_window_that_began_before_the_stretch_counts() -> None:
    assert starts("0 0 * * *", "UTC", "2026-01-01T05:00", "2026-01-01T06:00", hours=8) == ["01 00:00"]


@pytest.mark.parametrize(
    ("cron", "zone", "duration"),
    [
        ("x", "UTC", HOUR),
        ("0 0 30 2 *", "UTC", HOUR),
        ("* * * * * *", "UTC", HOUR),  # with seconds: a month of them would be worked out at each flush
        ("0 0 * * *", "Mars/Olympus", HOUR),
        ("0 0 * * *", "../etc/passwd", HOUR),
        ("0 0 * * *", "UTC", 0),
        ("0 0 * * *", "UTC", 8 * 24 * HOUR),
    ],
)
def test_a_window_that_can_never_be_is_refused(cron: str, zone: str, duration: int) -> None:
    with pytest.raises(BadQuery):
        check_timing(cron, zone, duration)


def following(cron: str, now: str, hours: float = 1) -> list[tuple[str, str | None]]:
    timing = MuteTiming(1, "x", read_matchers('a="b"'), cron, "UTC", round(hours * HOUR))

    def text(ms: int) -> str:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%d %H:%M")

    covers = next_windows(timing, utc(now), 3)
    return [(text(each.from_ms), None if each.to_ms is None else text(each.to_ms)) for each in covers]


@pytest.mark.parametrize(
    ("cron", "hours", "expected"),
    [
        pytest.param("0 2 * * *", 1, [("02 02:00", "02 03:00"), ("03 02:00", "03 03:00"), ("04 02:00", "04 03:00")],
                     id="the next three"),
        pytest.param("0 3 * * *", 2, [("01 03:00", "01 05:00"), ("02 03:00", "02 05:00"), ("03 03:00", "03 05:00")],
                     id="the one that holds is the first"),
        pytest.param("0 0-6 1 1 *", 1, [("01 04:00", "01 07:00"), ("01 00:00", "01 07:00")], id="joined, one a year"),
        pytest.param("* * * * *", 1, [("01 03:01", None)], id="one without an end in sight"),
        pytest.param("0 0 29 2 *", 1, [], id="none within a year"),
    ],
)  # fmt: skip
def test_the_next_windows_are_seen_before_they_come(
    cron: str, hours: float, expected: list[tuple[str, str | None]]
) -> None:
    assert following(cron, "2026-01-01T04:00", hours) == expected


def gaps(cron: str, first: str, last: str, hours: float, zone: str = "UTC") -> list[tuple[str, str]]:
    """The stretches outside a schedule; the end is empty if none is in sight."""

    def text(at_ms: int | None) -> str:
        return "" if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%d %H:%M")

    schedule = Schedule(cron, zone, round(hours * HOUR))
    return [(text(each.from_ms), text(each.to_ms)) for each in schedule.gaps(from_ms=utc(first), to_ms=utc(last))]


@pytest.mark.parametrize(
    ("cron", "hours", "first", "last", "expected"),
    [
        pytest.param("0 8 * * *", 10, "2026-01-01T09", "2026-01-01T10", [], id="inside"),
        pytest.param("0 8 * * *", 10, "2026-01-01T18", "2026-01-01T18", [("01 18:00", "02 08:00")], id="at its end"),
        pytest.param("0 8 * * *", 10, "2026-01-01T08", "2026-01-01T08", [], id="at its beginning"),
        pytest.param(
            "0 8 * * 1-5", 10, "2026-01-02T06", "2026-01-04T00",
            [("02 06:00", "02 08:00"), ("02 18:00", "05 08:00")], id="before it and over a weekend",
        ),
        pytest.param("0 0 * * *", 24, "2026-01-01T05", "2026-01-03T05", [], id="always"),
        pytest.param("0 8 1 1 *", 1, "2026-06-01T00", "2026-06-01T00", [("01 00:00", "01 08:00")], id="in half a year"),
    ],
)  # fmt: skip
def test_the_gaps_of_a_schedule_end_when_it_holds_again(
    cron: str, hours: float, first: str, last: str, expected: list[tuple[str, str]]
) -> None:
    assert gaps(cron, first, last, hours) == expected


def test_a_schedule_follows_the_wall_clock_of_its_zone() -> None:
    expected = [("28 17:00", "29 06:00"), ("29 16:00", "30 06:00")]  # clocks go forward in the night to the 29th
    assert gaps("0 8 * * *", "2026-03-28T12:00", "2026-03-29T18:00", 10, "Europe/Berlin") == expected


def test_a_schedule_that_does_not_come_back_within_a_year_has_no_end_in_sight() -> None:
    assert gaps("0 8 29 2 *", "2026-01-01T00:00", "2026-01-01T00:00", 1) == [("01 00:00", "")]


def test_windows_that_begin_every_minute_are_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    instants = list[datetime]()
    original = module.utc_ms

    def counted(wall: datetime, zone: ZoneInfo) -> int:
        instants.append(wall)
        return original(wall, zone)

    monkeypatch.setattr(module, "utc_ms", counted)
    module._starts_of.cache_clear()
    timing = MuteTiming(1, "x", read_matchers('a="b"'), "* * * * *", "Asia/Tokyo", HOUR)
    for minute in range(3):
        last_ms = utc("2026-01-20T00:00") + minute * 60_000
        assert len(windows(timing, from_ms=last_ms - 20 * 24 * HOUR, to_ms=last_ms)) == 1
        assert len(instants) <= 2 * 32 * 24 * 60
