"""Compiled look-ups in the series cache, the entry of new texts, and the table of a message's series.

``KnownSeries`` is one consistent view of the cache: entries below its counts never change, entries beyond them count as
absent. So readers need no lock while another thread adds series. A kernel first calls ``uncounted_series``: numba
counts the references of each array at every call, even of an inlined function, and that costs three times what a
look-up costs. Enter by ``find_head`` and ``find_item``; the functions that add are called under the cache's lock.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from spm.arrays import I32, I64, U8, U64
from spm.store.encoding.byte_kernels import copy_bytes, is_equal, text_hash, uncounted

HASH, START, END, HEAD, SERIES = range(5)  # columns of entries: items have all of them, heads the first three
ID, METRIC, FORM_START, FORM_END = range(4)  # columns of series
HEAD_COLUMNS, ITEM_COLUMNS, SERIES_COLUMNS = 3, 5, 4


class KnownSeries(NamedTuple):
    """A view of the cache. ``text`` holds all texts; hash tables hold entry numbers, and -1 in free slots."""

    seed: np.uint64  # drawn per process, as is the multiplier, so that nobody can choose colliding names
    multiplier: np.uint64  # odd
    text: U8
    head_count: int  # a head: measurement and labels as sent
    head_table: I32
    heads: I64
    item_count: int  # an item: a head and a field's name
    item_table: I32
    items: I64


@njit(nogil=True, cache=True, forceinline=True)
def uncounted_series(known: KnownSeries) -> KnownSeries:
    """Returns the view with arrays whose references are not counted."""
    return KnownSeries(
        known.seed,
        known.multiplier,
        uncounted(known.text),
        known.head_count,
        uncounted(known.head_table),
        uncounted(known.heads),
        known.item_count,
        uncounted(known.item_table),
        uncounted(known.items),
    )


@njit(nogil=True, cache=True, forceinline=True)
def find_head(known: KnownSeries, text: U8, start: int, end: int) -> int:
    """Returns the number of the head text[start:end], or -1."""
    h = np.int64(text_hash(known.seed, known.multiplier, text, start, end))
    mask = known.head_table.size - 1
    slot = h & mask
    while True:
        entry = int(known.head_table[slot])
        if entry < 0 or entry >= known.head_count:
            return -1
        if (
            known.heads[entry, HASH] == h
            and known.heads[entry, END] - known.heads[entry, START] == end - start
            and is_equal(known.text, known.heads[entry, START], text, start, end)
        ):
            return entry
        slot = (slot + 1) & mask


@njit(nogil=True, cache=True, forceinline=True)
def find_item(known: KnownSeries, head: int, text: U8, start: int, end: int) -> int:
    """Returns the number of the item (head, field name text[start:end]), or -1."""
    h = np.int64(text_hash(known.seed + np.uint64(head), known.multiplier, text, start, end))
    mask = known.item_table.size - 1
    slot = h & mask
    while True:
        entry = int(known.item_table[slot])
        if entry < 0 or entry >= known.item_count:
            return -1
        if (
            known.items[entry, HASH] == h
            and known.items[entry, HEAD] == head
            and known.items[entry, END] - known.items[entry, START] == end - start
            and is_equal(known.text, known.items[entry, START], text, start, end)
        ):
            return entry
        slot = (slot + 1) & mask


@njit(nogil=True, cache=True, forceinline=True)
def series_of(known: KnownSeries, item: int) -> int:
    """Returns the number of an item's series; a code below 0 if it has none."""
    return int(known.items[item, SERIES])


@njit(nogil=True, cache=True)
def find_items(known: KnownSeries, head: int, names: U8, ends: I64, numbers: I64) -> None:
    """Write the numbers of the items with these names, which follow each other in ``names``; -1: there is none."""
    known = uncounted_series(known)
    start = 0
    for k in range(ends.size):
        numbers[k] = find_item(known, head, names, start, ends[k])
        start = ends[k]


@njit(nogil=True, cache=True, forceinline=True)
def _place(table: I32, hashed: np.int64, entry: int) -> None:
    """Enter an entry into the hash table, which has a free slot."""
    slot = hashed & (table.size - 1)
    while table[slot] >= 0:
        slot = (slot + 1) & (table.size - 1)
    table[slot] = entry


