"""The intake of both listeners: it receives and counts lines of many threads, and returns points at every collection.

Enter by ``Intake``. Memory is bounded by the handler of the protocol.
"""

import threading
from collections.abc import Sequence
from typing import Protocol

from ingest.agent.lines import Point
from spm import limits


class UnreadableLine(Exception):
    """A line that does not follow the protocol, and why."""


class LineHandler(Protocol):
    """Turns lines of one protocol into points. One thread calls it at a time."""

    def add(self, line: str, now_ms: int) -> bool:
        """Store a line; returns False if there is no space. Raises ``UnreadableLine``."""

    def points(self, now_ms: int) -> Sequence[Point]:
        """Return the points since the last call."""


class Intake:
    """Collects the lines of one protocol until the next collection. Thread-safe."""

    def __init__(self, name: str, protocol: LineHandler) -> None:
        self.name, self._protocol = name, protocol
        self._lock = threading.Lock()
        self.lines = self.unreadable = self.dropped = 0
        self.example = ""  # the last unreadable line, and why: for the log

    def add(self, block: bytes, now_ms: int) -> None:
        """Handle all lines of a block."""
        with self._lock:
            for raw in block.splitlines():
                line = raw.decode("utf-8", "replace").strip()
                if line:
                    self._add_line(line, now_ms)

    def count_dropped(self) -> None:
        """Count a connection or a line that was dropped unread."""
        with self._lock:
            self.dropped += 1

    def collect(self, now_ms: int) -> list[Point]:
        """Return the points since the last collection, and the listener's own metrics."""
        with self._lock:
            points = list(self._protocol.points(now_ms))
            fields = {
                "lines": self.lines,
                "unreadable": self.unreadable,
                "dropped": self.dropped,
                "points": len(points),
            }
        return [*points, Point("spm_sidecar", fields, {"protocol": self.name})]

    def _add_line(self, line: str, now_ms: int) -> None:
        self.lines += 1
        try:
            if len(line) > limits.SIDECAR_LINE_CHARS_MAX:
                raise UnreadableLine("the line is too long")
            if not self._protocol.add(line, now_ms):
                self.dropped += 1
        except UnreadableLine as error:
            self.unreadable += 1
            self.example = f"{error}: {line[:120]}"
