"""Windows that recur: a cron expression in a time zone, and a length. In some alerts are muted, in others alone told.

Windows are worked out on the wall clock of the zone and then turned into UTC. A local time that does not exist (clocks
go forward) begins when the gap ends; one that exists twice (clocks go back) counts once, the first time.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice
from typing import Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
from cronsim import CronSim, CronSimError

from alerts.telling import limits
from alerts.telling.decide.covers import Cover
from alerts.telling.decide.matchers import Matchers
from spm.arrays import I64
from spm.errors import BadQuery

_CRON_FIELDS = 5
_SHIFT_MAX_MS = 26 * 3_600_000  # zones differ from UTC by at most 14 hours, and a date line moved by 24
_PART_MS = 32 * 86_400_000  # of the wall clock: its windows are worked out once
_OUTSIDE = "outside the schedule of its rule"
_PARTS_MAX = 256  # kept: a quarter of a megabyte each if a window begins every minute


class Recurring(Protocol):
    """What recurs: from each time of ``cron`` in ``zone``, for ``duration_ms``; and what an alert is in it."""

    @property
    def cron(self) -> str: ...
    @property
    def zone(self) -> str: ...
    @property
    def duration_ms(self) -> int: ...
    @property
    def reason(self) -> str: ...


@dataclass(frozen=True, slots=True)
class MuteTiming:
    """Mutes alerts that match from each time of ``cron`` in ``zone``, for ``duration_ms``."""

    id: int
    name: str
    matchers: Matchers
    cron: str
    zone: str
    duration_ms: int

    @property
    def reason(self) -> str:
        """Why an alert is not told in it."""
        return f"in the maintenance window {self.name}"


@dataclass(frozen=True, slots=True)
class Schedule:
    """The times at which a rule is told: from each time of ``cron`` in ``zone``, for ``duration_ms``."""

    cron: str
    zone: str
    duration_ms: int
    reason: str = "in the schedule of its rule"

    def gaps(self, *, from_ms: int, to_ms: int) -> list[Cover]:
        """Return the stretches of [from_ms, to_ms] outside the schedule; the last ends when it holds again."""
        gaps, at_ms = list[Cover](), from_ms
        for window in windows(self, from_ms=from_ms, to_ms=to_ms):
            assert window.to_ms is not None, "BUG: a window without an end"
            if window.from_ms > at_ms:
                gaps.append(Cover(at_ms, window.from_ms, _OUTSIDE))
            at_ms = max(at_ms, window.to_ms)
        if at_ms <= to_ms:
            following = next(_starts(self, to_ms + 1, to_ms + limits.WINDOWS_AHEAD_MS), None)
            gaps.append(Cover(at_ms, following, _OUTSIDE))
        return gaps


def check_timing(cron: str, zone: str, duration_ms: int) -> None:
    """Raise ``BadQuery`` with what is wrong with a window."""
    _zone(zone)
    if not 0 < duration_ms <= limits.WINDOW_MS_MAX:
        raise BadQuery(f"a window lasts between a moment and {limits.WINDOW_MS_MAX // 86_400_000} days")
    refusal = BadQuery(f"{cron!r} names no time: write five fields, such as 0 2 * * 6")
    if len(cron.split()) != _CRON_FIELDS:  # with a sixth, for seconds, a month has 2,678,400 windows
        raise refusal
    try:
        next(CronSim(cron, datetime(2000, 1, 1)))  # noqa: DTZ001  # a wall clock, without a zone
    except (CronSimError, StopIteration) as error:
        raise refusal from error


def windows(timing: Recurring, *, from_ms: int, to_ms: int) -> list[Cover]:
    """Return the windows that meet [from_ms, to_ms], in order of time; those that touch are joined."""
    from_ms = max(from_ms, to_ms - limits.WINDOWS_SPAN_MS)
    return list(_joined(timing, _starts(timing, from_ms - timing.duration_ms + 1, to_ms)))


def next_windows(timing: Recurring, now_ms: int, count: int) -> list[Cover]:
    """Return the window that holds now or begins next, and those after it, as far as they begin within a year.

    One that holds now and is made of several that touch begins with that of them which holds. Of one that goes on for
    longer than can be looked at, the end is None.
    """
    starts = _starts(timing, now_ms - timing.duration_ms + 1, now_ms + limits.WINDOWS_AHEAD_MS)
    few = islice(starts, limits.WINDOW_STARTS_MAX)
    following = list(islice(_joined(timing, few), count))
    if next(few, None) is None and next(starts, None) is not None:
        following[-1] = replace(following[-1], to_ms=None)
    return following


def utc_ms(wall: datetime, zone: ZoneInfo) -> int:
    """Return when a wall clock in the zone shows the time: the first time, or the end of the gap that it lies in."""
    instant = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if instant.astimezone(zone).replace(tzinfo=None) == wall:
        return _ms(instant)
    low, high = wall.replace(tzinfo=zone, fold=1).astimezone(UTC), instant
    before = low.astimezone(zone).utcoffset()
    while high - low > timedelta(seconds=1):
        middle = low + (high - low) / 2
        low, high = (middle, high) if middle.astimezone(zone).utcoffset() == before else (low, middle)
    return _ms(high.replace(microsecond=0))


def _joined(timing: Recurring, starts: Iterable[int]) -> Iterator[Cover]:
    """Yield the windows that begin at these times; those that touch are one."""
    from_ms: int | None = None
    to_ms = 0
    for start_ms in starts:
        if from_ms is not None and start_ms > to_ms:
            yield Cover(from_ms, to_ms, timing.reason)
            from_ms = None
        from_ms = start_ms if from_ms is None else from_ms
        to_ms = max(to_ms, start_ms + timing.duration_ms)
    if from_ms is not None:
        yield Cover(from_ms, to_ms, timing.reason)


def _starts(timing: Recurring, from_ms: int, to_ms: int) -> Iterator[int]:
    for part in range((from_ms - _SHIFT_MAX_MS) // _PART_MS, (to_ms + _SHIFT_MAX_MS) // _PART_MS + 1):
        starts = _starts_of(timing.cron, timing.zone, part)
        first, last = np.searchsorted(starts, [from_ms, to_ms + 1])
        yield from starts[first:last].tolist()


@lru_cache(_PARTS_MAX)
def _starts_of(cron: str, zone_name: str, part: int) -> I64:
    """Return when windows begin in one part of the zone's wall clock."""
    zone = _zone(zone_name)
    first, until = (datetime(1970, 1, 1) + timedelta(milliseconds=each * _PART_MS) for each in (part, part + 1))  # noqa: DTZ001
    starts = list[int]()
    for wall in CronSim(cron, first - timedelta(minutes=1)):
        if wall >= until:
            break
        starts.append(utc_ms(wall, zone))
    return np.array(starts, np.int64)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise BadQuery(f"there is no time zone {name!r}; write one such as Europe/Berlin or UTC") from error


def _ms(instant: datetime) -> int:
    return round(instant.timestamp() * 1_000)
