"""The un-compacted tail of an app as merged columns, kept in a reading process (DESIGN rule 7).

``refresh`` lists the pending records (at most once per ``TAIL_AGE_MS``), reads the blocks that are new and forgets
units that runs have taken over. A unit's blocks are kept as a few pieces of growing size, merged like a log-structured
tree, so that a query never meets thousands of small blocks. Holding more than is pending is harmless: equal versions
are merged again; a unit is read anew when more than half of what it holds is no longer pending.
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
from spm.store.backends.base import Reader
from spm.store.backends.ranges import scan_ranges
from spm.store.keys import PendingKey
from spm.store.versions.merge import Piece, merge

UnitKey = tuple[int, int]  # shard, hour
Blocks = Callable[[Reader, Sequence[bytes]], list[Piece | None]]  # decoded blocks by key; None: no such row

_NOTHING = np.empty(0, np.uint64), np.empty(0, np.uint64)


@dataclass(slots=True)
class _Unit:
    """What the tail holds of one unit."""

    held: set[bytes] = field(default_factory=set)  # keys of pending records
    gone: int = 0  # of those merged into pieces, how many are no longer pending
    missing: dict[bytes, int] = field(default_factory=dict)  # pending key -> batch whose block was not there any more
    pieces: list[Piece] = field(default_factory=list)  # each at least twice as large as the next


@dataclass(frozen=True, slots=True)
class TailView:
    """The pending versions at one moment: merged pieces by unit, and blocks that were not there any more."""

    held: Mapping[UnitKey, tuple[Piece, ...]]
    missing: Mapping[UnitKey, tuple[int, ...]]  # batches, only units that lack any
    as_of_ms: int

    def units(self) -> Collection[UnitKey]:
        """Units that have pending blocks."""
        return self.held.keys()

    def pieces(self, shard: int, hour: int) -> list[Piece]:
        """The pending versions of a unit, each piece merged."""
        return list(self.held.get((shard, hour), ()))


class Tail:
    """Pending blocks of one app, by unit. Not thread-safe: its owner locks."""

    def __init__(
        self,
        app: int,
        shards: Sequence[int],
        clock: Clock,
        blocks: Blocks,
        rows_max: int = limits.TAIL_SAMPLES_MAX,
    ) -> None:
        self._app, self._shards, self._clock, self._blocks = app, tuple(shards), clock, blocks
        self._records: dict[bytes, tuple[int, ...]] = {}  # pending key -> hours of its cells when first seen
        self._units: dict[UnitKey, _Unit] = {}
        self.as_of_ms = 0
        self._read_at = -1e9
        self._rows_max = rows_max

    @property
    def due(self) -> bool:
        """Whether it is too old to answer from."""
        return (self._clock.monotonic() - self._read_at) * 1000 >= limits.TAIL_AGE_MS

    def look_in(self, shards: Sequence[int]) -> None:
        """Where pending records lie from now on; others than before are looked into at the next refresh."""
        if tuple(shards) != self._shards:
            self._shards, self._read_at = tuple(shards), -1e9

    def refresh(self, reader: Reader, *, force: bool = False) -> tuple[U64, U64]:
        """Bring the tail up to date; returns (series, metrics) that new blocks name.

        Whatever goes wrong half-way empties the tail: a block that is counted as held must never be left out.
        """
        if not force and not self.due:
            return _NOTHING
        began, as_of_ms = self._clock.monotonic(), self._clock.now_ms()
        try:
            found = self._update(reader)
        except BaseException:
            self.reset()
            raise
        self._read_at, self.as_of_ms = began, as_of_ms
        return found

    def reset(self) -> None:
        """Forget everything: the next refresh reads it all again."""
        self._records, self._units, self._read_at = {}, {}, -1e9

    def _update(self, reader: Reader) -> tuple[U64, U64]:
        ranges = [keys.app_range(shard, self._app) for shard in self._shards]
        listed = [key for key, _ in scan_ranges(reader, "pending", ranges, keys_only=True)]
        now = set(listed)
        self._forget(self._records.keys() - now)
        return self._read(reader, [key for key in listed if key not in self._records])

    def _read(self, reader: Reader, new: Sequence[bytes]) -> tuple[U64, U64]:
        wanted: dict[UnitKey, list[bytes]] = {}
        for key, cells in zip(new, reader.get("pending", new) if new else [], strict=True):
            if cells is None:
                continue  # a run took it between the scan and now: the manifest, read later, names it
            hours = tuple(map(keys.column_hour, cells))
            self._records[key] = hours
            for hour in hours:
                wanted.setdefault((PendingKey.parse(key).shard, hour), []).append(key)
        added = [self._extend(reader, unit, held) for unit, held in wanted.items()]
        for unit in self._stale():
            held = sorted(self._units.pop(unit).held)
            still = self._still_pending(reader, held, unit[1])
            if still:
                self._extend(reader, unit, still)
        if not added:
            return _NOTHING
        return np.concatenate([a.series for a in added]), np.concatenate([a.metrics for a in added])

    def _extend(self, reader: Reader, name: UnitKey, held: Sequence[bytes]) -> Piece:
        """Read these records' blocks of a unit and add them as one piece."""
        names = [PendingKey.parse(key).log(name[1]) for key in held]
        pieces = self._blocks(reader, [key.to_bytes() for key in names])
        unit = self._units.setdefault(name, _Unit())
        unit.held.update(held)
        lost = [i for i, piece in enumerate(pieces) if piece is None]
        unit.missing.update({held[i]: names[i].batch for i in lost})
        piece = merge([p for p in pieces if p is not None])
        unit.pieces.append(piece)
        while len(unit.pieces) > 1 and len(unit.pieces[-2]) < 2 * len(unit.pieces[-1]):
            last = unit.pieces.pop()
            unit.pieces[-1] = merge([unit.pieces[-1], last])
        self._check_size()
        return piece

    def _check_size(self) -> None:
        rows = sum(len(piece) for unit in self._units.values() for piece in unit.pieces)
        if rows > self._rows_max:
            raise LimitExceeded(
                "the app has more un-compacted samples than a reading process may hold",
                got=f"over {rows}",
                wanted=f"at most {self._rows_max}",
                remedy="Answers come back as soon as a run has compacted them.",
            )

    def _forget(self, gone: Collection[bytes]) -> None:
        for key in gone:
            shard = PendingKey.parse(key).shard
            for hour in self._records.pop(key):
                unit = self._units.get((shard, hour))
                if unit is None:
                    continue
                unit.held.discard(key)
                unit.missing.pop(key, None)
                unit.gone += 1
                if not unit.held:
                    del self._units[shard, hour]

    def _stale(self) -> list[UnitKey]:
        return [name for name, unit in self._units.items() if unit.gone > len(unit.held)]

    def _still_pending(self, reader: Reader, held: Sequence[bytes], hour: int) -> list[bytes]:
        column = keys.hour_column(hour)
        rows = reader.get("pending", held, [column])
        return [key for key, row in zip(held, rows, strict=True) if row is not None]

    def view(self) -> TailView:
        """What the tail holds now, safe from later refreshes."""
        pieces = {name: tuple(unit.pieces) for name, unit in self._units.items()}
        missing = {name: tuple(unit.missing.values()) for name, unit in self._units.items() if unit.missing}
        return TailView(pieces, missing, self.as_of_ms)
