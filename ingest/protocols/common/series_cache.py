"""What series a raw text means, remembered for the whole process and all its threads.

Enter by ``SeriesCache.generation()``: a ``Generation`` maps heads (measurement and tags as sent) and their fields'
names to series numbers, and numbers to ids and canonical forms. A series spelt in two ways is one number. Ids are
hashed once per new raw text, never again. A number means something in its own generation only.

Threads: entries are only added, under the generation's lock, and a ``KnownSeries`` view taken under the same lock counts the
entries that were complete by then; kernels ignore what lies beyond. Arrays that must grow are replaced by larger
copies, so a view never changes under its reader. Size: a generation that is full when a message begins is left to its
last readers and a new one takes its place, so the bound is its limits plus what one message may add.
"""

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.protocols.common.byte_kernels import text_hash
from ingest.protocols.common.series_kernels import KnownSeries, find_head, find_item
from spm import wire
from spm.arrays import I32, U64
from spm.clock import random_u64
from spm.errors import LimitExceeded
from spm.limits import MESSAGE_SERIES_BYTES_MAX, SERIES_CACHE_BYTES_MAX, SERIES_CACHE_ITEMS_MAX

Tags = list[tuple[bytes, bytes]]
_SMALLER = "Send smaller bodies, of 10,000 lines or so."


class Column:
    """An array that grows by replacing itself: views of its former selves stay as they were."""

    def __init__(self, dtype: type[np.generic], room: int) -> None:
        self.array: NDArray[Any] = np.zeros(room, dtype)
        self.count = 0

    def append(self, value: int) -> None:
        self.reserve(1)
        self.array[self.count] = value
        self.count += 1

    def extend(self, raw: bytes) -> tuple[int, int]:
        """Append bytes; where they start and end."""
        self.reserve(len(raw))
        start = self.count
        self.count += len(raw)
        self.array[start : self.count] = np.frombuffer(raw, np.uint8)
        return start, self.count

    def reserve(self, more: int) -> None:
        if self.count + more > self.array.size:
            larger = np.zeros(2 * self.array.size + more, self.array.dtype)
            larger[: self.count] = self.array[: self.count]
            self.array = larger


class Hours:
    """Open addressing from hashes to entry numbers, never more than half full."""

    def __init__(self, room: int) -> None:
        self.array: I32 = np.full(room, -1, np.int32)

    def add(self, entry: int, hashes: Column) -> None:
        """Enter ``entry``, the last of ``hashes``."""
        if 2 * hashes.count > self.array.size:
            self.array = np.full(4 * self.array.size, -1, np.int32)
            for old in range(entry):
                self._place(old, int(hashes.array[old]))
        self._place(entry, int(hashes.array[entry]))

    def _place(self, entry: int, hashed: int) -> None:
        mask = self.array.size - 1
        hour = hashed & mask
        while self.array[hour] >= 0:
            hour = (hour + 1) & mask
        self.array[hour] = entry


class Texts:
    """Numbered texts found again by their hash: number, hash, owner, and where the text stands in the arena."""

    def __init__(self, arena: Column, room: int) -> None:
        self.arena = arena
        self.hours = Hours(2 * room)
        self.hash, self.start, self.end = Column(np.uint64, room), Column(np.int64, room), Column(np.int64, room)

    def __len__(self) -> int:
        return self.hash.count

    def add(self, hashed: int, span: tuple[int, int]) -> int:
        """Number of the new text that stands at ``span``."""
        self.start.append(span[0])
        self.end.append(span[1])
        self.hash.append(hashed)
        entry = self.hash.count - 1
        self.hours.add(entry, self.hash)
        return entry


