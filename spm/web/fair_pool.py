"""Threads for one class of work, shared fairly among organisations; waiting costs no thread.

The event loop gives each request to the pool of its class (pages, queries, names, transfers), under a key: the
organisation, or the session or address where that is not known yet. A request starts at once while the pool has a free
thread and its key has fewer than ``per_key_max`` at work. Otherwise it waits as an entry of a queue, and the keys take
turns: a key with a thousand waiting requests delays another key's first one by one turn. A few threads more are there
for keys of which nothing runs. So one class never takes the threads of another, and one key never those of another key.
Enter by ``FairPool.run``, from the event loop only.
"""

import asyncio
import contextlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from spm.errors import SpmError

T = TypeVar("T")


class PoolFull(SpmError):
    """More requests wait already than the pool lets wait."""


class WaitedTooLong(SpmError):
    """No thread became free within the time that the request may wait."""


class PoolClosed(SpmError):
    """The process is about to end: the pool starts nothing more."""

    def __init__(self) -> None:
        super().__init__("this process is about to end")


class _Waiter:
    """One waiting request. ``turn`` is done when it may start, and cancelled when its client has gone."""

    __slots__ = ("key", "starts", "turn")

    def __init__(self, key: Hashable, turn: "asyncio.Future[None]") -> None:
        self.key, self.turn = key, turn
        self.starts = False  # it counts as running


