"""Reads OpenTSDB's telnet-style lines: ``put sys.cpu.user 1700000000 1.5 host=a cpu=0``. Pure.

The name stays as written, with its dots; tags become labels. A time of up to ten digits is in seconds, also with a
fraction; a longer one in ms. A value that is no finite number is rejected. Enter by ``OpenTsdb``.
"""

from ingest.agent.lines import Point
from ingest.sidecar.intake import UnreadableLine
from ingest.sidecar.point_lines import PointLines, finite_number, labels_of

_SECOND_MAX = 9_999_999_999
_MAX_MS = 1e14


class OpenTsdb(PointLines):
    """Reads one point per line."""

    def __init__(self) -> None:
        super().__init__(read)


def read(line: str, now_ms: int) -> Point:
    """Returns the point of a line; its time is always in the line, so ``now_ms`` has no effect."""
    word, *parts = line.split() or [""]
    if word != "put" or len(parts) < 3:
        raise UnreadableLine("not put, name, time and value")
    name, time, value, *pairs = parts
    number = finite_number(time, "time")
    at_ms = round(number * 1_000 if number <= _SECOND_MAX else number)
    if not 0 < at_ms < _MAX_MS:
        raise UnreadableLine("the time is out of range")
    return Point(name, {"value": finite_number(value, "value")}, labels_of(pairs), at_ms)
