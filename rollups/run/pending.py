"""Reads of an app's pending records what a decision to run needs, and remembers it from look to look.

Beat looks twice a minute, and records are many where a run has to wait or where bodies spread over thousands of hours:
so a look reads only those that came since the last one. A record has one content until a run settles cells of it. What
is remembered therefore counts until a run has begun or a record has gone. Enter by ``PendingReader.read``.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from rollups.decide.start import PendingColumns
from rollups.limits import PENDING_REMEMBERED_MAX
from spm.bounded import LruCache
from spm.errors import CorruptBlock
from spm.store import keys
from spm.store.backends.base import Reader, Row, scan_ranges
from spm.store.keys import PendingKey
from spm.store.ledger import commit_records

_LOG = logging.getLogger(__name__)
_AT_ONCE = 16  # records of one call: with 2,500 hours each some 15 MB


@dataclass(frozen=True, slots=True)
class _Remembered:
    """The intact records of an app in these shards, while ``runs`` was the number of the newest run of the store."""

    store: Reader
    runs: int
    shards: tuple[int, ...]
    names: frozenset[bytes]
    columns: PendingColumns


@dataclass(slots=True)
class _Builder:
    """Collects records and their cells as columns."""

    records: list[tuple[int, int]] = field(default_factory=list)
    cells: list[tuple[int, int, int]] = field(default_factory=list)

    def add(self, key: PendingKey, cells: Iterable[tuple[int, int]]) -> None:
        """Add a record with the (hour, samples) of its cells."""
        self.cells += [(len(self.records), *cell) for cell in cells]
        self.records.append((key.shard, key.ingest_ms))

    def columns(self) -> PendingColumns:
        """Return what was added."""
        return PendingColumns.of(self.records, self.cells)


class PendingReader:
    """Remembers the pending records of the apps of this process. Thread-safe, bounded."""

    def __init__(self, weight_max: int = PENDING_REMEMBERED_MAX) -> None:
        self._apps: LruCache[int, _Remembered] = LruCache(weight_max)

    def read(
        self, store: Reader, app: int, names: Collection[bytes], shards: Sequence[int], *, runs: int
    ) -> PendingColumns:
        """Return the app's pending records in these shards. ``names``: the keys of those that are there now.

        ``runs``: the number of the newest run, as it was before nobody was seen at a run. A damaged cell is left out,
        and its record is read again by the next look.
        """
        if not names:
            return PendingColumns.of()
        last = self._apps.get(app)
        if last is None or last.store is not store or (last.runs, last.shards) != (runs, tuple(shards)):
            last = _Remembered(store, runs, tuple(shards), frozenset(), PendingColumns.of())
        unknown = [name for name in names if name not in last.names]
        if len(names) - len(unknown) < len(last.names):  # one has gone
            last = replace(last, names=frozenset(), columns=PendingColumns.of())
        rows = _get(store, unknown, shards) if last.names else _scan(store, app, shards)
        intact, damaged, fresh = _Builder(), _Builder(), list[bytes]()
        for name, row in rows:
            key, cells = PendingKey.parse(name), _count(name, row)
            (intact if len(cells) == len(row) else damaged).add(key, cells)
            fresh += [name] if len(cells) == len(row) else []
        columns = last.columns.plus(intact.columns()) if fresh else last.columns
        seen = replace(last, names=last.names.union(fresh), columns=columns)
        self._apps.put(app, seen, 1 + len(seen.names) + len(columns.record))
        return columns.plus(damaged.columns()) if damaged.records else columns


def _scan(store: Reader, app: int, shards: Sequence[int]) -> Iterator[Row]:
    return scan_ranges(store, "pending", [keys.app_range(shard, app) for shard in shards])


def _get(store: Reader, names: Sequence[bytes], shards: Collection[int]) -> Iterator[Row]:
    """Read these records, as far as they lie in these shards and are still there."""
    wanted = [name for name in names if PendingKey.parse(name).shard in shards]
    for at in range(0, len(wanted), _AT_ONCE):
        part = wanted[at : at + _AT_ONCE]
        yield from ((name, row) for name, row in zip(part, store.get("pending", part), strict=True) if row)


def _count(name: bytes, row: dict[bytes, bytes]) -> list[tuple[int, int]]:
    """Return the (hour, samples) of the cells of a record that are not damaged."""
    cells = []
    for column, cell in row.items():
        hour = keys.column_hour(column)
        try:
            cells.append((hour, commit_records.count_samples(cell)))
        except CorruptBlock as error:
            _LOG.error("pending %s, hour %s is skipped: %s", PendingKey.parse(name), hour, error)
    return cells
