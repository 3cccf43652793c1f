"""Tells apps that may need a run from idle ones, by some calls for all of them: a site may have many thousand.

An app is idle if no batch of it waits, no day is marked as due, it has no retraction, and no manifest of the given days
is there. That is what a run would be due for: only of the others is it measured, each for itself. Enter by
``apps_to_measure``.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import TypeVar

from rollups.run import agenda
from spm.store import keys
from spm.store.backends.base import Reader
from spm.store.check_and_put import COLUMN

T = TypeVar("T")
_EVERYTHING = b"", b"\xff" * 32
_AT_ONCE = 1_000  # keys of one call


def apps_to_measure(
    reader: Reader, apps: Sequence[int], *, days: Sequence[int], always: Collection[int] = ()
) -> dict[int, list[bytes]]:
    """Return the apps that are not idle, or that are in ``always``, in their order, with the keys of what waits.

    ``days``: those whose closed hours may lack aggregates although nothing waits.
    """
    pending: dict[int, list[bytes]] = {app: [] for app in apps}
    for key in _keys_of(reader, "pending"):
        if (of_app := pending.get(keys.app_of("pending", key))) is not None:
            of_app.append(key)
    busy = {app for app, names in pending.items() if names}
    busy |= {keys.app_of("retractions", key) for key in _keys_of(reader, "retractions")}
    busy |= set(always)
    rest = [app for app in apps if app not in busy]
    for some in _parts(rest, _AT_ONCE):
        cells = reader.get("config", [agenda.name_of(app) for app in some], [COLUMN])
        busy |= {app for app, cell in zip(some, cells, strict=True) if cell and agenda.has_due_days(cell[COLUMN])}
    pairs = [(app, day) for app in rest for day in days]
    for part in _parts(pairs, _AT_ONCE):
        rows = reader.get("manifest", [keys.manifest(*pair) for pair in part], [COLUMN])
        busy |= {app for (app, _), row in zip(part, rows, strict=True) if row is not None}
    return {app: names for app, names in pending.items() if app in busy}


def _keys_of(reader: Reader, table: str) -> Iterator[bytes]:
    return (key for key, _ in reader.scan(table, *_EVERYTHING, keys_only=True))


def _parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[at : at + size] for at in range(0, len(items), size))
