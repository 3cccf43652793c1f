"""Batches that who moves watermarks need not read again: every message of theirs lies at or below its watermark.

A watermark only goes forward, so this holds for ever. Without it, each look reads and decodes all rows of an app that
wait for a run: of bodies that spread over thousands of hours these are hundreds of thousands. What is remembered is
forgotten when watermarks have gone back, since then the store has been replaced. Enter by ``PassedBatches.of_app``.
"""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from spm.bounded import LruCache
from spm.store.backends.base import Backend
from spm.store.ledger.commit_columns import CommitCell
from spm.store.ledger.commit_records import EXPIRED_HOUR, STORED
from spm.store.ledger.watermarks import pack

_BATCHES_MAX = 500_000  # of all apps of a process: some 100 bytes each
_APPS_MAX = 10_000
Places = Mapping[int, int]  # process -> its watermark, packed


@dataclass(slots=True)
class AppBatches:
    """The passed batches of one app in one look: those ``known`` before, of which ``seen`` were there again.

    ``tops``: of batches that were read whole, the greatest stamp of each process, packed.
    """

    places: Places
    known: frozenset[int] = frozenset()
    seen: set[int] = field(default_factory=set)
    tops: dict[int, dict[int, int]] = field(default_factory=dict)

    def has_passed(self, batch: int) -> bool:
        """Whether the rows of a batch need not be read."""
        if batch in self.known:
            self.seen.add(batch)
            return True
        return False

    def note(self, cells: Iterable[CommitCell]) -> None:
        """Note the batches of which all rows are among these cells, which have only the messages above watermarks."""
        missing: dict[int, int] = {}  # rows that were not among the cells yet
        tops: dict[int, dict[int, int]] = {}
        for cell in cells:
            if cell.outcome in (STORED, EXPIRED_HOUR):
                missing[cell.batch] = missing.get(cell.batch, cell.rows) - 1
                top, messages = tops.setdefault(cell.batch, {}), cell.messages
                for process in set(messages.process.tolist()):
                    mine = messages.process == process
                    stamp = int(pack(messages.ms[mine], messages.sequence[mine]).max())
                    top[process] = max(stamp, top.get(process, 0))
        self.tops = {batch: tops[batch] for batch, count in missing.items() if count <= 0}

    def passed(self, places: Places) -> frozenset[int]:
        """The batches of which all messages lie at or below these watermarks."""
        return frozenset(self.seen).union(
            batch
            for batch, top in self.tops.items()
            if all(stamp <= places.get(process, -1) for process, stamp in top.items())
        )


class PassedBatches:
    """The passed batches of the apps of one store. Thread-safe, bounded."""

    def __init__(self, batches_max: int = _BATCHES_MAX) -> None:
        self._store: Backend | None = None
        self._lock = threading.Lock()
        self._apps: LruCache[int, AppBatches] = LruCache(batches_max, count_max=_APPS_MAX)

    def of_app(self, store: Backend, app: int, places: Places) -> AppBatches:
        """Begin a look at an app, whose watermarks are at these places."""
        with self._lock:
            if self._store is not store:
                self._store = store
                self._apps.clear()
        last = self._apps.get(app)
        if last is None or any(places.get(process, -1) < place for process, place in last.places.items()):
            return AppBatches(places)
        return AppBatches(places, last.passed(places))

    def end(self, app: int, batches: AppBatches) -> None:
        """Remember what a look has seen."""
        self._apps.put(app, batches, 1 + len(batches.seen) + len(batches.tops))


PASSED = PassedBatches()  # of this process
