"""What the agent knows of itself (``agent``): what became of its messages, and what it costs.

``Counters`` is the agent's only shared state: the two threads each add to numbers of their own (the looker to
``errors``, the pusher to ``sent``, ``refused`` and ``push_failures``). All start at 0 with the process; ``spooled``
is a level, ``sequence`` numbers the messages of the spool and grows across restarts.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import psutil

from ingest.agent.lines import Point


@dataclass(slots=True)
class Counters:
    """What happened since the start."""

    sent: int = 0
    refused: int = 0
    dropped: int = 0
    errors: int = 0
    push_failures: int = 0
    spooled: int = 0
    sequence: int = 0
    collect_ms: float = 0.0


class Itself:
    """The collector of the agent's own numbers."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._process = psutil.Process()

    def __call__(self) -> Sequence[Point]:
        with self._process.oneshot():
            times, memory = self._process.cpu_times(), self._process.memory_info()
        cost = {"rss_bytes": memory.rss, "cpu_seconds": round(times.user + times.system, 3)}
        return [Point("agent", {**asdict(self._counters), **cost})]
