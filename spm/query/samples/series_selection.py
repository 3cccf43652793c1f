"""The series that a query selects, and the same series by metric, in the order of their keys.

Enter by ``SeriesSelection``.
"""

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from spm.arrays import I32, I64, U64
from spm.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class SeriesByMetric:
    """Selected series in the order of (metric, id): their ids, their numbers, and the span of each metric."""

    ids: U64
    numbers: I64  # in the selection
    spans: Mapping[int, tuple[int, int]]

    def __contains__(self, metric: int) -> bool:
        return metric in self.spans

    def __getitem__(self, metric: int) -> tuple[U64, I64]:
        first, end = self.spans[metric]
        return self.ids[first:end], self.numbers[first:end]


@dataclass(frozen=True, slots=True)
class SeriesSelection:
    """The series of a query: rows of the index, their ids and metric ids. An id names a series within its metric."""

    index: I64
    series: U64
    metrics: U64
    in_order: bool = True  # whether they are in the order of their keys: (metric, id)

    def __len__(self) -> int:
        return len(self.index)

    def take(self, rows: I64) -> "SeriesSelection":
        """The series with these numbers, in this order."""
        return SeriesSelection(self.index[rows], self.series[rows], self.metrics[rows], in_order=False)

    def rows(self, series: U64, metrics: U64) -> I32:
        """The number in the selection of each of these pairs; all of them are selected."""
        ids, names = np.unique(self.series), np.unique(self.metrics)

        def codes(s: U64, m: U64) -> I64:
            return np.searchsorted(names, m) * len(ids) + np.searchsorted(ids, s)

        own = codes(self.series, self.metrics)
        order = np.argsort(own)
        return order[np.searchsorted(own[order], codes(series, metrics))].astype(np.int32)

    def by_metric(self) -> SeriesByMetric:
        """The selection in the order of keys."""
        names, series, numbers = self.metrics, self.series, np.arange(len(self), dtype=np.int64)
        if not self.in_order:
            numbers = np.lexsort((series, names))
            names, series = names[numbers], series[numbers]
        borders = [0, *(np.flatnonzero(names[1:] != names[:-1]) + 1).tolist(), len(names)] if len(names) else [0]
        return SeriesByMetric(series, numbers, dict(zip(names[borders[:-1]].tolist(), pairwise(borders), strict=True)))
