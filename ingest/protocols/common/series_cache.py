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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.protocols.common.series_kernels import (
    FORM_START,
    HEAD_COLUMNS,
    ITEM_COLUMNS,
    SERIES,
    SERIES_COLUMNS,
    KnownSeries,
    add_head,
    add_items,
    enter_heads,
    enter_items,
    find_head,
    find_items,
    number_series,
    place_entries,
    table_of,
)
from spm import wire
from spm.arrays import I32, I64, U8
from spm.clock import random_u64
from spm.errors import LimitExceeded
from spm.limits import MESSAGE_SERIES_BYTES_MAX, SERIES_CACHE_BYTES_MAX, SERIES_CACHE_ITEMS_MAX

LabelPairs = list[tuple[bytes, bytes]]
_SMALLER = "Send smaller bodies, of 10,000 lines or so."


class Column:
    """Bytes that grow by replacement: views of the earlier array stay valid."""

    def __init__(self, capacity: int) -> None:
        self.array: U8 = np.zeros(capacity, np.uint8)
        self.count = 0

    def reserve(self, more: int) -> None:
        """Make room for more bytes."""
        if self.count + more > self.array.size:
            larger = np.zeros(self.array.size + self.count + more, np.uint8)
            larger[: self.count] = self.array[: self.count]
            self.array = larger

    def extend(self, raw: bytes) -> tuple[int, int]:
        """Append bytes; returns where they start and end."""
        self.reserve(len(raw))
        start, end = self.count, self.count + len(raw)
        self.array[start:end] = np.frombuffer(raw, np.uint8)
        self.count = end
        return start, end


class Rows:
    """Rows of numbers that grow by replacement, and where they have hashes a table of these with free slots."""

    def __init__(self, columns: int, dtype: type[np.generic], capacity: int, *, hashed: bool = True) -> None:
        self.array: NDArray[Any] = np.zeros((capacity, columns), dtype)
        self.table: I32 = np.full(2 * capacity if hashed else 0, -1, np.int32)
        self.count = 0

    def reserve(self, more: int) -> None:
        """Make room for more rows; the table is never more than half full."""
        if self.count + more > len(self.array):
            larger = np.zeros((2 * len(self.array) + more, self.array.shape[1]), self.array.dtype)
            larger[: self.count] = self.array[: self.count]
            self.array = larger
        if len(self.table) and 2 * (self.count + more) > len(self.table):
            table: I32 = np.full(2 << (self.count + more).bit_length(), -1, np.int32)
            place_entries(table, self.array, self.count)
            self.table = table


@dataclass(frozen=True, slots=True)
class NewFields:
    """Fields of one head: their names, their metrics, and the part of their forms that follows the metric."""

    head: bytes
    names: list[bytes]
    metrics: list[bytes]
    tail: bytes


