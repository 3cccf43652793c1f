"""Bounds how often an app may cause database writes for remarks about its messages. Enter by ``WriteThrottle``."""

from spm.bounded import LruCache
from spm.limits import REJECTION_APPS_MAX, REJECTION_NOTES_MAX, REJECTION_NOTES_PER_MS


class WriteThrottle:
    """Counts writes per app and interval, in this process."""

    def __init__(self) -> None:
        self._writes: LruCache[int, tuple[int, int]] = LruCache(REJECTION_APPS_MAX)  # app → (interval, writes in it)

    def allows(self, app_id: int, now_ms: int) -> bool:
        """Count one write and return whether the app may do it now."""
        interval = now_ms // REJECTION_NOTES_PER_MS
        last, writes = self._writes.get(app_id) or (interval, 0)
        writes = writes + 1 if last == interval else 1
        self._writes.put(app_id, (interval, writes))
        return writes <= REJECTION_NOTES_MAX

    def reset(self) -> None:
        """Forget all counts."""
        self._writes.clear()
