"""The least and the greatest value of each series in each column of a picture, so that no peak is lost. Pure.

A backtest judges every step; a picture has a few hundred columns. Answers come chunk by chunk, and the same chunk may
come several times. Enter by ``ValueRanges.add``; ``rows`` are what was seen.
"""

import warnings

import numpy as np

from alerts.judging.answers import Answer, Labels
from alerts.judging.versions import Steps
from spm.arrays import F64


class ValueRanges:
    """The ranges of values of all series, a column for a stretch of steps. Columns without values are NaN."""

    def __init__(self, steps: Steps, columns_max: int) -> None:
        self.steps, self.columns = steps, max(1, min(columns_max, len(steps)))
        self.labels: dict[str, Labels] = {}
        self._low: dict[str, F64] = {}
        self._high: dict[str, F64] = {}
        self._seen = set[tuple[int, int]]()

    def add(self, answer: Answer, steps: Steps) -> None:
        """Add the values of some of the steps."""
        if (steps.first_ms, steps.last_ms) in self._seen or not answer.labels:
            return
        self._seen.add((steps.first_ms, steps.last_ms))
        column_of = (self.steps.index_from(steps.first_ms) + np.arange(len(steps))) * self.columns // len(self.steps)
        starts = np.flatnonzero(np.diff(column_of, prepend=-1))
        columns = column_of[starts]
        values = np.where(answer.present & np.isfinite(answer.values), answer.values, np.nan)
        low, high = np.fmin.reduceat(values, starts, axis=1), np.fmax.reduceat(values, starts, axis=1)
        for row, labels in enumerate(answer.labels):
            name = answer.name(row)
            if name not in self.labels:
                self.labels[name] = labels
                self._low[name], self._high[name] = (np.full(self.columns, np.nan) for _ in range(2))
            self._low[name][columns] = np.fmin(self._low[name][columns], low[row])
            self._high[name][columns] = np.fmax(self._high[name][columns], high[row])

    def range_of(self, name: str) -> tuple[F64, F64]:
        """Return the least and the greatest values of a series, by column."""
        return self._low[name], self._high[name]

    def band(self, names: list[str]) -> tuple[F64, F64]:
        """Return the least and the greatest values of several series together, by column."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # columns in which none of them has a value
            low = np.nanmin([self._low[name] for name in names], axis=0)
            high = np.nanmax([self._high[name] for name in names], axis=0)
        return low, high

    def farthest(self, *, up: bool, most: int) -> list[str]:
        """Return the names of the series with the greatest (else the least) values, these first."""
        sign = -1 if up else 1
        columns = self._high if up else self._low
        extreme = {
            name: float((np.nanmax if up else np.nanmin)(each))
            for name, each in columns.items()
            if not np.isnan(each).all()
        }
        return sorted(extreme, key=lambda name: (sign * extreme[name], name))[:most]

    def from_ms(self) -> int | None:
        """Return the beginning of the first column with a value; None without any."""
        filled = [np.flatnonzero(~np.isnan(each)) for each in self._low.values()]
        first = min((int(each[0]) for each in filled if len(each)), default=None)
        return None if first is None else self.time_ms(first)

    def time_ms(self, column: int) -> int:
        """Return when a column begins."""
        return self.steps.at_ms(-(-column * len(self.steps) // self.columns))
