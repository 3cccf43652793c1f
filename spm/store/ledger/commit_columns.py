"""Commit records and account rows, many at once: what they say of messages, as ``settled`` joins it.

Enter by ``open_cells``. The cells are taken apart one by one, since each may be damaged, and only as far as the join needs
them; the columns of all are unpacked into common ones, of which each ``CommitCell`` gets its part. ``CommitCellCache`` remembers what
was opened, for who reads the same ones again and again.
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

_CELL_BYTES = 400  # what an opened cell takes besides its columns
_TABLE = {"ms": "<i8", "process": "<u4", "sequence": "<u2", "source": "<i4", "samples": "<i8"}  # one value per message
_FACTS = ("range", "batch_hash")  # columns that each cell has once
_FACT_BYTES = (24, 8, 8)  # and of the epoch, if it is told


@dataclass(frozen=True, slots=True)
class CommitCell:
    """What a commit record or an account row says."""

    messages: Messages
    samples: I64
    message_ids: U8  # u8[M, 16]
    totals: I64 | None
    outcome: int
    hour: int  # of the rows that it accounts for
    rows: int  # how many rows the batch has
    batch: int
    epoch: int | None  # by which it was placed; older programs did not say
    size: int


Opened = CommitCell | CorruptBlock


class CommitCellCache:
    """Cells as they were opened. Thread-safe, bounded."""

    def __init__(self, bytes_max: int = limits.SETTLED_CACHE_BYTES) -> None:
        self._cells: LruCache[bytes, CommitCell] = LruCache(bytes_max)

    def open(self, raws: Sequence[bytes], kind: int) -> list[Opened]:
        """Each cell, or what is wrong with it."""
        distinct = list(dict.fromkeys(raws))
        cached = dict(zip(distinct, self._cells.get_many(distinct), strict=True))
        unknown = [raw for raw, cell in cached.items() if cell is None]
        fresh: dict[bytes, Opened] = dict(zip(unknown, open_cells(unknown, kind, own=True), strict=True))
        self._cells.put_many((raw, cell, cell.size) for raw, cell in fresh.items() if isinstance(cell, CommitCell))
        return [cached[raw] or fresh[raw] for raw in raws]


@dataclass(frozen=True, slots=True)
class _Packed:
    """One cell taken apart, its columns still packed."""

    columns: Mapping[str, Encoded]
    sources: tuple[str, ...]
    count: int  # of messages
    size: int


def open_cells(raws: Sequence[bytes], kind: int, *, own: bool = False) -> list[Opened]:
    """Each cell, or what is wrong with it. ``own``: with columns that hold no other cell's bytes in memory.

    1. each cell is taken apart, and the lengths of its columns compared;
    2. columns are unpacked into common ones, each cell's at its place;
    3. every cell gets its part.
    """
    found = [_tried(raw, kind) for raw in raws]
    fine = [one for one in found if isinstance(one, _Packed)]
    starts = np.cumsum([0, *(one.count for one in fine)])
    table = {name: np.empty(starts[-1], dtype) for name, dtype in _TABLE.items()}
    table["id_hash"] = np.empty((starts[-1], 16), np.uint8)
    places = starts.tolist()
    faults = [_unpacked(one, table, at, until) for one, at, until in zip(fine, places, places[1:], strict=False)]
    names = np.repeat(np.array([len(one.sources) for one in fine], np.int64), np.diff(starts))
    lost = set(np.searchsorted(starts, np.flatnonzero((table["source"] < 0) | (table["source"] >= names)), "right") - 1)
    table |= {name: table[name].astype(np.int64) for name in ("process", "sequence")}
    made: list[Opened] = []
    for number, (one, at, until, fault) in enumerate(zip(fine, places, places[1:], faults, strict=False)):
        if fault is None and number in lost:
            fault = CorruptBlock("a message's source is not in its table", wanted=f"one of {len(one.sources)}")
        made.append(fault or _cell(one, table, slice(at, until), own=own))
    parts = iter(made)
    return [next(parts) if isinstance(one, _Packed) else one for one in found]


def _tried(raw: bytes, kind: int) -> _Packed | CorruptBlock:
    try:
        return _apart(raw, kind)
    except CorruptBlock as error:
        return error


def _apart(raw: bytes, kind: int) -> _Packed:
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
    return _Packed(columns, tuple(texts), count, len(raw) + 60 * count + _CELL_BYTES)


def _unpacked(one: _Packed, table: Mapping[str, Column], at: int, until: int) -> CorruptBlock | None:
    """Unpack a cell's columns to their place in common ones; what is wrong with them."""
    try:
        for name in _TABLE:
            codec.decode_into(one.columns[name], table[name][at:until])
        table["id_hash"][at:until] = np.frombuffer(one.columns["id_hash"][4], np.uint8).reshape(-1, 16)
    except CorruptBlock as error:
        table["source"][at:until] = 0
        return error
    return None


def _cell(one: _Packed, table: Mapping[str, Column], part: slice, *, own: bool) -> Opened:
    """Without the list of the batch's rows, of which only their number counts."""
    names = ("ms", "process", "sequence", "source", "samples", "id_hash")
    ms, process, sequence, source, samples, ids = (
        [table[name][part].copy() for name in names] if own else [table[name][part] for name in names]
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
