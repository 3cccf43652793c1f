"""Runs each collector in a thread of its own: a collector that hangs, fails or returns too much costs only its points.

A collection wakes every collector and waits until all are done, at most for a timeout. Points that come later are sent
with the next collection, with the time of their own. A collector that is still busy is not started again; one that
failed ``AGENT_REST_AFTER`` times in a row skips 1, 2, 4… collections. Points ``agent_collector`` report all of that.
Enter by ``CollectorThreads``; ``add`` and ``remove`` may be called at any time.
"""

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ingest.agent.collect.base import Collector
from ingest.agent.lines import Point
from spm import limits
from spm.clock import Clock

log = logging.getLogger("spm.agent")
Batch = tuple[int, Sequence[Point]]


@dataclass(slots=True)
class Health:
    """The state of one collector. Its own thread and the main thread write to it, each to different fields."""

    collections: int = 0
    failures: int = 0
    overdue: int = 0  # collections that began while it was still busy
    left_out: int = 0  # points beyond AGENT_POINTS_MAX, and results that are no points
    points: int = 0  # of its last result
    took_ms: float = 0.0
    failures_in_row: int = 0
    problem: str = ""  # of its last result


class _CollectorThread:
    """One collector and its thread."""

    def __init__(self, name: str, collector: Collector, clock: Clock, done: threading.Condition) -> None:
        self.name, self.health = name, Health()
        self._collector, self._clock, self._done = collector, clock, done
        self._collecting_ms: int | None = None  # the time of the collection that is running
        self._batches: list[Batch] = []
        self._rest = 0
        self._wake = threading.Event()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._work, name=f"collect-{name}"[:60], daemon=True)
        self._thread.start()

    def begin(self, at_ms: int) -> None:
        """Start the collector, unless it is busy or rests."""
        if self._collecting_ms is not None:
            self.health.overdue += 1
            self.health.problem = "still busy with an earlier collection"
        elif self._rest:
            self._rest -= 1
        else:
            self._collecting_ms = at_ms
            self._wake.set()

    @property
    def busy(self) -> bool:
        """Whether the collector runs."""
        return self._collecting_ms is not None

    def pop_batches(self) -> list[Batch]:
        """Returns the batches since the last call. The caller holds the lock."""
        batches, self._batches = self._batches, []
        return batches

    def end(self) -> None:
        """Stop the thread. A thread that hangs ends with the process."""
        self._is_stopped = True
        self._wake.set()

    def _work(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            at_ms = self._collecting_ms
            if self._is_stopped:
                return
            assert at_ms is not None, "BUG: woken without a collection"
            points = self._collect()
            with self._done:
                if points:
                    self._batches.append((at_ms, points))
                self._collecting_ms = None
                self._done.notify_all()

    def _collect(self) -> Sequence[Point]:
        health, started = self.health, self._clock.monotonic()
        health.collections += 1
        points: list[Point] = []
        try:
            results = list(self._collector())
            points = [point for point in results if isinstance(point, Point)][: limits.AGENT_POINTS_MAX]
            health.left_out += len(results) - len(points)
            health.failures_in_row, health.problem = 0, ""
        except Exception as error:  # an error of a kernel interface or a driver must not stop the other collectors
            self._record_failure(error)
        health.points, health.took_ms = len(points), round((self._clock.monotonic() - started) * 1_000, 3)
        return points

    def _record_failure(self, error: Exception) -> None:
        health = self.health
        health.failures += 1
        health.failures_in_row += 1
        last_problem, health.problem = health.problem, (str(error) or type(error).__name__)[:300]
        if health.problem != last_problem:
            log.warning("the collector %s failed: %s", self.name, health.problem)
        if health.failures_in_row >= limits.AGENT_REST_AFTER:
            doubled: int = 1 << min(health.failures_in_row - limits.AGENT_REST_AFTER, 10)
            self._rest = min(doubled, limits.AGENT_REST_MAX)


class CollectorThreads:
    """All collectors of an agent, by name."""

    def __init__(self, collectors: Mapping[str, Collector], clock: Clock) -> None:
        self._clock = clock
        self._done = threading.Condition()
        self._threads: dict[str, _CollectorThread] = {}
        self._off: frozenset[str] = frozenset()
        for name, collector in collectors.items():
            self.add(name, collector)

    def add(self, name: str, collector: Collector) -> None:
        """Add a collector, unless the name exists or there are too many."""
        with self._done:
            if name not in self._threads and len(self._threads) < limits.AGENT_TARGETS_MAX:
                self._threads[name] = _CollectorThread(name, collector, self._clock, self._done)

    def remove(self, name: str) -> None:
        """Stop and remove a collector."""
        with self._done:
            thread = self._threads.pop(name, None)
        if thread is not None:
            thread.end()

    def set_off(self, off: frozenset[str]) -> None:
        """Disable these collectors, by name or kind (``redis`` is all of ``redis:…``), and enable all others."""
        self._off = off

    def names(self) -> list[str]:
        """Returns the names of the enabled collectors."""
        return [name for name in list(self._threads) if not is_off(name, self._off)]

    def collect(self, at_ms: int, collect_timeout_s: float) -> list[Batch]:
        """Run all enabled collectors; returns the batches that are complete after at most ``collect_timeout_s``."""
        with self._done:
            working = [thread for name, thread in self._threads.items() if not is_off(name, self._off)]
            idle = [thread for thread in working if not thread.busy]
            for thread in working:
                thread.begin(at_ms)
            self._done.wait_for(lambda: not any(thread.busy for thread in idle), collect_timeout_s)
            batches = [batch for thread in working for batch in thread.pop_batches()]
        return [*batches, (at_ms, [_status_point(thread) for thread in working])]

    def health(self) -> dict[str, Health]:
        """Returns the state of the enabled collectors, by name."""
        guards = list(self._threads.items())
        return {name: thread.health for name, thread in guards if not is_off(name, self._off)}

    @property
    def failures(self) -> int:
        """The failures of all collectors since the start."""
        return sum(thread.health.failures for thread in list(self._threads.values()))

    def end(self) -> None:
        """Stop all collectors."""
        for name in list(self._threads):
            self.remove(name)


def is_off(name: str, off: frozenset[str]) -> bool:
    """Whether ``off`` has the collector's name or kind."""
    return name in off or name.partition(":")[0] in off


def _status_point(thread: _CollectorThread) -> Point:
    health = thread.health
    fields = {
        "up": int(not health.problem),
        "took_ms": health.took_ms,
        "points": health.points,
        "failures": health.failures,
        "overdue": health.overdue,
        "left_out": health.left_out,
    }
    return Point("agent_collector", fields, {"collector": thread.name})
