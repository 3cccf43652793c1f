"""Remembers for a while that the store did not answer, so that no further body waits for it at admission.

Enter by ``StorePause``: ``may_ask`` before the store is asked, then ``answered`` or ``failed``. During a pause bodies
are admitted as they are while the store does not answer; then one of them asks again, and the others go on.
"""

import threading

from spm.clock import Clock

STORE_PAUSE_S = 10  # after a call without an answer, in which no body waits for the store before it is accepted


class StorePause:
    """Whether the store of one process may be asked now. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._until: float | None = None  # monotonic seconds; None while the store answers

    @property
    def is_on(self) -> bool:
        """Whether nobody asks the store now."""
        until = self._until
        return until is not None and self._clock.monotonic() < until

    def may_ask(self) -> bool:
        """Whether the caller may ask: everybody while the store answers, after a pause one alone."""
        if self._until is None:
            return True
        with self._lock:
            if self.is_on:
                return False
            self.failed()
            return True

    def answered(self) -> None:
        """End the pause: the store answers."""
        self._until = None

    def failed(self) -> None:
        """Begin a pause: the store did not answer."""
        self._until = self._clock.monotonic() + STORE_PAUSE_S
