"""Which lanes the judges of a process work at: no lane by two of them, and slow lanes by some of them only.

A judge cannot give way within one step. So a lane whose last turn was long, or that is long at work now, counts as
slow, and a bounded number of these is at work at once; the other judges are for lanes that take little. A slow lane is
judged as often as the others leave room for it. Enter by ``LaneShares.share``.
"""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from alerts.judging import limits
from spm.bounded import LruCache
from spm.clock import Clock

LaneName = tuple[str, int]  # what is done, number of the lane


class LaneShares:
    """The lanes at work in this process, and how long the last turns of lanes were. Thread-safe."""

    def __init__(self, slow_max: int = limits.SLOW_LANES_MAX) -> None:
        self._slow_max, self._lock = slow_max, threading.Lock()
        self._began_s: dict[LaneName, float] = {}
        self._took_s: LruCache[LaneName, float] = LruCache(limits.LANES_REMEMBERED)

    @contextmanager
    def share(self, lane: LaneName, clock: Clock) -> Iterator[bool]:
        """Work at a lane within the body; it gets False if the lane must wait."""
        if not self._begin(lane, clock.monotonic()):
            yield False
            return
        try:
            yield True
        finally:
            with self._lock:
                self._took_s.put(lane, clock.monotonic() - self._began_s.pop(lane))

    def quick_first(self, kind: str, lanes: Iterable[int]) -> list[int]:
        """Put slow lanes behind the others; else the order stays."""
        return sorted(lanes, key=lambda lane: (self._took_s.get((kind, lane)) or 0.0) > limits.SLOW_S)

    def _begin(self, lane: LaneName, now_s: float) -> bool:
        with self._lock:
            if lane in self._began_s:
                return False
            if self._is_slow(lane, now_s):
                slow = sum(self._is_slow(other, now_s) for other in self._began_s)
                if slow >= self._slow_max:
                    return False
            self._began_s[lane] = now_s
            return True

    def _is_slow(self, lane: LaneName, now_s: float) -> bool:
        took_s = max(self._took_s.get(lane) or 0.0, now_s - self._began_s.get(lane, now_s))
        return took_s > limits.SLOW_S


SHARES = LaneShares()  # of this process
