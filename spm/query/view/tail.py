"""Keeps the un-compacted tail of an app in a reading process, as merged columns (PROTOCOL 7).

``refresh`` lists the pending records (at most once per ``TAIL_AGE_MS``) and forgets those that runs have compacted;
``load`` reads the blocks of the hours that a read wants. So a sender of ten thousand hours of long ago costs those who
read the last hour a list of names. The blocks of an hour-shard are kept as a few pieces of growing size, merged like a
log-structured tree, so that a query never reads thousands of small blocks. Pieces may contain blocks that are no longer
pending: equal versions merge. An hour-shard is read anew once most of its records are no longer pending. Of a tail with
more samples than a process may hold, the largest hour-shards are left out until runs have compacted them; ``TailView``
refuses reads of these hours, and answers all others.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace

import numpy as np

from spm import limits
from spm.arrays import U64
from spm.clock import Clock
from spm.errors import LimitExceeded
from spm.fast_dataclass import dataclass
from spm.query.samples.gather import Layout, layout_of
from spm.store import keys
from spm.store.backends.base import Reader, scan_ranges, version_of
from spm.store.keys import PendingKey
from spm.store.versions.merge import Piece, merge

ShardHour = tuple[int, int]  # shard, hour
ReadBlocks = Callable[[Reader, Sequence[bytes]], list[Piece | None]]  # decoded blocks by key; None: no such row

_NO_SERIES = np.empty(0, np.uint64), np.empty(0, np.uint64)
_RECORDS_AT_ONCE = 32  # pending records that are read together: with 2,500 hours each some 30 MB
_ROW_BYTES, _HOUR_BYTES, _RECORD_BYTES = 28, 1_500, 150  # of a sample; of an hour-shard; of each of its records


@dataclass(slots=True)
class _HourTail:
    """The pending blocks of one hour-shard."""

    count: int = 0  # of its pending records
    read: list[bytes] = field(default_factory=list)  # keys of records that are in the pieces, also of obsolete ones
    unread: list[bytes] = field(default_factory=list)  # keys of the others
    listed: int = 0  # the refresh that listed the oldest of these
    obsolete: int = 0  # how many records that were read are no longer pending
    missing: dict[bytes, int] = field(default_factory=dict)  # pending key -> batch whose block no longer existed
    pieces: list[Piece] = field(default_factory=list)  # each at least twice as large as the next
    is_left_out: bool = False  # its pieces are not held: the tail is too large

    @property
    def size(self) -> int:
        """The number of samples that it holds."""
        return sum(map(len, self.pieces))


@dataclass(frozen=True, slots=True)
class TailView:
    """The pending versions at one moment: merged pieces by hour-shard, and blocks that no longer existed.

    Hour-shards that were not read have ``None`` in place of pieces: nobody who made the view wanted their hours.
    """

    by_shard_hour: Mapping[ShardHour, tuple[Piece, ...] | None]
    missing: Mapping[ShardHour, tuple[int, ...]]  # batches; only hour-shards that miss any
    as_of_ms: int
    left_out: frozenset[int] = frozenset()  # hours with more samples than this process may hold
    rows: int = 0  # of all pieces together
    _layouts: dict[ShardHour, tuple[Layout | None, ...]] = field(default_factory=dict)  # as far as they were needed

    def check_held(self, hours: tuple[int, int] | None) -> None:
        """Raise ``LimitExceeded`` if hours first:end include one that is left out."""
        touched = [hour for hour in self.left_out if hours is not None and hours[0] <= hour < hours[1]]
        if touched:
            raise LimitExceeded(
                "the app has more un-compacted samples than a reading process may hold",
                got=f"{len(touched)} hours that are left out, from {np.datetime64(min(touched), 'h')} on",
                remedy="Answers for these hours come back once a run has compacted them; other hours are answered.",
            )

    def hour_shards(self) -> Collection[ShardHour]:
        """Hour-shards that have pending blocks."""
        return self.by_shard_hour.keys()

    def pieces(self, shard: int, hour: int) -> list[Piece]:
        """The pending versions of an hour-shard, each piece merged."""
        pieces = self.by_shard_hour.get((shard, hour), ())
        assert pieces is not None, f"BUG: hour {hour} of the tail was not asked for"
        return list(pieces)

    def layouts(self, shard: int, hour: int) -> tuple[Layout | None, ...]:
        """The layouts of these pieces."""
        layouts = self._layouts.get((shard, hour))
        if layouts is None:
            layouts = self._layouts[shard, hour] = tuple(map(layout_of, self.pieces(shard, hour)))
        return layouts


class Tail:
    """Pending blocks of one app, by hour-shard. Not thread-safe: its owner locks."""

    def __init__(
        self,
        app: int,
        shards: Sequence[int],
        clock: Clock,
        read_blocks: ReadBlocks,
        rows_max: int = limits.TAIL_SAMPLES_MAX,
    ) -> None:
        self._app, self._shards, self._clock, self._read_blocks = app, tuple(shards), clock, read_blocks
        self._records: dict[bytes, tuple[int, ...]] = {}  # pending key -> hours of its cells at the first read
        self._cells = 0  # of all these records
        self._hours: dict[ShardHour, _HourTail] = {}
        self._unread: dict[int, set[int]] = {}  # hour -> the shards that have unread blocks of it
        self._rows = 0  # samples in all pieces
        self._refreshes = 0
        self.listings = 0  # refreshes that found new records
        self.as_of_ms = 0
        self._read_at = -1e9
        self._rows_max = rows_max
        self._view: TailView | None = None  # of the present content
        self._version: int | None = None  # of the store when it was read

    @property
    def due(self) -> bool:
        """Whether the tail is too old to answer from."""
        return (self._clock.monotonic() - self._read_at) * 1000 >= limits.TAIL_AGE_MS

    def use_shards(self, shards: Sequence[int]) -> None:
        """Set the shards in which pending records may lie; if they changed, the next refresh reads them."""
        if tuple(shards) != self._shards:
            self._shards, self._read_at, self._version = tuple(shards), -1e9, None

    @property
    def size_bytes(self) -> int:
        """The bytes that it takes, about."""
        return _ROW_BYTES * self._rows + _HOUR_BYTES * len(self._hours) + _RECORD_BYTES * self._cells

    def refresh(self, reader: Reader, *, force: bool = False) -> None:
        """Bring the list of records up to date. An error half-way empties the tail."""
        if not force and not self.due:
            return
        started, as_of_ms = self._clock.monotonic(), self._clock.now_ms()
        try:
            self._update(reader)
        except BaseException:
            self.reset()
            raise
        self._read_at, self.as_of_ms, self._view = started, as_of_ms, None
        self._version = version_of(reader)

    @property
    def has_unread(self) -> bool:
        """Whether any block is not read yet."""
        return bool(self._unread)

    def unread(self, hours: tuple[int, int] | None) -> list[ShardHour]:
        """The hour-shards of hours first:end that have blocks which are not read yet."""
        if hours is None or not self._unread:
            return []
        first, end = hours
        is_short = end - first < len(self._unread)
        within = range(first, end) if is_short else sorted(hour for hour in self._unread if first <= hour < end)
        return [(shard, hour) for hour in within for shard in sorted(self._unread.get(hour, ()))]

    def load(self, reader: Reader, hour_shards: Sequence[ShardHour]) -> tuple[U64, U64]:
        """Read the blocks of some hour-shards that are not read yet; returns (series, metrics) that they name.

        An error half-way empties the tail: otherwise a series could be unknown of which a block is read.
        """
        try:
            pieces = [self._extend(reader, shard_hour) for shard_hour in hour_shards]
        except BaseException:
            self.reset()
            raise
        self._view = None
        named = [piece for piece in pieces if piece is not None]
        if not named:
            return _NO_SERIES
        return np.concatenate([piece.series for piece in named]), np.concatenate([piece.metrics for piece in named])

    def renew(self, reader: Reader) -> bool:
        """Take the content as read now, if the store was not written since it was read; return whether that is so."""
        version = version_of(reader)
        if version is None or version != self._version:
            return False
        self._read_at, self.as_of_ms = self._clock.monotonic(), self._clock.now_ms()
        if self._view is not None:
            self._view = replace(self._view, as_of_ms=self.as_of_ms)
        return True

    def reset(self) -> None:
        """Forget everything: the next refresh lists it all again."""
        self._records, self._hours, self._unread, self._cells, self._rows = {}, {}, {}, 0, 0
        self._read_at, self._view, self._version = -1e9, None, None

    def _update(self, reader: Reader) -> None:
        ranges = [keys.app_range(shard, self._app) for shard in self._shards]
        listing = [key for key, _ in scan_ranges(reader, "pending", ranges, keys_only=True)]
        self._forget(self._records.keys() - set(listing))
        new = [key for key in listing if key not in self._records]
        self._refreshes += 1
        self.listings += bool(new)
        for at in range(0, len(new), _RECORDS_AT_ONCE):
            self._list(reader, new[at : at + _RECORDS_AT_ONCE])
        for shard_hour in self._mostly_obsolete():
            hour_tail = self._hours[shard_hour]
            pending = [key for key in dict.fromkeys((*hour_tail.read, *hour_tail.unread)) if key in self._records]
            self._rows -= hour_tail.size
            self._hours[shard_hour] = _HourTail(count=hour_tail.count, unread=pending, listed=-1)
            self._unread.setdefault(shard_hour[1], set()).add(shard_hour[0])

    def _list(self, reader: Reader, new: Sequence[bytes]) -> None:
        """Note the hours of new records."""
        for key, cells in zip(new, reader.get("pending", new), strict=True):
            if cells is None:
                continue  # a run has deleted it since the scan: the manifest, read later, names its samples
            shard, hours = PendingKey.parse(key).shard, tuple(map(keys.column_hour, cells))
            self._records[key] = hours
            self._cells += len(hours)
            for hour in hours:
                hour_tail = self._hours.setdefault((shard, hour), _HourTail())
                if not hour_tail.unread:
                    hour_tail.listed = self._refreshes
                hour_tail.count += 1
                if not hour_tail.is_left_out:
                    hour_tail.unread.append(key)
                    self._unread.setdefault(hour, set()).add(shard)

    def _extend(self, reader: Reader, shard_hour: ShardHour) -> Piece | None:
        """Read the unread blocks of an hour-shard and add them as one piece; not where it is left out."""
        hour_tail = self._hours.get(shard_hour)
        if hour_tail is None or hour_tail.is_left_out:
            return None
        records = [key for key in hour_tail.unread if key in self._records]
        if hour_tail.listed != self._refreshes:  # runs may have compacted some of them since
            records = self._still_pending(reader, records, shard_hour[1])
        log_keys = [PendingKey.parse(key).log(shard_hour[1]) for key in records]
        pieces = self._read_blocks(reader, [key.to_bytes() for key in log_keys])
        missing = [i for i, piece in enumerate(pieces) if piece is None]
        hour_tail.missing.update({records[i]: log_keys[i].batch for i in missing})
        piece = merge([p for p in pieces if p is not None])
        self._rows -= hour_tail.size
        hour_tail.pieces.append(piece)
        while len(hour_tail.pieces) > 1 and len(hour_tail.pieces[-2]) < 2 * len(hour_tail.pieces[-1]):
            last = hour_tail.pieces.pop()
            hour_tail.pieces[-1] = merge([hour_tail.pieces[-1], last])
        self._rows += hour_tail.size
        hour_tail.read += records
        hour_tail.unread = []
        self._note_read(*shard_hour)
        self._leave_out()
        return piece

    def _note_read(self, shard: int, hour: int) -> None:
        """Note that an hour-shard has no unread blocks."""
        shards = self._unread.get(hour)
        if shards is not None:
            shards.discard(shard)
            if not shards:
                del self._unread[hour]

    def _leave_out(self) -> None:
        """Leave out the largest hour-shards while the tail is larger than a process may hold."""
        while self._rows > self._rows_max:
            shard_hour, largest = max(self._hours.items(), key=lambda item: item[1].size)
            self._rows -= largest.size
            self._hours[shard_hour] = _HourTail(count=largest.count, is_left_out=True)
            self._note_read(*shard_hour)

    def _forget(self, records: Collection[bytes]) -> None:
        for key in records:
            shard, hours = PendingKey.parse(key).shard, self._records.pop(key)
            self._cells -= len(hours)
            for hour in hours:
                hour_tail = self._hours[shard, hour]
                hour_tail.count -= 1
                hour_tail.missing.pop(key, None)
                hour_tail.obsolete += 1
                if not hour_tail.count:
                    self._rows -= hour_tail.size
                    del self._hours[shard, hour]
                    self._note_read(shard, hour)

    def _mostly_obsolete(self) -> list[ShardHour]:
        return [name for name, each in self._hours.items() if each.pieces and each.obsolete > each.count]

    def _still_pending(self, reader: Reader, records: Sequence[bytes], hour: int) -> list[bytes]:
        column = keys.hour_column(hour)
        rows = reader.get("pending", records, [column])
        return [key for key, row in zip(records, rows, strict=True) if row is not None]

    def view(self) -> TailView:
        """The present content, unaffected by later refreshes."""
        if self._view is None:
            pieces = {
                name: None if hour_tail.unread else tuple(hour_tail.pieces) for name, hour_tail in self._hours.items()
            }
            left_out = frozenset(hour for (_, hour), hour_tail in self._hours.items() if hour_tail.is_left_out)
            missing = {
                name: tuple(hour_tail.missing.values()) for name, hour_tail in self._hours.items() if hour_tail.missing
            }
            self._view = TailView(pieces, missing, self.as_of_ms, left_out, self._rows)
        return self._view
