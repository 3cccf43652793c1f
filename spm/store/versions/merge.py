"""Merges pieces of one HourShard and picks the winners; reader and run use this code alike (PROTOCOL 2).

``merge`` takes pieces (blocks, pages, earlier merges) and returns all distinct versions, sorted by (series, ts, stamp);
``pick`` returns the winners. A version is (series, ts, value bits, stamp); only identical versions are merged. The
greatest stamp wins, within a message the last version, but no stale marker wins over a value. ``merge_messages`` alone
puts stamps in order and numbers the messages; the loops over samples, in ``kernels``, compare these numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from spm.arrays import BOOL, F64, I32, I64, U64
from spm.store.encoding import kernels
from spm.store.encoding.blocks import LogBlock, Messages
from spm.store.versions import kernels as version_kernels


@dataclass(frozen=True, slots=True)
class Piece:
    """Versions grouped by series: ids and metrics u64[S], counts i32[S]; ts, message and values per row."""

    messages: Messages
    series: U64
    metrics: U64
    counts: I32
    message: I32
    ts: I64
    values: F64

    def __len__(self) -> int:
        return len(self.ts)

    @classmethod
    def of_block(cls, block: LogBlock) -> "Piece":
        return cls(block.messages, block.series, block.metrics, block.counts, block.message, block.ts, block.values)

    @classmethod
    def of_row(cls, cells: Mapping[bytes, bytes]) -> "Piece":
        """Decode a row of `log` with all its cells; raise ``CorruptBlock``."""
        parts = [cls.of_block(block) for block in LogBlock.from_cells(cells)]
        return parts[0] if len(parts) == 1 else merge(parts)


@dataclass(frozen=True, slots=True)
class Winners:
    """Winning samples: series and metrics u64[S], counts i32[S], ts i64[N] ascending within a series, values f64[N]."""

    series: U64
    metrics: U64
    counts: I32
    ts: I64
    values: F64


NO_MESSAGES = Messages(*(np.empty(0, np.int64),) * 3, np.empty(0, np.int32), ())
EMPTY = Piece(
    NO_MESSAGES,
    np.empty(0, np.uint64),
    np.empty(0, np.uint64),
    np.empty(0, np.int32),
    np.empty(0, np.int32),
    np.empty(0, np.int64),
    np.empty(0),
)


def merge(pieces: Sequence[Piece]) -> Piece:
    """Merge pieces into one with all their versions: series by (metric, id), rows by (ts, stamp), messages by stamp."""
    return merge_emptying(list(pieces))


def merge_emptying(pieces: list[Piece]) -> Piece:
    """Merge pieces as ``merge`` does, but empty the list, so that what nobody else holds is freed column by column.

    1. Build one sorted table of the distinct messages, in which a message's number orders stamps.
    2. Build one table of the distinct series, sorted by (metric, id).
    3. Group the rows by series, in order of arrival, and concatenate their columns.
    4. Sort the rows of each series that is not sorted yet, and merge identical versions.
    """
    pieces[:] = [p for p in pieces if len(p)]
    if not pieces:
        return EMPTY
    messages, rank_of = merge_messages([p.messages for p in pieces])
    series, metrics, index_of = _merge_series(pieces)
    owner = np.concatenate([i[kernels.spread(p.counts, len(p))] for i, p in zip(index_of, pieces, strict=True)])
    counts, order = kernels.group_by_series(owner, len(series))
    del owner
    rank = np.concatenate([r[p.message] for r, p in zip(rank_of, pieces, strict=True)])
    ts_parts, values_parts = [p.ts for p in pieces], [p.values for p in pieces]
    pieces.clear()
    ts, values = _joined(ts_parts), _joined(values_parts)
    rows, merged_counts = version_kernels.order_versions(counts, order, ts, rank, values.view(np.int64))
    rank = rank[rows]  # one after the other: at no time are there two of two columns
    ts = ts[rows]
    values = values[rows]
    return Piece(messages, series, metrics, merged_counts, rank, ts, values)


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    """The parts as one array; the list is emptied."""
    whole = np.concatenate(parts)
    parts.clear()
    return whole


def merge_messages(tables: Sequence[Messages]) -> tuple[Messages, list[I32]]:
    """Merge message tables into one sorted table without repeats; return it and, per table, the new row numbers."""
    names = sorted({name for table in tables for name in table.sources})
    number = {name: i for i, name in enumerate(names)}
    renamed = [np.array([number[n] for n in t.sources], np.int32)[t.source] for t in tables]
    ms, process, sequence = (np.concatenate([getattr(t, f) for t in tables]) for f in ("ms", "process", "sequence"))
    source = np.concatenate(renamed)
    order = np.lexsort((source, sequence, process, ms))
    ms, process, sequence, source = ms[order], process[order], sequence[order], source[order]
    new = np.ones(len(ms), np.bool_)
    new[1:] = (np.diff(ms) != 0) | (np.diff(process) != 0) | (np.diff(sequence) != 0) | (np.diff(source) != 0)
    rank = np.empty(len(ms), np.int32)
    rank[order] = np.cumsum(new, dtype=np.int32) - 1
    table = Messages(ms[new], process[new], sequence[new], source[new], tuple(names))
    return table, np.split(rank, np.cumsum([len(t) for t in tables])[:-1])


def _merge_series(pieces: Sequence[Piece]) -> tuple[U64, U64, list[I32]]:
    ids = np.concatenate([p.series for p in pieces])
    metrics = np.concatenate([p.metrics for p in pieces])
    order = np.lexsort((ids, metrics))
    sorted_ids, sorted_metrics = ids[order], metrics[order]
    new = np.ones(len(ids), np.bool_)
    new[1:] = (sorted_ids[1:] != sorted_ids[:-1]) | (sorted_metrics[1:] != sorted_metrics[:-1])
    index = np.empty(len(ids), np.int32)
    index[order] = np.cumsum(new, dtype=np.int32) - 1
    return sorted_ids[new], sorted_metrics[new], np.split(index, np.cumsum([len(p.series) for p in pieces])[:-1])


_ALL = np.empty(0, np.bool_)


def pick(piece: Piece, visible: BOOL | None = None) -> Winners:
    """Pick the winner of every (series, ts) of a merged piece among its ``visible`` rows (bool[N]; ``None``: all)."""
    rows, counts = version_kernels.winners(
        piece.counts, piece.ts, piece.values.view(np.int64), _ALL if visible is None else visible
    )
    if len(rows) == len(piece.ts):
        return Winners(piece.series, piece.metrics, piece.counts, piece.ts, piece.values)
    return Winners(piece.series, piece.metrics, counts, piece.ts[rows], piece.values[rows])


def narrow(piece: Piece, wanted: BOOL) -> Piece:
    """Reduce a piece to the series of ``wanted`` (bool[S])."""
    return _take(piece, np.flatnonzero(wanted))


def requested(pieces: Sequence[Piece], series: Mapping[int, U64 | None]) -> list[Piece]:
    """Reduce merged pieces to some series, by metric id, both ascending; ``None``: all of the metric."""
    spans, ids, end = list[tuple[int, int]](), [EMPTY.series], 0
    for of_metric in series.values():
        if of_metric is None:
            spans.append((-1, -1))
        else:
            spans.append((end, end + len(of_metric)))
            ids.append(of_metric)
            end += len(of_metric)
    wanted = np.array([*series], np.uint64), np.array(spans, np.int64).reshape(-1, 2), np.concatenate(ids)
    return [_take(piece, version_kernels.find_series(piece.series, piece.metrics, *wanted)) for piece in pieces]


def _take(piece: Piece, numbers: I64) -> Piece:
    """Reduce a piece to the series with these numbers, which ascend."""
    if len(numbers) == len(piece.series):
        return piece
    rows = version_kernels.rows_of(piece.counts, numbers)
    return Piece(
        piece.messages,
        piece.series[numbers],
        piece.metrics[numbers],
        piece.counts[numbers],
        piece.message[rows],
        piece.ts[rows],
        piece.values[rows],
    )
