"""Reasons for the rejection of a time, with the unit that the sender likely meant.

A sender that writes seconds where milliseconds are expected is off by a factor of 1,000. At most one of the four units
makes the number a recent time; the reason names that unit. Pure. Enter by ``too_far_ahead`` and ``before_1970`` for a
time that a parser rejects, and by ``is_recent`` and ``describe_misread`` for one decades ago, which admission rejects.
"""

from collections.abc import Mapping

from spm.arrays import BOOL, I64

TIME_BEFORE_1970 = "the time is before 1970: is its precision right?"
TIME_TOO_FAR_AHEAD = "the time is more than 24 h ahead of the server: is its precision right?"
TOO_OLD = "the time is older than this app keeps anything"
_UNITS: Mapping[str, int] = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}  # length of each unit in ns
_NAMES: Mapping[str, str] = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_DAY_MS = 86_400_000
_YEAR_MS = 365 * _DAY_MS
MISREAD_MS = 20 * _YEAR_MS  # a time before 1990 has the wrong unit if another unit makes it a recent time


def too_far_ahead(ms: int, now_ms: int, unit: str = "ms") -> str:
    """Returns the reason for a time that is too far in the future. ``ms``: the time as read; ``unit``: as sent."""
    return _describe(TIME_TOO_FAR_AHEAD, ms, now_ms, unit)


def before_1970(ms: int, now_ms: int, unit: str = "ms") -> str:
    """Returns the reason for a time before 1970, with the arguments of ``too_far_ahead``."""
    return _describe(TIME_BEFORE_1970, ms, now_ms, unit)


def is_recent(ms: I64, now_ms: int, factor: int) -> BOOL:
    """Which of the times, multiplied by ``factor``, lie between ten years before and one day after now."""
    recent: BOOL = (ms >= (now_ms - 10 * _YEAR_MS) // factor) & (ms <= (now_ms + _DAY_MS) // factor)
    return recent


def describe_misread(meant: str, unit: str) -> str:
    """Returns the reason for a time decades ago that is recent in another unit."""
    return f"the time is decades ago: it looks like {_NAMES[meant]}, read as {_NAMES[unit]}"


def _describe(reason: str, ms: int, now_ms: int, unit: str) -> str:
    meant = _likely_unit(ms, now_ms, unit)
    return reason if meant is None else f"{reason} It looks like {_NAMES[meant]}, read as {_NAMES[unit]}"


def _likely_unit(ms: int, now_ms: int, unit: str) -> str | None:
    """Returns another unit in which the number lies between ten years before and one day after now, or ``None``."""
    for name, ns in _UNITS.items() if unit in _UNITS else ():
        if name != unit and now_ms - 10 * _YEAR_MS <= ms * ns // _UNITS[unit] <= now_ms + _DAY_MS:
            return name
    return None
