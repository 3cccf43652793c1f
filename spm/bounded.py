"""Maps that stay within a bound, for everything that a process remembers.

``LruCache`` is bounded by the weight of its entries (bytes, rows, or their number), ``TtlMap`` by their number and age.
The owner names each bound in ``spm.limits``. Neither reads the time: callers pass the seconds of their own clock.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
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

    def put(self, key: K, value: V, weight: int = 1) -> None:
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
            self._drop()

    def reweigh(self, key: K, weight: int) -> None:
        """Marks an entry as used and of this weight, at most that of one entry; drops others beyond the bounds."""
        with self._lock:
            entry = self._entries.pop(key, None)
            if entry is None:
                return
            weight = min(weight, self._entry_max)
            self._entries[key] = entry[0], weight
            self._weight += weight - entry[1]
            self._drop()

    def clear(self) -> None:
        """Drops everything."""
        with self._lock:
            self._entries.clear()
            self._weight = 0

    def _drop(self) -> None:
        """Drops the least recently used entries beyond the bounds."""
        while self._weight > self._weight_max or (self._count_max is not None and len(self._entries) > self._count_max):
            self._weight -= self._entries.popitem(last=False)[1][1]


class TtlMap(Generic[K, V]):
    """What was loaded for a key is valid for ``ttl_s``; of more than ``count_max`` the least recently used go first.

    Thread-safe. Two threads that miss one key at a time both load it.
    """

    def __init__(self, count_max: int, ttl_s: float) -> None:
        self._entries: LruCache[K, tuple[float, V]] = LruCache(count_max)
        self._ttl_s = ttl_s

    def __len__(self) -> int:
        return len(self._entries)

    def get_or_load(self, key: K, now_s: float, load: Callable[[], V]) -> V:
        """Returns the valid value, or loads it; what ``load`` raises is raised, and nothing is remembered."""
        entry = self._entries.get(key)
        if entry is not None and now_s < entry[0]:
            return entry[1]
        value = load()
        self._entries.put(key, (now_s + self._ttl_s, value))
        return value

    def valid(self, key: K, now_s: float) -> V:
        """Returns the valid value without loading it; raises ``KeyError`` where there is none."""
        entry = self._entries.get(key)
        if entry is None or now_s >= entry[0]:
            raise KeyError(key)
        return entry[1]

    def last(self, key: K) -> V | None:
        """Returns the last value of a key, whatever its age; ``None`` where there is none."""
        entry = self._entries.get(key)
        return None if entry is None else entry[1]

    def clear(self) -> None:
        """Drops everything."""
        self._entries.clear()
