"""Reads Graphite's plain text: ``name;tag=value 1.5 1700000000``. Pure.

The name stays as written, with its dots; tags become labels. Times are seconds, also with a fraction; ``-1`` and ``N``
mean now. A value that is no finite number is rejected. Enter by ``Graphite``.
"""

import math
from collections.abc import Sequence

from ingest.agent.lines import Point
from ingest.sidecar.intake import UnreadableLine
from spm import limits

_NOW = ("-1", "N", "n")
_MAX_S = 1e11  # seconds; a larger number is not accepted as a time


class Graphite:
    """Stores one point per line until the next collection, up to ``SIDECAR_POINTS_MAX``."""

    def __init__(self) -> None:
        self._points: list[Point] = []

    def add(self, line: str, now_ms: int) -> bool:
        """Store the point of a line; see ``LineHandler``."""
        point = read(line, now_ms)
        if len(self._points) >= limits.SIDECAR_POINTS_MAX:
            return False
        self._points.append(point)
        return True

    def points(self, now_ms: int) -> Sequence[Point]:
        """Return the stored points; see ``LineHandler``."""
        points, self._points = self._points, []
        return points


def read(line: str, now_ms: int) -> Point:
    """Returns the point of a line; a line without a time has that of now."""
    parts = line.split()
    if not 2 <= len(parts) <= 3:
        raise UnreadableLine("not name, value and time")
    name, *pairs = parts[0].split(";")
    if not name:
        raise UnreadableLine("the name is empty")
    at_ms = now_ms if len(parts) == 2 or parts[2] in _NOW else round(1_000 * _number(parts[2], "time"))
    return Point(name, {"value": _number(parts[1], "value")}, _labels(pairs), at_ms)


def _labels(pairs: Sequence[str]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals and value):
            raise UnreadableLine("a tag is not name=value")
        labels[name] = value
    return labels


def _number(text: str, what: str) -> float:
    try:
        number = float(text) if "_" not in text else math.nan
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or (what == "time" and not 0 < number < _MAX_S):
        raise UnreadableLine(f"the {what} is not a number")
    return number
