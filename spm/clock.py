"""The only module that reads the time or draws random numbers.

Everything else takes a ``Clock`` or a value as an argument, so that tests own time. Milliseconds since the epoch are
ints; ``monotonic`` seconds are for measuring waits. Random ids come from the operating system, never from a seeded
generator: two processes must not draw the same.
"""

import os
import random
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What time it is, and how to wait."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch, by a clock that may jump."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    """The machine's clocks."""

    monotonic = staticmethod(time.monotonic)  # a function around it would double what it costs, ten times a push
    sleep = staticmethod(time.sleep)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


def thread_cpu_s() -> float:
    """Seconds of processor time that the calling thread has used."""
    return time.thread_time()


class FakeClock:
    """A clock that only moves when told; ``sleep`` moves it too."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic = 1_000.0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._monotonic

    def sleep(self, seconds: float) -> None:
        self.advance(round(seconds * 1000))

    def advance(self, ms: int) -> None:
        """Let ``ms`` milliseconds pass on both clocks."""
        self._now_ms += ms
        self._monotonic += ms / 1000

    def jump(self, ms: int) -> None:
        """Set the wall clock off by ``ms``, as a wrong time server would; the monotonic clock stays."""
        self._now_ms += ms


def moment(ms: int) -> datetime:
    """Returns the time of ``ms`` milliseconds since the epoch, in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def random_bytes(count: int) -> bytes:
    """``count`` bytes nobody can guess."""
    return os.urandom(count)


def random_u64() -> int:
    """An unsigned 64-bit number nobody drew before."""
    return int.from_bytes(os.urandom(8), "big")


def jitter(seconds: float, fraction: float) -> float:
    """``seconds`` moved at random by at most ``fraction`` of itself, so that many senders do not march in step."""
    return seconds * (1 + fraction * (2 * random.SystemRandom().random() - 1))
