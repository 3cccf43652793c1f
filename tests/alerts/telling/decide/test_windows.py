"""Maintenance windows on the wall clock of their zone, over the days on which clocks change."""

from datetime import UTC, datetime

import pytest

from alerts.telling.decide.matchers import read_matchers
from alerts.telling.decide.windows import MuteTiming, check_timing, next_windows, windows
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
