"""A second hand for work that leaves the interpreter: kernels over many samples, pages to be decoded.

All queries of a process share the hands, one fewer than there are cores, and none ever waits for them: who asks does
one part itself, and then takes back whatever no hand has begun. Enter by ``shared``.
"""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
_LOCK = threading.Lock()
_POOL: dict[int, ThreadPoolExecutor] = {}  # by process: threads do not live through a fork


def hands() -> int:
    """How many parts of a work may be done at once."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def shared(parts: Sequence[Callable[[], T]]) -> list[T]:
    """What all parts give, in their order; raises what any of them raises, when all have ended."""
    if len(parts) < 2 or hands() < 2:
        return [part() for part in parts]
    given = [_pool().submit(part) for part in parts[1:]]
    try:
        first = parts[0]()
    finally:
        taken_back = [future.cancel() for future in given]
        for future, back in zip(given, taken_back, strict=True):
            if not back:
                future.exception()  # waits
    rest = zip(parts[1:], given, taken_back, strict=True)
    return [first, *(part() if back else future.result() for part, future, back in rest)]


def _pool() -> ThreadPoolExecutor:
    with _LOCK:
        found = _POOL.get(os.getpid())
        if found is None:
            _POOL.clear()
            found = _POOL[os.getpid()] = ThreadPoolExecutor(max(1, hands() - 1), thread_name_prefix="hand")
        return found
