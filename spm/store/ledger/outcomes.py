"""The outcome of every stamp: stored, late, rejected, dead, or not known yet (PROTOCOL 24).

Enter by ``read_outcomes``: it joins commit records and ledger rows by stamp. After redeliveries, repeated runs and
second batches each sample still has one outcome: stored, else late, else rejected, else dead. A stamp is stored when
all rows of one of its batches are there. The join works on columns: one Python step per row (batch and hour), none per
message. Nothing here writes.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter
from typing import Protocol

import numpy as np

from spm.arrays import BOOL, I32, I64, U8, U64
from spm.errors import CorruptBlock, StoreUnavailable
from spm.store import epochs, keys
from spm.store.backends.base import Reader, scan_ranges
from spm.store.encoding import blocks
from spm.store.encoding.blocks import Messages
from spm.store.keys import PendingKey, PlacementTable
from spm.store.ledger import commit_records
from spm.store.ledger.commit_columns import CommitCell, CommitCellCache, open_cells
from spm.store.ledger.commit_records import DEAD, EXPIRED_HOUR, REJECTED, STORED
from spm.store.ledger.watermarks import OutcomeTotals, pack

_LOG = logging.getLogger(__name__)
Beyond = Mapping[int, int]  # process -> a packed stamp, above which its stamps are read; of other processes all are
_NO = np.empty(0, np.int64)
_READS_MAX = 8  # when the placement table keeps changing while rows are read
_AT_ONCE = 1_024  # rows that are decoded together
_RECORDS_AT_ONCE = 16  # commit records that are read together: with 2,500 hours each some 15 MB


class BatchFilter(Protocol):
    """Knows batches of which nothing need be read."""

    def has_passed(self, batch: int) -> bool:
        """Whether the rows of a batch need not be read."""

    def recall(self, table: PlacementTable) -> list[CommitCell] | None:
        """Return cells that stand for batches of which no row was read, for those whose outcomes still count.

        ``None``: some count no more by this table, so all must be read again.
        """

    def note(self, cells: Sequence[CommitCell]) -> None:
        """Hear of the cells that were read, each with the messages beyond."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Outcomes of M distinct stamps, by process, then in the order of their stamps: samples of each by outcome.

    ``are_settled``: every sample of the message has its outcome. ``rejected`` are refused lines, which are no samples.
    ``damaged``: the number of rows that could not be read.
    """

    ms: I64
    process: I64
    sequence: I64
    source: I32
    sources: tuple[str, ...]
    message_ids: U8  # u8[M, 16]
    stored: I64
    late: I64
    rejected: I64
    dead: I64
    are_settled: BOOL
    damaged: int = 0

    def __len__(self) -> int:
        return len(self.ms)

    @property
    def stamps(self) -> U64:
        """The packed stamps, ascending within each process."""
        return pack(self.ms, self.sequence)

    @property
    def are_stored(self) -> BOOL:
        """bool[M]: settled messages of which at least one sample is stored or was too late."""
        mask: BOOL = self.are_settled & (self.stored + self.late > 0)
        return mask

    @property
    def are_dead(self) -> BOOL:
        """bool[M]: settled messages of which samples are dead and none is stored."""
        mask: BOOL = self.are_settled & (self.stored + self.late == 0) & (self.dead > 0)
        return mask

    def select(self, rows: BOOL | slice) -> "Outcomes":
        """The outcomes of some stamps."""
        return Outcomes(
            self.ms[rows],
            self.process[rows],
            self.sequence[rows],
            self.source[rows],
            self.sources,
            self.message_ids[rows],
            self.stored[rows],
            self.late[rows],
            self.rejected[rows],
            self.dead[rows],
            self.are_settled[rows],
            self.damaged,
        )

    def totals(self) -> OutcomeTotals:
        """Sum them; a message counts by the best outcome of its samples, or as rejected when it has no sample."""
        columns = (self.stored, self.late, self.dead, self.rejected)
        best = np.select([column > 0 for column in columns], range(len(columns)), len(columns))
        messages = np.bincount(best, minlength=len(columns)).tolist()
        stored, late, dead, rejected = (int(column.sum()) for column in columns)
        return OutcomeTotals(
            len(self),
            stored + late + dead,
            stored,
            late,
            rejected,
            dead,
            messages[0],
            messages[1],
            messages[3],
            messages[2],
        )


def read_outcomes(
    reader: Reader,
    app: int,
    since_minute: int,
    until_minute: int = keys.U32,
    *,
    beyond: Beyond | None = None,
    cells: CommitCellCache | None = None,
    rows_max: int | None = None,
    batches: BatchFilter | None = None,
) -> Outcomes:
    """Read all stamps of commit records, and of ledger rows between two minutes (of their batches' oldest stamps).

    Commit records are read first: a run puts the ledger row before it deletes the record, so that each is read at
    least once. Records in a shard that no reader looks into any more do not count, so the placement table is read
    before and after. Records by an epoch that is ending or closed do not count either: their writer puts them again
    where they belong. For ledger rows the run has checked the epoch. Of more than ``rows_max`` cells of commit records
    the oldest are read, of ledger rows the newest; the outcomes in the others are not known yet. ``batches`` says of
    which batches no row is read, and hears of the cells that were; with it, no batch is read in part.
    """
    for _ in range(_READS_MAX):
        table = epochs.read(reader, app)
        by_key: dict[bytes, CommitCell] = {}
        span = keys.ledger_range(app, since_minute, until_minute)
        commits: Iterator[tuple[bytes, bytes]]
        if batches is None:
            commits = islice(_scan_commits(reader, app, table.all_shards(app)), rows_max)
        else:
            commits = _get_commits(reader, app, table.all_shards(app), rows_max, batches)
        damaged = _gather(by_key, commits, blocks.PENDING, beyond, cells, table)
        if batches is None:
            ledger_rows = _scan_ledger(reader, span, rows_max)
        else:
            ledger_rows = _get_ledger(reader, span, rows_max, batches)
        damaged += _gather(by_key, ledger_rows, blocks.LEDGER, beyond, cells)
        if epochs.read(reader, app) == table:
            cells_read = list(by_key.values())
            if batches is None:
                return _join(cells_read, damaged)
            recalled = batches.recall(table)
            if recalled is not None:
                batches.note(cells_read)
                return _join(_with_recalled(cells_read, recalled, beyond or {}), damaged)
    raise StoreUnavailable(f"the placement table of app {app} kept changing")


def _scan_commits(reader: Reader, app: int, shards: Sequence[int]) -> Iterator[tuple[bytes, bytes]]:
    """Yield (the key of its future ledger row, the cell) of every pending cell."""
    for item in commit_records.scan(reader, app, list(shards)):
        yield commit_records.ledger_key(item.key.log(item.hour)), item.cell


def _get_commits(
    reader: Reader, app: int, shards: Sequence[int], rows_max: int | None, batches: BatchFilter
) -> Iterator[tuple[bytes, bytes]]:
    """As ``_scan_commits``, the oldest first, without the records of batches that are not to be read."""
    ranges = [keys.app_range(shard, app) for shard in shards]
    listed = (PendingKey.parse(key) for key, _ in scan_ranges(reader, "pending", ranges, keys_only=True))
    wanted = sorted((key for key in listed if not batches.has_passed(key.batch)), key=attrgetter("ingest_ms", "batch"))
    count, last = 0, -1
    for at in range(0, len(wanted), _RECORDS_AT_ONCE):
        part = wanted[at : at + _RECORDS_AT_ONCE]
        for key, row in zip(part, reader.get("pending", [key.to_bytes() for key in part]), strict=True):
            if rows_max is not None and count >= rows_max and key.batch != last:
                return
            last = key.batch
            count += len(row or {})
            for column, cell in (row or {}).items():  # none: a run has put its ledger rows, which are read later
                yield commit_records.ledger_key(key.log(keys.column_hour(column))), cell


def _scan_ledger(reader: Reader, span: tuple[bytes, bytes], rows_max: int | None) -> Iterator[tuple[bytes, bytes]]:
    for key, row in reader.scan("ledger", *span, columns=[commit_records.COLUMN], limit=rows_max):
        yield key, row[commit_records.COLUMN]


def _get_ledger(
    reader: Reader, span: tuple[bytes, bytes], rows_max: int | None, batches: BatchFilter
) -> Iterator[tuple[bytes, bytes]]:
    """As ``_scan_ledger``, without the rows of batches that are not to be read."""
    wanted: list[bytes] = []
    last = -1
    for key, _ in reader.scan("ledger", *span, keys_only=True):
        batch = keys.parse_ledger(key).writer
        if batch != last and rows_max is not None and len(wanted) >= rows_max:
            break
        if batch == last or not batches.has_passed(batch):
            wanted.append(key)
            last = batch
    for at in range(0, len(wanted), _AT_ONCE):
        part = wanted[at : at + _AT_ONCE]
        for key, row in zip(part, reader.get("ledger", part, [commit_records.COLUMN]), strict=True):
            if row is not None:
                yield key, row[commit_records.COLUMN]


def _gather(
    by_key: dict[bytes, CommitCell],
    rows: Iterable[tuple[bytes, bytes]],
    kind: int,
    beyond: Beyond | None,
    cache: CommitCellCache | None,
    table: PlacementTable | None = None,
) -> int:
    """Decode the rows that count by the placement table into ``by_key``; return the number of damaged ones."""
    damaged, remaining = 0, iter(rows)
    while part := list(islice(remaining, _AT_ONCE)):
        raws = [raw for _, raw in part]
        valid: list[tuple[bytes, CommitCell]] = []
        for (key, _), cell in zip(part, cache.open(raws, kind) if cache else open_cells(raws, kind), strict=True):
            if isinstance(cell, CorruptBlock):
                _LOG.error("a row of %s is damaged: %s", "pending" if kind == blocks.PENDING else "ledger", cell)
                damaged += 1
            elif table is None or cell.epoch is None or table.counts(cell.epoch):
                valid.append((key, cell))
        by_key.update(valid if beyond is None else _only_beyond(valid, beyond))
    return damaged


def _only_beyond(cells: Sequence[tuple[bytes, CommitCell]], beyond: Beyond) -> Iterator[tuple[bytes, CommitCell]]:
    """Yield the cells with only the messages beyond; a cell without any is yielded too, as a row of its batch."""
    process, stamps = stamps_of([cell for _, cell in cells])
    processes, which = np.unique(process, return_inverse=True)
    least = np.array([beyond.get(number, 0) for number in processes.tolist()], np.uint64)
    yield from zip((key for key, _ in cells), _selected([c for _, c in cells], stamps > least[which]), strict=True)


def _with_recalled(cells: Sequence[CommitCell], recalled: Sequence[CommitCell], beyond: Beyond) -> list[CommitCell]:
    """Return all cells. A message that a recalled batch has stored is left out of the cells of others: it counts once.

    A recalled batch is complete and in time, so that another one could add nothing.
    """
    if not recalled:
        return list(cells)
    whole = [cell for _, cell in _only_beyond([(b"", cell) for cell in recalled], beyond)]
    process, stamps = stamps_of(whole)
    others = [cell for cell in cells if cell.outcome in (STORED, EXPIRED_HOUR)]
    their_process, theirs = stamps_of(others)
    is_new = np.ones(len(theirs), np.bool_)
    for number in np.unique(process).tolist():
        is_new &= (their_process != number) | ~np.isin(theirs, stamps[process == number])
    rest = [cell for cell in cells if cell.outcome not in (STORED, EXPIRED_HOUR)]
    return [*whole, *_selected(others, is_new), *rest]


def stamps_of(cells: Sequence[CommitCell]) -> tuple[I64, U64]:
    """Return (process, packed stamp) of the messages of these cells, one cell after the other."""
    process, ms, sequence = (
        np.concatenate([_NO, *(getattr(cell.messages, name) for cell in cells)])
        for name in ("process", "ms", "sequence")
    )
    return process, pack(ms, sequence)


def _selected(cells: Sequence[CommitCell], mask: BOOL) -> Iterator[CommitCell]:
    """Yield the cells with only those of their messages that the mask over all of them has."""
    ends = np.cumsum(np.array([len(cell.messages) for cell in cells], np.int64))
    counts = np.diff(np.concatenate([[0], np.cumsum(mask)])[np.concatenate([[0], ends])])
    for cell, end, count in zip(cells, ends.tolist(), counts.tolist(), strict=True):
        size = len(cell.messages)
        yield cell if count == size else _select_messages(cell, mask[end - size : end])


def _select_messages(cell: CommitCell, mask: BOOL) -> CommitCell:
    m = cell.messages
    return replace(
        cell,
        messages=Messages(
            m.ms[mask], m.process[mask], m.sequence[mask], m.source[mask], m.sources if mask.any() else ()
        ),
        samples=cell.samples[mask],
        message_ids=cell.message_ids[mask],
        totals=None if cell.totals is None else cell.totals[mask],
    )


# --- the join ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Entries:
    """One entry per message and cell: the numbers of its stamp and of its cell, and its samples."""

    stamp: I64
    cell: I64
    samples: I64
    totals: I64  # -1: not recorded


def _join(cells: list[CommitCell], damaged: int) -> Outcomes:
    """Number the stamps, then count stored and late by batch, hour and stamp, rejected and dead by cause and stamp."""
    row_counts = Counter(cell.batch for cell in cells if cell.outcome in (STORED, EXPIRED_HOUR))
    complete = np.array([row_counts[cell.batch] >= cell.rows for cell in cells], np.bool_)
    sizes = [len(cell.messages) for cell in cells]
    names, source = _source_table(cells, sizes)

    def column(of: Callable[[CommitCell], np.ndarray], empty: np.ndarray = _NO) -> np.ndarray:
        return np.concatenate([empty, *(of(cell) for cell, size in zip(cells, sizes, strict=True) if size)])

    ms, process, sequence = (column(attrgetter(f"messages.{name}")) for name in ("ms", "process", "sequence"))
    order, starts = group_rows(process, pack(ms, sequence))
    stamp = np.empty(len(order), np.int64)
    stamp[order] = _repeat_groups(np.arange(len(starts)), starts, len(order))
    first = order[starts]
    entries = _Entries(
        stamp, np.repeat(np.arange(len(cells)), sizes), column(attrgetter("samples")), column(_message_totals)
    )
    stored, late, in_complete_batch = _count_stored(entries, cells, complete, len(starts))
    rejected, dead, total = _count_dead(entries, cells, len(starts))
    has_total = total >= 0
    return Outcomes(
        ms[first],
        process[first],
        sequence[first],
        source[first],
        names,
        column(attrgetter("message_ids"), np.empty((0, 16), np.uint8))[first],
        stored,
        late,
        rejected,
        np.where(has_total, np.minimum(dead, np.maximum(total - stored - late, 0)), dead),
        in_complete_batch | (has_total & (dead >= total)),
        damaged,
    )


def _message_totals(cell: CommitCell) -> I64:
    return np.full(len(cell.messages), -1) if cell.totals is None else cell.totals


def _source_table(cells: list[CommitCell], sizes: list[int]) -> tuple[tuple[str, ...], I32]:
    """(the source names of all cells in one table, the number in it of each message's source)."""
    names = dict.fromkeys(name for cell in cells for name in cell.messages.sources)
    number = {name: place for place, name in enumerate(names)}
    places = np.array([number[name] for cell in cells for name in cell.messages.sources], np.int32)
    starts = np.cumsum([0, *(len(cell.messages.sources) for cell in cells)])[:-1]
    own = np.concatenate([_NO, *(cell.messages.source for cell in cells)])
    return tuple(names), places[np.repeat(starts, sizes) + own]


def group_rows(*columns: np.ndarray) -> tuple[I64, I64]:
    """(the order that sorts by these columns, the index in it at which each group of equal rows begins)."""
    order = np.lexsort(columns[::-1])
    if not len(order):
        return order, _NO
    changed = np.logical_or.reduce([column[order][1:] != column[order][:-1] for column in columns])
    return order, np.flatnonzero(np.concatenate([[True], changed]))


def _repeat_groups(values: I64, starts: I64, count: int) -> I64:
    """Repeat each group's value for all its members."""
    return np.repeat(values, np.diff(np.append(starts, count)))


def _count_stored(e: _Entries, cells: list[CommitCell], complete: BOOL, count: int) -> tuple[I64, I64, BOOL]:
    """Per stamp: samples stored, samples too late, and whether one of its batches is complete.

    1. A message that a batch holds twice counts once, as one acceptance.
    2. Per stamp, hour and batch the rows, which may lie in several shards, are added up.
    3. Per stamp and hour the complete batch says how many there are; they are in time if any batch has them in time.
    """
    hour = np.array([cell.hour for cell in cells], np.int64)
    batch = np.array([cell.batch for cell in cells], np.uint64)
    timely = np.array([cell.outcome == STORED for cell in cells], np.bool_)
    mine = np.flatnonzero(np.isin(np.array([cell.outcome for cell in cells], np.int64)[e.cell], (STORED, EXPIRED_HOUR)))
    if not len(mine):
        return np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count, np.bool_)
    order, starts = group_rows(e.stamp[mine], e.cell[mine])
    samples = np.maximum.reduceat(e.samples[mine][order], starts)
    stamp, cell = (column[mine][order][starts] for column in (e.stamp, e.cell))
    order, starts = group_rows(stamp, hour[cell], batch[cell])
    sums = np.add.reduceat(samples[order], starts)
    in_time = np.logical_and.reduceat(timely[cell][order], starts)
    stamp, cell = stamp[order][starts], cell[order][starts]
    is_complete = complete[cell]
    order, starts = group_rows(stamp, hour[cell])
    full = np.maximum.reduceat(np.where(is_complete, sums, 0)[order], starts)
    enough = sums[order] >= _repeat_groups(full, starts, len(order))
    some_in_time = np.logical_or.reduceat(in_time[order] & enough, starts)
    owner = stamp[order][starts]
    return (
        _sum_by_owner(owner, np.where(some_in_time, full, 0), count),
        _sum_by_owner(owner, np.where(some_in_time, 0, full), count),
        np.bincount(stamp[is_complete], minlength=count) > 0,
    )


def _count_dead(e: _Entries, cells: list[CommitCell], count: int) -> tuple[I64, I64, I64]:
    """Per stamp: lines rejected, samples dead, and the number of all its samples (-1: not recorded).

    A row that records the total is the only one of its stamp and cause, so causes add up. Older rows were written
    again with every redelivery, so that the largest one counts.
    """
    outcome = np.array([cell.outcome for cell in cells], np.int64)[e.cell]
    total = np.full(count, -1)
    np.maximum.at(total, e.stamp, e.totals)
    sums = []
    for kind in (REJECTED, DEAD):
        new, old = (outcome == kind) & (e.totals >= 0), (outcome == kind) & (e.totals < 0)
        order, starts = group_rows(e.stamp[new], e.cell[new])
        once = np.maximum.reduceat(e.samples[new][order], starts) if len(order) else _NO
        summed = _sum_by_owner(e.stamp[new][order][starts], once, count)
        np.maximum.at(summed, e.stamp[old], e.samples[old])
        sums.append(summed)
    return sums[0], sums[1], total


def _sum_by_owner(owner: I64, values: I64, count: int) -> I64:
    """Sum by owner; exact, since no sum of samples comes near 2^53."""
    return np.bincount(owner, weights=values, minlength=count).astype(np.int64)