class CacheGeneration:
    """The contents of the cache from when it was empty until it is full."""

    def __init__(self, capacity: int = 1024) -> None:
        self._lock = threading.Lock()
        self._seed, self._multiplier = np.uint64(random_u64() >> 1), np.uint64(random_u64() | 1)
        self._arena = Column(64 * capacity)
        self._heads = Rows(HEAD_COLUMNS, np.int64, capacity)
        self._items = Rows(ITEM_COLUMNS, np.int64, capacity)
        self._names: dict[bytes, tuple[int, int]] = {}  # a field name is stored once in the arena, for all heads
        self._forms = Column(128 * capacity)
        self._series = Rows(SERIES_COLUMNS, np.uint64, capacity, hashed=False)
        self._metric_ids: dict[bytes, int] = {}
        self._numbers: dict[int, int] = {}
        self._scratch: list[I32] = []

    @property
    def full(self) -> bool:
        """Whether the next message begins a new generation."""
        return (
            self._items.count >= SERIES_CACHE_ITEMS_MAX
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
            self._seed,
            self._multiplier,
            self._arena.array,
            heads.count,
            heads.table,
            heads.array,
            items.count,
            items.table,
            items.array,
        )

    def resolve_fields(
        self, head: bytes, *, measurement: bytes, labels: LabelPairs, names: list[bytes], budget: int
    ) -> tuple[list[int], int]:
        """Returns the series numbers of these fields of a valid head, and the rest of ``budget``. Adds new series.

        The budget is the bytes of canonical text that the message may still add; beyond it ``LimitExceeded``.
        """
        with self._lock:
            (number, is_new), before = self._resolve_head(head), self._forms.count
            items = [-1] * len(names) if is_new else self._find_items(number, names)
            new = list(dict.fromkeys(name for name, item in zip(names, items, strict=True) if item < 0))
            series = self._resolve_series(
                [join_metric(measurement, name) for name in new], _canonical_labels(labels), budget
            )
            added = dict(zip(new, series, strict=False))  # fewer where the budget ended
            self._add_items(number, added)
            budget = check_budget(budget - (self._forms.count - before))
            rows = self._items.array
            return [
                int(rows[item, SERIES]) if item >= 0 else added[name] for name, item in zip(names, items, strict=True)
            ], budget

    def enter_fields(self, fields: Sequence[NewFields], budget: int) -> tuple[int, int]:
        """Add fields of many valid heads; returns how many of them were new, and the rest of ``budget``.

        Where the budget might not suffice the last heads are left out: ``resolve_fields`` of them tells.
        """
        fields = _affordable(fields, budget)
        metrics = [metric for each in fields for metric in each.metrics]
        forms = [wire.prefixed(metric) + each.tail for each in fields for metric in each.metrics]
        ids = list(map(wire.series_id, forms))  # before the lock
        with self._lock:
            items, size = self._items.count, self._forms.count
            series = self._resolve_forms(zip(metrics, forms, ids, strict=True), budget)
            heads = self._resolve_heads([each.head for each in fields])
            spans = [self._span(name) for each in fields for name in each.names]
            owners = np.repeat(heads, [len(each.names) for each in fields])
            self._items.reserve(len(spans))
            new = enter_items(
                self._view(), owners, np.array(spans, np.int64).reshape(-1, 2), np.array(series, np.int64)
            )
            self._items.count += int(new)
            return self._items.count - items, budget - (self._forms.count - size)

    def resolve_field(
        self, head: bytes, name: bytes, *, metric: bytes, labels: LabelPairs, budget: int
    ) -> tuple[int, int]:
        """Returns the series number of one field with a metric of its own, and the rest of ``budget``."""
        with self._lock:
            (number, is_new), before = self._resolve_head(head), self._forms.count
            [item] = [-1] if is_new else self._find_items(number, [name])
            if item < 0:
                [series] = self._resolve_series([metric], _canonical_labels(labels), budget)
                self._add_items(number, {name: series})
                return series, check_budget(budget - (self._forms.count - before))
            return int(self._items.array[item, SERIES]), budget

    def resolve_head(self, raw: bytes) -> int:
        """Returns the number of a head; adds the head if it is new."""
        with self._lock:
            return self._resolve_head(raw)[0]

    def remember_no_series(self, head: bytes, name: bytes, code: int) -> int:
        """Remember that a field of a head is no series. Stores and returns ``code``, which is below 0."""
        with self._lock:
            number, _ = self._resolve_head(head)
            [item] = self._find_items(number, [name])
            if item < 0:
                self._add_items(number, {name: code})
            return code

    def _find_items(self, head: int, names: list[bytes]) -> list[int]:
        """Returns the numbers of a head's items with these names; -1 where there is none."""
        ends: I64 = np.cumsum(np.fromiter(map(len, names), np.int64, len(names)))
        numbers: I64 = np.empty(len(names), np.int64)
        find_items(self._view(), head, np.frombuffer(b"".join(names), np.uint8), ends, numbers)
        return list(numbers.tolist())

    def _resolve_head(self, raw: bytes) -> tuple[int, bool]:
        """Returns the number of a head, and whether it is new."""
        entry = int(find_head(self._view(), np.frombuffer(raw, np.uint8), 0, len(raw)))
        if entry >= 0:
            return entry, False
        start, end = self._arena.extend(raw)
        self._heads.reserve(1)
        add_head(self._view(), start, end)
        self._heads.count += 1
        return self._heads.count - 1, True

    def _resolve_heads(self, texts: Sequence[bytes]) -> I64:
        """Returns the numbers of heads that differ from each other; adds those that are new."""
        joined = b"".join(texts)
        ends: I64 = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))
        numbers: I64 = np.empty(len(texts), np.int64)
        self._heads.reserve(len(texts))
        self._arena.reserve(len(joined))
        view, raw = self._view(), np.frombuffer(joined, np.uint8)
        new, self._arena.count = enter_heads(view, raw, ends, self._arena.count, numbers)
        self._heads.count += int(new)
        return numbers

    def _span(self, name: bytes) -> tuple[int, int]:
        """Returns where the name of a field stands in the arena; adds it if it is new."""
        span = self._names.get(name)
        if span is None:
            span = self._names[name] = self._arena.extend(name)
        return span

    def _add_items(self, head: int, series: Mapping[bytes, int]) -> None:
        """Add items by name, each with its series."""
        if not series:
            return
        self._items.reserve(len(series))
        spans = np.array([self._span(name) for name in series], np.int64)
        add_items(self._view(), head, spans, np.array(list(series.values()), np.int64))
        self._items.count += len(series)

    def _resolve_series(self, metrics: Sequence[bytes], tail: bytes, budget: int) -> list[int]:
        """Returns the numbers of the series of these metrics with labels ``tail``; ends when the budget is used up."""
        forms = ((metric, wire.prefixed(metric) + tail) for metric in metrics)
        return self._resolve_forms(((metric, form, wire.series_id(form)) for metric, form in forms), budget)

    def _resolve_forms(self, entries: Iterable[tuple[bytes, bytes, int]], budget: int) -> list[int]:
        """Returns the numbers of series, given as (metric, canonical form, id); ends when the budget is used up.

        Two forms with the same id (a hash collision) stay two series.
        """
        numbers: list[int] = []
        rows: list[tuple[int, int, int, int]] = []
        forms: list[bytes] = []
        first, end = self._series.count, self._forms.count
        limit = end + budget
        for metric, form, hashed in entries:
            known = self._numbers.get(hashed)
            if known is not None and form == (forms[known - first] if known >= first else self.canonical(known)):
                numbers.append(known)
                continue
            if metric not in self._metric_ids:
                self._metric_ids[metric] = wire.metric_id(metric)
            numbers.append(first + len(rows))
            self._numbers.setdefault(hashed, first + len(rows))
            rows.append((hashed, self._metric_ids[metric], end, end + len(form)))
            forms.append(form)
            end += len(form)
            if end > limit:
                break
        if rows:
            self._forms.extend(b"".join(forms))
            self._series.reserve(len(rows))
            self._series.array[first : first + len(rows)] = np.array(rows, np.uint64)
            self._series.count += len(rows)
        return numbers

    def canonical(self, number: int) -> bytes:
        """Returns the canonical form of a series."""
        start, end = self._series.array[number, FORM_START:].tolist()
        return self._forms.array[start:end].tobytes()

    def message_table(self, series: I32) -> wire.SeriesTable:
        """Returns a message's table of its series; replaces the numbers in ``series`` by rows of that table.

        ``LimitExceeded``: the series have more text than one message may hold.
        """
        scratch = self.borrow_scratch()
        distinct: I32 = np.empty(min(len(series), scratch.size), np.int32)
        count = int(number_series(series, scratch, distinct))
        self.return_scratch(scratch)
        table, size = self.table(distinct[:count])
        check_budget(MESSAGE_SERIES_BYTES_MAX - size)
        return table

    def table(self, numbers: I32) -> tuple[wire.SeriesTable, int]:
        """Returns a table of these series, which shares the text of the cache, and the size of its forms."""
        rows = self._series.array
        ids, metrics = np.empty((2, len(numbers)), np.uint64)
        starts, ends = np.empty((2, len(numbers)), np.int64)
        size = int(table_of(numbers, rows, ids, metrics, starts, ends))
        return wire.SeriesTable(ids, metrics, self._forms.array, starts, ends), size

    def borrow_scratch(self) -> I32:
        """Returns an array of zeros with an element for each series; it must be returned as zeros."""
        with self._lock:
            if self._scratch and self._scratch[-1].size >= self._series.count:
                return self._scratch.pop()
            return np.zeros(len(self._series.array), np.int32)

    def return_scratch(self, scratch: I32) -> None:
        """Keep the array for a later message. Eight are enough for the threads of one process."""
        with self._lock:
            if scratch.size == len(self._series.array) and len(self._scratch) < 8:
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


def new_fields(head: bytes, measurement: bytes, labels: LabelPairs, names: list[bytes]) -> NewFields:
    """Returns the fields of a valid head, for ``CacheGeneration.enter_fields``; no name is there twice."""
    return NewFields(head, names, [join_metric(measurement, name) for name in names], _canonical_labels(labels))


def _affordable(fields: Sequence[NewFields], budget: int) -> Sequence[NewFields]:
    """Returns the first of these, whose canonical forms are within the budget."""
    size = 0
    for number, each in enumerate(fields):
        size += sum(map(len, each.metrics)) + len(each.metrics) * (2 + len(each.tail))
        if size > budget:
            return fields[:number]
    return fields


def _canonical_labels(labels: LabelPairs) -> bytes:
    """Returns the part of a canonical form that follows the metric."""
    return b"".join([wire.prefixed(part) for label in sorted(labels) for part in label])


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
