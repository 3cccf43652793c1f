"""Keeps the un-compacted tail of an app in a reading process, as merged columns (PROTOCOL 7).

``refresh`` lists the pending records (at most once per ``TAIL_AGE_MS``), reads the blocks that are new and forgets the
records that runs have compacted. The blocks of an hour-shard are kept as a few pieces of growing size, merged like a
log-structured tree, so that a query never reads thousands of small blocks. Pieces may contain blocks that are no longer
pending: equal versions merge. An hour-shard is read anew once most of its records are no longer pending. Of a tail with
more samples than a process may hold, the largest hour-shards are left out until runs have compacted them; ``TailView``
refuses reads of these hours, and answers all others.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field

import numpy as np

from spm import limits
from spm.arrays import U64
from spm.clock import Clock
from spm.errors import LimitExceeded
from spm.fast_dataclass import dataclass
from spm.store import keys
from spm.store.backends.base import Reader, scan_ranges
from spm.store.keys import PendingKey
from spm.store.versions.merge import Piece, merge

ShardHour = tuple[int, int]  # shard, hour
ReadBlocks = Callable[[Reader, Sequence[bytes]], list[Piece | None]]  # decoded blocks by key; None: no such row

_NO_SERIES = np.empty(0, np.uint64), np.empty(0, np.uint64)


@dataclass(slots=True)
class _HourTail:
    """The pending blocks of one hour-shard."""

    records: set[bytes] = field(default_factory=set)  # keys of pending records
    obsolete: int = 0  # how many records merged into the pieces are no longer pending
    missing: dict[bytes, int] = field(default_factory=dict)  # pending key -> batch whose block no longer existed
    pieces: list[Piece] = field(default_factory=list)  # each at least twice as large as the next
    is_left_out: bool = False  # its pieces are not held: the tail is too large

    @property
    def size(self) -> int:
        """The number of samples that it holds."""
        return sum(map(len, self.pieces))


@dataclass(frozen=True, slots=True)
class TailView:
    """The pending versions at one moment: merged pieces by hour-shard, and blocks that no longer existed."""

    by_shard_hour: Mapping[ShardHour, tuple[Piece, ...]]
    missing: Mapping[ShardHour, tuple[int, ...]]  # batches; only hour-shards that miss any
    as_of_ms: int
    left_out: frozenset[int] = frozenset()  # hours with more samples than this process may hold
    rows: int = 0  # of all pieces together

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
        return list(self.by_shard_hour.get((shard, hour), ()))


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
        self._hours: dict[ShardHour, _HourTail] = {}
        self.as_of_ms = 0
        self._read_at = -1e9
        self._rows_max = rows_max
        self._view: TailView | None = None  # of the present content

    @property
    def due(self) -> bool:
        """Whether the tail is too old to answer from."""
        return (self._clock.monotonic() - self._read_at) * 1000 >= limits.TAIL_AGE_MS

    def use_shards(self, shards: Sequence[int]) -> None:
        """Set the shards in which pending records may lie; if they changed, the next refresh reads them."""
        if tuple(shards) != self._shards:
            self._shards, self._read_at = tuple(shards), -1e9

    def refresh(self, reader: Reader, *, force: bool = False) -> tuple[U64, U64]:
        """Bring the tail up to date; returns (series, metrics) that new blocks name.

        An error half-way empties the tail: otherwise a record could count as read while its block is left out.
        """
        if not force and not self.due:
            return _NO_SERIES
        started, as_of_ms = self._clock.monotonic(), self._clock.now_ms()
        try:
            new_series = self._update(reader)
        except BaseException:
            self.reset()
            raise
        self._read_at, self.as_of_ms, self._view = started, as_of_ms, None
        return new_series

    def reset(self) -> None:
        """Forget everything: the next refresh reads it all again."""
        self._records, self._hours, self._read_at, self._view = {}, {}, -1e9, None

    def _update(self, reader: Reader) -> tuple[U64, U64]:
        ranges = [keys.app_range(shard, self._app) for shard in self._shards]
        listing = [key for key, _ in scan_ranges(reader, "pending", ranges, keys_only=True)]
        self._forget(self._records.keys() - set(listing))
        return self._read(reader, [key for key in listing if key not in self._records])

    def _read(self, reader: Reader, new: Sequence[bytes]) -> tuple[U64, U64]:
        new_records: dict[ShardHour, list[bytes]] = {}
        for key, cells in zip(new, reader.get("pending", new) if new else [], strict=True):
            if cells is None:
                continue  # a run has deleted it since the scan: the manifest, read later, names its samples
            hours = tuple(map(keys.column_hour, cells))
            self._records[key] = hours
            for hour in hours:
                new_records.setdefault((PendingKey.parse(key).shard, hour), []).append(key)
        extended = [self._extend(reader, shard_hour, records) for shard_hour, records in new_records.items()]
        pieces = [piece for piece in extended if piece is not None]
        for shard_hour in self._mostly_obsolete():
            records = sorted(self._hours.pop(shard_hour).records)
            pending = self._still_pending(reader, records, shard_hour[1])
            if pending:
                self._extend(reader, shard_hour, pending)
        if not pieces:
            return _NO_SERIES
        return np.concatenate([piece.series for piece in pieces]), np.concatenate([piece.metrics for piece in pieces])

    def _extend(self, reader: Reader, shard_hour: ShardHour, records: Sequence[bytes]) -> Piece | None:
        """Read the blocks of these records for one hour-shard and add them as one piece; not where it is left out."""
        hour_tail = self._hours.setdefault(shard_hour, _HourTail())
        hour_tail.records.update(records)
        if hour_tail.is_left_out:
            return None
        log_keys = [PendingKey.parse(key).log(shard_hour[1]) for key in records]
        pieces = self._read_blocks(reader, [key.to_bytes() for key in log_keys])
        missing = [i for i, piece in enumerate(pieces) if piece is None]
        hour_tail.missing.update({records[i]: log_keys[i].batch for i in missing})
        piece = merge([p for p in pieces if p is not None])
        hour_tail.pieces.append(piece)
        while len(hour_tail.pieces) > 1 and len(hour_tail.pieces[-2]) < 2 * len(hour_tail.pieces[-1]):
            last = hour_tail.pieces.pop()
            hour_tail.pieces[-1] = merge([hour_tail.pieces[-1], last])
        self._leave_out()
        return piece

    def _leave_out(self) -> None:
        """Leave out the largest hour-shards while the tail is larger than a process may hold."""
        while sum(hour_tail.size for hour_tail in self._hours.values()) > self._rows_max:
            largest = max(self._hours.values(), key=lambda hour_tail: hour_tail.size)
            largest.pieces, largest.missing, largest.is_left_out = [], {}, True

    def _forget(self, records: Collection[bytes]) -> None:
        for key in records:
            shard = PendingKey.parse(key).shard
            for hour in self._records.pop(key):
                hour_tail = self._hours.get((shard, hour))
                if hour_tail is None:
                    continue
                hour_tail.records.discard(key)
                hour_tail.missing.pop(key, None)
                hour_tail.obsolete += 1
                if not hour_tail.records:
                    del self._hours[shard, hour]

    def _mostly_obsolete(self) -> list[ShardHour]:
        return [name for name, hour_tail in self._hours.items() if hour_tail.obsolete > len(hour_tail.records)]

    def _still_pending(self, reader: Reader, records: Sequence[bytes], hour: int) -> list[bytes]:
        column = keys.hour_column(hour)
        rows = reader.get("pending", records, [column])
        return [key for key, row in zip(records, rows, strict=True) if row is not None]

    def view(self) -> TailView:
        """The present content, unaffected by later refreshes."""
        if self._view is None:
            pieces = {name: tuple(hour_tail.pieces) for name, hour_tail in self._hours.items()}
            left_out = frozenset(hour for (_, hour), hour_tail in self._hours.items() if hour_tail.is_left_out)
            missing = {
                name: tuple(hour_tail.missing.values()) for name, hour_tail in self._hours.items() if hour_tail.missing
            }
            rows = sum(hour_tail.size for hour_tail in self._hours.values())
            self._view = TailView(pieces, missing, self.as_of_ms, left_out, rows)
        return self._view