class Generation:
    """One life of the cache, from empty to full."""

    def __init__(self, room: int = 1024) -> None:
        self._lock = threading.Lock()
        self._key: U64 = np.array([random_u64() >> 1, random_u64() | 1], np.uint64)
        self._arena = Column(np.uint8, 64 * room)
        self._heads = Texts(self._arena, room)
        self._items = Texts(self._arena, room)
        self._item_head, self._item_series = Column(np.int32, room), Column(np.int32, room)
        self._names: dict[bytes, tuple[int, int]] = {}  # a field's name stands once in the arena, for all its heads
        self._forms = Column(np.uint8, 128 * room)
        self._ids, self._metrics = Column(np.uint64, room), Column(np.uint64, room)
        self._starts, self._ends = Column(np.int64, room), Column(np.int64, room)
        self._metric_ids: dict[bytes, int] = {}
        self._numbers: dict[int, int] = {}
        self._marks: list[I32] = []

    @property
    def full(self) -> bool:
        """Whether the next message should begin a new generation."""
        return (
            len(self._items) >= SERIES_CACHE_ITEMS_MAX
            or self._arena.count + self._forms.count >= SERIES_CACHE_BYTES_MAX
        )

    @property
    def form_bytes(self) -> int:
        """Bytes of all canonical forms so far."""
        return self._forms.count

    def view(self) -> KnownSeries:
        """What is known now, for kernels."""
        with self._lock:
            return self._view()

    def _view(self) -> KnownSeries:
        heads, items = self._heads, self._items
        return KnownSeries(
            self._key,
            self._arena.array,
            len(heads),
            heads.hours.array,
            heads.hash.array,
            heads.start.array,
            heads.end.array,
            len(items),
            items.hours.array,
            items.hash.array,
            self._item_head.array,
            items.start.array,
            items.end.array,
            self._item_series.array,
        )

    def series(
        self, head: bytes, *, measurement: bytes, tags: Tags, names: list[bytes], budget: int
    ) -> tuple[list[int], int]:
        """The series numbers of these fields of a head that was read and found good, and what is left of ``budget``.

        The budget is the bytes of canonical text the message may still add; beyond it ``LimitExceeded``.
        """
        with self._lock:
            number = self._head(head)
            tail = _tail(tags)
            found = []
            for name in names:
                item = self._find_item(number, name)
                if item < 0:
                    before = self._forms.count
                    item = self._add_item(number, name, self._series(metric_of(measurement, name), tail))
                    budget = within_budget(budget - (self._forms.count - before))
                found.append(int(self._item_series.array[item]))
            return found, budget

    def enter(self, head: bytes, name: bytes, *, metric: bytes, tags: Tags, budget: int) -> tuple[int, int]:
        """The number of the series that a field of a head means, as ``series``, where its metric is said outright."""
        with self._lock:
            number = self._head(head)
            item = self._find_item(number, name)
            if item < 0:
                before = self._forms.count
                item = self._add_item(number, name, self._series(metric, _tail(tags)))
                budget = within_budget(budget - (self._forms.count - before))
            return int(self._item_series.array[item]), budget

    def head(self, raw: bytes) -> int:
        """The number of a head, which is given one if it is new."""
        with self._lock:
            return self._head(raw)

    def enter_nothing(self, head: bytes, name: bytes, mark: int) -> int:
        """Remember that a field of a head is no series, under a mark below 0; the mark."""
        with self._lock:
            number = self._head(head)
            if self._find_item(number, name) < 0:
                self._add_item(number, name, mark)
            return mark

    def _find_item(self, head: int, name: bytes) -> int:
        return int(find_item(self._view(), head, np.frombuffer(name, np.uint8), 0, len(name)))

    def _head(self, raw: bytes) -> int:
        text = np.frombuffer(raw, np.uint8)
        found = int(find_head(self._view(), text, 0, len(raw)))
        if found >= 0:
            return found
        hashed = text_hash(self._key[0], self._key[1], text, 0, len(raw))
        return self._heads.add(int(hashed), self._arena.extend(raw))

    def _add_item(self, head: int, name: bytes, series: int) -> int:
        if name not in self._names:
            self._names[name] = self._arena.extend(name)
        text = np.frombuffer(name, np.uint8)
        hashed = text_hash(self._key[0] + np.uint64(head), self._key[1], text, 0, len(name))
        self._item_head.append(head)
        self._item_series.append(series)
        return self._items.add(int(hashed), self._names[name])

    def _series(self, metric: bytes, tail: bytes) -> int:
        """The number of a canonical form; two forms with one id (a hash's accident) stay two series."""
        form = wire.canonical(metric.decode(), {}) + tail
        hashed = wire.series_id(form)
        known = self._numbers.get(hashed)
        if known is not None and self.form(known) == form:
            return known
        start, end = self._forms.extend(form)
        self._starts.append(start)
        self._ends.append(end)
        self._ids.append(hashed)
        if metric not in self._metric_ids:
            self._metric_ids[metric] = wire.metric_id(metric)
        self._metrics.append(self._metric_ids[metric])
        return self._numbers.setdefault(hashed, self._ids.count - 1) if known is None else self._ids.count - 1

    def form(self, number: int) -> bytes:
        """The canonical form of a series."""
        start, end = int(self._starts.array[number]), int(self._ends.array[number])
        return self._forms.array[start:end].tobytes()

    def table(self, numbers: I32) -> wire.SeriesTable:
        """These series as a message's table. Its text is the cache's own, not copied."""
        with self._lock:
            return wire.SeriesTable(
                ids=self._ids.array[numbers],
                metrics=self._metrics.array[numbers],
                text=self._forms.array,
                starts=self._starts.array[numbers],
                ends=self._ends.array[numbers],
            )

    def borrow_marks(self) -> I32:
        """A zeroed array with an entry for each series known now; give it back zeroed."""
        with self._lock:
            if self._marks and self._marks[-1].size >= self._ids.count:
                return self._marks.pop()
            return np.zeros(self._ids.array.size, np.int32)

    def return_marks(self, marks: I32) -> None:
        """Keep the marks for the next message (a few: as many as threads work at once)."""
        with self._lock:
            if marks.size == self._ids.array.size and len(self._marks) < 8:
                self._marks.append(marks)


def metric_of(measurement: bytes, field: bytes) -> bytes:
    """A field's metric: measurement_field; a field named ``value`` adds nothing and gives the measurement alone."""
    return measurement if field == b"value" else measurement + b"_" + field


def too_much(what: str, limit: int) -> LimitExceeded:
    """The error for a body that holds more than one message may."""
    return LimitExceeded(f"too many {what}", got=f"over {limit}", wanted=f"at most {limit}", remedy=_SMALLER)


def within_budget(left: int) -> int:
    """``left`` bytes, unless negative: then the message names too much series text."""
    if left < 0:
        raise too_much("bytes of series names and tags in one body", MESSAGE_SERIES_BYTES_MAX)
    return left


def _tail(tags: Tags) -> bytes:
    """What follows the metric in the canonical form of every series with these tags."""
    return wire.canonical("", {name.decode(): value.decode() for name, value in tags})[2:]


class SeriesCache:
    """The generation in use, replaced when it is full."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._generation = Generation()

    def generation(self) -> Generation:
        """The generation for one message: all its series numbers are of this one."""
        with self._lock:
            if self._generation.full:
                self._generation = Generation()
            return self._generation
