"""Folds hours of the ledger: the sums of an hour by source replace its rows, which would stay for ever (PROTOCOL 24).

Enter by ``fold``, once a day for an app; the caller passes the time. A round visits ``HOURS_AT_ONCE`` of the hours with
ledger rows that ended more than ``KEPT_MS`` ago: half of them the newest, which a day has brought, then others, from a
place on that is another one each day. So hours that cannot be folded keep no older one from its turn. Of each hour:

1. read the watermarks, THEN the rows of the hour: what lies below a watermark is settled for good. An hour of which a
   batch still waits for a run is left alone;
2. put the sums of those messages as a folded hour, by check-and-put from absent: nobody folds an hour twice;
3. delete the rows of the hour whose messages are all in folded hours. Of a batch all rows go or none, since a message
   counts as stored only while all rows of its batch are there. While one of its blocks is there, they go only if the
   folded hour names the batch: a purge takes other blocks without ledger rows for such that no run has compacted.

It may be killed anywhere, run twice at once and be repeated: until step 2 nothing has changed, and from then on no
reader looks at a row that may go. Rows of messages above a watermark stay, and count beside the sums.
"""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from spm.arrays import BOOL, I64, U64
from spm.errors import CorruptBlock
from spm.limits import BALANCE_SLACK_MS, HOUR_MS
from spm.store import epochs, keys
from spm.store.backends.base import Backend
from spm.store.encoding import blocks
from spm.store.ledger import balance_hours, commit_records, folded_hours, limits, watermarks
from spm.store.ledger.balance import MINUTE_MS
from spm.store.ledger.commit_columns import CommitCell, open_cells
from spm.store.ledger.commit_records import STORED
from spm.store.ledger.folded_hours import FoldedHour
from spm.store.ledger.outcomes import Outcomes, read_outcomes

_LOG = logging.getLogger(__name__)
_DELETED_AT_ONCE = 1_000
_TURN = 0.6180339887  # of what is left, from one day's place to the next one's: the golden section visits all evenly
_Rows = list[tuple[bytes, CommitCell]]  # with their keys


@dataclass(slots=True)
class FoldResult:
    """What was done: hours that were folded, and rows that were deleted."""

    hours: int = 0
    rows: int = 0


