"""What is left of windows whose samples have expired in part: whole hours of them, then whole days.

Hours and days are stored for longer than samples. A window that begins or ends within one of them is cut to the whole
ones inside: what it lacks is gone. It has an answer if nearly all of it is left, and none otherwise: a part of a window
must never pass for the whole. Enter by ``left``; ``read_left`` reads what is left, too.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, TypeVar

import numpy as np

from spm.arrays import BOOL, I64
from spm.fast_dataclass import dataclass
from spm.limits import DAY_HOURS, HOUR_MS
from spm.query.request.batches import Segments
from spm.query.request.provenance import Basis

SHARE = 0.95  # of a window must be left for an answer
_DAY_MS = DAY_HOURS * HOUR_MS


class HasBasis(Protocol):
    """Whatever a read gives."""

    @property
    def basis(self) -> Basis:
        """What it rests on."""


B = TypeVar("B", bound=HasBasis)


@dataclass(frozen=True, slots=True)
class Gone:
    """Up to when (ms) there are no samples, and up to when no hours either; 0: all are there."""

    samples_ms: int = 0
    hours_ms: int = 0
    bare: bool = False  # nothing but samples can answer

    @classmethod
    def of(cls, basis: Basis) -> "Gone":
        """What a read has found to be gone."""
        hours_ms = -(-basis.hours_expired_ms // _DAY_MS) * _DAY_MS
        return cls(max(basis.raw_expired_ms, hours_ms), hours_ms, basis.asof_ms is not None)

    def __bool__(self) -> bool:
        return self.samples_ms > 0

    def joined(self, other: "Gone") -> "Gone":
        """What both know."""
        return Gone(max(self.samples_ms, other.samples_ms), max(self.hours_ms, other.hours_ms), self.bare or other.bare)


@dataclass(frozen=True, slots=True)
class Left:
    """Windows first_ms[t] < ts <= last_ms[t] as far as they are left."""

    first_ms: I64
    last_ms: I64
    answered: BOOL  # nearly all is left
    gone: Gone
    whole: bool  # of every window all is left
    of_hours: bool  # nothing that is missing is missing of hours

    def segments(self, cut: Callable[[I64, I64], Segments]) -> Segments | None:
        """The segments of the windows that have an answer, by a rule for cutting windows; no other has any."""
        if not self.answered.any():
            return None
        cuts = cut(self.first_ms[self.answered], self.last_ms[self.answered])
        low, high = np.zeros(len(self.answered), np.int64), np.zeros(len(self.answered), np.int64)
        low[self.answered], high[self.answered] = cuts.low, cuts.high
        return Segments(cuts.borders, low, high)

    def told(self, basis: Basis) -> Basis:
        """The basis of what was read, and what is missing in it."""
        if self.whole:
            return basis
        return replace(
            basis, raw_expired_ms=self.gone.samples_ms, hours_expired_ms=0 if self.of_hours else self.gone.hours_ms
        )


def left(first_ms: I64, last_ms: I64, gone: Gone) -> Left:
    """What is left of windows."""
    first, last = _within(first_ms, gone, up=True), _within(last_ms, gone, up=False)
    there = np.maximum(last - first, 0)
    cut = (first != first_ms) | (last != last_ms)
    answered = (there > 0) & (there >= SHARE * (last_ms - first_ms))
    of_hours = not bool((cut & (first_ms < gone.hours_ms)).any())
    return Left(first, last, answered, gone, not bool(cut.any()), of_hours)


def read_left(
    first_ms: I64, last_ms: I64, gone: Gone, cut: Callable[[I64, I64], Segments], read: Callable[[Segments], B], none: B
) -> tuple[Left, Segments, B]:
    """Windows as far as they are left, their segments by a rule for cutting, and what a read of these gives.

    Where a read finds out that more is gone it is asked again. ``none`` is what it gives of no window at all.
    """
    while True:
        windows = left(first_ms, last_ms, gone)
        cuts = windows.segments(cut)
        found = none if cuts is None else read(cuts)
        more = Gone.of(found.basis)
        known = gone.joined(more) if more else gone
        if known == gone:
            return windows, cuts or Segments.none(len(first_ms)), found
        gone = known


def _within(times: I64, gone: Gone, *, up: bool) -> I64:
    """Each time, or the border nearest to it of what is stored there: the next one, or the one before."""
    if not gone:
        return times
    if gone.bare:
        return np.maximum(times, gone.samples_ms)
    coarse = times.copy()
    for grain, before in ((HOUR_MS, gone.samples_ms), (_DAY_MS, gone.hours_ms)):
        rounded = -(-times // grain) * grain if up else times // grain * grain
        coarse = np.where(times < before, rounded, coarse)
    return coarse
