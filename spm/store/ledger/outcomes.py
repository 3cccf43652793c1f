"""What has become of every stamp: stored, late, rejected, dead, or not known yet (rule 24).

Enter by ``read_outcomes``: it joins commit records and account rows by stamp. Whatever a redelivery, a run that was repeated
or a second batch has left, each sample has one outcome: stored, else late, else rejected, else dead. A stamp is stored
when all rows of one of its batches are there. Columns all the way: one Python step per row (batch and hour), none per
message. Nothing here writes.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter

import numpy as np

from spm.arrays import BOOL, I32, I64, U8, U64
from spm.errors import CorruptBlock, StoreUnavailable
from spm.store import epochs, keys
from spm.store.backends.base import Reader
from spm.store.encoding import blocks
from spm.store.encoding.blocks import Messages
from spm.store.keys import Distribution
from spm.store.ledger import commit_records
from spm.store.ledger.commit_columns import CommitCell, CommitCellCache, open_cells
from spm.store.ledger.commit_records import DEAD, EXPIRED_HOUR, REJECTED, STORED
from spm.store.ledger.watermarks import OutcomeTotals, pack

_LOG = logging.getLogger(__name__)
Beyond = Mapping[int, int]  # process -> a packed stamp: only later ones of it are asked for; others: all
_NO = np.empty(0, np.int64)
_TRIES = 8  # when the distribution keeps changing while it is read
_AT_ONCE = 1_024  # rows that are opened together


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Outcomes of M distinct stamps, by process, then in the order of their stamps. Samples of each by outcome.

    ``whole``: every sample of the message has its outcome. ``rejected`` are refused lines, which are no samples.
    ``damaged``: rows that could not be read, and are not in it.
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
    whole: BOOL
    damaged: int = 0

    def __len__(self) -> int:
        return len(self.ms)

    @property
    def stamps(self) -> U64:
        """The stamps, packed: in order within each process."""
        return pack(self.ms, self.sequence)

    @property
    def kept(self) -> BOOL:
        """bool[M]: whole messages of which the store has, or had, at least one sample."""
        kept: BOOL = self.whole & (self.stored + self.late > 0)
        return kept

    @property
    def lost(self) -> BOOL:
        """bool[M]: whole messages that are dead, and not stored."""
        lost: BOOL = self.whole & (self.stored + self.late == 0) & (self.dead > 0)
        return lost

    def only(self, chosen: BOOL | slice) -> "Outcomes":
        """Some of them."""
        return Outcomes(
            self.ms[chosen],
            self.process[chosen],
            self.sequence[chosen],
            self.source[chosen],
            self.sources,
            self.message_ids[chosen],
            self.stored[chosen],
            self.late[chosen],
            self.rejected[chosen],
            self.dead[chosen],
            self.whole[chosen],
            self.damaged,
        )

    def totals(self) -> OutcomeTotals:
        """Their sums; messages by the best that became of their samples, or as rejected when they had none."""
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
) -> Outcomes:
    """All stamps of commit records, and of account rows between two minutes (of their batches' oldest stamps).

    Commit records are read first: a run puts the account in before it takes the record away, so that each is seen at
    least once. What lies in a shard that readers do not look into any more does not count, so the distribution is
    read before and after. Nor does what a writer has put by an epoch that is ending or closed: it will put the same
    where it belongs. A run has looked at the epoch itself before it wrote an account. Of more than ``rows_max`` rows of
    a table the newest are read: what is cut off counts as not known yet.
    """
    for _ in range(_TRIES):
        spread = epochs.read(reader, app)
        found: dict[bytes, CommitCell] = {}
        commits = islice(_commits(reader, app, spread.all(app)), rows_max)
        damaged = _gather(found, commits, blocks.PENDING, beyond, cells, spread)
        spans = keys.ledger_range(app, since_minute, until_minute)
        rows = reader.scan("ledger", *spans, columns=[commit_records.COLUMN], limit=rows_max)
        accounts = ((key, row[commit_records.COLUMN]) for key, row in rows)
        damaged += _gather(found, accounts, blocks.LEDGER, beyond, cells)
        if epochs.read(reader, app) == spread:
            return _joined(list(found.values()), damaged)
    raise StoreUnavailable(f"the distribution of app {app} kept changing")


def _commits(reader: Reader, app: int, shards: Sequence[int]) -> Iterator[tuple[bytes, bytes]]:
    """(the key that its account will have, the cell) of every commit record."""
    for item in commit_records.scan(reader, app, list(shards)):
        yield commit_records.ledger_key(item.key.log(item.hour)), item.cell


def _gather(
    found: dict[bytes, CommitCell],
    rows: Iterable[tuple[bytes, bytes]],
    kind: int,
    beyond: Beyond | None,
    cells: CommitCellCache | None,
    spread: Distribution | None = None,
) -> int:
    """Open rows and hold what is asked for of each that counts by the distribution; how many are damaged."""
    damaged, waiting = 0, iter(rows)
    while part := list(islice(waiting, _AT_ONCE)):
        raws = [raw for _, raw in part]
        kept: list[tuple[bytes, CommitCell]] = []
        for (key, _), cell in zip(part, cells.open(raws, kind) if cells else open_cells(raws, kind), strict=True):
            if isinstance(cell, CorruptBlock):
                _LOG.error("a row of %s is damaged: %s", "pending" if kind == blocks.PENDING else "ledger", cell)
                damaged += 1
            elif spread is None or cell.epoch is None or spread.counts(cell.epoch):
                kept.append((key, cell))
        found.update(kept if beyond is None else _picked(kept, beyond))
    return damaged


def _picked(kept: Sequence[tuple[bytes, CommitCell]], beyond: Beyond) -> Iterator[tuple[bytes, CommitCell]]:
    """The cells with only the messages that are asked for; each stands for its batch in any case."""
    process, ms, sequence = (
        np.concatenate([_NO, *(getattr(cell.messages, name) for _, cell in kept)])
        for name in ("process", "ms", "sequence")
    )
    known, which = np.unique(process, return_inverse=True)
    least = np.array([beyond.get(number, 0) for number in known.tolist()], np.uint64)
    asked = pack(ms, sequence) > least[which]
    ends = np.cumsum(np.array([len(cell.messages) for _, cell in kept], np.int64))
    counts = np.diff(np.concatenate([[0], np.cumsum(asked)])[np.concatenate([[0], ends])])
    for (key, cell), end, count in zip(kept, ends.tolist(), counts.tolist(), strict=True):
        size = len(cell.messages)
        yield key, cell if count == size else _only(cell, asked[end - size : end])


def _only(cell: CommitCell, chosen: BOOL) -> CommitCell:
    m = cell.messages
    sources = m.sources if chosen.any() else ()
    kept = Messages(m.ms[chosen], m.process[chosen], m.sequence[chosen], m.source[chosen], sources)
    totals = None if cell.totals is None else cell.totals[chosen]
    return replace(
        cell, messages=kept, samples=cell.samples[chosen], message_ids=cell.message_ids[chosen], totals=totals
    )


# --- the join ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Entries:
    """One entry per message and cell: the number of its stamp and of its cell, and its samples."""

    stamp: I64
    cell: I64
    samples: I64
    totals: I64  # -1: not told


def _joined(cells: list[CommitCell], damaged: int) -> Outcomes:
    """1. stamps get numbers; 2. stored and late by batch, hour and stamp; 3. rejected and dead by cause and stamp."""
    there = Counter(cell.batch for cell in cells if cell.outcome in (STORED, EXPIRED_HOUR))
    complete = np.array([there[cell.batch] >= cell.rows for cell in cells], np.bool_)
    sizes = [len(cell.messages) for cell in cells]
    names, source = _sources(cells, sizes)

    def column(of: Callable[[CommitCell], np.ndarray], empty: np.ndarray = _NO) -> np.ndarray:
        return np.concatenate([empty, *(of(cell) for cell, size in zip(cells, sizes, strict=True) if size)])

    ms, process, sequence = (column(attrgetter(f"messages.{name}")) for name in ("ms", "process", "sequence"))
    order, starts = _groups(process, pack(ms, sequence))
    stamp = np.empty(len(order), np.int64)
    stamp[order] = _spread(np.arange(len(starts)), starts, len(order))
    first = order[starts]
    entries = _Entries(stamp, np.repeat(np.arange(len(cells)), sizes), column(attrgetter("samples")), column(_told))
    stored, late, whole = _stored(entries, cells, complete, len(starts))
    rejected, dead, total = _died(entries, cells, len(starts))
    told = total >= 0
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
        np.where(told, np.minimum(dead, np.maximum(total - stored - late, 0)), dead),
        whole | (told & (dead >= total)),
        damaged,
    )


def _told(cell: CommitCell) -> I64:
    return np.full(len(cell.messages), -1) if cell.totals is None else cell.totals


def _sources(cells: list[CommitCell], sizes: list[int]) -> tuple[tuple[str, ...], I32]:
    """(the names of all cells in one table, the number in it of each message's source)."""
    names = dict.fromkeys(name for cell in cells for name in cell.messages.sources)
    number = {name: place for place, name in enumerate(names)}
    places = np.array([number[name] for cell in cells for name in cell.messages.sources], np.int32)
    starts = np.cumsum([0, *(len(cell.messages.sources) for cell in cells)])[:-1]
    own = np.concatenate([_NO, *(cell.messages.source for cell in cells)])
    return tuple(names), places[np.repeat(starts, sizes) + own]


def _groups(*columns: np.ndarray) -> tuple[I64, I64]:
    """(an order that sorts by these columns, where in it each group of equal ones begins)."""
    order = np.lexsort(columns[::-1])
    if not len(order):
        return order, _NO
    changed = np.logical_or.reduce([column[order][1:] != column[order][:-1] for column in columns])
    return order, np.flatnonzero(np.concatenate([[True], changed]))


def _spread(values: I64, starts: I64, count: int) -> I64:
    """Each group's value for all of its members."""
    return np.repeat(values, np.diff(np.append(starts, count)))


def _stored(e: _Entries, cells: list[CommitCell], complete: BOOL, count: int) -> tuple[I64, I64, BOOL]:
    """Per stamp: samples stored, samples too late, and whether one of its batches is there as a whole.

    1. a batch may hold a message twice: it is one acceptance;
    2. per stamp, hour and batch the rows are added up, which may lie in several shards;
    3. per stamp and hour a whole batch says how many there are; they are in time if they are so in any batch.
    """
    hour = np.array([cell.hour for cell in cells], np.int64)
    batch = np.array([cell.batch for cell in cells], np.uint64)
    timely = np.array([cell.outcome == STORED for cell in cells], np.bool_)
    mine = np.flatnonzero(np.isin(np.array([cell.outcome for cell in cells], np.int64)[e.cell], (STORED, EXPIRED_HOUR)))
    if not len(mine):
        return np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count, np.bool_)
    order, starts = _groups(e.stamp[mine], e.cell[mine])
    samples = np.maximum.reduceat(e.samples[mine][order], starts)
    stamp, cell = (column[mine][order][starts] for column in (e.stamp, e.cell))
    order, starts = _groups(stamp, hour[cell], batch[cell])
    added = np.add.reduceat(samples[order], starts)
    in_time = np.logical_and.reduceat(timely[cell][order], starts)
    stamp, cell = stamp[order][starts], cell[order][starts]
    whole = complete[cell]
    order, starts = _groups(stamp, hour[cell])
    full = np.maximum.reduceat(np.where(whole, added, 0)[order], starts)
    enough = added[order] >= _spread(full, starts, len(order))
    some_in_time = np.logical_or.reduceat(in_time[order] & enough, starts)
    owner = stamp[order][starts]
    return (
        _summed(owner, np.where(some_in_time, full, 0), count),
        _summed(owner, np.where(some_in_time, 0, full), count),
        np.bincount(stamp[whole], minlength=count) > 0,
    )


def _died(e: _Entries, cells: list[CommitCell], count: int) -> tuple[I64, I64, I64]:
    """Per stamp: lines rejected, samples dead, and samples in all (-1: not told).

    A row that tells the total is the only one of its stamp and cause, so causes add up. Older rows were written once
    more with every redelivery: the largest counts.
    """
    outcome = np.array([cell.outcome for cell in cells], np.int64)[e.cell]
    total = np.full(count, -1)
    np.maximum.at(total, e.stamp, e.totals)
    found = []
    for wanted in (REJECTED, DEAD):
        new, old = ((outcome == wanted) & told for told in (e.totals >= 0, e.totals < 0))
        order, starts = _groups(e.stamp[new], e.cell[new])
        once = np.maximum.reduceat(e.samples[new][order], starts) if len(order) else _NO
        summed = _summed(e.stamp[new][order][starts], once, count)
        np.maximum.at(summed, e.stamp[old], e.samples[old])
        found.append(summed)
    return found[0], found[1], total


def _summed(owner: I64, values: I64, count: int) -> I64:
    """Sums by owner; exact, since no sum of samples comes near 2^53."""
    return np.bincount(owner, weights=values, minlength=count).astype(np.int64)
