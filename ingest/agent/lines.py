"""Points, and their text in Influx line protocol.

A ``Point`` is one measurement with its labels and fields; ``render`` writes it as one line with a time in milliseconds.
Integers have the suffix ``i``; floats are written with all digits that their bits need. Values that line protocol
cannot express (NaN, infinities) are left out, and so is a point without fields.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from spm import limits

_NAME = str.maketrans({",": r"\,", " ": r"\ "})
_INT_MAX = 1 << 63  # a whole number beyond it is written as a float
_TAG = str.maketrans({",": r"\,", " ": r"\ ", "=": r"\="})


@dataclass(frozen=True, slots=True)
class Point:
    """The values of one measurement at one time: that of the collection, unless ``at_ms`` is set."""

    measurement: str
    fields: Mapping[str, float]
    labels: Mapping[str, str] = field(default_factory=dict)
    at_ms: int | None = None


def render(points: Iterable[Point], *, labels: Mapping[str, str], at_ms: int) -> bytes:
    """Returns all points as lines with these common labels; ``at_ms`` is the time of points without one."""
    lines = (_line(point, labels, at_ms) for point in points)
    return "\n".join(line for line in lines if line).encode()


def split_bodies(
    batches: Iterable[tuple[int, Iterable[Point]]], *, labels: Mapping[str, str]
) -> Iterator[tuple[bytes, int]]:
    """Yields bodies of at most ``AGENT_BODY_BYTES_MAX``, each with its number of samples.

    ``batches``: points with the times of their collections. A line over ``LINE_BYTES_MAX`` is left out: no server
    accepts it.
    """
    lines: list[str] = []
    size = samples = 0
    for at_ms, points in batches:
        for point in points:
            line = _line(point, labels, at_ms)
            line_bytes = len(line.encode()) + 1
            if not line or line_bytes > limits.LINE_BYTES_MAX:
                continue
            if size + line_bytes > limits.AGENT_BODY_BYTES_MAX:
                yield "\n".join(lines).encode(), samples
                lines, size, samples = [], 0, 0
            lines.append(line)
            size += line_bytes
            samples += count_samples([point])
    if lines:
        yield "\n".join(lines).encode(), samples


def count_samples(points: Iterable[Point]) -> int:
    """Returns how many values ``render`` writes for these points."""
    return sum(math.isfinite(value) for point in points for value in point.fields.values())


def _line(point: Point, common: Mapping[str, str], at_ms: int) -> str:
    fields = ",".join(
        f"{_escape(name)}={_value(value)}" for name, value in point.fields.items() if math.isfinite(value)
    )
    if not fields:
        return ""
    labels = {**common, **point.labels}
    head = [_clean(point.measurement).translate(_NAME)]
    head += [f"{_escape(name)}={_escape(value)}" for name, value in sorted(labels.items()) if value]
    return f"{','.join(head)} {fields} {at_ms if point.at_ms is None else point.at_ms}"


def _value(value: float) -> str:
    is_integer = isinstance(value, int) and -_INT_MAX <= value < _INT_MAX
    return f"{int(value)}i" if is_integer else repr(float(value))


def _escape(text: str) -> str:
    return _clean(text).translate(_TAG)


def _clean(text: str) -> str:
    """Returns the text without line ends, control characters and a final backslash, which would escape the next one."""
    printable = "".join(sign if sign.isprintable() else "_" for sign in text)
    return printable[:-1] + "_" if printable.endswith("\\") else printable
