"""Which logins get an entry of the audit log, so that a flood of them does not fill it. Pure but for its counts.

Equal events within ``LOGIN_AUDIT_MS`` are counted, and written down when they are the first, the tenth, the hundredth
and so on: an entry says how many there were up to then. Above a number of entries in a minute, different events are
counted together. Counts are those of one process. Enter by ``Journal.note``.
"""

import threading
from dataclasses import dataclass

from spm.accounts.logins import limits
from spm.bounded import LruCache

TOGETHER = "many"  # the key under which events are counted beyond the bound of entries


@dataclass(frozen=True, slots=True)
class Count:
    """So many equal events since ``since_ms``; ``is_together``: of different kinds, since there were too many."""

    events: int
    since_ms: int
    is_together: bool = False


class Journal:
    """Counts events by key. Thread-safe."""

    def __init__(self) -> None:
        self._counts: LruCache[str, Count] = LruCache(limits.LOGIN_AUDIT_KEYS_MAX)
        self._minute, self._entries = 0, 0
        self._lock = threading.Lock()

    def note(self, key: str, now_ms: int, singly: int = 1) -> Count | None:
        """Count an event; returns the count if it is to be written down now, as each of the first ``singly`` is."""
        with self._lock:
            count = self._counted(key, now_ms)
            if count.events > singly and not _is_round(count.events):
                return None
            if self._has_room(now_ms):
                return count
            together = self._counted(TOGETHER, now_ms)
            return Count(together.events, together.since_ms, True) if _is_round(together.events) else None

    def count_only(self, key: str, now_ms: int) -> bool:
        """Count an event that is not to be written down; returns false, and counts nothing, for one that may be."""
        with self._lock:
            before = self._counts.get(key)
            if before is None or not 0 <= now_ms - before.since_ms < limits.LOGIN_AUDIT_MS:
                return False
            if _is_round(before.events + 1):
                return False
            self._counts.put(key, Count(before.events + 1, before.since_ms))
            return True

    def clear(self) -> None:
        """Forget all counts."""
        self._counts.clear()
        self._entries = 0

    def _counted(self, key: str, now_ms: int) -> Count:
        before = self._counts.get(key)
        is_over = before is None or not 0 <= now_ms - before.since_ms < limits.LOGIN_AUDIT_MS
        count = Count(1, now_ms) if before is None or is_over else Count(before.events + 1, before.since_ms)
        self._counts.put(key, count)
        return count

    def _has_room(self, now_ms: int) -> bool:
        minute = now_ms // 60_000
        self._entries = 1 if minute != self._minute else self._entries + 1
        self._minute = minute
        return self._entries <= limits.LOGIN_AUDIT_PER_MINUTE


def _is_round(events: int) -> bool:
    """Whether the number is 1, 10, 100, …"""
    return str(events).rstrip("0") == "1"
