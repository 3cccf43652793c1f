"""Why a time cannot be: the words, and the unit it was likely meant in.

A sender that writes seconds where milliseconds are read is off by a thousand; of the four units there is at most one
that brings the number near now, and whoever reads the rejection wants to be told which. Pure; enter by ``late`` and
``early``, which word a time that was found to be out of range.
"""

from collections.abc import Mapping

from spm.arrays import BOOL, I64

TIME_EARLY = "the time is before 1970: is its precision right?"
TIME_LATE = "the time is more than 24 h ahead of the server: is its precision right?"
TOO_OLD = "the time is older than this app keeps anything"
_UNITS: Mapping[str, int] = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}  # each in ns
_NAMES: Mapping[str, str] = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_DAY_MS = 86_400_000
_YEAR_MS = 365 * _DAY_MS
MISREAD_MS = 20 * _YEAR_MS  # a time before 1990 may be one in the wrong unit: it is, if another brings it near now


def late(ms: int, now_ms: int, unit: str = "ms") -> str:
    """Why a time (as it was read, in ms; sent in ``unit``) is too far ahead."""
    return _worded(TIME_LATE, ms, now_ms, unit)


def early(ms: int, now_ms: int, unit: str = "ms") -> str:
    """Why a time is before all others."""
    return _worded(TIME_EARLY, ms, now_ms, unit)


def is_recent(ms: I64, now_ms: int, factor: int) -> BOOL:
    """Which times, so many times larger, lie within the ten years before now or the day after it."""
    recent: BOOL = (ms >= (now_ms - 10 * _YEAR_MS) // factor) & (ms <= (now_ms + _DAY_MS) // factor)
    return recent


def worded_misread(meant: str, unit: str) -> str:
    """Why a time decades ago is refused that another unit brings near now."""
    return f"the time is decades ago: it looks like {_NAMES[meant]}, read as {_NAMES[unit]}"


def _worded(reason: str, ms: int, now_ms: int, unit: str) -> str:
    meant = _meant(ms, now_ms, unit)
    return reason if meant is None else f"{reason} It looks like {_NAMES[meant]}, read as {_NAMES[unit]}"


def _meant(ms: int, now_ms: int, unit: str) -> str | None:
    """Another unit in which the number lies within the ten years before now, or a day after it."""
    for name, ns in _UNITS.items() if unit in _UNITS else ():
        if name != unit and now_ms - 10 * _YEAR_MS <= ms * ns // _UNITS[unit] <= now_ms + _DAY_MS:
            return name
    return None
