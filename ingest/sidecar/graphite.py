"""Reads Graphite's plain text: ``name;tag=value 1.5 1700000000``. Pure.

The name stays as written, with its dots; tags become labels. Times are seconds, also with a fraction; ``-1`` and ``N``
mean now. A value that is no finite number is rejected. Enter by ``Graphite``.
"""

from ingest.agent.lines import Point
from ingest.sidecar.intake import UnreadableLine
from ingest.sidecar.point_lines import PointLines, finite_number, labels_of

_NOW = ("-1", "N", "n")
_MAX_S = 1e11  # seconds; a larger number is not accepted as a time


class Graphite(PointLines):
    """Reads one point per line."""

    def __init__(self) -> None:
        super().__init__(read)


def read(line: str, now_ms: int) -> Point:
    """Returns the point of a line; a line without a time has that of now."""
    parts = line.split()
    if not 2 <= len(parts) <= 3:
        raise UnreadableLine("not name, value and time")
    name, *pairs = parts[0].split(";")
    if not name:
        raise UnreadableLine("the name is empty")
    at_ms = now_ms
    if len(parts) == 3 and parts[2] not in _NOW:
        seconds = finite_number(parts[2], "time")
        if not 0 < seconds < _MAX_S:
            raise UnreadableLine("the time is not a number")
        at_ms = round(1_000 * seconds)
    return Point(name, {"value": finite_number(parts[1], "value")}, labels_of(pairs), at_ms)
