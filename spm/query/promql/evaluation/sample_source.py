"""Reads samples and aggregates for one query: each time range once, within the query's limits, with its provenance.

A `SampleSource` lives as long as one query and is shared by its subqueries. Limits are checked where things grow:
series and samples when they are read, cells before they are computed, time at every call of `check_deadline`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from spm.query.promql.evaluation import whole_hours
from spm.query.promql.kernels import windows
from spm.query.request.batches import HourBatch, Matcher, Segments, SeriesBatch, SketchBatch
from spm.query.request.budget import CELL_BYTES, SAMPLE_BYTES, Budget
from spm.query.request.provenance import Provenance, join_provenance
from spm.query.samples.sample_runs import SampleRuns
from spm.query.storage import Storage

_CellsKey = tuple[tuple[Matcher, ...], bytes, tuple[str, ...]]


class SampleSource:
    """Reads from the storage for one query."""

    def __init__(self, storage: Storage, budget: Budget) -> None:
        self._storage, self.budget = storage, budget
        self.lookback_ms = budget.limits.lookback_ms
        self.vector_bytes = 0  # of the vectors that are computed and still needed
        self._runs: dict[tuple[tuple[Matcher, ...], int, int], SampleRuns] = {}
        self._complete_runs: dict[tuple[tuple[Matcher, ...], int, int], SampleRuns] = {}  # with what is retracted
        self._batches: dict[tuple[tuple[Matcher, ...], int, int], SeriesBatch] = {}
        self._provenances: list[Provenance] = []  # of aggregates and sketches that are not stored here
        self._cells: dict[_CellsKey, HourBatch] = {}
        self._has_read_cells = False  # also true if the aggregates were of no use

    def check_deadline(self) -> None:
        """Raise `QueryTimeout` when the query's time is over."""
        self.budget.check_deadline()

    @property
    def samples(self) -> int:
        """The number of samples that were read."""
        return sum(runs.samples for runs in self._runs.values())

    @property
    def tried_aggregates(self) -> bool:
        """Whether aggregates were read, even if samples answered in the end: which of them do depends on all steps."""
        return self._has_read_cells or bool(self._provenances)

    def provenance(self) -> Provenance:
        """Returns the joined provenance of everything that was read."""
        samples = [runs.provenance for runs in self._runs.values()]
        return join_provenance([*samples, *(cells.provenance for cells in self._cells.values()), *self._provenances])

    def rests_on_samples(self, provenance: Provenance) -> bool:
        """Whether an answer with this provenance read only samples, as of now, none retracted, erased or expired."""
        retracted = provenance.retractions or provenance.erased_retractions
        expired = provenance.raw_expired_ms or provenance.hours_expired_ms
        only_samples = not self._cells and not self._provenances
        return only_samples and not retracted and not expired and provenance.asof_ms is None

    def select(self, matchers: tuple[Matcher, ...], start_ms: int, end_ms: int, *, steps: int) -> SeriesBatch:
        """Reads the samples with start_ms < ts <= end_ms, for a result with this number of steps."""
        key = (matchers, start_ms, end_ms)
        if key not in self._batches:
            runs = self.select_runs(matchers, start_ms, end_ms, steps=steps)
            self.budget.charge_bytes(runs.packed_samples * SAMPLE_BYTES)  # they are not packed in a batch
            self._batches[key] = runs.batch()
        return self._batches[key]

    def select_runs(self, matchers: tuple[Matcher, ...], start_ms: int, end_ms: int, *, steps: int) -> SampleRuns:
        """Reads the samples with start_ms < ts <= end_ms as runs that point to them, without a copy."""
        key = (matchers, start_ms, end_ms)
        if key not in self._runs:
            runs = self._storage.select_runs(matchers, start_ms, end_ms, check_deadline=self.check_deadline)
            self._check(len(runs.labels), runs.samples, matchers, steps, size=runs.nbytes)
            self._runs[key] = runs
        return self._runs[key]

    def select_complete_runs(
        self, matchers: tuple[Matcher, ...], start_ms: int, end_ms: int, *, steps: int
    ) -> SampleRuns:
        """Reads what `select_runs` reads, and what is retracted of it; an answer's provenance does not count it."""
        key = (matchers, start_ms, end_ms)
        if key not in self._complete_runs:
            storage = self._storage.with_retracted()
            runs = storage.select_runs(matchers, start_ms, end_ms, check_deadline=self.check_deadline)
            self._check(len(runs.labels), runs.samples, matchers, steps, size=runs.nbytes)
            self._complete_runs[key] = runs
        return self._complete_runs[key]

    def forget(self, matchers: tuple[Matcher, ...], start_ms: int, end_ms: int) -> None:
        """Drops samples that turned out to be of no use."""
        runs = self._runs.pop((matchers, start_ms, end_ms), None)
        self._batches.pop((matchers, start_ms, end_ms), None)
        if runs is not None:
            self.budget.charge_values(-runs.nbytes)

    def select_cells(
        self, matchers: tuple[Matcher, ...], cells: whole_hours.HourCells, columns: tuple[str, ...], *, steps: int
    ) -> HourBatch:
        """Reads aggregates of hours and days."""
        key, self._has_read_cells = _cells_key(matchers, cells, columns), True
        if key not in self._cells:
            batch = self._storage.select_cells(matchers, cells.borders, columns, check_deadline=self.check_deadline)
            self._check(len(batch.labels), batch.count.size, matchers, steps)
            self._cells[key] = batch
        return self._cells[key]

    def forget_cells(
        self, matchers: tuple[Matcher, ...], cells: whole_hours.HourCells, columns: tuple[str, ...]
    ) -> None:
        """Drops aggregates that turned out to be of no use, together with their provenance."""
        batch = self._cells.pop(_cells_key(matchers, cells, columns), None)
        if batch is not None:
            self.budget.charge_values(-batch.count.size * SAMPLE_BYTES)

    def select_segments(
        self, matchers: tuple[Matcher, ...], segments: Segments, columns: tuple[str, ...], *, steps: int
    ) -> HourBatch:
        """Reads aggregates of segments; the caller that uses them adds their provenance by `add_provenance`."""
        batch = self._storage.select_segments(matchers, segments, columns, check_deadline=self.check_deadline)
        self._check(len(batch.labels), batch.count.size, matchers, steps)
        return batch

    def select_sketches(self, matchers: tuple[Matcher, ...], segments: Segments, *, steps: int) -> SketchBatch:
        """Reads sketches of segments; the caller that uses them adds their provenance by `add_provenance`."""
        batch = self._storage.select_sketches(matchers, segments, check_deadline=self.check_deadline)
        self._check(len(batch.labels), len(batch.row), matchers, steps)
        return batch

    def add_provenance(self, provenance: Provenance) -> None:
        """Adds the provenance of something that the answer uses."""
        self._provenances.append(provenance)

    def charge_node(self, before: int, cells: int) -> None:
        """Charges the cells of a computed node, and releases those of its operands (charged since `before`)."""
        size = cells * CELL_BYTES
        self.budget.charge_values(size)
        self.budget.charge_values(before - self.vector_bytes)
        self.vector_bytes = before + size

    def charge(self, size: int) -> None:
        """Charges bytes beside the vectors, until the node that needs them is computed."""
        self.budget.charge_bytes(size)
        self.vector_bytes += size

    def check_cells(self, series: int, steps: int, what: str) -> None:
        """Raises `QueryTooLarge` if a result would have more values than the limit."""
        self.budget.check_cells(series, steps, what)

    def _check(
        self, series: int, samples: int, matchers: Sequence[Matcher], steps: int, *, size: int | None = None
    ) -> None:
        """Charge what was read: so many series and samples, with the bytes of the samples where they are known."""
        selector = "{" + ",".join(f"{matcher.name}{matcher.op}{matcher.value!r}" for matcher in matchers) + "}"
        self.budget.charge_series(series, selector)
        self.budget.charge_samples(samples, size)
        self.budget.check_cells(series, steps, selector)


def _cells_key(matchers: tuple[Matcher, ...], cells: whole_hours.HourCells, columns: tuple[str, ...]) -> _CellsKey:
    return matchers, cells.borders.tobytes(), columns


def samples_of(
    labels: Sequence[dict[str, str]],
    times: npt.NDArray[np.int64],
    values: npt.NDArray[np.float64],
    present: npt.NDArray[np.bool_],
) -> SeriesBatch:
    """Turns the elements of a vector into samples at its steps."""
    counts = np.concatenate(([0], np.cumsum(present.sum(axis=1), dtype=np.int64))).astype(np.int64)
    ts = np.broadcast_to(times, present.shape)[present]
    return SeriesBatch(labels, counts, windows.times(ts), windows.numbers(values[present]))
