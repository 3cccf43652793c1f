"""What a query asks of the storage, and the shapes it gets back.

A `Storage` answers for one app: samples of series that match, hourly aggregates of the same, and the names that exist.
The evaluator sees nothing else of the store, so that any `Storage` (tables on disk, arrays in memory) gives the same
answers. All intervals are left-open, as PromQL's are: a sample at `start_ms` is outside, one at `end_ms` inside.
Enter by `Storage`; `Matcher` is a question, `SeriesBatch` and `HourBatch` are answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from spm.store.matchers import METRIC_NAME, Matcher

__all__ = ["METRIC_NAME", "HourBatch", "Matcher", "SeriesBatch", "Storage"]

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SeriesBatch:
    """Samples by series: those of series i are `ts[offsets[i]:offsets[i + 1]]`, ascending, one value for each time.

    Winners only (DESIGN rule 2). Stale markers are included: they end a series for the evaluator. A series without any
    sample in the interval may be left out.
    """

    labels: list[dict[str, str]]  # with `__name__`
    offsets: I64  # [S + 1]
    ts: I64
    values: F64


@dataclass(frozen=True, slots=True)
class HourBatch:
    """Aggregates by series and hour, [S, H]; a count of 0 is an hour without data, its floats NaN, its times 0.

    Stale markers are left out. `increase` is within the hour alone; what was gained between two hours is the reader's
    to add.
    """

    labels: list[dict[str, str]]
    slots: I64  # [H], consecutive
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


class Storage(Protocol):
    """The data of one app, for reading."""

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> SeriesBatch:
        """Samples with start_ms < ts <= end_ms of the series that satisfy all matchers."""

    def select_hours(self, matchers: Sequence[Matcher], first_slot: int, last_slot: int) -> HourBatch:
        """Aggregates of the slots from the first to the last, both included, equal to what the samples give."""

    def series(self, matcher_sets: Sequence[Sequence[Matcher]], start_ms: int, end_ms: int) -> list[dict[str, str]]:
        """Labels of the series that satisfy any of the sets (no set: all series) and have samples in the interval."""

    def label_names(self, matcher_sets: Sequence[Sequence[Matcher]], start_ms: int, end_ms: int) -> list[str]:
        """Sorted names of the labels of those series."""

    def label_values(
        self, name: str, matcher_sets: Sequence[Sequence[Matcher]], start_ms: int, end_ms: int
    ) -> list[str]:
        """Sorted values of one label of those series."""

    def notes(self) -> list[str]:
        """What the answers rest on: tiers used, blocks quarantined, age of the tail."""
