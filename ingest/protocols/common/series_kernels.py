"""Compiled look-ups in the series cache, and the numbering of a message's series.

``KnownSeries`` is one consistent view of the cache: entries below its counts never change, entries beyond them count as
absent. So readers need no lock while another thread adds series. Enter by ``find_head`` and ``find_item``. They are
inlined: numba counts the references of the fourteen arrays of a ``KnownSeries`` at every call, a third of the time.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from ingest.protocols.common.byte_kernels import is_equal, text_hash
from spm.arrays import I32, I64, U8, U64


class KnownSeries(NamedTuple):
    """A view of the cache. ``text`` holds all texts; hash tables hold entry numbers, and -1 in free slots."""

    key: U64  # seed and odd multiplier, drawn per process, so that nobody can choose colliding names
    text: U8
    head_count: int  # a head: measurement and labels as sent
    head_table: I32
    head_hash: U64
    head_start: I64
    head_end: I64
    item_count: int  # an item: a head and a field's name
    item_table: I32
    item_hash: U64
    item_head: I32
    item_start: I64
    item_end: I64
    item_series: I32


@njit(nogil=True, cache=True, inline="always")
def find_head(known: KnownSeries, text: U8, start: int, end: int) -> int:
    """Returns the number of the head text[start:end], or -1."""
    h = text_hash(known.key[0], known.key[1], text, start, end)
    mask = known.head_table.size - 1
    place = np.int64(h & np.uint64(mask))
    while True:
        entry = int(known.head_table[place])
        if entry < 0 or entry >= known.head_count:
            return -1
        if (
            known.head_hash[entry] == h
            and known.head_end[entry] - known.head_start[entry] == end - start
            and is_equal(known.text, known.head_start[entry], text, start, end)
        ):
            return entry
        place = (place + 1) & mask


@njit(nogil=True, cache=True, inline="always")
def find_item(known: KnownSeries, head: int, text: U8, start: int, end: int) -> int:
    """Returns the number of the item (head, field name text[start:end]), or -1."""
    h = text_hash(known.key[0] + np.uint64(head), known.key[1], text, start, end)
    mask = known.item_table.size - 1
    place = np.int64(h & np.uint64(mask))
    while True:
        entry = int(known.item_table[place])
        if entry < 0 or entry >= known.item_count:
            return -1
        if (
            known.item_hash[entry] == h
            and known.item_head[entry] == head
            and known.item_end[entry] - known.item_start[entry] == end - start
            and is_equal(known.text, known.item_start[entry], text, start, end)
        ):
            return entry
        place = (place + 1) & mask


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
