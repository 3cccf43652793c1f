"""What a query asks of the storage, and the shapes it gets back.

A `Storage` answers for one app: samples of series that match, hourly aggregates of the same, and the names that exist.
The evaluator sees nothing else of the store, so that any `Storage` (tables on disk, arrays in memory) gives the same
answers. All intervals are left-open, as PromQL's are: a sample at `start_ms` is outside, one at `end_ms` inside.
Enter by `Storage`; `Matcher` is a question, `SeriesBatch` and `HourBatch` are answers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from spm.query.request.provenance import Basis
from spm.store.matchers import METRIC_NAME, Matcher
from spm.store.rollup.aggregates import COLUMNS
from spm.store.rollup.sketch import Sketches

if TYPE_CHECKING:
    from spm.query.samples.sample_runs import Strips

__all__ = [
    "METRIC_NAME",
    "HourBatch",
    "Matcher",
    "Segments",
    "SeriesBatch",
    "SketchBatch",
    "Storage",
    "Tick",
    "nothing",
]

Tick = Callable[[], None]  # called between the parts of a read; raises when the query has run out of time


def nothing() -> None:
    """The tick of a read without a time limit."""


I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SeriesBatch:
    """Samples by series: those of series i are `ts[offsets[i]:offsets[i + 1]]`, ascending, one value for each time.

    Winners only (DESIGN rule 2). Stale markers are included: they end a series for the evaluator. A series without any
    sample in the interval may be left out.
    """

    labels: Sequence[dict[str, str]]  # with `__name__`
    offsets: I64  # [S + 1]
    ts: I64
    values: F64
    basis: Basis = field(default_factory=Basis)


@dataclass(frozen=True, slots=True)
class HourBatch:
    """Aggregates by series and cell, [S, H]; a count of 0 is a cell without data, its floats NaN, its times 0.

    A cell is a slot or a whole UTC day. Stale markers are left out. `increase` is within the cell alone; what was
    gained between two cells is the reader's to add. A column that nobody asked for is empty.
    """

    labels: Sequence[dict[str, str]]
    slots: I64  # [H], the first slot of each cell
    count: I64
    sum: F64
    sumsq: F64
    min: F64
    max: F64
    first: F64
    first_ts: I64
    last: F64
    last_ts: I64
    increase: F64
    basis: Basis = field(default_factory=Basis)

    @classmethod
    def empty(cls) -> HourBatch:
        """No series at all."""
        none: dict[str, Any] = {name: np.empty((0, 0), kind) for name, kind in COLUMNS}
        return cls([], np.empty(0, np.int64), **none)


@dataclass(frozen=True, slots=True)
class Segments:
    """Stretches borders[i] < ts <= borders[i + 1] (ms), and those low[t]:high[t] of each window."""

    borders: I64
    low: I64
    high: I64

    @classmethod
    def none(cls, windows: int) -> Segments:
        """So many windows without any."""
        return cls(np.zeros(1, np.int64), np.zeros(windows, np.int64), np.zeros(windows, np.int64))

    @property
    def needed(self) -> npt.NDArray[np.bool_]:
        """bool[K]: the segments that lie in any window."""
        depth = np.zeros(len(self.borders), np.int64)
        np.add.at(depth, self.low, 1)
        np.add.at(depth, self.high, -1)
        inside: npt.NDArray[np.bool_] = np.cumsum(depth)[:-1] > 0
        return inside


@dataclass(frozen=True, slots=True)
class SketchBatch:
    """Sketches by series and segment, in any order; a series has several in a segment that was read in parts."""

    labels: Sequence[dict[str, str]]
    row: I64  # [N], which of the labels
    segment: I64  # [N]
    sketches: Sketches
    basis: Basis = field(default_factory=Basis)

    @classmethod
    def empty(cls) -> SketchBatch:
        """No series at all."""
        none = np.empty(0, np.int64)
        return cls([], none, none, Sketches.empty())


class Storage(Protocol):
    """The data of one app, for reading."""

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int, *, tick: Tick = ...) -> SeriesBatch:
        """Samples with start_ms < ts <= end_ms of the series that satisfy all matchers."""

    def select_strips(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int, *, tick: Tick = ...) -> Strips:
        """The same, each where it lies."""

    def select_cells(
        self, matchers: Sequence[Matcher], borders: I64, names: Collection[str], *, tick: Tick = ...
    ) -> HourBatch:
        """The count and the named aggregates of cells, equal to what the samples give.

        Cell i has the slots borders[i]:borders[i + 1]: one, or the 24 of a UTC day.
        """

    def select_segments(
        self, matchers: Sequence[Matcher], cuts: Segments, names: Collection[str], *, tick: Tick = ...
    ) -> HourBatch:
        """The same of segments, of which a cell is one; those that no window needs may be empty."""

    def select_sketches(self, matchers: Sequence[Matcher], cuts: Segments, *, tick: Tick = ...) -> SketchBatch:
        """Sketches of the samples of each series within each segment that any window needs."""

    def series(
        self, matcher_sets: Sequence[Sequence[Matcher]], start_ms: int, end_ms: int, *, most: int | None = None
    ) -> list[dict[str, str]]:
        """Labels of the series that satisfy any of the sets (no set: all series) and have samples in the interval.

        With ``most`` only so many of them.
        """

    def label_names(self, matcher_sets: Sequence[Sequence[Matcher]], start_ms: int, end_ms: int) -> list[str]:
        """Sorted names of the labels of those series."""

    def label_values(
        self, name: str, matcher_sets: Sequence[Sequence[Matcher]], start_ms: int, end_ms: int
    ) -> list[str]:
        """Sorted values of one label of those series."""

    def notes(self) -> list[str]:
        """What all answers rest on: blocks quarantined, age of the tail."""