def fold(store: Backend, app: int, now_ms: int, *, hours_max: int = limits.HOURS_AT_ONCE) -> FoldResult:
    """Fold the hours of an app that are due, at most so many. Repeat it after ``StoreUnavailable``."""
    folder = _Folder(store, app, before=(now_ms - limits.KEPT_MS) // HOUR_MS)
    end, visited = folder.fold_below(folder.before, (hours_max + 1) // 2)
    oldest = folder.oldest_below(end)
    if oldest is not None:
        part = now_ms // (24 * HOUR_MS) * _TURN % 1.0
        start = end - int(part * (end - oldest))
        _, more = folder.fold_below(start, hours_max - visited)
        folder.fold_below(end, hours_max - visited - more, first=start)
    return folder.result


@dataclass(slots=True)
class _Folder:
    """One round over an app's hours. ``before``: the first hour that is too young."""

    store: Backend
    app: int
    before: int
    result: FoldResult = field(default_factory=FoldResult)
    _hours: dict[int, FoldedHour | None] = field(default_factory=dict)
    _blocks: dict[tuple[int, int], frozenset[tuple[int, int]]] = field(default_factory=dict)
    _waiting: list[int] | None = None

    def fold_below(self, end: int, most: int, *, first: int = 0) -> tuple[int, int]:
        """Fold hours of first:end that have rows, the newest first; return (the last one, or ``end``; their number)."""
        for visited in range(most):
            hour = self._newest(first, end)
            if hour is None:
                return end, visited
            self.fold_hour(hour)
            end = hour
        return end, max(0, most)

    def oldest_below(self, end: int) -> int | None:
        """Return the oldest hour below ``end`` that has rows, by some twenty looks; ``None`` if none has."""
        if self._newest(0, end) is None:
            return None
        first, last = 0, end - 1
        while first < last:
            middle = (first + last) // 2
            if self._newest(0, middle + 1) is None:
                first = middle + 1
            else:
                last = middle
        return first

    def _newest(self, first: int, end: int) -> int | None:
        """The newest hour of first:end that has rows."""
        if first >= end:
            return None
        span = keys.ledger_range(self.app, 60 * first, 60 * end - 1)
        row = next(iter(self.store.scan("ledger", *span, columns=[commit_records.COLUMN], limit=1)), None)
        return None if row is None else keys.parse_ledger(row[0]).minute // 60

    def fold_hour(self, hour: int) -> None:
        """Fold the hours of the messages in the rows of an hour's minutes, and delete the rows that may go."""
        self._hours = {number: folded for number, folded in self._hours.items() if number >= hour - 1}
        self._blocks = {}
        single, batches = self._rows(hour)
        names = [key for key, cell in single if self._are_counted(cell)]
        for rows in batches.values():
            if self._may_go(hour, rows):
                names += [key for key, _ in rows]
        self._delete(names)

    def _rows(self, hour: int) -> tuple[_Rows, dict[tuple[int, int], _Rows]]:
        """The rows of an hour's minutes: of single messages, and of batches by (minute, batch)."""
        span = keys.ledger_range(self.app, 60 * hour, 60 * hour + 59)
        scanned = self.store.scan("ledger", *span, columns=[commit_records.COLUMN])
        rows = [(key, cells[commit_records.COLUMN]) for key, cells in scanned]
        single: _Rows = []
        batches: dict[tuple[int, int], _Rows] = {}
        for (key, _), cell in zip(rows, open_cells([raw for _, raw in rows], blocks.LEDGER), strict=True):
            if isinstance(cell, CorruptBlock):
                continue  # it stays, and readers of the hour count it as damaged
            if cell.rows:
                batches.setdefault((keys.parse_ledger(key).minute, cell.batch), []).append((key, cell))
            else:
                single.append((key, cell))
        return single, batches

    def _may_go(self, hour: int, rows: _Rows) -> bool:
        """Whether these are all rows of a batch, all its messages are counted, and no purge needs it any more."""
        ingest_ms = min(int(cell.messages.ms.min()) for _, cell in rows)
        if max(int(cell.messages.ms.max()) for _, cell in rows) - ingest_ms > BALANCE_SLACK_MS:
            return False  # of an older version: sums of its newest messages' hours may lack them
        if not all(self._are_counted(cell) for _, cell in rows):
            return False
        folded, batch = self._folded(hour), rows[0][1].batch
        if folded is not None and batch in folded.batch_numbers():
            return True  # it was whole then; a round that was killed has deleted others of its rows
        return _is_whole(rows) and not any((ingest_ms, batch) in self._blocks_of(key) for key, _ in rows)

    def _blocks_of(self, key: bytes) -> frozenset[tuple[int, int]]:
        """(ingest ms, batch) of the blocks in the HourShard of a ledger row."""
        sequence = keys.parse_ledger(key).sequence
        hour, shard = sequence >> 8, sequence & 0xFF
        if (shard, hour) not in self._blocks:
            span = keys.log_range(shard, self.app, hour)
            names = (keys.LogKey.parse(name) for name, _ in self.store.scan("log", *span, keys_only=True))
            self._blocks[shard, hour] = frozenset((block.ingest_ms, block.batch) for block in names)
        return self._blocks[shard, hour]

    def _are_counted(self, cell: CommitCell) -> bool:
        """Whether all messages of a row are among the sums of folded hours."""
        hours = cell.messages.ms // HOUR_MS
        stamps = watermarks.pack(cell.messages.ms, cell.messages.sequence)
        for hour in np.unique(hours).tolist():
            folded, mine = self._folded(hour), hours == hour
            if folded is None or not folded.counts(cell.messages.process[mine], stamps[mine]).all():
                return False
        return True

    def _folded(self, hour: int) -> FoldedHour | None:
        """The folded hour; one that is due is folded now. ``None``: it cannot be."""
        if hour not in self._hours:
            self._hours[hour] = self._read(hour) or (self._put(hour) if hour < self.before else None)
        return self._hours[hour]

    def _read(self, hour: int) -> FoldedHour | None:
        folded = folded_hours.read(self.store, self.app, [hour]).get(hour)
        if isinstance(folded, CorruptBlock):
            _LOG.error("a folded hour is damaged: %s", folded)
            return None
        return folded

    def _put(self, hour: int) -> FoldedHour | None:
        processes, places = _places(self.store, self.app)
        since, until = balance_hours.minutes_of(hour, hour + 1)
        if any(since <= waiting_ms // MINUTE_MS <= until for waiting_ms in self._waiting_ms()):
            return None  # what is not settled by a run may still turn out to be too late
        outcomes = read_outcomes(self.store, self.app, since, until)
        rows = np.flatnonzero(outcomes.ms // HOUR_MS == hour)
        rows = rows[folded_hours.are_up_to(processes, places, outcomes.process[rows], outcomes.stamps[rows])]
        if outcomes.damaged or not len(rows) or not outcomes.are_settled[rows].all():
            return None
        whole = (batch for batch in self._rows(hour)[1].values() if _is_whole(batch))
        compacted = {batch[0][1].batch for batch in whole if all(cell.outcome == STORED for _, cell in batch)}
        folded = _folded_hour(outcomes, hour, rows, processes, places, compacted)
        cell = folded.to_bytes()
        if len(cell) > limits.FOLDED_BYTES_MAX:
            _LOG.warning(
                "hour %d of the ledger of app %d is not folded: its sums take %d bytes", hour, self.app, len(cell)
            )
            return None
        if not self.store.check_and_put("ledger", folded_hours.key(self.app, hour), folded_hours.COLUMN, None, cell):
            return self._read(hour)  # somebody else has folded it meanwhile
        self.result.hours += 1
        return folded

    def _waiting_ms(self) -> list[int]:
        """The oldest stamps of the batches that no run has taken, as they were when the round began to ask."""
        if self._waiting is None:
            shards = list(epochs.read(self.store, self.app).all_shards(self.app))
            self._waiting = [item.key.ingest_ms for item in commit_records.scan(self.store, self.app, shards)]
        return self._waiting

    def _delete(self, names: Sequence[bytes]) -> None:
        keys.check_app(self.app, "ledger", names)
        for at in range(0, len(names), _DELETED_AT_ONCE):
            part = names[at : at + _DELETED_AT_ONCE]
            self.store.delete("ledger", [(name, [commit_records.COLUMN]) for name in part])
            self.result.rows += len(part)


def _places(store: Backend, app: int) -> tuple[I64, U64]:
    """The processes whose watermarks can be read, ascending, and the packed stamp of each watermark."""
    readable = {number: process for number, process in watermarks.read(store, app).items() if not process.damaged}
    numbers = sorted(number for number, process in readable.items() if process.watermark.ms >= 0)
    places = [watermarks.pack_place(readable[number].watermark.place) for number in numbers]
    return np.array(numbers, np.int64), np.array(places, np.uint64)


def _is_whole(rows: _Rows) -> bool:
    """Whether a batch has as many rows as it says."""
    return all(cell.rows == len(rows) for _, cell in rows)


def _folded_hour(
    outcomes: Outcomes, hour: int, rows: I64, processes: I64, places: U64, compacted: Collection[int]
) -> FoldedHour:
    """The sums of these messages; of the processes only those that have any of them."""
    sums = balance_hours.hour_balance(outcomes, hour, rows)
    used: BOOL = np.isin(processes, outcomes.process[rows])
    number = {source: place for place, source in enumerate(sums.sources)}
    runs = ((number[r.source], r.spool, r.first, r.last, r.first_ms, r.last_ms) for r in sums.runs)
    return FoldedHour(
        sources=sums.sources,
        messages=tuple(sums.messages.tolist()),
        stored=tuple(sums.stored.tolist()),
        late=tuple(sums.late.tolist()),
        rejected=tuple(sums.rejected.tolist()),
        dead=tuple(sums.dead.tolist()),
        runs=tuple(runs),
        processes=tuple(processes[used].tolist()),
        places=tuple(places[used].tolist()),
        batches=folded_hours.steps_of(compacted),
        runs_cut=sums.runs_cut,
    )
