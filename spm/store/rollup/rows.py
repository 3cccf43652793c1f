"""Rows of `hours` and `days`: aggregates of one metric over the steps (hours of a day, days of a month) of a row.

Enter by ``encode_rows`` (the run) and ``decode_row`` (the reader). A row has one cell per aggregate, so that a reader
fetches and decodes only what it needs, and the cell ``s``, which says which (series, step) each entry belongs to.
Entries are sorted by (series, step); steps without data have none. Rows of form 1 have no sketches. The manifest, not
the row, names the inputs of a row.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from spm.arrays import I64, U64
from spm.errors import CorruptBlock
from spm.store.backends.base import RowPut
from spm.store.encoding import blocks, kernels
from spm.store.encoding.codec import Column
from spm.store.rollup.aggregates import COLUMNS, Aggregates, concatenate
from spm.store.rollup.sketch import INFINITE, Sketches

FORM = 2  # of the rows that are written now: 2 has sketches; a pack with rows of form 1 in it is of form 1
SHAPE = b"s"
SKETCH = "sketch"
# column name of each aggregate
CELLS: dict[str, bytes] = {**{name: f"a:{name}".encode() for name, _ in COLUMNS}, SKETCH: b"a:sketch"}
_VALUE = "values"
_BUCKETS_PER_ENTRY = 4  # buckets of a sketch that take as many bytes as the rest of an entry


@dataclass(frozen=True, slots=True)
class StepColumns:
    """Aggregates per (series, step): ``step`` i64[N] (hour or day number) beside ``rows.series`` u64[N]."""

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
            part = StepColumns(joined.step[chosen], joined.rows.take(chosen))
            if len(part.step):
                rows.append((key(metric, int(page)), _cells(part)))
    return rows


def join(steps: Sequence[tuple[int, Aggregates]]) -> StepColumns:
    """One table from (step, aggregates) pairs, sorted by (series, step)."""
    table = concatenate([rows for _, rows in steps])
    step = np.repeat(np.array([s for s, _ in steps], np.int64), [len(rows) for _, rows in steps])
    order = np.lexsort((step, table.series))
    return StepColumns(step[order], table.take(order))


def weight(parts: Iterable[Aggregates]) -> int:
    """How much of a page these rows fill, in entries: a sketch of scattered values is larger than the other cells."""
    return sum(max(len(part), len(part.sketch.keys) // _BUCKETS_PER_ENTRY) for part in parts)


def _cells(part: StepColumns) -> dict[bytes, bytes]:
    series, counts = np.unique(part.rows.series, return_counts=True)
    shape: dict[str, Column] = {"series_hash": series, "counts": counts.astype(np.int32), "step": part.step}
    cells = {SHAPE: blocks.encode_columns(blocks.HOURS, shape)}
    for name, _ in COLUMNS:
        cells[CELLS[name]] = blocks.encode_columns(blocks.HOURS, {_VALUE: getattr(part.rows, name)})
    if len(part.rows.sketch) == len(part.rows):
        cells[CELLS[SKETCH]] = _encode_sketch(part.rows.sketch)
    return cells


def _encode_sketch(sketch: Sketches) -> bytes:
    """Encode, per entry, its number of buckets and its lowest key; then the gaps between its keys, and all counts."""
    sizes = np.diff(sketch.starts)
    heads = sketch.starts[:-1][sizes > 0]
    inner = np.ones(len(sketch.keys), np.bool_)
    inner[heads] = False
    gaps = np.diff(sketch.keys, prepend=np.int32(0))[inner] - 1
    columns: dict[str, Column] = {
        "sizes": sizes.astype(np.int32),
        "lowest": sketch.keys[heads],
        "gaps": gaps.astype(np.int32),
        "counts": sketch.counts,
    }
    return blocks.encode_columns(blocks.HOURS, columns, apart=("gaps", "counts"))


def decode_row(cells: Mapping[bytes, bytes], names: Collection[str] | None = None) -> StepColumns:
    """Decode the table of a row; raise ``CorruptBlock`` when a cell is missing, damaged or of another length.

    With ``names`` only these aggregates are decoded, and only their cells and ``SHAPE`` need to exist; the other
    columns are empty.
    """
    shape = _columns(cells, SHAPE)
    counts = shape["counts"]
    series: U64 = shape["series_hash"][kernels.spread(counts, int(counts.sum()))]
    if len(shape["step"]) != len(series):
        raise CorruptBlock("the steps of a row have a wrong length", got=len(shape["step"]), wanted=len(series))
    columns: dict[str, Column] = {}
    for name, dtype in COLUMNS:
        if names is None or name in names:
            columns[name] = _sized(name, _columns(cells, CELLS[name])[_VALUE], len(series))
        else:
            columns[name] = np.empty(0, dtype)
    sketch = Sketches.empty()
    if (names is None or SKETCH in names) and CELLS[SKETCH] in cells:
        sketch = _decode_sketch(_columns(cells, CELLS[SKETCH]), len(series))
    return StepColumns(shape["step"], Aggregates(series=series, **columns, sketch=sketch))


def _sized(name: str, column: Column, rows: int) -> Column:
    if len(column) != rows:
        raise CorruptBlock(f"the aggregate {name} has a wrong length", got=len(column), wanted=rows)
    return column


def _decode_sketch(columns: Mapping[str, Column], rows: int) -> Sketches:
    sizes = _sized(SKETCH, columns["sizes"], rows)
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])
    counts, lowest, gaps = columns["counts"], columns["lowest"], columns["gaps"]
    has_buckets = sizes > 0
    fits = len(counts) == starts[-1] == len(lowest) + len(gaps) and len(lowest) == has_buckets.sum()
    if not fits or (sizes < 0).any() or (gaps < 0).any() or (counts < 1).any():
        raise CorruptBlock("the sketches of a row do not fit together", got=len(counts), wanted=int(starts[-1]))
    steps = np.zeros(len(counts), np.int64)
    inner = np.ones(len(counts), np.bool_)
    inner[starts[:-1][has_buckets]] = False
    steps[inner] = gaps + np.int64(1)
    run = np.cumsum(steps)
    keys = np.repeat(lowest - run[starts[:-1][has_buckets]], sizes[has_buckets]) + run
    if len(keys) and int(np.abs(keys).max()) > INFINITE:
        raise CorruptBlock("a sketch has a key that stands for no number", got=int(np.abs(keys).max()))
    return Sketches(starts, keys.astype(np.int32), counts)


def _columns(cells: Mapping[bytes, bytes], cell: bytes) -> dict[str, np.ndarray]:
    if cell not in cells:
        raise CorruptBlock("an aggregate's cell is missing", got=sorted(cells), wanted=cell)
    return blocks.decode_columns(blocks.HOURS, cells[cell])[0]
