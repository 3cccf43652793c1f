"""A bound on the bytes that one process holds for requests, in all and for each key. Enter by ``ByteBudget``.

A key may hold no more than is free for all others. So one key has at most half of all, and however much some hold,
there is room left for the next one.
"""

from collections import Counter
from collections.abc import Hashable

from spm.errors import QueueUnavailable


class NoRoom(QueueUnavailable):
    """A request's bytes cannot be held now."""


class ByteBudget:
    """Counts bytes that are held; for the event loop only. ``what`` names them in the error."""

    def __init__(self, what: str, *, total_max: int, per_key_max: int) -> None:
        self._what, self._total_max, self._per_key_max = what, total_max, per_key_max
        self._total = 0
        self._by_key: Counter[Hashable] = Counter()

    @property
    def total(self) -> int:
        """How many bytes are held."""
        return self._total

    def add(self, key: Hashable, size: int) -> None:
        """Count bytes; raise ``NoRoom`` where there is no room for them."""
        own = self._by_key[key]
        most = min(self._per_key_max, self._total_max - self._total)
        if own + size > most:
            raise NoRoom(f"{self._what} fill their room: {own:,} bytes of one user are held, of at most {most:,} now")
        self._total += size
        self._by_key[key] = own + size

    def remove(self, key: Hashable, size: int) -> None:
        """Take bytes off again."""
        self._total -= size
        self._by_key[key] -= size
        if not self._by_key[key]:
            del self._by_key[key]
