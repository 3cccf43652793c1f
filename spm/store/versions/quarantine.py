"""Quarantines damaged rows: they are named, skipped, and never shown as numbers.

A reader that meets a ``CorruptBlock`` reports it here. From then on this process skips the row without decoding it,
every answer that needs the row says so, and the table `dead` has a copy of its bytes for a repair. Enter by
``Quarantine.report`` and ``Quarantine.holds``.
"""

import logging
import threading

from spm.clock import Clock
from spm.errors import CorruptBlock, StoreUnavailable
from spm.store.backends.base import Backend
from spm.store.ledger import dead_letters
from spm.store.ledger.dead_letters import DeadLetter

_LOG = logging.getLogger(__name__)
_ROWS_MAX = 10_000  # damaged rows one process remembers; more mean a broken disk


class Quarantine:
    """The damaged rows this process has met."""

    def __init__(self, backend: Backend, clock: Clock) -> None:
        self._backend, self._clock = backend, clock
        self._rows: dict[tuple[str, bytes], str] = {}
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        return len(self._rows)

    def holds(self, table: str, key: bytes) -> bool:
        """Whether the row is known to be damaged."""
        return (table, key) in self._rows

    def report(self, app: int, table: str, key: bytes, raw: bytes, error: CorruptBlock) -> None:
        """Set a damaged row aside and keep a copy of its bytes."""
        with self._lock:
            if (table, key) in self._rows or len(self._rows) >= _ROWS_MAX:
                return
            self._rows[table, key] = str(error)
        _LOG.error("quarantined %s %s: %s", table, key.hex(), error)
        copy = DeadLetter(dead_letters.ROW, str(error), raw, table, key)
        try:
            self._backend.put([dead_letters.step(app, self._clock.now_ms(), dead_letters.row_name(table, key), copy)])
        except StoreUnavailable as trouble:
            _LOG.warning("no copy of the quarantined row could be stored: %s", trouble)

    def notes(self) -> list[str]:
        """One sentence for each table with damaged rows."""
        tables: dict[str, int] = {}
        for table, _ in list(self._rows):
            tables[table] = tables.get(table, 0) + 1
        return [f"{n} damaged row(s) of {t} are quarantined and left out" for t, n in sorted(tables.items())]
