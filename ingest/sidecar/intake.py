"""What both listeners share: lines in from many threads, counted; points out at every look, in bounded memory."""

import threading
from collections.abc import Sequence
from typing import Protocol

from ingest.agent.lines import Point
from spm import limits


class Unreadable(Exception):
    """A line that is none of the protocol, and why."""


class Speech(Protocol):
    """One protocol: takes lines, gives points. Called by one thread at a time."""

    def take(self, line: str, now_ms: int) -> bool:
        """Keep what a line says; False when there is no room. Raises ``Unreadable``."""

    def points(self, now_ms: int) -> Sequence[Point]:
        """What came since the last call."""


class Intake:
    """Lines of a protocol on their way to a look. Thread-safe."""

    def __init__(self, name: str, protocol: Speech) -> None:
        self.name, self._protocol = name, protocol
        self._lock = threading.Lock()
        self.lines = self.unreadable = self.dropped = 0
        self.example = ""  # the last unreadable line, and why: for the log

    def take(self, block: bytes, now_ms: int) -> None:
        """All lines of a block."""
        with self._lock:
            for raw in block.splitlines():
                line = raw.decode("utf-8", "replace").strip()
                if line:
                    self._take(line, now_ms)

    def count_dropped(self) -> None:
        """Something came that was not even looked at."""
        with self._lock:
            self.dropped += 1

    def look(self, now_ms: int) -> list[Point]:
        """The points of the time since the last look, and the listener's own numbers."""
        with self._lock:
            points = list(self._protocol.points(now_ms))
            fields = {
                "lines": self.lines,
                "unreadable": self.unreadable,
                "dropped": self.dropped,
                "points": len(points),
            }
        return [*points, Point("spm_sidecar", fields, {"protocol": self.name})]

    def _take(self, line: str, now_ms: int) -> None:
        self.lines += 1
        try:
            if len(line) > limits.SIDECAR_LINE_CHARS_MAX:
                raise Unreadable("the line is too long")
            if not self._protocol.take(line, now_ms):
                self.dropped += 1
        except Unreadable as error:
            self.unreadable += 1
            self.example = f"{error}: {line[:120]}"
