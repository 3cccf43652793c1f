"""Maps that stay within a bound: the one least-recently-used cache of the product.

Enter by ``LruCache``. Each entry has a weight (bytes, rows or 1), and the sum of all weights stays below a limit that
its owner names in ``spm.limits``. The maps of this module never read the time: what is bounded by age as well keeps
``cachetools.TTLCache`` with a clock of its own.
"""

import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """A map whose entries weigh at most ``weight_max`` together; the least recently used go first. Thread-safe.

    An entry of more than ``share_max`` of the whole is not taken: one giant must not push out everything else. There
    are at most ``count_max`` entries, whatever they weigh.
    """

    def __init__(self, weight_max: int, *, count_max: int | None = None, share_max: float = 1.0) -> None:
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._weight, self._weight_max = 0, weight_max
        self._entry_max, self._count_max = int(weight_max * share_max), count_max
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    @property
    def weight(self) -> int:
        """The weight of all entries."""
        return self._weight

    def get(self, key: K) -> V | None:
        """Returns the value and marks it as used; ``None`` where there is none."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def get_many(self, keys: Sequence[K]) -> list[V | None]:
        """Returns the values in the order of the keys, under one lock; ``None`` where there is none."""
        with self._lock:
            entries = list(map(self._entries.get, keys))
            touch = self._entries.move_to_end
            for key, entry in zip(keys, entries, strict=True):
                if entry is not None:
                    touch(key)
        return [None if entry is None else entry[0] for entry in entries]

    def put(self, key: K, value: V, weight: int) -> None:
        """Takes an entry in place of an older one of its key, and drops the least recently used beyond the bounds."""
        self.put_many([(key, value, weight)])

    def put_many(self, entries: Iterable[tuple[K, V, int]]) -> None:
        """Takes (key, value, weight) entries under one lock."""
        with self._lock:
            for key, value, weight in entries:
                if weight > self._entry_max:
                    continue
                before = self._entries.pop(key, None)
                self._entries[key] = value, weight
                self._weight += weight - (0 if before is None else before[1])
            while self._weight > self._weight_max or (
                self._count_max is not None and len(self._entries) > self._count_max
            ):
                self._weight -= self._entries.popitem(last=False)[1][1]

    def clear(self) -> None:
        """Drops everything."""
        with self._lock:
            self._entries.clear()
            self._weight = 0
