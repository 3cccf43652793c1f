"""How often an app may have the database written for what its senders only remark. Enter by ``Seldom``."""

from spm.limits import REJECTION_APPS_MAX, REJECTION_NOTES_MAX, REJECTION_NOTES_PER_MS


class Seldom:
    """Counts writes per app and stretch of time, in this process."""

    def __init__(self) -> None:
        self._writes: dict[int, tuple[int, int]] = {}  # app → (stretch, writes in it); bounded by REJECTION_APPS_MAX

    def allows(self, app_id: int, now_ms: int) -> bool:
        """Whether the app may write once more now; the asking counts."""
        stretch = now_ms // REJECTION_NOTES_PER_MS
        known, writes = self._writes.get(app_id, (stretch, 0))
        writes = writes + 1 if known == stretch else 1
        if len(self._writes) >= REJECTION_APPS_MAX:
            self._writes.clear()
        self._writes[app_id] = (stretch, writes)
        return writes <= REJECTION_NOTES_MAX

    def forget(self) -> None:
        """Begin counting anew."""
        self._writes.clear()
