"""The batches that a query gets from the storage, and the arguments of its requests.

All intervals are left-open, as PromQL's are: a sample at `start_ms` is outside, one at `end_ms` inside. `Matcher`,
`Segments` and `DeadlineCheck` are parts of a request; `SeriesBatch`, `HourBatch` and `SketchBatch` are answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from spm.arrays import F64, I64
from spm.query.request.provenance import Provenance
from spm.store.matchers import METRIC_NAME, Matcher
from spm.store.rollup.aggregates import COLUMNS
from spm.store.rollup.sketch import Sketches

__all__ = [
    "METRIC_NAME",
    "DeadlineCheck",
    "HourBatch",
    "Matcher",
    "Segments",
    "SeriesBatch",
    "SketchBatch",
    "no_deadline",
]

DeadlineCheck = Callable[[], None]  # called between the parts of a read; raises after the query's deadline


def no_deadline() -> None:
    """Do nothing: the deadline check of a read without a time limit."""


@dataclass(frozen=True, slots=True)
class SeriesBatch:
    """Samples by series: those of series i are `ts[offsets[i]:offsets[i + 1]]`, ascending, one value for each time.

    Winners only (PROTOCOL 2). Stale markers are included: they end a series for the evaluator. A series without any
    sample in the interval may be left out.
    """

    labels: Sequence[dict[str, str]]  # with `__name__`
    offsets: I64  # [S + 1]
    ts: I64
    values: F64
    provenance: Provenance = field(default_factory=Provenance)


@dataclass(frozen=True, slots=True)
class HourBatch:
    """Aggregates by series and cell, [S, H]; a count of 0 is a cell without data, its floats NaN, its times 0.

    A cell is an hour or a whole UTC day. Stale markers are left out. `increase` is within the cell alone: the reader
    adds the increase between two cells. A column that was not requested is empty.
    """

    labels: Sequence[dict[str, str]]
    hours: I64  # [H], the first hour of each cell
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
    provenance: Provenance = field(default_factory=Provenance)

    @classmethod
    def empty(cls) -> HourBatch:
        """A batch without series."""
        columns: dict[str, Any] = {name: np.empty((0, 0), kind) for name, kind in COLUMNS}
        return cls([], np.empty(0, np.int64), **columns)


@dataclass(frozen=True, slots=True)
class Segments:
    """Segments borders[i] < ts <= borders[i + 1] (ms); window t consists of the segments low[t]:high[t]."""

    borders: I64
    low: I64
    high: I64

    @classmethod
    def none(cls, windows: int) -> Segments:
        """Windows without any segment."""
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
    row: I64  # [N], the series: a number among the labels
    segment: I64  # [N]
    sketches: Sketches
    provenance: Provenance = field(default_factory=Provenance)

    @classmethod
    def empty(cls) -> SketchBatch:
        """A batch without series."""
        none = np.empty(0, np.int64)
        return cls([], none, none, Sketches.empty())
