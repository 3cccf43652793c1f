"""Time slices for queries that take long, so that short ones of other organisations are not delayed by them.

A query begins as a short one and runs freely. After ``QUERY_SHORT_S`` of its thread's CPU time it is a long one, and so
is each query of an organisation whose short ones took more than ``QUERY_SHORT_SHARE`` of a processor lately: several
that are just not long would take all processors. At most ``parallel`` long ones compute at a time, in slices of
``QUERY_SLICE_S``; the organisations take turns. A long query also pauses for at most ``QUERY_COURTESY_S`` whenever a
short one runs, so that the short one has the interpreter and the processor's caches to itself. The scheduler acts where
a query checks its deadline, so a slice ends with the part that is being computed. A query that waits keeps what it
holds; admission bounds how many there are.

Enter by ``QueryPacer.query`` around a query, and by ``tick`` from its thread. The idea is that of multilevel feedback
queues (F. Corbató and others, 1962).
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Hashable
from functools import lru_cache

from spm.bounded import LruCache
from spm.clock import Clock, SystemClock, thread_cpu_s
from spm.limits import QUERY_CLIENT_CHECK_S, QUERY_COURTESY_S, QUERY_SHORT_S, QUERY_SLICE_S, QUERY_TURN_WAIT_S

QUERY_SHORT_BURST_S = 0.5  # of CPU, by short queries of one organisation at once: a dashboard of 40 panels takes less
QUERY_SHORT_SHARE = 0.25  # of a processor, by them for long: ten open dashboards; then all of its queries are long
QUERY_SHORT_KEYS_MAX = 4_096  # organisations whose use is remembered in one process


class _Query:
    """One running query. ``short_s``: CPU time for which it is short; ``has_turn``: it is long and may compute now."""

    __slots__ = ("begun_cpu_s", "begun_s", "has_turn", "is_long", "key", "paused_s", "short_s", "slice_end_s", "turn")
    turn: threading.Event  # of a long one only

    def __init__(self, key: Hashable, now_s: float, cpu_s: float) -> None:
        self.key, self.begun_s, self.begun_cpu_s, self.short_s = key, now_s, cpu_s, QUERY_SHORT_S
        self.is_long = self.has_turn = False
        self.slice_end_s = self.paused_s = 0.0


class _Paced:
    """Paces the queries of a thread while the context lasts: a generator would cost as much as all that it does."""

    __slots__ = ("_key", "_pacer", "_query")
    _query: _Query | None

    def __init__(self, pacer: "QueryPacer", key: Hashable) -> None:
        self._pacer, self._key = pacer, key

    def __enter__(self) -> None:
        self._query = self._pacer.begin(self._key)

    def __exit__(self, *_: object) -> None:
        if self._query is not None:
            self._pacer.end(self._query)


class QueryPacer:
    """Schedules the queries of one process. Thread-safe; a query has one thread, whose CPU time ``cpu_s`` returns."""

    def __init__(self, clock: Clock, parallel: int, cpu_s: Callable[[], float] = thread_cpu_s) -> None:
        self._clock, self._parallel, self._cpu_s = clock, parallel, cpu_s
        self._lock = threading.Lock()
        self._no_short = threading.Condition(self._lock)
        self._local = threading.local()
        self._short = 0
        self._computing = 0  # long queries with a turn
        self._allowances: LruCache[Hashable, tuple[float, float]] = LruCache(QUERY_SHORT_KEYS_MAX)  # CPU s, and when
        self._queues: dict[Hashable, deque[_Query]] = {}
        self._keys: deque[Hashable] = deque()  # of ``_queues``, the next one first

    def query(self, key: Hashable) -> "_Paced":
        """Pace the queries of this thread while the context lasts; ``key``: the organisation."""
        return _Paced(self, key)

    @property
    def is_long(self) -> bool:
        """Whether the query of this thread is a long one."""
        query: _Query | None = getattr(self._local, "query", None)
        return query is not None and query.is_long

    def would_be_short(self, key: Hashable) -> bool:
        """Whether the next query of an organisation begins as a short one."""
        with self._lock:
            return self._allowance(key, self._clock.monotonic()) > 0

    def begin(self, key: Hashable) -> _Query | None:
        """Begin to pace this thread; ``None`` where what begins is a part of a query that is paced already."""
        if getattr(self._local, "query", None) is not None:
            return None
        query = _Query(key, self._clock.monotonic(), self._cpu_s())
        self._local.query = query
        with self._lock:
            query.short_s = min(QUERY_SHORT_S, self._allowance(key, query.begun_s))
            self._short += 1
        return query

    def end(self, query: _Query) -> None:
        """End what ``begin`` has begun."""
        self._local.query = None
        with self._lock:
            self._leave(query)

    def tick(self, check: Callable[[], None] = lambda: None) -> None:
        """Give way where it is due, and return with a turn or, after ``QUERY_TURN_WAIT_S``, without one.

        ``check`` is called now and then while it waits; what it raises is raised. Outside of ``query`` nothing happens.
        """
        query: _Query | None = getattr(self._local, "query", None)
        if query is None:
            return
        now = self._clock.monotonic()
        if not query.is_long:
            # The clock of a thread's CPU time costs more to read, and is never ahead of the time that has passed.
            if now - query.begun_s < query.short_s or self._cpu_s() - query.begun_cpu_s < query.short_s:
                return
            with self._lock:
                self._become_long(query)
        elif query.has_turn:
            if self._short and now - query.paused_s > 2 * QUERY_COURTESY_S:
                with self._no_short:
                    self._no_short.wait_for(lambda: not self._short, QUERY_COURTESY_S)
                query.paused_s = self._clock.monotonic()
            if now < query.slice_end_s or not self._keys:
                return
            with self._lock:
                self._give_up_turn(query)
                self._enqueue(query)
                self._give_turns()
        end_s = now + QUERY_TURN_WAIT_S
        while not query.has_turn and self._clock.monotonic() < end_s:
            query.turn.wait(QUERY_CLIENT_CHECK_S)
            check()

    def _become_long(self, query: _Query) -> None:
        query.is_long, query.turn = True, threading.Event()
        self._end_short(query)
        self._enqueue(query)
        self._give_turns()

    def _leave(self, query: _Query) -> None:
        if not query.is_long:
            self._end_short(query)
        elif query.has_turn:
            self._give_up_turn(query)
            self._give_turns()
        else:
            queue = self._queues[query.key]
            queue.remove(query)
            if not queue:
                del self._queues[query.key]
                self._keys.remove(query.key)

    def _allowance(self, key: Hashable, now_s: float) -> float:
        """Return for how many CPU seconds the queries of an organisation may still be short ones."""
        left_s, at_s = self._allowances.get(key) or (QUERY_SHORT_BURST_S, now_s)
        return min(QUERY_SHORT_BURST_S, left_s + QUERY_SHORT_SHARE * (now_s - at_s))

    def _end_short(self, query: _Query) -> None:
        now_s = self._clock.monotonic()
        left_s = self._allowance(query.key, now_s) - (self._cpu_s() - query.begun_cpu_s)
        self._allowances.put(query.key, (max(left_s, -QUERY_SHORT_BURST_S), now_s))
        self._short -= 1
        if not self._short and self._computing:  # only those that compute wait for it
            self._no_short.notify_all()

    def _give_up_turn(self, query: _Query) -> None:
        query.has_turn = False
        query.turn.clear()
        self._computing -= 1

    def _enqueue(self, query: _Query) -> None:
        if query.key not in self._queues:
            self._queues[query.key] = deque()
            self._keys.append(query.key)
        self._queues[query.key].append(query)

    def _give_turns(self) -> None:
        while self._keys and self._computing < self._parallel:
            key = self._keys.popleft()
            queue = self._queues[key]
            query = queue.popleft()
            if queue:
                self._keys.append(key)
            else:
                del self._queues[key]
            query.has_turn = True
            query.slice_end_s = self._clock.monotonic() + QUERY_SLICE_S
            self._computing += 1
            query.turn.set()


@lru_cache(maxsize=1)
def process_pacer() -> QueryPacer:
    """Return the pacer of this process: one processor is left to the event loop, ingest and short queries."""
    return QueryPacer(SystemClock(), parallel=max(1, len(os.sched_getaffinity(0)) - 1))
