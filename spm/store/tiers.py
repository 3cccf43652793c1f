"""Rows of `hours` and `days`: aggregates of one metric over the steps (slots of a day, days of a month) of a row.

Enter by ``encode_rows`` (the run) and ``decode_row`` (the reader). A row has one cell per aggregate, so that a reader
fetches only what it needs, and the cell ``s`` that says which (series, step) each entry belongs to. Entries are sorted
by (series, step); steps without data are not there. What a row was made of stands in the manifest, not here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from spm.errors import CorruptBlock
from spm.store import blocks, kernels
from spm.store.aggregates import COLUMNS, Aggregates
from spm.store.backends.base import RowPut
from spm.store.codec import Column
from spm.wire import I64, U64

SHAPE = b"s"
CELLS = {name: f"a:{name}".encode() for name, _ in COLUMNS}  # column name of each aggregate
_VALUE = "values"


@dataclass(frozen=True, slots=True)
class Steps:
    """Aggregates per (series, step): ``step`` i64[N] (slot or day number) beside ``rows.series`` u64[N]."""

    step: I64
    rows: Aggregates

    def at(self, step: int) -> Aggregates:
        """The aggregates of one step, ascending by series."""
        return self.rows.take(self.step == step)


def encode_rows(
    metrics: Mapping[int, Sequence[tuple[int, Aggregates]]], key: Callable[[int, int], bytes], page_bits: int = 0
) -> list[RowPut]:
    """Rows for each metric id's (step, aggregates) pairs; ``key(metric, page)`` names them."""
    rows: list[RowPut] = []
    for metric, steps in metrics.items():
        joined = join(steps)
        pages = joined.rows.series >> np.uint64(64 - page_bits) if page_bits else np.zeros(len(joined.step), np.uint64)
        for page in np.unique(pages):
            chosen = pages == page
            part = Steps(joined.step[chosen], joined.rows.take(chosen))
            if len(part.step):
                rows.append((key(metric, int(page)), _cells(part)))
    return rows


def join(steps: Sequence[tuple[int, Aggregates]]) -> Steps:
    """One table from (step, aggregates) pairs, sorted by (series, step)."""
    parts = [rows for _, rows in steps] or [Aggregates.empty()]
    table = Aggregates(**{f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Aggregates)})
    step = np.repeat(np.array([s for s, _ in steps], np.int64), [len(rows) for _, rows in steps])
    order = np.lexsort((step, table.series))
    return Steps(step[order], table.take(order))


def _cells(part: Steps) -> dict[bytes, bytes]:
    series, counts = np.unique(part.rows.series, return_counts=True)
    shape: dict[str, Column] = {"series_hash": series, "counts": counts.astype(np.int32), "step": part.step}
    cells = {SHAPE: blocks.encode_columns(blocks.HOURS, shape)}
    for name, cell in CELLS.items():
        cells[cell] = blocks.encode_columns(blocks.HOURS, {_VALUE: getattr(part.rows, name)})
    return cells


def decode_row(cells: Mapping[bytes, bytes]) -> Steps:
    """The table of a row; raises ``CorruptBlock`` when a cell is missing, damaged or of another length."""
    shape = _columns(cells, SHAPE)
    counts = shape["counts"]
    series: U64 = shape["series_hash"][kernels.spread(counts, int(counts.sum()))]
    columns = {name: _columns(cells, cell)[_VALUE] for name, cell in CELLS.items()}
    for name, column in columns.items():
        if len(column) != len(series) or len(shape["step"]) != len(series):
            raise CorruptBlock(f"the aggregate {name} has a wrong length", got=len(column), wanted=len(series))
    return Steps(shape["step"], Aggregates(series=series, **columns))


def _columns(cells: Mapping[bytes, bytes], cell: bytes) -> dict[str, np.ndarray]:
    if cell not in cells:
        raise CorruptBlock("an aggregate's cell is missing", got=sorted(cells), wanted=cell)
    return blocks.decode_columns(blocks.HOURS, cells[cell])[0]
