"""Decodes many commit records and ledger rows at once, as ``outcomes`` joins them.

Enter by ``open_cells``. Each cell is split on its own, since each may be damaged, and only as far as the join needs it;
the columns of all cells are unpacked into common ones, of which each ``CommitCell`` gets its part. ``CommitCellCache``
remembers decoded cells, for callers that read the same ones repeatedly.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from spm import limits
from spm.arrays import I64, U8
from spm.bounded import LruCache
from spm.errors import CorruptBlock
from spm.store.encoding import blocks, codec
from spm.store.encoding.blocks import Messages
from spm.store.encoding.codec import Column, Encoded

_CELL_BYTES = 400  # of a decoded cell besides its columns
_TABLE = {"ms": "<i8", "process": "<u4", "sequence": "<u2", "source": "<i4", "samples": "<i8"}  # one value per message
_FACTS = ("range", "batch_hash")  # columns with one value per cell
_FACT_BYTES = (24, 8, 8)  # the third is the epoch's, which older cells lack


@dataclass(frozen=True, slots=True)
class CommitCell:
    """A decoded cell of a commit record, or a decoded ledger row."""

    messages: Messages
    samples: I64
    message_ids: U8  # u8[M, 16]
    totals: I64 | None
    outcome: int
    hour: int  # of its samples
    rows: int  # the number of rows of the batch
    batch: int
    epoch: int | None  # by which the batch was placed; None in cells of older programs
    size: int


CellOrError = CommitCell | CorruptBlock


class CommitCellCache:
    """Remembers decoded cells by their bytes. Thread-safe, bounded."""

    def __init__(self, bytes_max: int = limits.COMMIT_CELL_CACHE_BYTES) -> None:
        self._cells: LruCache[bytes, CommitCell] = LruCache(bytes_max)

    def open(self, raws: Sequence[bytes], kind: int) -> list[CellOrError]:
        """Decode cells; each result is the cell or its error."""
        distinct = list(dict.fromkeys(raws))
        cached = dict(zip(distinct, self._cells.get_many(distinct), strict=True))
        unknown = [raw for raw, cell in cached.items() if cell is None]
        fresh: dict[bytes, CellOrError] = dict(zip(unknown, open_cells(unknown, kind, copy=True), strict=True))
        self._cells.put_many((raw, cell, cell.size) for raw, cell in fresh.items() if isinstance(cell, CommitCell))
        return [cached[raw] or fresh[raw] for raw in raws]


@dataclass(frozen=True, slots=True)
class _PackedCell:
    """One cell split into its columns, which are still packed."""

    columns: Mapping[str, Encoded]
    sources: tuple[str, ...]
    count: int  # of messages
    size: int


def open_cells(raws: Sequence[bytes], kind: int, *, copy: bool = False) -> list[CellOrError]:
    """Decode cells; each result is the cell or its error. ``copy``: a cell's columns are no views of common ones.

    1. split each cell into columns and compare their lengths;
    2. unpack the columns of all cells into common ones;
    3. give every cell its part.
    """
    results = [_try_split(raw, kind) for raw in raws]
    fine = [one for one in results if isinstance(one, _PackedCell)]
    starts = np.cumsum([0, *(one.count for one in fine)])
    table = {name: np.empty(starts[-1], dtype) for name, dtype in _TABLE.items()}
    table["id_hash"] = np.empty((starts[-1], 16), np.uint8)
    places = starts.tolist()
    faults = [_unpack(one, table, at, until) for one, at, until in zip(fine, places, places[1:], strict=False)]
    names = np.repeat(np.array([len(one.sources) for one in fine], np.int64), np.diff(starts))
    nameless = np.flatnonzero((table["source"] < 0) | (table["source"] >= names))
    without_source = set(np.searchsorted(starts, nameless, "right") - 1)
    table |= {name: table[name].astype(np.int64) for name in ("process", "sequence")}
    cells: list[CellOrError] = []
    for number, (one, at, until, fault) in enumerate(zip(fine, places, places[1:], faults, strict=False)):
        if fault is None and number in without_source:
            fault = CorruptBlock("a message's source is not in its table", wanted=f"one of {len(one.sources)}")
        cells.append(fault or _commit_cell(one, table, slice(at, until), copy=copy))
    parts = iter(cells)
    return [next(parts) if isinstance(one, _PackedCell) else one for one in results]


def _try_split(raw: bytes, kind: int) -> _PackedCell | CorruptBlock:
    try:
        return _split(raw, kind)
    except CorruptBlock as error:
        return error


def _split(raw: bytes, kind: int) -> _PackedCell:
    texts, columns = blocks.packed_columns(kind, raw)
    try:
        count = columns["ms"][2]
        lengths = [columns[name][2] for name in _TABLE]
        ids, facts = columns["id_hash"][4], [len(columns[name][4]) for name in _FACTS]
        facts.append(len(columns["epoch"][4]) if "epoch" in columns else 8)
        _ = columns["bucket"]
    except KeyError as error:
        raise CorruptBlock("a commit record lacks a column", got=sorted(columns), wanted=str(error)) from error
    totals = columns["total"][2] if "total" in columns else count
    if lengths.count(count) != len(lengths) or totals != count or not 0 <= count <= limits.COLUMN_VALUES_MAX:
        raise CorruptBlock("a commit record's columns differ in length", got=[*lengths, totals], wanted=count)
    if tuple(facts) != _FACT_BYTES or len(ids) != 16 * count:
        raise CorruptBlock(
            "a commit record's facts are damaged", got=(*facts, len(ids)), wanted=(*_FACT_BYTES, 16 * count)
        )
    return _PackedCell(columns, tuple(texts), count, len(raw) + 60 * count + _CELL_BYTES)


def _unpack(one: _PackedCell, table: Mapping[str, Column], at: int, until: int) -> CorruptBlock | None:
    """Unpack a cell's columns to their place in the common ones; return the error if there is one."""
    try:
        for name in _TABLE:
            codec.decode_into(one.columns[name], table[name][at:until])
        table["id_hash"][at:until] = np.frombuffer(one.columns["id_hash"][4], np.uint8).reshape(-1, 16)
    except CorruptBlock as error:
        table["source"][at:until] = 0
        return error
    return None


def _commit_cell(one: _PackedCell, table: Mapping[str, Column], part: slice, *, copy: bool) -> CellOrError:
    """Build a cell from its part of the common columns; of the list of the batch's rows only the length is needed."""
    names = ("ms", "process", "sequence", "source", "samples", "id_hash")
    ms, process, sequence, source, samples, ids = (
        [table[name][part].copy() for name in names] if copy else [table[name][part] for name in names]
    )
    columns = one.columns
    facts = columns["range"][4]
    try:
        totals = codec.decode(columns["total"]) if "total" in columns else None
    except CorruptBlock as error:
        return error
    return CommitCell(
        Messages(ms, process, sequence, source, one.sources),
        samples,
        ids,
        totals,
        int.from_bytes(facts[16:24], "little", signed=True),
        (int.from_bytes(facts[8:16], "little", signed=True) - 1) // limits.HOUR_MS,
        columns["bucket"][2],
        int.from_bytes(columns["batch_hash"][4], "little"),
        int.from_bytes(columns["epoch"][4], "little") if "epoch" in columns else None,
        one.size,
    )
