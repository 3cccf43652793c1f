"""Deletes an app with all its bytes, in every table and shard; an organisation with those of all its apps.

Enter by ``erase`` when nobody sends to the app any more. The one act that removes check-and-put cells: nobody may look
for them again, since an app's number is never given twice. In order: what would start or steer a run, then rows, then
the dictionary. Doing it again deletes what came in since or what a crash left; it looks into all shards there can be,
so that no distribution need be known. Only key ranges of this very number are touched.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from rollups.crash_points import Hook, nowhere
from rollups.run import agenda
from spm import limits
from spm.store import epochs, keys
from spm.store.backends.base import Backend

# Without pending cells and manifests nothing plans, flips or reads any more; series go last, as they came first.
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
assert {*_ORDER, "config", "events"} == keys.TABLES.keys(), "BUG: a table that erasing does not know"


@dataclass(frozen=True, slots=True)
class Erased:
    """Rows and bytes (of values) that went, or would go, by table."""

    rows: dict[str, int] = field(default_factory=dict)
    size_bytes: dict[str, int] = field(default_factory=dict)

    @property
    def row_count(self) -> int:
        """Of all tables."""
        return sum(self.rows.values())

    @property
    def byte_count(self) -> int:
        """Of all tables."""
        return sum(self.size_bytes.values())

    def plus(self, table: str, rows: int, size: int) -> "Erased":
        """With so many more of a table."""
        if not rows:
            return self
        return replace(
            self,
            rows={**self.rows, table: self.rows.get(table, 0) + rows},
            size_bytes={**self.size_bytes, table: self.size_bytes.get(table, 0) + size},
        )


Watch = Callable[[Erased], None]


def erase(
    store: Backend, app: int, *, dry_run: bool = False, at: Hook = nowhere, watch: Watch = lambda _: None
) -> Erased:
    """Delete every row of the app; ``dry_run`` only counts. Repeat it after a crash, and until it finds nothing."""
    total = Erased()
    for table in _ORDER:
        for names, size in _portions(store, table, keys.app_ranges(table, app)):
            total = _take(store, table, names, size, total, dry_run=dry_run, at=at)
            watch(total)
    names = [epochs.name_of(app), agenda.name_of(app)]
    rows = [(name, row) for name, row in zip(names, store.get("config", names), strict=True) if row is not None]
    size = sum(_bytes(row) for _, row in rows)
    return _take(store, "config", [name for name, _ in rows], size, total, dry_run=dry_run, at=at)


def erase_organisation(
    store: Backend,
    organisation: int,
    apps: Iterable[int],
    *,
    dry_run: bool = False,
    at: Hook = nowhere,
    watch: Watch = lambda _: None,
) -> Erased:
    """Delete all its apps, and its stream of events."""
    total = Erased()
    for app in apps:
        gone = erase(store, app, dry_run=dry_run, at=at, watch=watch)
        for table, rows in gone.rows.items():
            total = total.plus(table, rows, gone.size_bytes[table])
    for names, size in _portions(store, "events", [keys.event_range(organisation)]):
        total = _take(store, "events", names, size, total, dry_run=dry_run, at=at)
    return total


def _portions(store: Backend, table: str, ranges: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[list[bytes], int]]:
    """(keys, bytes) of the rows, portion by portion: each scan ends before its rows are deleted."""
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


def _take(
    store: Backend, table: str, names: list[bytes], size: int, total: Erased, *, dry_run: bool, at: Hook
) -> Erased:
    if names and not dry_run:
        store.delete(table, [(name, None) for name in names])
        at("erasing")
    return total.plus(table, len(names), size)
