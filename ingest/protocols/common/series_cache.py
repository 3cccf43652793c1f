"""The series cache of a process: it maps the text of a series, as clients send it, to a series number.

Enter by ``SeriesCache.generation()``. A ``CacheGeneration`` maps heads (measurement and labels as sent) and the field
names below them to series numbers, and numbers to ids and canonical forms. Two spellings of one series have one number.
An id is hashed once per new text. A number is valid in its own generation only.

Threads: entries are only added, under the generation's lock. A ``KnownSeries`` view, taken under that lock, counts the
entries that are complete; kernels ignore entries beyond the counts. An array that must grow is replaced by a larger
copy, so a view never changes. Size: when a generation is full at the start of a message, a new one replaces it and the
old one lives until its last reader ends. So the bound is the limits plus what one message may add.
"""

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.protocols.common.byte_kernels import text_hash
from ingest.protocols.common.series_kernels import KnownSeries, find_head, find_item, number_series
from spm import wire
from spm.arrays import I32, U64
from spm.clock import random_u64
from spm.errors import LimitExceeded
from spm.limits import MESSAGE_SERIES_BYTES_MAX, SERIES_CACHE_BYTES_MAX, SERIES_CACHE_ITEMS_MAX

LabelPairs = list[tuple[bytes, bytes]]
_SMALLER = "Send smaller bodies, of 10,000 lines or so."


class Column:
    """An array that grows by replacement: views of the earlier array stay valid."""

    def __init__(self, dtype: type[np.generic], capacity: int) -> None:
        self.array: NDArray[Any] = np.zeros(capacity, dtype)
        self.count = 0

    def append(self, value: int) -> None:
        self.reserve(1)
        self.array[self.count] = value
        self.count += 1

    def extend(self, raw: bytes) -> tuple[int, int]:
        """Append bytes; returns where they start and end."""
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


class HashTable:
    """A hash table with open addressing: hash → entry number. It is never more than half full."""

    def __init__(self, capacity: int) -> None:
        self.array: I32 = np.full(capacity, -1, np.int32)

    def add(self, entry: int, hashes: Column) -> None:
        """Add ``entry``, whose hash is the last of ``hashes``."""
        if 2 * hashes.count > self.array.size:
            self.array = np.full(4 * self.array.size, -1, np.int32)
            for old in range(entry):
                self._place(old, int(hashes.array[old]))
        self._place(entry, int(hashes.array[entry]))

    def _place(self, entry: int, hashed: int) -> None:
        mask = self.array.size - 1
        slot = hashed & mask
        while self.array[slot] >= 0:
            slot = (slot + 1) & mask
        self.array[slot] = entry


class TextTable:
    """Numbered texts with a hash table over them. For each text: its hash, and its start and end in the arena."""

    def __init__(self, arena: Column, capacity: int) -> None:
        self.arena = arena
        self.table = HashTable(2 * capacity)
        self.hash = Column(np.uint64, capacity)
        self.start, self.end = Column(np.int64, capacity), Column(np.int64, capacity)

    def __len__(self) -> int:
        return self.hash.count

    def add(self, hashed: int, span: tuple[int, int]) -> int:
        """Add the text at ``span`` of the arena; returns its number."""
        self.start.append(span[0])
        self.end.append(span[1])
        self.hash.append(hashed)
        entry = self.hash.count - 1
        self.table.add(entry, self.hash)
        return entry