class FairPool:
    """One class of work.

    ``threads`` run at once, ``per_key_max`` of them for one key; a key of which nothing runs may start one more request
    up to ``threads_max``. ``waiting_max`` and ``per_key_waiting_max`` bound the requests that wait; ``bounds_at`` says
    where an operator changes them.
    """

    def __init__(
        self,
        name: str,
        *,
        threads: int,
        threads_max: int,
        per_key_max: int,
        waiting_max: int,
        per_key_waiting_max: int,
        bounds_at: str = "",
    ) -> None:
        self.name, self._bounds_at = name, bounds_at
        self._threads, self._threads_max, self._per_key_max = threads, threads_max, per_key_max
        self._waiting_max, self._per_key_waiting_max = waiting_max, per_key_waiting_max
        self._executor = ThreadPoolExecutor(threads_max, thread_name_prefix=name)
        self._total = 0  # threads at work
        self._running: Counter[Hashable] = Counter()
        self._queues: dict[Hashable, OrderedDict[_Waiter, None]] = {}  # of keys with waiting requests
        self._idle_keys: OrderedDict[Hashable, None] = OrderedDict()  # of these, the ones of which nothing runs
        self._busy_keys: OrderedDict[Hashable, None] = OrderedDict()  # the ones that are below their bound
        self._waiting = 0
        self._closed = False

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return self._waiting

    @property
    def running(self) -> int:
        """How many threads are at work."""
        return self._total

    async def run(self, key: Hashable, work: Callable[[], T], *, wait_s: float | None = None) -> T:
        """Run ``work`` in a thread of the pool and return its result, or raise its error.

        Raises ``PoolFull`` at once, ``WaitedTooLong`` after ``wait_s`` without a thread, and ``PoolClosed`` where it
        had not begun when the pool closed. If the calling task is cancelled while it waits, the work is not started; if
        it runs already, the thread is given back at its end.
        """
        if self._closed:
            raise PoolClosed
        if self.has_room(key):
            self._start(key)
        else:
            await self._wait(key, wait_s)
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()
        try:
            job = self._executor.submit(work)
        except BaseException as error:
            self._finished(key)
            if self._closed:
                raise PoolClosed from error
            raise
        job.add_done_callback(lambda job: call_in_loop(loop, self._deliver, key, job, result))
        return await result

    def close(self) -> None:
        """Start nothing more; threads at work end by themselves."""
        self._closed = True
        for queue in self._queues.values():
            for waiter in queue:
                if not waiter.turn.done():
                    waiter.turn.set_exception(PoolClosed())
        self._executor.shutdown(wait=False, cancel_futures=True)

    def has_room(self, key: Hashable) -> bool:
        """Whether a new request of the key need not wait; never past one of the key that waits already."""
        running = self._running[key]
        if key in self._queues or running >= self._per_key_max:
            return False
        return self._total < (self._threads if running else self._threads_max)

    def _start(self, key: Hashable) -> None:
        self._running[key] += 1
        self._total += 1

    async def _wait(self, key: Hashable, wait_s: float | None) -> None:
        """Wait for a turn; on return the request counts as running."""
        queue = self._queues.get(key)
        if queue is not None and len(queue) >= self._per_key_waiting_max:
            raise self._full(self._per_key_waiting_max, "one user")
        if self._waiting >= self._waiting_max:
            raise self._full(self._waiting_max, "all users")
        waiter = _Waiter(key, asyncio.get_running_loop().create_future())
        if queue is None:
            queue = self._queues[key] = OrderedDict()
        queue[waiter] = None
        self._waiting += 1
        self._place(key)
        try:
            async with asyncio.timeout(wait_s):
                await waiter.turn
        except BaseException as error:
            if waiter.starts:  # its turn came at the same moment
                self._finished(key)
            else:
                self._remove(waiter)
            if isinstance(error, TimeoutError):
                raise WaitedTooLong(f"no thread for {self.name} was free within {wait_s:g} s") from error
            raise

    def _full(self, most: int, whose: str) -> PoolFull:
        text = f"{most} requests of {whose} wait for a thread for {self.name} already, and no more may"
        return PoolFull(f"{text} ({self._bounds_at})" if self._bounds_at else text)

    def _deliver(self, key: Hashable, job: "Future[Any]", result: "asyncio.Future[Any]") -> None:
        self._finished(key)
        if result.done():  # the caller was cancelled
            return
        error = PoolClosed() if job.cancelled() else job.exception()
        if isinstance(error, StopIteration):  # a future does not take one
            result.set_exception(RuntimeError(f"BUG: the work of {self.name} raised {error!r}"))
        elif error is not None:
            result.set_exception(error)
        else:
            result.set_result(job.result())

    def _finished(self, key: Hashable) -> None:
        self._total -= 1
        self._running[key] -= 1
        if not self._running[key]:
            del self._running[key]
        self._place(key)
        self._start_waiting()

    def _place(self, key: Hashable) -> None:
        """List a key with waiting requests among those that may start; its place in the round stays."""
        running, waits = self._running[key], key in self._queues
        if waits and not running:
            self._idle_keys.setdefault(key)
        else:
            self._idle_keys.pop(key, None)
        if waits and 0 < running < self._per_key_max:
            self._busy_keys.setdefault(key)
        else:
            self._busy_keys.pop(key, None)

    def _start_waiting(self) -> None:
        """Start waiting requests while there are threads: first of keys of which nothing runs, then round by round."""
        while True:
            if self._idle_keys and self._total < self._threads_max:
                key, _ = self._idle_keys.popitem(last=False)
            elif self._busy_keys and self._total < self._threads:
                key, _ = self._busy_keys.popitem(last=False)
            else:
                return
            waiter = self._take_first(key)
            if waiter is not None:
                self._start(key)
                waiter.starts = True
                waiter.turn.set_result(None)
            self._place(key)

    def _take_first(self, key: Hashable) -> _Waiter | None:
        """Take the key's first request from its queue, without those that have just been ended."""
        queue, first = self._queues[key], None
        while queue and first is None:
            waiter, _ = queue.popitem(last=False)
            self._waiting -= 1
            first = None if waiter.turn.done() else waiter
        if not queue:
            del self._queues[key]
        return first

    def _remove(self, waiter: _Waiter) -> None:
        queue = self._queues.get(waiter.key)
        if queue is None or waiter not in queue:
            return
        del queue[waiter]
        self._waiting -= 1
        if not queue:
            del self._queues[waiter.key]
            self._place(waiter.key)


def call_in_loop(loop: asyncio.AbstractEventLoop, action: Callable[..., None], *arguments: Any) -> None:
    """Call something on a loop from a thread, unless the loop has ended."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(action, *arguments)
