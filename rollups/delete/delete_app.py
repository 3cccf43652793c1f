"""Deletes all rows of an app, in every table and shard.

Enter by ``delete_app`` when nobody sends to the app any more. Only this removes check-and-put cells, which is safe
because an app's number is never used again. The order is: the cells that start or steer a run, then rows, then the
dictionary. A repeated call deletes what came in since or what a crash left; it scans all possible shards, so that it
needs no placement. It touches only key ranges of this very number.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from rollups.crash_points import Hook, ignore_point
from rollups.run import agenda
from spm import limits
from spm.store import epochs, keys
from spm.store.backends.base import Backend
from spm.store.ledger import quota

# Without pending records and manifests nothing plans, publishes or reads any more; series go last, as they came first.
_ORDER = (
    "pending",
    "manifest",
    "log",
    "chunks",
    "timelines",
    "inputs",
    "hours",
    "days",
    "retractions",
    "marks",
    "dead",
    "ledger",
    "series",
)
assert {*_ORDER, "config"} == keys.TABLES.keys(), "BUG: a table that is not deleted"


@dataclass(frozen=True, slots=True)
class DeletedRows:
    """The deleted rows and bytes (of values) by table; in a dry run those that would be deleted."""

    rows: dict[str, int] = field(default_factory=dict)
    size_bytes: dict[str, int] = field(default_factory=dict)

    @property
    def row_count(self) -> int:
        """The rows of all tables."""
        return sum(self.rows.values())

    @property
    def byte_count(self) -> int:
        """The bytes of all tables."""
        return sum(self.size_bytes.values())

    def plus(self, table: str, rows: int, size: int) -> "DeletedRows":
        """The sum with more rows of a table."""
        if not rows:
            return self
        return replace(
            self,
            rows={**self.rows, table: self.rows.get(table, 0) + rows},
            size_bytes={**self.size_bytes, table: self.size_bytes.get(table, 0) + size},
        )


Watch = Callable[[DeletedRows], None]


def delete_app(
    store: Backend, app: int, *, dry_run: bool = False, at: Hook = ignore_point, watch: Watch = lambda _: None
) -> DeletedRows:
    """Deletes every row of the app; ``dry_run`` only counts. Repeat it after a crash, and until it finds nothing."""
    total = DeletedRows()
    for table in _ORDER:
        for names, size in _portions(store, table, keys.app_ranges(table, app)):
            keys.check_app(app, table, names)
            total = _delete(store, table, names, size, total, dry_run=dry_run, at=at)
            watch(total)
    names = [epochs.row_key(app), agenda.name_of(app), *quota.keys_of(app)]
    rows = [(name, row) for name, row in zip(names, store.get("config", names), strict=True) if row is not None]
    size = sum(_bytes(row) for _, row in rows)
    return _delete(store, "config", [name for name, _ in rows], size, total, dry_run=dry_run, at=at)


def _portions(store: Backend, table: str, ranges: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[list[bytes], int]]:
    """Yields (keys, bytes) of the rows in portions: each scan ends before its rows are deleted."""
    for start, stop in ranges:
        names, size = _portion(store, table, start, stop)
        while names:
            yield names, size
            names, size = _portion(store, table, names[-1] + b"\0", stop)


def _portion(store: Backend, table: str, start: bytes, stop: bytes) -> tuple[list[bytes], int]:
    names: list[bytes] = []
    size = 0
    for key, cells in store.scan(table, start, stop, limit=limits.PURGE_ROWS_PER_CALL):
        names.append(key)
        size += _bytes(cells)
        if size >= limits.PURGE_BYTES_PER_CALL:
            break
    return names, size


def _bytes(cells: dict[bytes, bytes]) -> int:
    return sum(map(len, cells.values()))


def _delete(
    store: Backend, table: str, names: list[bytes], size: int, total: DeletedRows, *, dry_run: bool, at: Hook
) -> DeletedRows:
    if names and not dry_run:
        store.delete(table, [(name, None) for name in names])
        at("deleting app")
    return total.plus(table, len(names), size)
