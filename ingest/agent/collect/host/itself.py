"""What the agent knows of itself (``agent``): what became of its messages, and what it costs.

``Counters`` is the agent's only shared state: the two threads each add to numbers of their own (the looker to
``errors``, the pusher to ``sent``, ``refused`` and ``push_failures``). They start at 0 with the process; ``spooled`` is
a level. Across restarts grow ``sequence``, the number of the newest message, and the two counts of what never got to
the server, because the spool was full or the server refused it for good.
"""

from collections.abc import Sequence

import psutil

from ingest.agent.lines import Point


class Counters:
    """What happened so far."""

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


class Itself:
    """The collector of the agent's own numbers."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._process = psutil.Process()

    def __call__(self) -> Sequence[Point]:
        with self._process.oneshot():
            times, memory = self._process.cpu_times(), self._process.memory_info()
        cost = {"rss_bytes": memory.rss, "cpu_seconds": round(times.user + times.system, 3)}
        return [Point("agent", {**vars(self._counters), **cost})]
