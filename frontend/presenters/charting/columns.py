"""The columns of a chart: times, and a value per time for each line; NaN where there is none. Pure.

``keep_extremes`` thins a line to two points per pixel column, its lowest and its highest value there, so that no spike
is lost at any zoom. ``newer_than`` leaves out what a browser has already: it names the time up to which it has the
columns, and their digest; if the digest is still right, only later points are sent. Enter by ``Columns``.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import orjson

from spm.arrays import F64, I64
from spm.query.promql.engine import Result

DIGITS = 6  # of a rounded value: more than a chart of any size shows
_SETTLED_MS = 60_000  # a point of that age seldom changes
_SETTLED_STEPS = 2


@dataclass(frozen=True, slots=True)
class Band:
    """The range of ``count`` lines that are not drawn one by one."""

    count: int
    low: F64
    high: F64


@dataclass(frozen=True, slots=True)
class Columns:
    """The lines of a chart; ``values`` is [S, T]."""

    times: I64
    step_ms: int
    labels: Sequence[Mapping[str, str]]
    values: F64
    rest: Band | None = None

    def settled_ms(self) -> int:
        """Return the time up to which points seldom change: 0 if there are none."""
        if not len(self.times):
            return 0
        until_ms = int(self.times[-1]) - max(_SETTLED_MS, _SETTLED_STEPS * self.step_ms)
        settled = self.times[self.times <= until_ms]
        return int(settled[-1]) if len(settled) else 0

    def digest(self, until_ms: int) -> str:
        """Return a digest of the lines up to a time."""
        count = int(np.searchsorted(self.times, until_ms, "right"))
        digest = hashlib.blake2b(orjson.dumps([self.step_ms, self.labels]), digest_size=12)
        digest.update(self.times[:count].tobytes())
        rest = [] if self.rest is None else [self.rest.low, self.rest.high]
        for column in (*self.values, *rest):
            digest.update(column[:count].tobytes())
        return digest.hexdigest()

    def newer_than(self, until_ms: int) -> "Columns":
        """Return the points after a time."""
        first = int(np.searchsorted(self.times, until_ms, "right"))
        rest = self.rest and Band(self.rest.count, self.rest.low[first:], self.rest.high[first:])
        return replace(self, times=self.times[first:], values=self.values[:, first:], rest=rest)

    def rounded(self) -> "Columns":
        """Return the same lines with ``DIGITS`` digits, which take half the bytes."""
        rest = self.rest and Band(self.rest.count, round_digits(self.rest.low), round_digits(self.rest.high))
        return replace(self, values=round_digits(self.values), rest=rest)

    def as_dict(self) -> dict[str, Any]:
        """Return what is sent; arrays become lists as they are written."""
        values = np.ascontiguousarray(self.values)
        answer: dict[str, Any] = {
            "times": np.ascontiguousarray(self.times),
            "step": self.step_ms,
            "series": [{"labels": labels, "values": line} for labels, line in zip(self.labels, values, strict=True)],
        }
        if self.rest is not None:
            low, high = np.ascontiguousarray(self.rest.low), np.ascontiguousarray(self.rest.high)
            answer["rest"] = {"count": self.rest.count, "low": low, "high": high}
        return answer


def columns_of(result: Result, step_ms: int, most: int) -> Columns:
    """Take the ``most`` highest series of a result as lines, and the range of all others."""
    values = np.where(result.present & np.isfinite(result.values), result.values, np.nan)
    rows = np.flatnonzero(result.present.any(axis=1))
    drawn, others = select_highest(values, rows, most)
    labels = [result.labels[row] for row in drawn.tolist()]
    return Columns(result.times, step_ms, labels, values[drawn], _band(values[others]) if len(others) else None)


def select_highest(values: F64, rows: I64, count: int) -> tuple[I64, I64]:
    """Split rows into the ``count`` with the highest mean, and the rest; both in the order of the rows."""
    if len(rows) <= count:
        return rows, rows[:0]
    has_value = ~np.isnan(values[rows])
    means = np.where(has_value, values[rows], 0.0).sum(axis=1) / np.maximum(has_value.sum(axis=1), 1)
    highest = np.sort(np.argsort(-means, kind="stable")[:count])
    return rows[highest], np.delete(rows, highest)


def keep_extremes(columns: Columns, pixels: int) -> Columns:
    """Thin lines of more than two points per pixel: of each pixel column, its lowest and highest point in their order.

    A column of one line without any value stays empty, so gaps of a column's width or more are still gaps.
    """
    count = len(columns.times)
    width = -(-count // pixels)
    if width <= 2:
        return columns
    first = np.arange(0, count, width)
    times = np.column_stack((columns.times[first], columns.times[np.minimum(first + width // 2, count - 1)])).ravel()
    rest = columns.rest and Band(
        columns.rest.count,
        np.repeat(_extreme(columns.rest.low, width, np.fmin), 2)[: len(times)],
        np.repeat(_extreme(columns.rest.high, width, np.fmax), 2)[: len(times)],
    )
    distinct = np.append(True, np.diff(times) > 0)  # the last column may have a single point
    thin = np.stack([_extremes_in_order(line, width) for line in columns.values])[:, distinct]
    if rest is not None:
        rest = Band(rest.count, rest.low[distinct], rest.high[distinct])
    return replace(columns, times=times[distinct], step_ms=columns.step_ms * width, values=thin, rest=rest)


def interleave(low: Result, high: Result, step_ms: int, most: int) -> Columns:
    """Draw the lowest and the highest sample of each step as two points; both results have the same series."""
    order = {tuple(sorted(labels.items())): row for row, labels in enumerate(high.labels)}
    rows = np.array([order[tuple(sorted(labels.items()))] for labels in low.labels], np.int64)
    half = step_ms // 2
    count = 2 * len(low.times)
    values, present = np.empty((len(rows), count)), np.empty((len(rows), count), np.bool_)
    values[:, ::2], values[:, 1::2] = low.values, high.values[rows]
    present[:, ::2], present[:, 1::2] = low.present, high.present[rows]
    times = np.column_stack((low.times - half, low.times)).ravel()
    return columns_of(replace(low, times=times, values=values, present=present), step_ms, most)


def round_digits(values: F64) -> F64:
    """Round to ``DIGITS`` significant digits."""
    with np.errstate(all="ignore"):
        power = DIGITS - 1 - np.floor(np.log10(np.abs(values)))
        finer, coarser = 10.0 ** np.maximum(power, 0), 10.0 ** np.maximum(-power, 0)
        rounded: F64 = np.round(values * finer / coarser) * coarser / finer
        return np.where(np.isfinite(rounded), rounded, values)


def _band(values: F64) -> Band:
    low, high = np.fmin.reduce(values, axis=0), np.fmax.reduce(values, axis=0)
    return Band(len(values), low, high)


def _extreme(line: F64, width: int, choose: np.ufunc) -> F64:
    reduced: F64 = choose.reduceat(line, np.arange(0, len(line), width))
    return reduced


def _extremes_in_order(line: F64, width: int) -> F64:
    """Return two values per column: its extremes, the earlier one first."""
    count = -(-len(line) // width)
    padded = np.full(count * width, np.nan)
    padded[: len(line)] = line
    table = padded.reshape(count, width)
    low_at = np.argmin(np.where(np.isnan(table), np.inf, table), axis=1)
    high_at = np.argmax(np.where(np.isnan(table), -np.inf, table), axis=1)
    each = np.arange(count)
    in_order = np.stack((np.minimum(low_at, high_at), np.maximum(low_at, high_at)))
    values: F64 = table[each, in_order].T.ravel()
    return values
