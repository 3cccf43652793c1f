"""Lines that hold one point each, as Graphite and OpenTSDB send them: what both have in common. Pure.

Enter by ``PointLines``.
"""

import math
from collections.abc import Callable, Sequence

from ingest.agent.lines import Point
from ingest.sidecar.intake import UnreadableLine
from spm import limits


class PointLines:
    """Stores the point of each line until the next collection, up to ``SIDECAR_POINTS_MAX``."""

    def __init__(self, read: Callable[[str, int], Point]) -> None:
        self._read, self._points = read, list[Point]()

    def add(self, line: str, now_ms: int) -> bool:
        """Store the point of a line; see ``LineHandler``."""
        point = self._read(line, now_ms)
        if len(self._points) >= limits.SIDECAR_POINTS_MAX:
            return False
        self._points.append(point)
        return True

    def points(self, now_ms: int) -> Sequence[Point]:
        """Return the stored points; see ``LineHandler``."""
        points, self._points = self._points, []
        return points


def labels_of(pairs: Sequence[str]) -> dict[str, str]:
    """Return the labels of texts ``name=value``."""
    labels: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals and value):
            raise UnreadableLine("a tag is not name=value")
        labels[name] = value
    return labels


def finite_number(text: str, what: str) -> float:
    """Return a number as Python reads it, but without its underscores, NaN and infinities."""
    try:
        number = float(text) if "_" not in text else math.nan
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UnreadableLine(f"the {what} is not a number")
    return number
