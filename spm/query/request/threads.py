"""Runs parts of a query in parallel where they release the interpreter's lock: kernels over many samples.

All queries of a process share a pool with one thread fewer than there are cores, and no query waits for the pool: the
calling thread runs one part itself, and then every part that no other thread has started. Enter by ``run_parallel``.
"""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
_LOCK = threading.Lock()
_POOL: dict[int, ThreadPoolExecutor] = {}  # by process: threads do not survive a fork


def thread_count() -> int:
    """How many parts can run at once."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_parallel(parts: Sequence[Callable[[], T]]) -> list[T]:
    """The results of all parts, in their order; raises what any of them raises, after all have ended."""
    if len(parts) < 2 or thread_count() < 2:
        return [part() for part in parts]
    futures = [_pool().submit(part) for part in parts[1:]]
    try:
        first = parts[0]()
    finally:
        cancelled = [future.cancel() for future in futures]
        for future, was_cancelled in zip(futures, cancelled, strict=True):
            if not was_cancelled:
                future.exception()  # waits until it has ended
    others = zip(parts[1:], futures, cancelled, strict=True)
    return [first, *(part() if was_cancelled else future.result() for part, future, was_cancelled in others)]


def _pool() -> ThreadPoolExecutor:
    with _LOCK:
        pool = _POOL.get(os.getpid())
        if pool is None:
            _POOL.clear()
            pool = _POOL[os.getpid()] = ThreadPoolExecutor(max(1, thread_count() - 1), thread_name_prefix="query")
        return pool
