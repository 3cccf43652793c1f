"""Reads line protocol that commands print, so that labels can be added and nothing is sent without a check.

Numbers and booleans are kept; texts are left out, because the server stores none. Times may be of any unit: their size
distinguishes nanoseconds, the unit of the protocol, from milliseconds and seconds. Enter by ``read_lines``.
"""

import re
from collections.abc import Sequence

from ingest.agent.lines import Point
from spm import limits

_KEY = r"(?:[^,= \\]|\\.)+"
_HEAD = re.compile(rf"((?:[^, \\]|\\.)+)((?:,{_KEY}=(?:[^, \\=]|\\.)+)*) +(.+)")
_TAG = re.compile(rf",({_KEY})=((?:[^, \\=]|\\.)+)")
_FIELD = re.compile(rf'({_KEY})=("(?:[^"\\]|\\.)*"|[^, ]+)')
_UNESCAPED = re.compile(r"\\([,= \\])")
_TRUTHS = {"t": 1, "true": 1, "f": 0, "false": 0}


def read_lines(text: str) -> tuple[Sequence[Point], Sequence[str]]:
    """Returns the points, and the beginnings of bad lines."""
    points: list[Point] = []
    bad: list[str] = []
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        point = read_line(line.strip()) if len(line) <= limits.LINE_BYTES_MAX else None
        if point is None:
            bad.append(line[:80])
        else:
            points.append(point)
    return points, bad


def read_line(line: str) -> Point | None:
    """Reads ``cpu,core=0 busy=12.5,idle=3i 1700000000``; None if the line is no point."""
    head = _HEAD.fullmatch(line)
    if head is None:
        return None
    fields: dict[str, float] = {}
    at, rest = 0, head[3]
    while (field := _FIELD.match(rest, at)) is not None:
        value = _value(field[2])
        if value is None and not field[2].startswith('"'):
            return None
        if value is not None:
            fields[_plain(field[1])] = value
        at = field.end()
        if rest[at : at + 1] != ",":
            break
        at += 1
    time = rest[at:].strip()
    if at == 0 or (time and not time.lstrip("-").isdigit()) or len(time) > 20 or not fields:
        return None
    labels = {_plain(key): _plain(value) for key, value in _TAG.findall(head[2])}
    return Point(_plain(head[1]), fields, labels, _ms(int(time)) if time else None)


def _value(text: str) -> float | None:
    if text.lower() in _TRUTHS:
        return _TRUTHS[text.lower()]
    try:
        if text[-1:] in "iu" and text[:-1].lstrip("+-").isdigit():
            return int(text[:-1])
        return None if "_" in text else float(text)
    except ValueError:
        return None


def _ms(time: int) -> int:
    """Converts seconds (until 2286), milliseconds, microseconds or nanoseconds; the size of the number decides."""
    for digits, factor in ((10**10, 1_000), (10**13, 1)):
        if abs(time) < digits:
            return time * factor
    return time // 1_000 if abs(time) < 10**16 else time // 1_000_000


def _plain(text: str) -> str:
    return _UNESCAPED.sub(r"\1", text)
