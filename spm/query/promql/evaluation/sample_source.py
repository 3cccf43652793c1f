"""What one query reads from the storage: each stretch once, within the query's limits, and what it all rests on.

A `Reader` lives as long as one query and is shared by its subqueries. Limits are looked at where things grow: series
and samples when they are read, cells before they are computed, time whenever `tick` is called.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from spm.query.promql.evaluation import whole_hours
from spm.query.promql.kernels import windows
from spm.query.request.batches import HourBatch, Matcher, Segments, SeriesBatch, SketchBatch
from spm.query.request.budget import CELL_BYTES, SAMPLE_BYTES, Budget
from spm.query.request.provenance import Basis, joined
from spm.query.samples.sample_runs import Strips
from spm.query.storage import Storage

_CellsKey = tuple[tuple[Matcher, ...], bytes, tuple[str, ...]]


class Reader:
    """One query's way to the storage."""

    def __init__(self, storage: Storage, budget: Budget) -> None:
        self._storage, self.budget = storage, budget
        self.lookback_ms = budget.allowed.lookback_ms
        self.held = 0  # bytes of the vectors that are computed and still needed
        self._read: dict[tuple[tuple[Matcher, ...], int, int], Strips] = {}
        self._batches: dict[tuple[tuple[Matcher, ...], int, int], SeriesBatch] = {}
        self._bases: list[Basis] = []  # of what is read once only
        self._cells_read: dict[_CellsKey, HourBatch] = {}
        self._tried = False  # whether aggregates were read, of use or not

    def tick(self) -> None:
        """Raise `QueryTimeout` when the query's time is over."""
        self.budget.tick()

    @property
    def samples(self) -> int:
        """How many samples were read."""
        return sum(strips.samples for strips in self._read.values())

    @property
    def from_samples(self) -> bool:
        """Whether samples alone were read: no aggregates, none that are left out, none that have expired."""
        basis = self.basis()
        clean = not (basis.retractions or basis.purged or basis.raw_expired_ms or basis.hours_expired_ms)
        return clean and not self._cells_read and not self._bases and basis.asof_ms is None

    @property
    def tried_aggregates(self) -> bool:
        """Whether aggregates were read, if only to find that samples must tell: which do depends on all the steps."""
        return self._tried or bool(self._bases)

    def basis(self) -> Basis:
        """What everything that was read rests on."""
        samples = [batch.basis for batch in self._read.values()]
        return joined([*samples, *(batch.basis for batch in self._cells_read.values()), *self._bases])

    def notes(self) -> list[str]:
        """What all answers of the storage rest on."""
        return self._storage.notes()

    def select(self, matchers: tuple[Matcher, ...], start_ms: int, end_ms: int, *, steps: int) -> SeriesBatch:
        """Samples with start_ms < ts <= end_ms, to be looked at in so many steps."""
        key = (matchers, start_ms, end_ms)
        if key not in self._batches:
            self._batches[key] = self.strips(matchers, start_ms, end_ms, steps=steps).batch()
        return self._batches[key]

    def strips(self, matchers: tuple[Matcher, ...], start_ms: int, end_ms: int, *, steps: int) -> Strips:
        """The same, each where it lies."""
        key = (matchers, start_ms, end_ms)
        if key not in self._read:
            found = self._storage.select_strips(matchers, start_ms, end_ms, tick=self.tick)
            self._check(len(found.labels), found.samples, matchers, steps)
            self._read[key] = found
        return self._read[key]

    def forget(self, matchers: tuple[Matcher, ...], start_ms: int, end_ms: int) -> None:
        """Let go of samples that turned out to be of no use."""
        gone = self._read.pop((matchers, start_ms, end_ms), None)
        self._batches.pop((matchers, start_ms, end_ms), None)
        if gone is not None:
            self.budget.hold(-gone.samples * SAMPLE_BYTES)

    def select_cells(
        self, matchers: tuple[Matcher, ...], span: whole_hours.Span, columns: tuple[str, ...], *, steps: int
    ) -> HourBatch:
        """Aggregates of hours and days."""
        key, self._tried = _cells_key(matchers, span, columns), True
        if key not in self._cells_read:
            batch = self._storage.select_cells(matchers, span.borders, columns, tick=self.tick)
            self._check(len(batch.labels), batch.count.size, matchers, steps)
            self._cells_read[key] = batch
        return self._cells_read[key]

    def forget_cells(self, matchers: tuple[Matcher, ...], span: whole_hours.Span, columns: tuple[str, ...]) -> None:
        """Let go of aggregates that turned out to be of no use: the answer does not rest on them."""
        gone = self._cells_read.pop(_cells_key(matchers, span, columns), None)
        if gone is not None:
            self.budget.hold(-gone.count.size * SAMPLE_BYTES)

    def select_segments(
        self, matchers: tuple[Matcher, ...], cuts: Segments, columns: tuple[str, ...], *, steps: int
    ) -> HourBatch:
        """Aggregates of segments; who uses them says so by `rest_on`."""
        found = self._storage.select_segments(matchers, cuts, columns, tick=self.tick)
        self._check(len(found.labels), found.count.size, matchers, steps)
        return found

    def select_sketches(self, matchers: tuple[Matcher, ...], cuts: Segments, *, steps: int) -> SketchBatch:
        """Sketches of segments; who uses them says so by `rest_on`."""
        found = self._storage.select_sketches(matchers, cuts, tick=self.tick)
        self._check(len(found.labels), len(found.row), matchers, steps)
        return found

    def rest_on(self, basis: Basis) -> None:
        """The answer rests on this, too."""
        self._bases.append(basis)

    def hold(self, before: int, cells: int) -> None:
        """A node is done: its own cells are held from now on, those of its operands (since `before`) let go."""
        size = cells * CELL_BYTES
        self.budget.hold(size)
        self.budget.hold(before - self.held)
        self.held = before + size

    def keep(self, size: int) -> None:
        """So many bytes beside the vectors are held until the node that is being computed is done."""
        self.budget.keep(size)
        self.held += size

    def check_cells(self, series: int, steps: int, what: str) -> None:
        """Raise `QueryTooLarge` before more values are computed than may be."""
        self.budget.cells(series, steps, what)

    def _check(self, series: int, samples: int, matchers: Sequence[Matcher], steps: int) -> None:
        asked = "{" + ",".join(f"{matcher.name}{matcher.op}{matcher.value!r}" for matcher in matchers) + "}"
        self.budget.series(series, asked)
        self.budget.samples(samples)
        self.budget.cells(series, steps, asked)


def _cells_key(matchers: tuple[Matcher, ...], span: whole_hours.Span, columns: tuple[str, ...]) -> _CellsKey:
    return matchers, span.borders.tobytes(), columns


def packed(
    labels: Sequence[dict[str, str]],
    times: npt.NDArray[np.int64],
    values: npt.NDArray[np.float64],
    present: npt.NDArray[np.bool_],
) -> SeriesBatch:
    """A vector over steps as samples at these steps."""
    counts = np.concatenate(([0], np.cumsum(present.sum(axis=1), dtype=np.int64))).astype(np.int64)
    ts = np.broadcast_to(times, present.shape)[present]
    return SeriesBatch(labels, counts, windows.times(ts), windows.numbers(values[present]))