@njit(nogil=True, cache=True)
def place_entries(table: I32, rows: I64, count: int) -> None:
    """Enter the first ``count`` entries into an empty hash table."""
    for entry in range(count):
        _place(table, rows[entry, HASH], entry)


@njit(nogil=True, cache=True)
def add_head(known: KnownSeries, start: int, end: int) -> None:
    """Enter the text[start:end] of the cache as the next head; there is room for it."""
    hashed = np.int64(text_hash(known.seed, known.multiplier, known.text, start, end))
    row = known.heads[known.head_count]
    row[HASH], row[START], row[END] = hashed, start, end
    _place(known.head_table, hashed, known.head_count)


@njit(nogil=True, cache=True)
def enter_heads(known: KnownSeries, texts: U8, ends: I64, at: int, numbers: I64) -> tuple[int, int]:
    """Write the numbers of heads that differ, which follow each other in ``texts``; enter those that are new.

    Their text is written into the cache's from ``at`` on; there is room. Returns (how many are new, the text's end).
    """
    start = new = 0
    for k in range(ends.size):
        numbers[k] = find_head(known, texts, start, ends[k])
        if numbers[k] < 0:
            numbers[k] = known.head_count + new
            hashed = np.int64(text_hash(known.seed, known.multiplier, texts, start, ends[k]))
            row = known.heads[numbers[k]]
            row[HASH], row[START], row[END] = hashed, at, at + ends[k] - start
            at = copy_bytes(texts, start, ends[k], known.text, at)
            _place(known.head_table, hashed, numbers[k])
            new += 1
        start = ends[k]
    return new, at


@njit(nogil=True, cache=True)
def enter_items(known: KnownSeries, heads: I64, spans: I64, series: I64) -> int:
    """Enter those items that are new: their heads, where their names stand in the cache's text, their series.

    No two of them are equal. Returns how many are new.
    """
    new = 0
    for k in range(heads.size):
        start, end = spans[k, 0], spans[k, 1]
        if find_item(known, heads[k], known.text, start, end) < 0:
            hashed = np.int64(text_hash(known.seed + np.uint64(heads[k]), known.multiplier, known.text, start, end))
            entry = known.item_count + new
            row = known.items[entry]
            row[HASH], row[START], row[END], row[HEAD], row[SERIES] = hashed, start, end, heads[k], series[k]
            _place(known.item_table, hashed, entry)
            new += 1
    return new


@njit(nogil=True, cache=True)
def add_items(known: KnownSeries, head: int, spans: I64, series: I64) -> None:
    """Enter the next items of a head: where their names stand in the cache's text, and their series."""
    for k in range(len(spans)):
        start, end = spans[k, 0], spans[k, 1]
        hashed = np.int64(text_hash(known.seed + np.uint64(head), known.multiplier, known.text, start, end))
        entry = known.item_count + k
        row = known.items[entry]
        row[HASH], row[START], row[END], row[HEAD], row[SERIES] = hashed, start, end, head, series[k]
        _place(known.item_table, hashed, entry)


@njit(nogil=True, cache=True)
def number_series(series: I32, scratch: I32, distinct: I32) -> int:
    """Number the distinct series by first appearance, in place; returns how many there are.

    ``distinct`` gets the original numbers. ``scratch`` is all zeros before and after.
    """
    count = 0
    for i in range(series.size):
        number = series[i]
        if scratch[number] == 0:
            distinct[count] = number
            count += 1
            scratch[number] = count
        series[i] = scratch[number] - 1
    for k in range(count):
        scratch[distinct[k]] = 0
    return count


@njit(nogil=True, cache=True)
def table_of(numbers: I32, rows: U64, ids: U64, metrics: U64, starts: I64, ends: I64) -> int:
    """Write the columns of a table of these series; returns the size of their canonical forms."""
    size = 0
    for k in range(numbers.size):
        number = numbers[k]
        ids[k], metrics[k] = rows[number, ID], rows[number, METRIC]
        starts[k], ends[k] = np.int64(rows[number, FORM_START]), np.int64(rows[number, FORM_END])
        size += ends[k] - starts[k]
    return size
