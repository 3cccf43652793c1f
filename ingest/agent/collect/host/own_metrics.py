"""Collects the agent's own metrics (``agent``): the outcome of its messages, and its use of resources.

``Counters`` is the agent's only shared state. Each of the two threads writes to different numbers: the collecting one
to ``errors``, the pushing one to ``sent``, ``refused`` and ``push_failures``. They start at 0 with the process;
``spooled`` is a gauge. Three numbers grow across restarts: ``sequence``, the number of the newest message, and the two
counts of dropped messages and samples, which the spool had no space for or the server rejected permanently.
"""

from collections.abc import Sequence

import psutil

from ingest.agent.lines import Point


class Counters:
    """The agent's counters. Their names are those of the metrics."""

    def __init__(self) -> None:
        self.sent = 0
        self.refused = 0
        self.dropped_messages_total = 0
        self.dropped_samples_total = 0
        self.errors = 0
        self.push_failures = 0
        self.spooled = 0
        self.sequence = 0
        self.collect_ms = 0.0


class SelfCollector:
    """Collects the agent's own metrics."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._process = psutil.Process()

    def __call__(self) -> Sequence[Point]:
        with self._process.oneshot():
            times, memory = self._process.cpu_times(), self._process.memory_info()
        cost = {"rss_bytes": memory.rss, "cpu_seconds": round(times.user + times.system, 3)}
        return [Point("agent", {**vars(self._counters), **cost})]
