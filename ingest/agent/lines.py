"""Points, and their form in Influx line protocol.

A ``Point`` is one measurement with its tags and fields; ``render`` writes it as one line with a time in milliseconds.
Whole numbers carry the suffix ``i``; floats are written so that reading them back gives the same bits. Values that line
protocol cannot carry (NaN, infinities) are left out, and so is a point without fields.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

_NAME = str.maketrans({",": r"\,", " ": r"\ "})
_TAG = str.maketrans({",": r"\,", " ": r"\ ", "=": r"\="})


@dataclass(frozen=True, slots=True)
class Point:
    """What one measurement is at one time."""

    measurement: str
    fields: Mapping[str, float]
    tags: Mapping[str, str] = field(default_factory=dict)


def render(points: Iterable[Point], *, tags: Mapping[str, str], at_ms: int) -> bytes:
    """All points as lines, each with the common ``tags`` and the same time."""
    lines = (_line(point, tags, at_ms) for point in points)
    return "\n".join(line for line in lines if line).encode()


def samples_in(points: Iterable[Point]) -> int:
    """How many values ``render`` writes for these points."""
    return sum(math.isfinite(value) for point in points for value in point.fields.values())


def _line(point: Point, common: Mapping[str, str], at_ms: int) -> str:
    fields = ",".join(f"{_tag(name)}={_value(value)}" for name, value in point.fields.items() if math.isfinite(value))
    if not fields:
        return ""
    tags = {**common, **point.tags}
    head = [_clean(point.measurement).translate(_NAME)]
    head += [f"{_tag(name)}={_tag(value)}" for name, value in sorted(tags.items()) if value]
    return f"{','.join(head)} {fields} {at_ms}"


def _value(value: float) -> str:
    return f"{value}i" if isinstance(value, int) else repr(float(value))


def _tag(text: str) -> str:
    return _clean(text).translate(_TAG)


def _clean(text: str) -> str:
    """Without line ends and control signs, and without a last backslash, which would escape what follows it."""
    printable = "".join(sign if sign.isprintable() else "_" for sign in text)
    return printable[:-1] + "_" if printable.endswith("\\") else printable
