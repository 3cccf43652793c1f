"""Calendar functions over columns of Unix seconds, in UTC: hour, day, month, year.

Fractions of a second are truncated towards zero, as in Go. A number that is not a time (NaN, infinities, beyond some
ten thousand years) gives NaN.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from spm.arrays import F64

Moments = npt.NDArray[np.datetime64]

_SECONDS_MAX = 4e11


def _number(days: npt.NDArray[np.generic]) -> npt.NDArray[np.int64]:
    return days.astype(np.int64)


def _days(moments: Moments) -> npt.NDArray[np.int64]:
    return _number(moments.astype("datetime64[D]"))


def _day_of_month(moments: Moments) -> npt.NDArray[np.int64]:
    return _number(moments.astype("datetime64[D]") - moments.astype("datetime64[M]").astype("datetime64[D]")) + 1


def _day_of_year(moments: Moments) -> npt.NDArray[np.int64]:
    return _number(moments.astype("datetime64[D]") - moments.astype("datetime64[Y]").astype("datetime64[D]")) + 1


def _days_in_month(moments: Moments) -> npt.NDArray[np.int64]:
    month = moments.astype("datetime64[M]")
    return _number((month + 1).astype("datetime64[D]") - month.astype("datetime64[D]"))


_PARTS: dict[str, Callable[[Moments], npt.NDArray[np.int64]]] = {
    "minute": lambda moments: _number(moments) // 60 % 60,
    "hour": lambda moments: _number(moments) // 3600 % 24,
    "day_of_week": lambda moments: (_days(moments) + 4) % 7,
    "day_of_month": _day_of_month,
    "day_of_year": _day_of_year,
    "days_in_month": _days_in_month,
    "month": lambda moments: _number(moments.astype("datetime64[M]")) % 12 + 1,
    "year": lambda moments: _number(moments.astype("datetime64[Y]")) + 1970,
}


def calendar(part: str) -> Callable[[F64], F64]:
    """Return the function that computes this part of the date of each time."""

    def part_of(values: F64) -> F64:
        is_time = np.abs(values) < _SECONDS_MAX
        moments = np.where(is_time, values, 0.0).astype(np.int64).astype("datetime64[s]")
        return np.where(is_time, _PARTS[part](moments).astype(np.float64), np.nan)

    return part_of


CALENDAR = {part: calendar(part) for part in _PARTS}
