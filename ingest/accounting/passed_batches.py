"""Batches that who moves watermarks need not read again: their messages are at or below watermarks, or all stored.

A watermark only goes forward, so the first holds for ever. Without it, each look reads and decodes all rows of an app
that wait for a run: of bodies that spread over thousands of hours these are hundreds of thousands. Nor does the second
change: of a batch of which every row was there, one cell with the samples of each message is remembered. So a watermark
reaches an announcement also over more rows than one look reads. What is remembered is forgotten when watermarks have
gone back, since then the store has been replaced. Enter by ``PassedBatches.of_app``.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from spm.arrays import I64
from spm.bounded import LruCache
from spm.store.backends.base import Backend
from spm.store.encoding.blocks import Messages
from spm.store.keys import PlacementTable
from spm.store.ledger.commit_columns import CommitCell
from spm.store.ledger.commit_records import EXPIRED_HOUR, STORED
from spm.store.ledger.outcomes import group_rows, stamps_of

_BYTES_MAX = 64_000_000  # of all apps of a process
WHOLE_BYTES_MAX = 32_000_000  # of the cells of whole batches of one app: the oldest; others are read again
_BATCH_BYTES = 100  # of one that has passed
_APPS_MAX = 10_000
Places = Mapping[int, int]  # process -> its watermark, packed


@dataclass(slots=True)
class AppBatches:
    """The batches of one app in one look: those ``known`` to have passed, of which ``seen`` were there again.

    ``whole``: batches above watermarks that are stored completely and in time, each as one cell. ``tops``: of batches
    that were read whole, the greatest stamp of each process, packed.
    """

    places: Places
    known: frozenset[int] = frozenset()
    whole: dict[int, CommitCell] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)
    tops: dict[int, dict[int, int]] = field(default_factory=dict)

    def has_passed(self, batch: int) -> bool:
        """Whether the rows of a batch need not be read."""
        if batch in self.known or batch in self.whole:
            self.seen.add(batch)
            return True
        return False

    def recall(self, table: PlacementTable) -> list[CommitCell] | None:
        """The cells of whole batches that are there; ``None`` if batches put by a closed epoch must be read again."""
        present = {batch: cell for batch, cell in self.whole.items() if batch in self.seen}
        closed = [batch for batch, cell in present.items() if cell.epoch is not None and not table.counts(cell.epoch)]
        for batch in closed:
            del self.whole[batch]
            self.seen.discard(batch)
        return None if closed else list(present.values())

    def note(self, cells: Sequence[CommitCell]) -> None:
        """Note the batches of which all rows are among these cells, which have only the messages above watermarks."""
        rows: dict[int, list[CommitCell]] = {}
        for cell in cells:
            if cell.outcome in (STORED, EXPIRED_HOUR):
                rows.setdefault(cell.batch, []).append(cell)
        whole = {batch: of_batch for batch, of_batch in rows.items() if len(of_batch) >= of_batch[0].rows}
        self.tops = {batch: dict(_tops(of_batch)) for batch, of_batch in whole.items()}
        present = {batch: cell for batch, cell in self.whole.items() if batch in self.seen}
        shared = _sharing({**rows, **{batch: [cell] for batch, cell in present.items()}})
        size = sum(cell.size for cell in present.values())
        for batch, of_batch in whole.items():
            if batch not in shared and all(cell.outcome == STORED for cell in of_batch):
                cell = _as_one(of_batch)
                size += cell.size
                if size > WHOLE_BYTES_MAX:
                    break
                present[batch] = cell
        self.whole = present

    def next_look(self, places: Places) -> "AppBatches":
        """What the next look begins with, once watermarks are at these places."""
        tops = {**self.tops, **{batch: dict(_tops([cell])) for batch, cell in self.whole.items()}}
        passed = frozenset(
            batch
            for batch, top in tops.items()
            if all(stamp <= places.get(process, -1) for process, stamp in top.items())
        )
        known = passed.union(self.known & self.seen)
        return AppBatches(places, known, {batch: cell for batch, cell in self.whole.items() if batch not in known})

    @property
    def size(self) -> int:
        """Its bytes, about."""
        count = 1 + len(self.seen) + len(self.tops)
        return _BATCH_BYTES * count + sum(cell.size for cell in self.whole.values())


def _tops(cells: Sequence[CommitCell]) -> Iterator[tuple[int, int]]:
    """Yield (process, its greatest stamp, packed)."""
    process, stamps = stamps_of(cells)
    for number in set(process.tolist()):
        yield number, int(stamps[process == number].max())


def _sharing(batches: Mapping[int, Sequence[CommitCell]]) -> set[int]:
    """The batches that have a message which another one has, too: a message was delivered again."""
    numbers = list(batches)
    process, stamps = stamps_of([cell for cells in batches.values() for cell in cells])
    sizes = [sum(len(cell.messages) for cell in cells) for cells in batches.values()]
    batch: I64 = np.repeat(np.arange(len(numbers)), sizes)
    order, starts = group_rows(process, stamps)
    if not len(order):
        return set()
    first, last = (np.repeat(at.reduceat(batch[order], starts), np.diff([*starts, len(order)])) for at in _ENDS)
    return {numbers[place] for place in np.unique(batch[order][first != last]).tolist()}


_ENDS = (np.minimum, np.maximum)


def _as_one(cells: Sequence[CommitCell]) -> CommitCell:
    """The cells of a whole batch as one with all samples of each message. What a cell holds twice counts once."""
    if len(cells) == 1:
        return cells[0]
    process, stamps = stamps_of(cells)
    cell: I64 = np.repeat(np.arange(len(cells)), [len(c.messages) for c in cells])
    samples: I64 = np.concatenate([c.samples for c in cells])
    order, starts = group_rows(process, stamps, cell)
    order, samples = order[starts], np.maximum.reduceat(samples[order], starts)
    again, starts = group_rows(process[order], stamps[order])
    first = order[again][starts]
    names = dict.fromkeys(name for c in cells for name in c.messages.sources)
    number = {name: place for place, name in enumerate(names)}
    source = np.concatenate(
        [np.array([number[n] for n in c.messages.sources], np.int32)[c.messages.source] for c in cells]
    )
    ms, sequence = (np.concatenate([getattr(c.messages, name) for c in cells])[first] for name in ("ms", "sequence"))
    messages = Messages(ms, process[first], sequence, source[first], tuple(names))
    ids = np.concatenate([c.message_ids for c in cells])[first]
    size = cells[0].size + 60 * len(first) + sum(map(len, names))
    return replace(
        cells[0], messages=messages, samples=np.add.reduceat(samples[again], starts), message_ids=ids, rows=1, size=size
    )


class PassedBatches:
    """The batches of the apps of one store that need not be read. Thread-safe, bounded."""

    def __init__(self, bytes_max: int = _BYTES_MAX) -> None:
        self._store: Backend | None = None
        self._lock = threading.Lock()
        self._apps: LruCache[int, AppBatches] = LruCache(bytes_max, count_max=_APPS_MAX)

    def of_app(self, store: Backend, app: int, places: Places) -> AppBatches:
        """Begin a look at an app, whose watermarks are at these places."""
        with self._lock:
            if self._store is not store:
                self._store = store
                self._apps.clear()
        last = self._apps.get(app)
        if last is None or any(places.get(process, -1) < place for process, place in last.places.items()):
            return AppBatches(places)
        return last.next_look(places)

    def end(self, app: int, batches: AppBatches) -> None:
        """Remember what a look has seen."""
        self._apps.put(app, batches, batches.size)


PASSED = PassedBatches()  # of this process
