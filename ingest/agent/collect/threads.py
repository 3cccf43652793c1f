"""The collectors at work, each in a thread of its own: one that hangs, fails or talks too much costs its own points.

A look wakes every collector and waits until all are done, at most for its patience; what comes later goes out with the
next look, under the time of the look that asked for it. One that is still busy is not asked again; one that failed
``AGENT_REST_AFTER`` times in a row rests for 1, 2, 4… looks. All of that is counted, and told as points
``agent_collector``. Enter by ``Crew``; ``add`` and ``remove`` may be called at any time.
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
    """How one collector does. Written by its thread and the looking one, each its own numbers."""

    looks: int = 0
    failures: int = 0
    overdue: int = 0  # looks that came while it was still busy
    left_out: int = 0  # points beyond AGENT_POINTS_MAX, and things that are no points
    points: int = 0  # of its last answer
    took_ms: float = 0.0
    in_row: int = 0
    problem: str = ""  # of its last answer


class _Guard:
    """One collector and its thread."""

    def __init__(self, name: str, collector: Collector, clock: Clock, done: threading.Condition) -> None:
        self.name, self.health = name, Health()
        self._collector, self._clock, self._done = collector, clock, done
        self._asked: int | None = None  # the time of the look that is being answered
        self._answers: list[Batch] = []
        self._rest = 0
        self._wake = threading.Event()
        self._gone = False
        self._thread = threading.Thread(target=self._work, name=f"collect-{name}"[:60], daemon=True)
        self._thread.start()

    def ask(self, at_ms: int) -> None:
        """Have it look, unless it is busy or rests."""
        if self._asked is not None:
            self.health.overdue += 1
            self.health.problem = "still busy with an earlier look"
        elif self._rest:
            self._rest -= 1
        else:
            self._asked = at_ms
            self._wake.set()

    @property
    def busy(self) -> bool:
        """Whether an answer is awaited."""
        return self._asked is not None

    def take(self) -> list[Batch]:
        """What it has answered since the last call. With the lock held."""
        found, self._answers = self._answers, []
        return found

    def end(self) -> None:
        """No further looks. A thread that hangs ends with the process."""
        self._gone = True
        self._wake.set()

    def _work(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            at_ms = self._asked
            if self._gone:
                return
            assert at_ms is not None, "BUG: woken without a question"
            points = self._look()
            with self._done:
                if points:
                    self._answers.append((at_ms, points))
                self._asked = None
                self._done.notify_all()

    def _look(self) -> Sequence[Point]:
        health, began = self.health, self._clock.monotonic()
        health.looks += 1
        points: list[Point] = []
        try:
            found = list(self._collector())
            points = [point for point in found if isinstance(point, Point)][: limits.AGENT_POINTS_MAX]
            health.left_out += len(found) - len(points)
            health.in_row, health.problem = 0, ""
        except Exception as error:  # whatever a kernel or a driver comes up with must not silence the rest
            self._failed(error)
        health.points, health.took_ms = len(points), round((self._clock.monotonic() - began) * 1_000, 3)
        return points

    def _failed(self, error: Exception) -> None:
        health = self.health
        health.failures += 1
        health.in_row += 1
        told, health.problem = health.problem, (str(error) or type(error).__name__)[:300]
        if health.problem != told:
            log.warning("the collector %s failed: %s", self.name, health.problem)
        if health.in_row >= limits.AGENT_REST_AFTER:
            doubled: int = 1 << min(health.in_row - limits.AGENT_REST_AFTER, 10)
            self._rest = min(doubled, limits.AGENT_REST_LOOKS_MAX)


class Crew:
    """All collectors of an agent, by name."""

    def __init__(self, collectors: Mapping[str, Collector], clock: Clock) -> None:
        self._clock = clock
        self._done = threading.Condition()
        self._guards: dict[str, _Guard] = {}
        self._off: frozenset[str] = frozenset()
        for name, collector in collectors.items():
            self.add(name, collector)

    def add(self, name: str, collector: Collector) -> None:
        """One more, unless there is one of that name or there are too many."""
        with self._done:
            if name not in self._guards and len(self._guards) < limits.AGENT_TARGETS_MAX:
                self._guards[name] = _Guard(name, collector, self._clock, self._done)

    def remove(self, name: str) -> None:
        """One less."""
        with self._done:
            guard = self._guards.pop(name, None)
        if guard is not None:
            guard.end()

    def silence(self, off: frozenset[str]) -> None:
        """Have these not look, by name or kind (``redis`` is all of ``redis:…``)."""
        self._off = off

    def names(self) -> list[str]:
        """Of all that look."""
        return [name for name in list(self._guards) if not is_off(name, self._off)]

    def look(self, at_ms: int, patience_s: float) -> list[Batch]:
        """Ask all, wait, and bring what has come by then."""
        with self._done:
            working = [guard for name, guard in self._guards.items() if not is_off(name, self._off)]
            asked = [guard for guard in working if not guard.busy]
            for guard in working:
                guard.ask(at_ms)
            self._done.wait_for(lambda: not any(guard.busy for guard in asked), patience_s)
            batches = [batch for guard in working for batch in guard.take()]
        return [*batches, (at_ms, [_told(guard) for guard in working])]

    def health(self) -> dict[str, Health]:
        """Of all that look, by name."""
        guards = list(self._guards.items())
        return {name: guard.health for name, guard in guards if not is_off(name, self._off)}

    @property
    def failures(self) -> int:
        """Of all, since the start."""
        return sum(guard.health.failures for guard in list(self._guards.values()))

    def end(self) -> None:
        """No further looks of anyone."""
        for name in list(self._guards):
            self.remove(name)


def is_off(name: str, off: frozenset[str]) -> bool:
    """Whether a collector is named in ``off``, by itself or by its kind."""
    return name in off or name.partition(":")[0] in off


def _told(guard: _Guard) -> Point:
    health = guard.health
    fields = {
        "up": int(not health.problem),
        "took_ms": health.took_ms,
        "points": health.points,
        "failures": health.failures,
        "overdue": health.overdue,
        "left_out": health.left_out,
    }
    return Point("agent_collector", fields, {"collector": guard.name})
