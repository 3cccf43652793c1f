"""Reads and changes the cells of `manifest`, and takes run numbers from `config`.

``take_run`` takes a run number, ``last_run`` tells the newest; ``read_cells`` and ``scan_cells`` read manifests as the
bytes that a check-and-put will expect; ``swap`` is that check-and-put: if its outcome is unknown, it reads the cell
again.
"""

from collections.abc import Callable, Sequence

from rollups.decide.work import RUN_MAX
from spm.errors import StoreUnavailable
from spm.store import keys, manifest
from spm.store.backends.base import Backend, Reader
from spm.store.ledger import counters

COLUMN = b"v"


def take_run(store: Backend) -> int:
    """Takes a run number (from 1) that was never used before."""
    return counters.take(store, b"runs", below=RUN_MAX)


def last_run(reader: Reader) -> int:
    """Returns the number of the newest run; 0 if there was none."""
    return counters.last(reader, b"runs")


def read_cell(store: Backend, table: str, key: bytes) -> bytes | None:
    """Reads one cell; ``None`` if there is none."""
    [row] = store.get(table, [key], [COLUMN])
    return row[COLUMN] if row else None


def read_cells(store: Reader, app: int, days: Sequence[int]) -> dict[int, bytes]:
    """Reads the manifest cells of these days; absent ones are left out."""
    rows = store.get("manifest", [keys.manifest(app, day) for day in days], [COLUMN])
    return {day: row[COLUMN] for day, row in zip(days, rows, strict=True) if row is not None}


def scan_cells(store: Reader, app: int, *, months: bool = False) -> dict[int, bytes]:
    """Reads the manifest cells of all days of an app, or of all its months."""
    cells = {}
    for start, stop in keys.manifest_ranges(app):
        for key, row in store.scan("manifest", start, stop, columns=[COLUMN]):
            number, is_month = keys.parse_manifest(key)
            if is_month == months:
                cells[number] = row[COLUMN]
    return cells


def swap(
    store: Backend, key: bytes, expected: bytes | None, value: bytes, is_ours: Callable[[bytes | None], bool]
) -> tuple[bool, bytes | None, bool]:
    """Publishes a manifest cell by check-and-put; returns (whether it is in, the present cell, whether that is final).

    ``is_ours`` recognises our value, or a later one computed from it. If the result is not final, the outcome of the
    call is unknown, and the value may still go in later.
    """
    final = True
    try:
        if store.check_and_put("manifest", key, COLUMN, expected, value):
            return True, value, True
    except StoreUnavailable:
        final = False
    cell = read_cell(store, "manifest", key)
    return is_ours(cell), cell, final


def has_nonce(nonce: int) -> Callable[[bytes | None], bool]:
    """Returns a function that recognises the manifest with this nonce."""
    return lambda cell: manifest.decode(cell).nonce == nonce
