"""Decides whether a worker calls the others for help. Pure; the flag itself is in RabbitMQ (``topology.CALL``).

Messages that are spread over many idle workers make many batches with next to nothing in them. So only the workers with
the lowest numbers consume, ``AMQP_CALM_WORKERS`` of them, until one of them has enough to do: it calls, and all workers
share the queues for as long as any of them calls. The call ends when the load would leave those few workers half idle
again, for a while. Enter by ``HelpSignal.should_call``, once a second.
"""

from collections.abc import Callable, Mapping

from spm import limits
from spm.clock import Clock

_WEIGHT = 0.3  # of the newest reading: two seconds of nothing but work are a call, one slow write is none


class HelpSignal:
    """The call of one worker. ``idle_s`` returns the seconds that its writing thread has waited so far."""

    def __init__(self, idle_s: Callable[[], float], clock: Clock) -> None:
        self._idle_s, self._clock = idle_s, clock
        self._busy = 0.0  # recent part of its time
        self._previous = clock.monotonic(), idle_s()
        self._calm_since: float | None = None
        self._calls = False

    def should_call(self, sharing: int, depths: Mapping[str, int]) -> bool:
        """Return whether it calls from now on.

        ``sharing``: number of workers that consume now; ``depths``: messages that wait in its queues.
        """
        now = self._update_busy()
        if self._busy > limits.AMQP_CALL_BUSY or any(count > limits.AMQP_CALL_BEHIND for count in depths.values()):
            self._calls, self._calm_since = True, None
        elif not self._calls or self._busy * sharing > limits.AMQP_CALL_BUSY / 2 * limits.AMQP_CALM_WORKERS:
            self._calm_since = None
        elif self._calm_since is None:
            self._calm_since = now
        elif now - self._calm_since >= limits.AMQP_CALM_S:
            self._calls, self._calm_since = False, None
        return self._calls

    def _update_busy(self) -> float:
        """Bring the part of time in which it was busy up to date; return the time."""
        now, idle_s = self._clock.monotonic(), self._idle_s()
        previous, previous_idle_s = self._previous
        if now > previous:
            busy = max(0.0, 1 - (idle_s - previous_idle_s) / (now - previous))
            self._busy += _WEIGHT * (busy - self._busy)
            self._previous = now, idle_s
        return now
