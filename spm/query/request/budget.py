"""What one query may use, and what it has used: the one object that everything which works for a query looks at.

Limits are looked at where things grow: series and samples when they are read, cells before they are computed, bytes
for both, time and the one who asked whenever `tick` is called. Bytes are an estimate of what the query takes at once,
from the sizes of its columns and of what is made beside them; a test holds a process' growth against it. Enter by
`Budget`.
"""

from __future__ import annotations

from collections.abc import Callable

from spm import limits
from spm.clock import Clock
from spm.errors import QueryTimeout, QueryTooLarge
from spm.fast_dataclass import dataclass
from spm.query.request.lookback import LOOKBACK_MS

SAMPLE_BYTES = 16  # a time and a value
CELL_BYTES = 9  # a value, and whether it is there
AT_WORK = 3  # values being computed, and their operands lined up beside them, for each value that is computed
SERIES_BYTES = 600  # labels as a dict, of some six pairs

Watch = Callable[[], None]


def nobody() -> None:
    """The watch over a query that nobody can walk away from."""


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """What one query may use."""

    series: int = limits.QUERY_SERIES_MAX
    samples: int = limits.QUERY_SAMPLES_MAX
    cells: int = limits.QUERY_CELLS_MAX
    points: int = limits.QUERY_POINTS_MAX
    shown: int = limits.QUERY_SHOWN_MAX
    bytes: int = limits.QUERY_BYTES_MAX
    timeout_s: float = limits.QUERY_TIMEOUT_S
    lookback_ms: int = LOOKBACK_MS  # how far back an instant selector looks


@dataclass(slots=True)
class Usage:
    """What a query has used so far."""

    series: int = 0
    samples: int = 0
    cells: int = 0  # of its largest intermediate result
    bytes: int = 0  # held now
    bytes_peak: int = 0


class Budget:
    """One query's limits, with what it has used of them. Not thread-safe: a query has one thread."""

    def __init__(self, allowed: QueryLimits, clock: Clock, watch: Watch = nobody) -> None:
        self.allowed, self.usage = allowed, Usage()
        self._clock, self._watch = clock, watch
        self._begun = clock.monotonic()

    @property
    def elapsed_s(self) -> float:
        """How long the query has run."""
        return self._clock.monotonic() - self._begun

    def tick(self) -> None:
        """Raise `QueryTimeout` when the query's time is over, or what the watch raises."""
        if self.elapsed_s > self.allowed.timeout_s:
            raise QueryTimeout(
                f"query timed out after {self.allowed.timeout_s:g} s: ask for less time, fewer series or a longer step"
            )
        self._watch()

    def series(self, count: int, asked: str) -> None:
        """So many series are read; `asked` names the selector."""
        if count > self.allowed.series:
            raise QueryTooLarge(
                f"{asked} selects {count} series; at most {self.allowed.series} are read: narrow the selector"
            )
        self.usage.series += count
        self.keep(count * SERIES_BYTES)

    def samples(self, count: int) -> None:
        """So many samples are read."""
        self.usage.samples += count
        if self.usage.samples > self.allowed.samples:
            raise QueryTooLarge(f"more than {self.allowed.samples} samples to read: ask for less time or fewer series")
        self.keep(count * SAMPLE_BYTES)

    def cells(self, series: int, steps: int, what: str) -> None:
        """So many values are about to be computed."""
        count = series * steps
        if count > self.allowed.cells:
            raise QueryTooLarge(
                f"{what} has {series} series at {steps} steps; "
                f"at most {self.allowed.cells} values are computed: use a longer step or fewer series"
            )
        self.usage.cells = max(self.usage.cells, count)
        self._look_at(self.usage.bytes + count * CELL_BYTES * AT_WORK)

    def shown(self, points: int) -> None:
        """So many points are about to be answered with."""
        if points > self.allowed.shown:
            raise QueryTooLarge(
                f"the answer has {points} points; at most {self.allowed.shown} are sent: "
                "use a longer step, fewer series, or /api/v1/export"
            )

    def keep(self, size: int) -> None:
        """So many bytes more are held from now on, and nothing is made beside them."""
        self.usage.bytes += size
        self._look_at(self.usage.bytes)

    def hold(self, size: int) -> None:
        """So many bytes of values more are held from now on; with a negative number they are let go."""
        self._look_at(self.usage.bytes + max(size, 0) * AT_WORK)
        self.usage.bytes += size

    def _look_at(self, size: int) -> None:
        if size > self.allowed.bytes:
            raise QueryTooLarge(
                f"the query needs some {size // 1_000_000} MB; at most {self.allowed.bytes // 1_000_000} MB are given "
                "to one: ask for less time or fewer series"
            )
        self.usage.bytes_peak = max(self.usage.bytes_peak, size)
