"""Graphite's plain text: ``name;tag=value 1.5 1700000000``. Pure.

The name stays as it is written, dots and all; tags become labels. Times are seconds, also with a fraction; ``-1`` and
``N`` mean now. A value that is no finite number is refused. Enter by ``Graphite``.
"""

import math
from collections.abc import Sequence

from ingest.agent.lines import Point
from ingest.sidecar.intake import Unreadable
from spm import limits

_NOW = ("-1", "N", "n")
_MAX_S = 1e11  # seconds; above it a number is none


class Graphite:
    """Every line is a point; they wait for the next look, as many as there is room for."""

    def __init__(self) -> None:
        self._points: list[Point] = []

    def take(self, line: str, now_ms: int) -> bool:
        """See ``Speech``."""
        point = read(line, now_ms)
        if len(self._points) >= limits.SIDECAR_POINTS_MAX:
            return False
        self._points.append(point)
        return True

    def points(self, now_ms: int) -> Sequence[Point]:
        """See ``Speech``."""
        found, self._points = self._points, []
        return found


def read(line: str, now_ms: int) -> Point:
    """The line's point; a line without a time gets the one of now."""
    parts = line.split()
    if not 2 <= len(parts) <= 3:
        raise Unreadable("not name, value and time")
    name, *pairs = parts[0].split(";")
    if not name:
        raise Unreadable("the name is empty")
    at_ms = now_ms if len(parts) == 2 or parts[2] in _NOW else round(1_000 * _number(parts[2], "time"))
    return Point(name, {"value": _number(parts[1], "value")}, _tags(pairs), at_ms)


def _tags(pairs: Sequence[str]) -> dict[str, str]:
    tags: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals and value):
            raise Unreadable("a tag is not name=value")
        tags[name] = value
    return tags


def _number(text: str, what: str) -> float:
    try:
        number = float(text) if "_" not in text else math.nan
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or (what == "time" and not 0 < number < _MAX_S):
        raise Unreadable(f"the {what} is not a number")
    return number
