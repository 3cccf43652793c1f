"""How far a run is, and what it did: the values that doors show and records keep.

A run counts units: their total is known when its plan is made, and every executor reports each one as it is finished.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from rollups.decide.outcome import Correction
from spm.clock import Clock


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is."""

    units: int
    units_total: int
    samples: int
    elapsed_s: float

    @property
    def samples_per_s(self) -> float:
        """Samples compacted per second so far."""
        return self.samples / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def eta_s(self) -> float | None:
        """Seconds to go, if the rest goes like the part done."""
        return self.elapsed_s * (self.units_total - self.units) / self.units if self.units else None


@dataclass(frozen=True, slots=True)
class DayReport:
    """What a run did to one (app, day)."""

    app: int
    day: int
    flipped: bool
    units: int
    samples: int
    size_bytes: int
    troubles: tuple[str, ...] = ()
    corrections: tuple[Correction, ...] = ()  # of hours that went in


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a run did."""

    run: int
    executor: str
    minor: bool
    days: tuple[DayReport, ...]
    months: int = 0  # (app, month)s whose days were flipped
    late: int = 0  # samples that came for hours whose raw is gone: counted, and that is all
    left: int = 0  # units that an upgrade did not come to: run it again

    @property
    def samples(self) -> int:
        """Samples in the generations that went in."""
        return sum(day.samples for day in self.days if day.flipped)

    @property
    def troubles(self) -> list[str]:
        """Everything that was given up, and why."""
        return [trouble for day in self.days for trouble in day.troubles]

    @property
    def corrections(self) -> list[Correction]:
        """Hours that people may have seen, and that are others now."""
        return [correction for day in self.days for correction in day.corrections]


class RequestMetrics:
    """Counts what tasks report and tells the watcher."""

    def __init__(self, clock: Clock, units_total: int, watch: Callable[[Progress], None]) -> None:
        self._clock, self._watch, self._start = clock, watch, clock.monotonic()
        self._seen = Progress(0, units_total, 0, 0.0)

    def add(self, units: int, samples: int) -> None:
        """Units and samples done since the last call."""
        seen, elapsed = self._seen, self._clock.monotonic() - self._start
        self._seen = replace(seen, units=seen.units + units, samples=seen.samples + samples, elapsed_s=elapsed)
        self._watch(self._seen)


def report_of(
    app: int,
    day: int,
    *,
    flipped: bool,
    done: Collection[tuple[int, int]],
    troubles: Collection[str],
    corrections: Collection[Correction] = (),
) -> DayReport:
    """The report of a day from (samples, bytes) of everything that was made for it."""
    samples, size = (sum(part[i] for part in done) for i in (0, 1))
    return DayReport(app, day, flipped, len(done), samples, size, tuple(troubles), tuple(corrections))
