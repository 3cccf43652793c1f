"""Reads tables of aggregates, series by cell, from one view.

``read_cells`` is for windows of whole hours: days and hours as stored. ``read_segments`` is for windows that begin or
end within an hour: a part of an hour is aggregated from samples.
"""

from collections.abc import Collection
from typing import Any

import numpy as np
from numba import njit

from spm import limits
from spm.arrays import I64
from spm.errors import QueryTooLarge
from spm.limits import DAY_HOURS, HOUR_MS
from spm.query.request.batches import Segments
from spm.query.rolled.resolutions import AggregatePart, RollupReader
from spm.query.rolled.sketches import read_edges
from spm.store.rollup import aggregates
from spm.store.rollup.aggregates import COLUMNS, Aggregates

Tables = dict[str, np.ndarray]
KINDS: dict[str, type[Any]] = dict(COLUMNS)
_ColumnOf = tuple[int, I64]  # (a first step, the columns of the steps from it on; -1: the step has no column)
_EMPTY: dict[type[Any], float] = {np.int64: 0, np.float64: np.nan}


def read_segments(rollups: RollupReader, segments: Segments, names: Collection[str]) -> Tables:
    """Read the named aggregates, [series, segments], of the segments that any window needs; others may be empty."""
    _check_size(len(rollups.selection), len(segments.borders) - 1)
    grid = _hours_around(segments.borders)
    cells = read_cells(rollups, grid, names)
    starts, widths = segments.borders[:-1], np.diff(segments.borders)
    first = np.searchsorted(grid, starts // HOUR_MS)
    is_cell = (starts % HOUR_MS == 0) & (widths == np.diff(grid)[np.minimum(first, len(grid) - 2)] * HOUR_MS)
    tables = empty_tables(len(rollups.selection), len(starts), names)
    for name, table in tables.items():
        table[:, is_cell] = cells[name][:, first[is_cell]]
    for rows, segment, heads, ts, edge_values in read_edges(rollups, segments, segments.needed & ~is_cell):
        values = aggregates.aggregate_all(rows.astype(np.uint64), heads, ts, edge_values, sketches=False)
        counted = np.flatnonzero(values.count > 0)
        for name, table in tables.items():
            table[rows[counted], segment[counted]] = getattr(values, name)[counted]
    return tables


def _hours_around(borders: I64) -> I64:
    """Borders (hours) of the cells that the segments lie in: a segment as long as a day is one, else each hour."""
    starts, ends = borders[:-1], borders[1:]
    days = starts[ends - starts == DAY_HOURS * HOUR_MS] // HOUR_MS
    hours = np.arange(int(borders[0]) // HOUR_MS, -(-int(borders[-1]) // HOUR_MS) + 1)
    inner = (days[:, None] + np.arange(1, DAY_HOURS)).ravel()
    return np.setdiff1d(hours, inner)


def read_cells(rollups: RollupReader, borders: I64, names: Collection[str]) -> Tables:
    """Read the named aggregates, [series, cells]: days from day aggregates where exact, else merged from hours."""
    widths = np.diff(borders)
    _check_size(len(rollups.selection), len(widths))
    of_days = widths == DAY_HOURS
    assert bool((of_days | (widths == 1)).all()), "BUG: a cell is an hour or a day"
    tables = empty_tables(len(rollups.selection), len(widths), names)
    days, hours = borders[:-1][of_days] // DAY_HOURS, borders[:-1][~of_days]
    parts, remaining = rollups.read_days(days.tolist())
    column_of = _column_of(days, np.flatnonzero(of_days))
    for part in parts:
        _put(tables, part, column_of)
    _check_size(len(rollups.selection), len(remaining) * DAY_HOURS)
    inner = (np.array(remaining, np.int64)[:, None] * DAY_HOURS + np.arange(DAY_HOURS)).ravel()
    inner_tables = empty_tables(len(rollups.selection), len(inner), names) if remaining else {}
    column_of, inner_column_of = _column_of(hours, np.flatnonzero(~of_days)), _column_of(inner, np.arange(len(inner)))
    for part in rollups.read_hours([*hours.tolist(), *inner.tolist()]):
        _put(tables, part, column_of)
        _put(inner_tables, part, inner_column_of)
    if remaining:
        _join_days(tables, inner_tables, np.searchsorted(borders, np.array(remaining, np.int64) * DAY_HOURS))
    return tables


def _check_size(series: int, cells: int) -> None:
    if series * cells > limits.QUERY_CELLS_MAX:
        raise QueryTooLarge(
            f"{series} series of {cells} hours are more than {limits.QUERY_CELLS_MAX} values: "
            "ask for less time or fewer series"
        )


def empty_tables(rows: int, columns: int, names: Collection[str]) -> Tables:
    """Make tables of these aggregates without data."""
    return {name: np.full((rows, columns), _EMPTY[kind], kind) for name, kind in KINDS.items() if name in names}


def _column_of(steps: I64, columns: I64) -> _ColumnOf:
    if not len(steps):
        return 0, columns
    first = int(steps[0])
    column_of = np.full(int(steps[-1]) - first + 1, -1, np.int64)
    column_of[steps - first] = columns
    return first, column_of


def _put(tables: Tables, part: AggregatePart, column_of: _ColumnOf) -> None:
    """Write the entries of a part whose step has a column; the others are left out."""
    for name, table in tables.items():
        _write(table, part.rows, part.at, part.table.step, getattr(part.table.rows, name), *column_of)


@njit(cache=True, nogil=True)
def _write(table: Any, rows: I64, at: I64, step: I64, values: Any, first: int, column_of: I64) -> None:
    for i in range(len(rows)):
        offset = step[at[i]] - first
        if 0 <= offset < len(column_of) and column_of[offset] >= 0:
            table[rows[i], column_of[offset]] = values[at[i]]


def _join_days(tables: Tables, hour_tables: Tables, columns: I64) -> None:
    """Merge hours into days, with the kernel that also makes the stored days."""
    rows, hours = np.nonzero(hour_tables["count"])
    days = hours // DAY_HOURS
    owner = (rows * len(columns) + days).astype(np.uint64)
    flat: dict[str, Any] = {
        name: hour_tables[name][rows, hours] if name in hour_tables else np.zeros(len(rows), kind)
        for name, kind in COLUMNS
    }
    merged = aggregates.merge_rows(Aggregates(series=owner, **flat))
    of_row, of_day = np.divmod(merged.series.astype(np.int64), len(columns))
    for name, table in tables.items():
        table[of_row, columns[of_day]] = getattr(merged, name)
