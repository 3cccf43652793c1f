"""Packs many sets of names that are mostly equal: each name once, each distinct set as a bitmap of the names.

A manifest names the sources of every HourShard. Of 10,000 hosts in 16 shards these are 3.8 million names a day, nearly
all in the very same sets. Enter by ``pack`` and ``unpack``. What does not fit into ``bytes_max`` has no names.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from spm.errors import CorruptBlock

Names = tuple[str, ...]
NO_NAMES = 0  # the number of an empty set, and of one that does not fit


def pack(sets: Iterable[Names], bytes_max: int) -> tuple[list[str], list[bytes], list[int]]:
    """Return (the names, a bitmap per distinct set, for each set the number of its bitmap, from 1).

    A set whose new names and bitmap would take more than the rest of ``bytes_max`` gets ``NO_NAMES``.
    """
    names: dict[str, int] = {}
    bitmaps: list[bytes] = []
    numbers: dict[Names, int] = {(): NO_NAMES}
    by_identity: dict[int, int] = {}  # decoded sets are shared: most need not be compared
    result, left = [], bytes_max
    all_sets = list(sets)  # so that no identity is given to another set meanwhile
    for each in all_sets:
        number = by_identity.get(id(each))
        if number is None:
            number = numbers.get(each)
        if number is None:
            new = [name for name in each if name not in names]
            size = sum(len(name.encode()) for name in new) + (len(names) + len(new) + 7) // 8
            number = NO_NAMES
            if size <= left:
                left -= size
                names.update(zip(new, range(len(names), len(names) + len(new)), strict=True))
                bitmaps.append(_bitmap(np.fromiter((names[name] for name in each), np.int64, len(each)), len(names)))
                number = len(bitmaps)
            numbers[each] = number
        by_identity[id(each)] = number
        result.append(number)
    return list(names), bitmaps, result


def _bitmap(members: np.ndarray[tuple[int], np.dtype[np.int64]], count: int) -> bytes:
    bits = np.zeros(count, np.bool_)
    bits[members] = True
    return np.packbits(bits).tobytes()


def unpack(names: Sequence[str], bitmaps: Sequence[bytes]) -> list[Names]:
    """Return the sets by number, each sorted; number 0 is the empty one. Raise ``CorruptBlock``."""
    sets: list[Names] = [()]
    for bitmap in bitmaps:
        members = np.flatnonzero(np.unpackbits(np.frombuffer(bitmap, np.uint8))).tolist()
        if members and members[-1] >= len(names):
            raise CorruptBlock("a set holds a name that is not listed", got=members[-1], wanted=f"below {len(names)}")
        sets.append(tuple(sorted(names[member] for member in members)))
    return sets
