"""The progress and the report of a run, which pages and commands show and database records keep.

A run counts hour shards: their total is known when its plan is made, and an executor reports each when it is finished.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from rollups.decide.day_result import HourCorrection
from spm.clock import Clock


@dataclass(frozen=True, slots=True)
class Progress:
    """How much of its work a run has done."""

    hour_shards: int
    hour_shards_total: int
    samples: int
    elapsed_s: float

    @property
    def samples_per_s(self) -> float:
        """Samples compacted per second so far."""
        return self.samples / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def eta_s(self) -> float | None:
        """The remaining seconds at the present speed."""
        return (
            self.elapsed_s * (self.hour_shards_total - self.hour_shards) / self.hour_shards
            if self.hour_shards
            else None
        )


@dataclass(frozen=True, slots=True)
class DayReport:
    """What a run did to one (app, day)."""

    app: int
    day: int
    published: bool
    hour_shards: int
    samples: int
    size_bytes: int
    errors: tuple[str, ...] = ()
    corrections: tuple[HourCorrection, ...] = ()  # of published hours


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a run did."""

    run: int
    executor: str
    minor: bool
    days: tuple[DayReport, ...]
    months: int = 0  # (app, month)s whose days were published
    late: int = 0  # samples of hours whose raw samples are deleted: they are only counted
    remaining: int = 0  # hour shards that an upgrade did not reach: run it again
    app_errors: Mapping[int, str] = field(default_factory=dict)  # why an app was left out; the others were done

    @property
    def samples(self) -> int:
        """Samples in the generations that went in."""
        return sum(day.samples for day in self.days if day.published)

    @property
    def errors(self) -> list[str]:
        """Why apps were left out, and tasks given up."""
        left_out = [f"app {app}: {error}" for app, error in self.app_errors.items()]
        return left_out + [error for day in self.days for error in day.errors]

    @property
    def corrections(self) -> list[HourCorrection]:
        """Hours whose aggregates changed after people may have seen them."""
        return [correction for day in self.days for correction in day.corrections]


class ProgressCounter:
    """Adds up what tasks report and calls ``watch`` with the sum."""

    def __init__(self, clock: Clock, hour_shards_total: int, watch: Callable[[Progress], None]) -> None:
        self._clock, self._watch, self._start = clock, watch, clock.monotonic()
        self._sum = Progress(0, hour_shards_total, 0, 0.0)

    def add(self, hour_shards: int, samples: int) -> None:
        """Adds the hour shards and samples done since the last call."""
        self._sum = replace(
            self._sum,
            hour_shards=self._sum.hour_shards + hour_shards,
            samples=self._sum.samples + samples,
            elapsed_s=self._clock.monotonic() - self._start,
        )
        self._watch(self._sum)


def summarise_day(
    app: int,
    day: int,
    *,
    published: bool,
    sizes: Collection[tuple[int, int]],
    errors: Collection[str],
    corrections: Collection[HourCorrection] = (),
) -> DayReport:
    """Builds the report of a day from the (samples, bytes) of each result."""
    samples, size = (sum(part[i] for part in sizes) for i in (0, 1))
    return DayReport(app, day, published, len(sizes), samples, size, tuple(errors), tuple(corrections))
