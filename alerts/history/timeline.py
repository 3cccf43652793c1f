"""Places what lasted or happened in a range of time on a line of ``WIDTH`` units, for a picture of it. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

WIDTH = 1_000
_SEEN = 4.0  # units: what is shorter is drawn so wide that people see it


@dataclass(frozen=True, slots=True)
class Bar:
    """What lasted: its left edge, its width, and its class of style."""

    left: float
    width: float
    style: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """A range of time as a line."""

    from_ms: int
    to_ms: int

    def place(self, at_ms: int) -> float:
        """Return where a time lies; one outside the range lies at its edge."""
        share = (at_ms - self.from_ms) / max(self.to_ms - self.from_ms, 1)
        return round(WIDTH * min(max(share, 0.0), 1.0), 1)

    def bar(self, start_ms: int, end_ms: int | None, style: str) -> Bar:
        """Return the bar of what began and ended then; without an end, it goes on."""
        left, right = self.place(start_ms), self.place(self.to_ms if end_ms is None else end_ms)
        width = max(right - left, _SEEN)
        return Bar(min(left, WIDTH - width), round(width, 1), style)

    def marks(self, times_ms: Iterable[int]) -> list[float]:
        """Return where these times lie, of those within the range."""
        return [self.place(at_ms) for at_ms in times_ms if self.from_ms <= at_ms < self.to_ms]

    @property
    def ticks_ms(self) -> Sequence[int]:
        """Five times from the beginning to the end."""
        return [self.from_ms + (self.to_ms - self.from_ms) * part // 4 for part in range(5)]
