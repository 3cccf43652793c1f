"""The cells of `config` and `manifest` that runs take their bearings from, and the one way to change them.

``take_run`` draws a run number; ``read_cells`` and ``scan_cells`` read manifests as the bytes that a check-and-put will
expect; ``swap`` is that check-and-put, with an unknown outcome looked up.
"""

from collections.abc import Callable, Sequence

from rollups.decide.work import RUN_MAX
from spm.errors import StoreUnavailable
from spm.store import keys, manifest
from spm.store.backends.base import Backend, Reader
from spm.store.ledger import counters

COLUMN = b"v"


def take_run(store: Backend) -> int:
    """A run number (from 1) never used before."""
    return counters.take(store, b"runs", below=RUN_MAX)


def read_cell(store: Backend, table: str, key: bytes) -> bytes | None:
    """One cell; ``None`` where there is none."""
    [row] = store.get(table, [key], [COLUMN])
    return row[COLUMN] if row else None


def read_cells(store: Reader, app: int, days: Sequence[int]) -> dict[int, bytes]:
    """The manifest cells of these days; absent ones are left out."""
    rows = store.get("manifest", [keys.manifest(app, day) for day in days], [COLUMN])
    return {day: row[COLUMN] for day, row in zip(days, rows, strict=True) if row is not None}


def scan_cells(store: Reader, app: int, *, months: bool = False) -> dict[int, bytes]:
    """The manifest cells of all days of an app, or of all its months."""
    found = {}
    for start, stop in keys.manifest_ranges(app):
        for key, cells in store.scan("manifest", start, stop, columns=[COLUMN]):
            number, is_month = keys.parse_manifest(key)
            if is_month == months:
                found[number] = cells[COLUMN]
    return found


def swap(
    store: Backend, key: bytes, expected: bytes | None, value: bytes, landed: Callable[[bytes | None], bool]
) -> tuple[bool, bytes | None, bool]:
    """Check-and-put of a manifest cell: (whether it is in, the cell as it stands if not, whether that is final).

    ``landed`` recognises our value, or a later one made from it. Not final: the call's outcome is unknown, and the
    value may still go in later.
    """
    final = True
    try:
        if store.check_and_put("manifest", key, COLUMN, expected, value):
            return True, value, True
    except StoreUnavailable:
        final = False
    cell = read_cell(store, "manifest", key)
    return landed(cell), cell, final


def holds(nonce: int) -> Callable[[bytes | None], bool]:
    """Recognises the manifest with this nonce."""
    return lambda cell: manifest.decode(cell).nonce == nonce