class CacheGeneration:
    """The contents of the cache from when it was empty until it is full."""

    def __init__(self, capacity: int = 1024) -> None:
        self._lock = threading.Lock()
        self._key: U64 = np.array([random_u64() >> 1, random_u64() | 1], np.uint64)
        self._arena = Column(np.uint8, 64 * capacity)
        self._heads = TextTable(self._arena, capacity)
        self._items = TextTable(self._arena, capacity)
        self._item_head, self._item_series = Column(np.int32, capacity), Column(np.int32, capacity)
        self._names: dict[bytes, tuple[int, int]] = {}  # a field name is stored once in the arena, for all heads
        self._forms = Column(np.uint8, 128 * capacity)
        self._ids, self._metrics = Column(np.uint64, capacity), Column(np.uint64, capacity)
        self._starts, self._ends = Column(np.int64, capacity), Column(np.int64, capacity)
        self._metric_ids: dict[bytes, int] = {}
        self._numbers: dict[int, int] = {}
        self._scratch: list[I32] = []

    @property
    def full(self) -> bool:
        """Whether the next message begins a new generation."""
        return (
            len(self._items) >= SERIES_CACHE_ITEMS_MAX
            or self._arena.count + self._forms.count >= SERIES_CACHE_BYTES_MAX
        )

    @property
    def form_bytes(self) -> int:
        """The size of all canonical forms so far."""
        return self._forms.count

    def view(self) -> KnownSeries:
        """Returns a view for kernels of the entries that exist now."""
        with self._lock:
            return self._view()

    def _view(self) -> KnownSeries:
        heads, items = self._heads, self._items
        return KnownSeries(
            self._key,
            self._arena.array,
            len(heads),
            heads.table.array,
            heads.hash.array,
            heads.start.array,
            heads.end.array,
            len(items),
            items.table.array,
            items.hash.array,
            self._item_head.array,
            items.start.array,
            items.end.array,
            self._item_series.array,
        )

    def resolve_fields(
        self, head: bytes, *, measurement: bytes, labels: LabelPairs, names: list[bytes], budget: int
    ) -> tuple[list[int], int]:
        """Returns the series numbers of these fields of a valid head, and the rest of ``budget``. Adds new series.

        The budget is the bytes of canonical text that the message may still add; beyond it ``LimitExceeded``.
        """
        with self._lock:
            number = self._resolve_head(head)
            tail = _canonical_labels(labels)
            series = []
            for name in names:
                item = self._find_item(number, name)
                if item < 0:
                    before = self._forms.count
                    item = self._add_item(number, name, self._resolve_series(join_metric(measurement, name), tail))
                    budget = check_budget(budget - (self._forms.count - before))
                series.append(int(self._item_series.array[item]))
            return series, budget

    def resolve_field(
        self, head: bytes, name: bytes, *, metric: bytes, labels: LabelPairs, budget: int
    ) -> tuple[int, int]:
        """Returns the series number of one field with a metric of its own, and the rest of ``budget``."""
        with self._lock:
            number = self._resolve_head(head)
            item = self._find_item(number, name)
            if item < 0:
                before = self._forms.count
                item = self._add_item(number, name, self._resolve_series(metric, _canonical_labels(labels)))
                budget = check_budget(budget - (self._forms.count - before))
            return int(self._item_series.array[item]), budget

    def resolve_head(self, raw: bytes) -> int:
        """Returns the number of a head; adds the head if it is new."""
        with self._lock:
            return self._resolve_head(raw)

    def remember_no_series(self, head: bytes, name: bytes, code: int) -> int:
        """Remember that a field of a head is no series. Stores and returns ``code``, which is below 0."""
        with self._lock:
            number = self._resolve_head(head)
            if self._find_item(number, name) < 0:
                self._add_item(number, name, code)
            return code

    def _find_item(self, head: int, name: bytes) -> int:
        return int(find_item(self._view(), head, np.frombuffer(name, np.uint8), 0, len(name)))

    def _resolve_head(self, raw: bytes) -> int:
        text = np.frombuffer(raw, np.uint8)
        entry = int(find_head(self._view(), text, 0, len(raw)))
        if entry >= 0:
            return entry
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

    def _resolve_series(self, metric: bytes, tail: bytes) -> int:
        """Returns the number of a canonical form. Two forms with the same id (a hash collision) stay two series."""
        form = wire.canonical(metric.decode(), {}) + tail
        hashed = wire.series_id(form)
        known = self._numbers.get(hashed)
        if known is not None and self.canonical(known) == form:
            return known
        start, end = self._forms.extend(form)
        self._starts.append(start)
        self._ends.append(end)
        self._ids.append(hashed)
        if metric not in self._metric_ids:
            self._metric_ids[metric] = wire.metric_id(metric)
        self._metrics.append(self._metric_ids[metric])
        return self._numbers.setdefault(hashed, self._ids.count - 1) if known is None else self._ids.count - 1

    def canonical(self, number: int) -> bytes:
        """Returns the canonical form of a series."""
        start, end = int(self._starts.array[number]), int(self._ends.array[number])
        return self._forms.array[start:end].tobytes()

    def message_table(self, series: I32) -> wire.SeriesTable:
        """Returns a message's table of its series; replaces the numbers in ``series`` by rows of that table.

        ``LimitExceeded``: the series have more text than one message may hold.
        """
        scratch = self._borrow_scratch()
        distinct: I32 = np.empty(min(len(series), scratch.size), np.int32)
        count = int(number_series(series, scratch, distinct))
        self._return_scratch(scratch)
        table = self._table(distinct[:count])
        check_budget(MESSAGE_SERIES_BYTES_MAX - int((table.ends - table.starts).sum()))
        return table

    def _table(self, numbers: I32) -> wire.SeriesTable:
        """Returns a table of these series. It shares the text of the cache."""
        with self._lock:
            return wire.SeriesTable(
                ids=self._ids.array[numbers],
                metrics=self._metrics.array[numbers],
                text=self._forms.array,
                starts=self._starts.array[numbers],
                ends=self._ends.array[numbers],
            )

    def _borrow_scratch(self) -> I32:
        """Returns an array of zeros with an element for each series; it must be returned as zeros."""
        with self._lock:
            if self._scratch and self._scratch[-1].size >= self._ids.count:
                return self._scratch.pop()
            return np.zeros(self._ids.array.size, np.int32)

    def _return_scratch(self, scratch: I32) -> None:
        """Keep the array for a later message. Eight are enough for the threads of one process."""
        with self._lock:
            if scratch.size == self._ids.array.size and len(self._scratch) < 8:
                self._scratch.append(scratch)


def join_metric(measurement: bytes, field: bytes) -> bytes:
    """Returns the metric of a field: measurement_field, or the measurement alone for a field named ``value``."""
    return measurement if field == b"value" else measurement + b"_" + field


def limit_error(what: str, limit: int) -> LimitExceeded:
    """Returns the error for a body that holds more than one message may."""
    return LimitExceeded(f"too many {what}", got=f"over {limit}", wanted=f"at most {limit}", remedy=_SMALLER)


def check_budget(budget: int) -> int:
    """Returns ``budget``, or raises ``LimitExceeded`` if it is negative: the message has too much series text."""
    if budget < 0:
        raise limit_error("bytes of series names and labels in one body", MESSAGE_SERIES_BYTES_MAX)
    return budget


def _canonical_labels(labels: LabelPairs) -> bytes:
    """Returns the part of a canonical form that follows the metric."""
    return wire.canonical("", {name.decode(): value.decode() for name, value in labels})[2:]


class SeriesCache:
    """Holds the generation in use, and replaces it when it is full."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._generation = CacheGeneration()

    def generation(self) -> CacheGeneration:
        """Returns the generation for one message: all series numbers of the message belong to it."""
        with self._lock:
            if self._generation.full:
                self._generation = CacheGeneration()
            return self._generation
