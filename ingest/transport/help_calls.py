"""Whether a worker calls the others to help. Pure; the flag itself stands in RabbitMQ (``topology.CALL``).

Messages that are spread over many idle workers make many batches with next to nothing in them. So only the workers on
the lowest seats consume, ``AMQP_CALM_WORKERS`` of them, until one of them has enough to do: it calls, and all share the
queues for as long as anybody calls. It is over when what there is to do would leave those few half idle again, for a
while. Enter by ``Calling.look``, once a second.
"""

from collections.abc import Callable, Mapping

from spm import limits
from spm.clock import Clock

_WEIGHT = 0.3  # of the newest look: two seconds of nothing but work are a call, one slow write is none


class Calling:
    """Of one worker. ``idle_s``: seconds that its writing thread has waited so far, for messages or for the store."""

    def __init__(self, idle_s: Callable[[], float], clock: Clock) -> None:
        self._idle_s, self._clock = idle_s, clock
        self._busy = 0.0  # part of its time, of late
        self._before = clock.monotonic(), idle_s()
        self._calm_since: float | None = None
        self._calls = False

    def look(self, sharing: int, behind: Mapping[str, int]) -> bool:
        """Whether it calls from now on; ``sharing``: workers that consume now; ``behind``: what waits in its queues."""
        now = self._note()
        if self._busy > limits.AMQP_CALL_BUSY or any(count > limits.AMQP_CALL_BEHIND for count in behind.values()):
            self._calls, self._calm_since = True, None
        elif not self._calls or self._busy * sharing > limits.AMQP_CALL_BUSY / 2 * limits.AMQP_CALM_WORKERS:
            self._calm_since = None
        elif self._calm_since is None:
            self._calm_since = now
        elif now - self._calm_since >= limits.AMQP_CALM_S:
            self._calls, self._calm_since = False, None
        return self._calls

    def _note(self) -> float:
        """Bring the part of time in which it was busy up to date."""
        now, idle_s = self._clock.monotonic(), self._idle_s()
        then, before = self._before
        if now > then:
            busy = max(0.0, 1 - (idle_s - before) / (now - then))
            self._busy += _WEIGHT * (busy - self._busy)
            self._before = now, idle_s
        return now
