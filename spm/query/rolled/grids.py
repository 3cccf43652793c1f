"""Tables of aggregates, series by cell, from the levels of one view.

``cells_of`` is for windows of whole hours: days and hours as stored. ``segments_of`` is for those that begin or end
within one: what is no whole hour is made from samples.
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
from spm.query.rolled.resolutions import Levels, Part
from spm.query.rolled.sketches import edge_runs
from spm.store.rollup import aggregates
from spm.store.rollup.aggregates import COLUMNS, Aggregates

Tables = dict[str, np.ndarray]
KINDS: dict[str, type[Any]] = dict(COLUMNS)
_Where = tuple[int, I64]  # the first of some steps (ascending), and the column of each from there on; -1: it has none
_EMPTY: dict[type[Any], float] = {np.int64: 0, np.float64: np.nan}


def segments_of(levels: Levels, cuts: Segments, names: Collection[str]) -> Tables:
    """Columns [series, segments] of those segments that any window needs; of the others a cell may be empty."""
    _check_size(len(levels.chosen), len(cuts.borders) - 1)
    grid = _hours_around(cuts.borders)
    cells = cells_of(levels, grid, names)
    starts, widths = cuts.borders[:-1], np.diff(cuts.borders)
    first = np.searchsorted(grid, starts // HOUR_MS)
    whole = (starts % HOUR_MS == 0) & (widths == np.diff(grid)[np.minimum(first, len(grid) - 2)] * HOUR_MS)
    tables = tables_of(len(levels.chosen), len(starts), names)
    for name, table in tables.items():
        table[:, whole] = cells[name][:, first[whole]]
    for rows, segment, heads, ts, values in edge_runs(levels, cuts, cuts.needed & ~whole):
        made = aggregates.every(rows.astype(np.uint64), heads, ts, values, sketches=False)
        counted = np.flatnonzero(made.count > 0)
        for name, table in tables.items():
            table[rows[counted], segment[counted]] = getattr(made, name)[counted]
    return tables


def _hours_around(borders: I64) -> I64:
    """Borders (hours) of the cells that the segments lie in: a segment as long as a day is one, else each hour."""
    starts, ends = borders[:-1], borders[1:]
    days = starts[ends - starts == DAY_HOURS * HOUR_MS] // HOUR_MS
    hours = np.arange(int(borders[0]) // HOUR_MS, -(-int(borders[-1]) // HOUR_MS) + 1)
    inner = (days[:, None] + np.arange(1, DAY_HOURS)).ravel()
    return np.setdiff1d(hours, inner)


def cells_of(levels: Levels, borders: I64, names: Collection[str]) -> Tables:
    """Columns [series, cells]: days from their level where exact, else joined from their hours."""
    widths = np.diff(borders)
    _check_size(len(levels.chosen), len(widths))
    of_days = widths == DAY_HOURS
    assert bool((of_days | (widths == 1)).all()), "BUG: a cell is an hour or a day"
    tables = tables_of(len(levels.chosen), len(widths), names)
    days, single = borders[:-1][of_days] // DAY_HOURS, borders[:-1][~of_days]
    parts, left = levels.days(days.tolist())
    where = _where(days, np.flatnonzero(of_days))
    for part in parts:
        _put(tables, part, where)
    _check_size(len(levels.chosen), len(left) * DAY_HOURS)
    inner = (np.array(left, np.int64)[:, None] * DAY_HOURS + np.arange(DAY_HOURS)).ravel()
    below = tables_of(len(levels.chosen), len(inner), names) if left else {}
    where, inside = _where(single, np.flatnonzero(~of_days)), _where(inner, np.arange(len(inner)))
    for part in levels.hours([*single.tolist(), *inner.tolist()]):
        _put(tables, part, where)
        _put(below, part, inside)
    if left:
        _join_days(tables, below, np.searchsorted(borders, np.array(left, np.int64) * DAY_HOURS))
    return tables


def _check_size(series: int, cells: int) -> None:
    if series * cells > limits.QUERY_CELLS_MAX:
        raise QueryTooLarge(
            f"{series} series of {cells} hours are more than {limits.QUERY_CELLS_MAX} values: "
            "ask for less time or fewer series"
        )


def tables_of(rows: int, columns: int, names: Collection[str]) -> Tables:
    return {name: np.full((rows, columns), _EMPTY[kind], kind) for name, kind in KINDS.items() if name in names}


def _where(steps: I64, columns: I64) -> _Where:
    if not len(steps):
        return 0, columns
    first = int(steps[0])
    column_of = np.full(int(steps[-1]) - first + 1, -1, np.int64)
    column_of[steps - first] = columns
    return first, column_of


def _put(tables: Tables, part: Part, where: _Where) -> None:
    """Write what a part says of the steps that have a column; what else it says is left out."""
    for name, table in tables.items():
        _write(table, part.rows, part.at, part.table.step, getattr(part.table.rows, name), *where)


@njit(cache=True, nogil=True)
def _write(table: Any, rows: I64, at: I64, step: I64, values: Any, first: int, column_of: I64) -> None:
    for i in range(len(rows)):
        offset = step[at[i]] - first
        if 0 <= offset < len(column_of) and column_of[offset] >= 0:
            table[rows[i], column_of[offset]] = values[at[i]]


def _join_days(tables: Tables, below: Tables, columns: I64) -> None:
    """Hours of days side by side become the days: the same kernel that makes days of hours."""
    rows, places = np.nonzero(below["count"])
    days = places // DAY_HOURS
    owner = (rows * len(columns) + days).astype(np.uint64)
    flat: dict[str, Any] = {
        name: below[name][rows, places] if name in below else np.zeros(len(rows), kind) for name, kind in COLUMNS
    }
    made = aggregates.merge_rows(Aggregates(series=owner, **flat))
    of_row, of_day = np.divmod(made.series.astype(np.int64), len(columns))
    for name, table in tables.items():
        table[of_row, columns[of_day]] = getattr(made, name)
