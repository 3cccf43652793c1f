"""A set of (id, tag) pairs that takes new pairs at a cost that does not depend on how many it holds.

For writers that ask of every series whether this process knows it: an id is a 64-bit hash, and the tag of 32 bits tells
apart what has equal ids (apps, or forms). Enter by ``IdSet``. A pair takes 12 bytes in a table that is at most nine
tenths full and grows by a fifth: 13 to 16 bytes. Pairs are never removed one by one. The pair (0, 0) is never known.

Readers take no lock: a pair counts when both of its numbers are there, and a table that grows is replaced. So a reader
may miss a pair that is just being added, and never sees a wrong one.
"""

import threading
from typing import NamedTuple

import numpy as np
from numba import njit

from spm.arrays import BOOL, U32, U64
from spm.clock import random_u64
from spm.store.encoding.byte_kernels import uncounted

_FULL = 0.9  # an absent id then costs some fifty neighbouring slots, one that is there five
_GROWTH = 1.2
_SLOTS_MIN = 1_024


class _Table(NamedTuple):
    """The slots: one with two zeros is free."""

    ids: U64
    tags: U32


class IdSet:
    """The pairs. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._key = np.uint64(random_u64() | 1)  # drawn per process, so that nobody can choose ids of one slot
        self._table, self._count = _empty(_SLOTS_MIN), 0

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """The bytes of the table."""
        return self._table.ids.nbytes + self._table.tags.nbytes

    def contains(self, ids: U64, tags: U32) -> BOOL:
        """Return which of the pairs are in the set."""
        known: BOOL = np.empty(len(ids), np.bool_)
        table = self._table
        _contains(self._key, table.ids, table.tags, ids, tags, known)
        return known

    def contains_all(self, ids: U64, tag: int) -> bool:
        """Return whether all ids are in the set with this tag."""
        table = self._table
        return bool(_contains_all(self._key, table.ids, table.tags, ids, tag))

    def add(self, ids: U64, tags: U32) -> None:
        """Add pairs; some may be in the set already, or stand here twice."""
        with self._lock:
            wanted = int((self._count + len(ids)) / _FULL) + 1
            if wanted > len(self._table.ids):
                grown = _empty(max(wanted, int(len(self._table.ids) * _GROWTH)))
                _insert_all(self._key, self._table.ids, self._table.tags, grown.ids, grown.tags)
                self._table = grown
            self._count += int(_insert(self._key, self._table.ids, self._table.tags, ids, tags))

    def clear(self) -> None:
        """Remove all pairs."""
        with self._lock:
            self._table, self._count = _empty(_SLOTS_MIN), 0


def warm() -> None:
    """Compile every kernel for the types it is called with, those of a set that grows too."""
    ids = np.arange(1, _SLOTS_MIN + 1, dtype=np.uint64)
    known = IdSet()
    for part in (ids[:1], ids):
        known.add(part, np.ones(len(part), np.uint32))
    known.contains(ids, np.ones(len(ids), np.uint32))
    known.contains_all(ids, 1)


def _empty(slots: int) -> _Table:
    return _Table(np.zeros(slots, np.uint64), np.zeros(slots, np.uint32))


@njit(nogil=True, cache=True, forceinline=True)
def _slot(key: np.uint64, number: np.uint64, tag: np.uint32, slots: int) -> int:
    """Return the first slot of a pair."""
    mixed = (number ^ (np.uint64(tag) * np.uint64(0x9E3779B97F4A7C15))) * key
    mixed = (mixed ^ (mixed >> np.uint64(32))) * key
    return int(np.int64(((mixed >> np.uint64(32)) * np.uint64(slots)) >> np.uint64(32)))


@njit(nogil=True, cache=True, forceinline=True)
def _find(key: np.uint64, ids: U64, tags: U32, number: np.uint64, tag: np.uint32) -> int:
    """Return the slot of a pair; -1 minus the free slot where it belongs if it has none.

    Each slot is read once: another thread may fill it a moment later.
    """
    at = _slot(key, number, tag, ids.size)
    while True:
        slot_id, slot_tag = ids[at], tags[at]
        if slot_id == 0 and slot_tag == 0:
            return -1 - at
        if slot_id == number and slot_tag == tag:
            return at
        at += 1
        if at == ids.size:
            at = 0


@njit(nogil=True, cache=True)
def _contains(key: np.uint64, ids: U64, tags: U32, wanted: U64, wanted_tags: U32, known: BOOL) -> None:
    """Write which of the wanted pairs are in the table."""
    ids, tags = uncounted(ids), uncounted(tags)
    for i in range(wanted.size):
        known[i] = _find(key, ids, tags, wanted[i], wanted_tags[i]) >= 0


@njit(nogil=True, cache=True)
def _contains_all(key: np.uint64, ids: U64, tags: U32, wanted: U64, tag: int) -> bool:
    """Return whether all wanted ids are in the table with this tag."""
    ids, tags = uncounted(ids), uncounted(tags)
    for number in wanted:  # noqa: SIM110 (a generator would not compile)
        if _find(key, ids, tags, number, np.uint32(tag)) < 0:
            return False
    return True


@njit(nogil=True, cache=True)
def _insert(key: np.uint64, ids: U64, tags: U32, new: U64, new_tags: U32) -> int:
    """Add pairs to the table, which has room for them; return how many were not in it."""
    ids, tags = uncounted(ids), uncounted(tags)
    count = 0
    for i in range(new.size):
        at = -1 - _find(key, ids, tags, new[i], new_tags[i])
        if at >= 0:
            tags[at] = new_tags[i]
            ids[at] = new[i]
            count += 1
    return count


@njit(nogil=True, cache=True)
def _insert_all(key: np.uint64, ids: U64, tags: U32, into_ids: U64, into_tags: U32) -> None:
    """Copy all pairs of a table into a larger one."""
    into_ids, into_tags = uncounted(into_ids), uncounted(into_tags)
    for i in range(ids.size):
        if ids[i] != 0 or tags[i] != 0:
            at = -1 - _find(key, into_ids, into_tags, ids[i], tags[i])
            into_ids[at] = ids[i]
            into_tags[at] = tags[i]
