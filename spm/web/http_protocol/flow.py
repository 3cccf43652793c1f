"""Flow control of one connection, and the clock by which its client is judged. Enter by ``ClientClock``."""

import asyncio
from collections.abc import Callable

from uvicorn.protocols.http.flow_control import FlowControl


class ClientClock(FlowControl):
    """Uvicorn's flow control, with a clock that stands while the client is paused."""

    def __init__(self, transport: asyncio.Transport, now: Callable[[], float]) -> None:
        super().__init__(transport)
        self.paused_s = 0.0  # in all, before the current pause
        self._now = now
        self._paused_at = 0.0

    def client_now(self) -> float:
        """Seconds of the clock by which the client is judged."""
        return (self._paused_at if self.read_paused else self._now()) - self.paused_s

    def pause_reading(self) -> None:
        """Stops reading from the client."""
        if not self.read_paused:
            self._paused_at = self._now()
        super().pause_reading()

    def resume_reading(self) -> None:
        """Reads from the client again."""
        if self.read_paused:
            self.paused_s += self._now() - self._paused_at
        super().resume_reading()
