"""Runs parts of a query in parallel where they release the interpreter's lock: kernels over many samples.

All queries of a process share a pool with one thread fewer than there are cores, and no query waits for the pool: the
calling thread runs one part itself, and then every part that no other thread has started. The parts of a long query
(``pacing``) run in threads of low priority instead, so that a short query, or a body that arrives, gets a processor at
once. Only what releases the interpreter's lock may run there: a thread that holds it must never wait for a processor.
Enter by ``run_parallel``.
"""

import os
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

from spm.query.request.pacing import process_pacer

T = TypeVar("T")
_NICE = 5  # above the process's own: such a thread gets a third of what others get of a full processor
_LOCK = threading.Lock()
_POOLS: dict[tuple[int, str], ThreadPoolExecutor] = {}  # by process, as threads do not survive a fork, and by name


def thread_count() -> int:
    """How many parts can run at once."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_parallel(parts: Sequence[Callable[[], T]]) -> list[T]:
    """The results of all parts, in their order; raises what any of them raises, after all have ended."""
    if process_pacer().is_long:
        return _run_aside(parts)
    if len(parts) < 2 or thread_count() < 2:
        return [part() for part in parts]
    futures = [_pool("query", thread_count() - 1).submit(part) for part in parts[1:]]
    try:
        first = parts[0]()
    finally:
        cancelled = [future.cancel() for future in futures]
        for future, was_cancelled in zip(futures, cancelled, strict=True):
            if not was_cancelled:
                future.exception()  # waits until it has ended
    others = zip(parts[1:], futures, cancelled, strict=True)
    return [first, *(part() if was_cancelled else future.result() for part, future, was_cancelled in others)]


def _run_aside(parts: Sequence[Callable[[], T]]) -> list[T]:
    """Run all parts in threads of low priority."""
    futures = [_pool("long query", thread_count(), _lower_priority).submit(part) for part in parts]
    wait(futures)
    return [future.result() for future in futures]


def _lower_priority() -> None:
    if sys.platform == "linux":  # elsewhere it is the priority of the whole process
        os.nice(_NICE)


def _pool(name: str, threads: int, initializer: Callable[[], None] | None = None) -> ThreadPoolExecutor:
    with _LOCK:
        own = os.getpid(), name
        if own not in _POOLS:
            for of_parent in [key for key in _POOLS if key[0] != own[0]]:
                del _POOLS[of_parent]
            _POOLS[own] = ThreadPoolExecutor(max(1, threads), thread_name_prefix=name, initializer=initializer)
        return _POOLS[own]
