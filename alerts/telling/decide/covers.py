"""Stretches of time in which an episode must not be told first: silences, maintenance windows, inhibitors.

All are one value, a ``Cover``, so that the decision about an episode need not know where each came from.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from alerts.telling.decide.matchers import Matchers


@dataclass(frozen=True, slots=True)
class Cover:
    """A stretch [from_ms, to_ms) with its reason; ``to_ms`` is None while its end is not known.

    ``episode`` is the one that inhibits, where one does.
    """

    from_ms: int
    to_ms: int | None
    reason: str
    episode: int | None = field(default=None, compare=False)

    def holds(self, at_ms: int) -> bool:
        """Whether the stretch contains the time."""
        return self.from_ms <= at_ms and (self.to_ms is None or at_ms < self.to_ms)


@dataclass(frozen=True, slots=True)
class Silence:
    """Keeps alerts that match from being told during [from_ms, to_ms)."""

    id: int
    matchers: Matchers
    from_ms: int
    to_ms: int

    @property
    def cover(self) -> Cover:
        """The stretch of time of the silence."""
        return Cover(self.from_ms, self.to_ms, f"silenced by #{self.id}")


def is_exposed(covers: Iterable[Cover], *, start_ms: int, end_ms: int, period_ms: int) -> bool:
    """Whether a step of the grid in [start_ms, end_ms) lies outside all covers. The first step is ``start_ms``."""
    step_ms = start_ms
    for cover in sorted(covers, key=lambda each: each.from_ms):
        if step_ms < cover.from_ms or step_ms >= end_ms:
            break
        if cover.to_ms is None:
            return False
        if cover.to_ms > step_ms:
            step_ms += -(-(cover.to_ms - step_ms) // period_ms) * period_ms
    return step_ms < end_ms


def cover_at(covers: Sequence[Cover], at_ms: int) -> Cover | None:
    """Return the cover that holds at a time and ends last, or None."""
    at_time = [cover for cover in covers if cover.holds(at_ms)]
    return max(at_time, key=lambda cover: float("inf") if cover.to_ms is None else cover.to_ms, default=None)
