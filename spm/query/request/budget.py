"""What one query may use, and what it has used: one object for all parts that work on the query.

Limits are checked where things grow: series and samples when they are read, cells before they are computed, bytes for
both, the deadline and the client whenever `check_deadline` is called. Bytes are an estimate of what the query holds at
once, from the sizes of its columns and of the arrays computed beside them; a test compares a process' growth with it.
Enter by `Budget`.
"""

from __future__ import annotations

from collections.abc import Callable

from spm import limits
from spm.clock import Clock
from spm.errors import QueryTimeout, QueryTooLarge
from spm.fast_dataclass import dataclass
from spm.query.request.lookback import LOOKBACK_MS

SAMPLE_BYTES = 16  # a time and a value
CELL_BYTES = 9  # a value, and whether it is present
WORKING_COPIES = 3  # for each value: the one being computed, and two operands beside it
SERIES_BYTES = 600  # labels as a dict, of some six pairs

Cancellation = Callable[[], None]  # raises when the client has gone


def never_cancelled() -> None:
    """The cancellation of a query whose client cannot go away."""


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
    bytes: int = 0  # at present
    bytes_peak: int = 0


class Budget:
    """One query's limits, and what it has used of them. Not thread-safe: a query has one thread.

    ``started_s``: when its request arrived, by the clock's monotonic time, if it has waited since.
    """

    def __init__(
        self,
        query_limits: QueryLimits,
        clock: Clock,
        cancellation: Cancellation = never_cancelled,
        *,
        started_s: float | None = None,
    ) -> None:
        self.limits, self.usage = query_limits, Usage()
        self._clock, self._cancellation = clock, cancellation
        self._started_s = clock.monotonic() if started_s is None else started_s

    @property
    def elapsed_s(self) -> float:
        """How long the query has run."""
        return self._clock.monotonic() - self._started_s

    def check_deadline(self) -> None:
        """Raise `QueryTimeout` after the query's deadline, or what its cancellation raises."""
        if self.elapsed_s > self.limits.timeout_s:
            raise QueryTimeout(
                f"query timed out after {self.limits.timeout_s:g} s: ask for less time, fewer series or a longer step"
            )
        self._cancellation()

    def charge_series(self, count: int, selector: str) -> None:
        """Charge series that are read; ``selector`` names the selector in an error."""
        if count > self.limits.series:
            raise QueryTooLarge(
                f"{selector} selects {count} series; at most {self.limits.series} are read: narrow the selector"
            )
        self.usage.series += count
        self.charge_bytes(count * SERIES_BYTES)

    def charge_samples(self, count: int, size: int | None = None) -> None:
        """Charge samples that are read, and the bytes that are held of them: all of them, if ``size`` is not given."""
        self.usage.samples += count
        if self.usage.samples > self.limits.samples:
            raise QueryTooLarge(f"more than {self.limits.samples} samples to read: ask for less time or fewer series")
        self.charge_bytes(count * SAMPLE_BYTES if size is None else size)

    def check_cells(self, series: int, steps: int, what: str) -> None:
        """Check the number of values that are about to be computed; ``what`` names the expression in an error."""
        count = series * steps
        if count > self.limits.cells:
            raise QueryTooLarge(
                f"{what} has {series} series at {steps} steps; "
                f"at most {self.limits.cells} values are computed: use a longer step or fewer series"
            )
        self.usage.cells = max(self.usage.cells, count)
        self._check_bytes(self.usage.bytes + count * CELL_BYTES * WORKING_COPIES)

    def check_points(self, points: int) -> None:
        """Check the number of points of the answer before it is written."""
        if points > self.limits.shown:
            raise QueryTooLarge(
                f"the answer has {points} points; at most {self.limits.shown} are sent: "
                "use a longer step, fewer series, or /api/v1/export"
            )

    def charge_bytes(self, size: int) -> None:
        """Charge bytes that are held from now on, of which no working copies are made."""
        self.usage.bytes += size
        self._check_bytes(self.usage.bytes)

    def charge_values(self, size: int) -> None:
        """Charge bytes of values that are held from now on, and check that working copies fit; release if negative."""
        self._check_bytes(self.usage.bytes + max(size, 0) * WORKING_COPIES)
        self.usage.bytes += size

    def _check_bytes(self, size: int) -> None:
        if size > self.limits.bytes:
            raise QueryTooLarge(
                f"the query needs some {size // 1_000_000} MB; one query gets at most "
                f"{self.limits.bytes // 1_000_000} MB: ask for less time or fewer series"
            )
        self.usage.bytes_peak = max(self.usage.bytes_peak, size)
