"""Trims windows whose samples have expired in part: to whole hours, then to whole days.

Hours and days are stored for longer than samples. A window that begins or ends within one of them is trimmed to the
whole ones inside. It has an answer if nearly all of it remains, and none otherwise: the answer of a part must never be
taken for that of the window. Enter by ``trim``, or to read the trimmed windows as well by ``read_trimmed``.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, TypeVar

import numpy as np

from spm.arrays import BOOL, I64
from spm.fast_dataclass import dataclass
from spm.limits import DAY_HOURS, HOUR_MS
from spm.query.request.batches import Segments
from spm.query.request.provenance import Provenance

SHARE = 0.95  # of a window must remain for an answer
_DAY_MS = DAY_HOURS * HOUR_MS


class HasProvenance(Protocol):
    """The result of a read."""

    @property
    def provenance(self) -> Provenance:
        """What the result rests on."""


R = TypeVar("R", bound=HasProvenance)


@dataclass(frozen=True, slots=True)
class Expiry:
    """Up to when (ms) samples have expired, and up to when hours have as well; 0: none have."""

    samples_ms: int = 0
    hours_ms: int = 0
    samples_only: bool = False  # aggregates cannot answer

    @classmethod
    def of(cls, provenance: Provenance) -> "Expiry":
        """What has expired, by the provenance of a read."""
        hours_ms = -(-provenance.hours_expired_ms // _DAY_MS) * _DAY_MS
        return cls(max(provenance.raw_expired_ms, hours_ms), hours_ms, provenance.of_past)

    def __bool__(self) -> bool:
        return self.samples_ms > 0

    def join(self, other: "Expiry") -> "Expiry":
        """Whatever has expired by this one or the other."""
        return Expiry(
            max(self.samples_ms, other.samples_ms),
            max(self.hours_ms, other.hours_ms),
            self.samples_only or other.samples_only,
        )


@dataclass(frozen=True, slots=True)
class TrimmedWindows:
    """Windows first_ms[t] < ts <= last_ms[t], trimmed to what has not expired."""

    first_ms: I64
    last_ms: I64
    answered: BOOL  # nearly all of the window remains
    expiry: Expiry
    complete: bool  # no window was trimmed
    hours_complete: bool  # no window lacks hours

    def segments(self, cut_windows: Callable[[I64, I64], Segments]) -> Segments | None:
        """The segments of the windows that have an answer, by a function that cuts windows; other windows have none."""
        if not self.answered.any():
            return None
        segments = cut_windows(self.first_ms[self.answered], self.last_ms[self.answered])
        low, high = np.zeros(len(self.answered), np.int64), np.zeros(len(self.answered), np.int64)
        low[self.answered], high[self.answered] = segments.low, segments.high
        return Segments(segments.borders, low, high)

    def with_expiry(self, provenance: Provenance) -> Provenance:
        """The provenance of a read of these windows, with what they lack."""
        if self.complete:
            return provenance
        hours_expired_ms = 0 if self.hours_complete else self.expiry.hours_ms
        return replace(provenance, raw_expired_ms=self.expiry.samples_ms, hours_expired_ms=hours_expired_ms)


def trim(first_ms: I64, last_ms: I64, expiry: Expiry) -> TrimmedWindows:
    """Trim windows to what has not expired."""
    first, last = _within(first_ms, expiry, up=True), _within(last_ms, expiry, up=False)
    remaining = np.maximum(last - first, 0)
    trimmed = (first != first_ms) | (last != last_ms)
    answered = (remaining > 0) & (remaining >= SHARE * (last_ms - first_ms))
    hours_complete = not bool((trimmed & (first_ms < expiry.hours_ms)).any())
    return TrimmedWindows(first, last, answered, expiry, not bool(trimmed.any()), hours_complete)


def read_trimmed(
    first_ms: I64,
    last_ms: I64,
    expiry: Expiry,
    cut_windows: Callable[[I64, I64], Segments],
    read: Callable[[Segments], R],
    empty: R,
) -> tuple[TrimmedWindows, Segments, R]:
    """Trim windows, cut them into segments by ``cut_windows``, and read these.

    Where a read shows that more has expired it is repeated. ``empty`` is the result of a read without any window.
    """
    while True:
        windows = trim(first_ms, last_ms, expiry)
        segments = windows.segments(cut_windows)
        result = empty if segments is None else read(segments)
        more = Expiry.of(result.provenance)
        joined = expiry.join(more) if more else expiry
        if joined == expiry:
            return windows, segments or Segments.none(len(first_ms)), result
        expiry = joined


def _within(times: I64, expiry: Expiry, *, up: bool) -> I64:
    """Each time, or the nearest border of a stored hour or day there: the next one (``up``) or the one before."""
    if not expiry:
        return times
    if expiry.samples_only:
        return np.maximum(times, expiry.samples_ms)
    rounded = times.copy()
    for grain, before in ((HOUR_MS, expiry.samples_ms), (_DAY_MS, expiry.hours_ms)):
        border = -(-times // grain) * grain if up else times // grain * grain
        rounded = np.where(times < before, border, rounded)
    return rounded
