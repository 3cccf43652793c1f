"""Changes one cell by check-and-put, and tries again while other writers come first (PROTOCOL 5).

Enter by ``replace_cell``. Nobody holds a lock: the second of two writers reads what the first has written, and decides
again. Writers whose value names what it replaces look a lost answer up themselves (``rollups.manifest.cells``).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from spm.errors import CellContended, StoreUnavailable
from spm.store.backends.base import Backend

T = TypeVar("T")
COLUMN = b"v"
TRIES = 8  # a cell that others change more often meanwhile is rare; the caller may come again


def replace_cell(
    store: Backend,
    table: str,
    key: bytes,
    change: Callable[[Mapping[bytes, bytes]], tuple[bytes | None, T]],
    *,
    error: str,
    column: bytes = COLUMN,
    read_too: Sequence[bytes] = (),
    tries: int = TRIES,
    retry_lost_answers: bool = False,
) -> T:
    """Put what ``change`` makes of a row into its cell ``column``; return the result that ``change`` gives.

    ``change`` takes the cells of the row, ``column`` and ``read_too`` (``{}``: there are none), and returns (the new
    value, the result). Nothing is put when the new value is ``None`` or is there already. With ``retry_lost_answers`` a
    put without an answer is tried again, and a cell that holds exactly what was sent last counts as ours; otherwise
    ``StoreUnavailable`` is raised at once. Raises ``CellContended`` with ``error`` after so many tries.
    """
    sent: tuple[bytes, T] | None = None
    for _ in range(tries):
        [cells] = store.get(table, [key], [column, *read_too])
        row = cells or {}
        now = row.get(column)
        if sent is not None and sent[0] == now:
            return sent[1]
        value, result = change(row)
        if value is None or value == now:
            return result
        try:
            if store.check_and_put(table, key, column, now, value):
                return result
        except StoreUnavailable:
            if not retry_lost_answers:
                raise
        sent = (value, result) if retry_lost_answers else None
    raise CellContended(error)
